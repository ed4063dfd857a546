"""An aarch64 Python under emulation, in one folder and without rights of root.

Debian's packages (a user-mode emulator for this machine, Python and its libraries for arm64) are
unpacked into the folder, and the wheels for aarch64 of the packages that this environment has, in
the same releases, are put beside them. `prepare` gives a program that starts like any Python: it is
a script that starts the emulator, and stands where Python believes itself to be, so that processes
which tests start with `sys.executable` are emulated too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

FOREIGN = ("python3", "libstdc++6", "libgomp1")
"""Debian packages for arm64; apt adds what these need."""

EMULATOR = "qemu-user-static"

TESTING = ("pytest", "pytest-xdist", "hypothesis")
"""What tests need of the packages for development."""

PLATFORMS = tuple(f"manylinux{one}_aarch64" for one in ("2014", "_2_17", "_2_27", "_2_28"))

PACKAGES = "usr/lib/python3/dist-packages"
"""Where Debian's Python looks for packages."""

APT = """
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; "{own}"; }};
Dir::State "{state}";
Dir::State::status "{state}/status";
Dir::State::Lists "{state}/lists";
Dir::Cache "{state}";
Debug::NoLocking "true";
APT::Sandbox::User "";
"""


class Unavailable(Exception):
    """The packages cannot be had here; the text says why."""


def prepare(folder: Path) -> Path:
    """The emulated Python of a folder, which is made where it is not there or of other releases.

    Raises Unavailable.
    """
    wheels = _wheels()
    recipe = sha256(repr((FOREIGN, EMULATOR, wheels)).encode()).hexdigest()
    made, machine = folder / "recipe", folder / "machine"
    if made.exists() and made.read_text() == recipe:
        _find_checkout(machine)
        return _program(machine)
    for tool in ("apt-get", "dpkg-deb", "dpkg"):
        if shutil.which(tool) is None:
            raise Unavailable(f"there is no {tool}: the packages are Debian's")
    shutil.rmtree(folder, ignore_errors=True)
    _unpack(folder / "apt", machine)
    python = _starter(machine)
    _install(machine, wheels)
    _find_checkout(machine)
    made.write_text(recipe)
    return python


def _program(machine: Path) -> Path:
    return machine / "usr" / "bin" / "python-emulated"


def _wheels() -> list[str]:
    """The project's requirements in the releases of this environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in project["dependencies"]]
    return [f"{name}=={version(name)}" for name in (*names, *TESTING)]


def _run(command: Sequence[str | Path], **more: str) -> str:
    """What a program prints. Raises Unavailable with the end of what it complains of."""
    environment = {**os.environ, **more}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-400:]
        raise Unavailable(f"{Path(command[0]).name} ended with {done.returncode}: {said}")
    return done.stdout


def _unpack(state: Path, machine: Path) -> None:
    """Debian's packages, fetched by an apt that has a state of its own."""
    for name in ("lists/partial", "archives/partial"):
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    own = _run(["dpkg", "--print-architecture"]).strip()
    settings = state / "apt.conf"
    settings.write_text(APT.format(own=own, state=state))
    quiet: Mapping[str, str] = {"APT_CONFIG": str(settings)}
    _run(["apt-get", "--quiet", "update"], **quiet)
    fetch = ("--yes", "--quiet", "--no-install-recommends", "--download-only")
    _run(["apt-get", "install", *fetch, *FOREIGN, f"{EMULATOR}:{own}"], **quiet)
    machine.mkdir()
    for package in sorted((state / "archives").glob("*.deb")):
        _run(["dpkg-deb", "--extract", package, machine])
    shutil.rmtree(state)
    if not (machine / "lib").exists():  # where Debian has it in /usr alone
        (machine / "lib").symlink_to("usr/lib")


def _starter(machine: Path) -> Path:
    """Writes the script that starts Python. The emulator hands it on as the program's own name."""
    binaries = machine / "usr" / "bin"
    emulator = next((x for x in sorted(binaries.glob("qemu-aarch64*")) if x.is_file()), None)
    if emulator is None:
        raise Unavailable(f"{EMULATOR} has no emulator of aarch64")
    python = (binaries / "python3").resolve()
    script = _program(machine)
    script.write_text(
        f'#!/bin/sh\nexec "{emulator}" -0 "{script}" -L "{machine}" "{python}" "$@"\n'
    )
    script.chmod(0o755)
    said = _run([script, "-c", "import platform; print(platform.machine())"]).strip()
    if said != "aarch64":
        raise Unavailable(f"the emulated Python says that it runs on {said}")
    return script


def _install(machine: Path, wheels: Sequence[str]) -> None:
    """Puts wheels for aarch64 where Python looks for packages."""
    tag = "{0.major}.{0.minor}"
    script = f"import sys; print({tag!r}.format(sys.version_info))"
    release = _run([_program(machine), "-c", script]).strip()
    platforms = [word for one in PLATFORMS for word in ("--platform", one)]
    chosen = ("--only-binary=:all:", "--implementation", "cp", "--python-version", release)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-warn-conflicts")
    _run([*pip, "--target", machine / PACKAGES, *platforms, *chosen, *wheels])


def _find_checkout(machine: Path) -> None:
    """Has Python find the project's packages in this checkout."""
    (machine / PACKAGES / "checkout.pth").write_text(f"{ROOT}\n")
