"""`nki doctor`: is the installation whole, and is nothing in its way.

Uses no other package of this project before it knows that the ones found are ours.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from nki.cli import options
from nki.cli.exit_codes import CHECK_FAILED, OK
from nki.report import Facts, Report, Section, Table
from nki.shadowed import DISTRIBUTION, PACKAGES, is_ours, location, problem, way_out

LIBRARIES = ("numpy", "ml_dtypes", "llvmlite", "platformdirs", "sympy", "click", "rich", "protobuf")
_VENDOR = ("neuronx-cc", "neuronxcc", "nki", "neuronx-cc-stubs")
_X86_FEATURES = ("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16")
_FEATURES = (*_X86_FEATURES, "avx512_fp16", "amx_bf16", "asimd", "bf16", "sve")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the way: what it is, and what to do."""

    what: str
    hint: str

    def __str__(self) -> str:
        return f"problem: {self.what}\n    try: {self.hint}"


@click.command("doctor")
@options.presented
@click.pass_context
def doctor_command(context: click.Context) -> int:
    """Check the installation and the environment.

    Shows which packages are imported and from where, and whether threads share large jobs just now,
    which depends on how many CPUs other processes use. Ends with exit code 1 when another package
    hides one of ours.
    """
    places = {name: location(name) for name in PACKAGES}
    problems = find_problems(places, Path.cwd())
    data: dict[str, Any] = {
        "packages": places,
        "version": _distribution_version(DISTRIBUTION),
        "command": shutil.which("nki"),
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "libraries": {name: _distribution_version(name) for name in LIBRARIES},
        "cpu": {"model": _cpu()[0], "cores": os.cpu_count(), "features": _cpu()[1]},
        "target": None if problems else _target(),
        "threads": None if problems else _threads(),
        "notes": _vendor_notes(),
        "problems": [{"what": p.what, "hint": p.hint} for p in problems],
    }
    options.show(context, Report(data, _sections(data, problems)))
    return (CHECK_FAILED if problems else OK).number


def find_problems(places: dict[str, str | None], here: Path) -> list[Problem]:
    """What hides, or could hide, our packages; `places` are their folders as imported."""
    root = Path(__file__).resolve().parents[2]
    problems = []
    for name, place in places.items():
        if place is None:
            problems.append(Problem(f"the package {name} is missing", f"Reinstall {DISTRIBUTION}."))
        elif not is_ours(place):
            problems.append(Problem(problem(name, place), way_out(name)))
    problems += _distribution_problems()
    if here.resolve() != root:
        for name in PACKAGES:
            for candidate in (here / name, here / f"{name}.py"):
                if (candidate / "__init__.py").is_file() or candidate.is_file():
                    problems.append(
                        Problem(
                            f"{candidate} shadows our package {name} for Python programs that "
                            "are started from this folder",
                            "Rename it, or start Python elsewhere.",
                        )
                    )
    return problems


def _distribution_problems() -> list[Problem]:
    """Other distributions that install one of our package names."""
    from importlib import metadata

    problems = []
    owners = metadata.packages_distributions()
    others = {
        (owner, name)
        for name in PACKAGES
        for owner in owners.get(name, [])
        if _normal(owner) != DISTRIBUTION
    }
    for owner, name in sorted(others):
        vendor = "the vendor's wheel " if _normal(owner) in map(_normal, _VENDOR) else ""
        problems.append(
            Problem(
                f"{vendor}{owner} {_distribution_version(owner)} also installs a package called "
                f"{name}: which of the two is imported depends on the path",
                f"Keep them in separate environments: pip uninstall {owner}.",
            )
        )
    return problems


def _vendor_notes() -> list[str]:
    """The vendor's tools that are installed beside ours."""
    versions = {name: _distribution_version(name) for name in _VENDOR}
    return [f"{n} {v}, the vendor's, is installed too" for n, v in versions.items() if v]


def _normal(distribution: str) -> str:
    return distribution.lower().replace("_", "-")


def _distribution_version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> tuple[str, list[str]]:
    """Model name, and those SIMD features of the CPU that matter here."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine(), []
    model, flags = platform.machine(), set()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        elif key.strip() in ("flags", "Features"):
            flags = set(value.split())
            break
    return model, [feature for feature in _FEATURES if feature in flags]


def _target() -> dict[str, Any]:
    """The default target and where it comes from."""
    from isa.errors import NeuronError
    from nki import settings

    try:
        return {"name": settings.target().name, "source": settings.target_source()}
    except NeuronError as error:
        return {"name": None, "source": error.what}


def _threads() -> dict[str, Any]:
    """How many threads share large jobs, and whether other processes leave CPUs for them."""
    from isa.errors import NeuronError
    from nki import settings
    from simulator.native.threads import other_processes

    try:
        wanted = settings.threads_wanted()
    except NeuronError as error:
        return {"wanted": None, "others_use": None, "share": False, "why": error.what}
    other_processes.others_use()
    time.sleep(2 * other_processes.SHORTEST)
    used = other_processes.others_use()
    share = wanted > 1 and not other_processes.busy(wanted)
    return {"wanted": wanted, "others_use": round(used, 2), "share": share, "why": ""}


def _threads_shown(threads: dict[str, Any]) -> str:
    if threads["wanted"] is None:
        return f"none ({threads['why']})"
    use = f"{threads['wanted']} wanted, other processes use {threads['others_use']:.1f} CPUs"
    return f"{use}: {'threads share large jobs' if threads['share'] else 'one thread works alone'}"


def _sections(data: dict[str, Any], problems: list[Problem]) -> list[Section]:
    rows = [(name, path or "missing") for name, path in data["packages"].items()]
    target = data["target"]
    facts = Facts.of(
        "",
        opennki=data["version"] or "not installed (run from a checkout)",
        command=data["command"] or "nki is not on PATH; use python -m nki.cli",
        python=f"{data['python']['version']} ({data['python']['executable']})",
        libraries=", ".join(f"{n} {v or 'missing'}" for n, v in data["libraries"].items()),
        cpu=f"{data['cpu']['model']}, {data['cpu']['cores']} threads",
        cpu_features=" ".join(data["cpu"]["features"]) or "unknown",
        threads=data["threads"] and _threads_shown(data["threads"]),
        default_target=target and f"{target['name'] or 'none'} ({target['source']})",
    )
    verdict = "\n".join([*(f"note: {note}" for note in data["notes"]), "no problems found"])
    if problems:
        verdict = "\n".join(str(problem) for problem in problems)
    return [Table.of("imported packages", ("package", "folder"), rows), facts, verdict]
