"""Micro-kernels as functions: generated when first asked for, compiled, kept on disk.

A micro-kernel is a frozen dataclass whose fields say all that its code depends on; `text(name)`
gives its LLVM assembly. There is no pass pipeline: the text is written the way that it should run,
and compiling one takes milliseconds. Objects are cached by `isa.object_cache`.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from isa.object_cache import Cache, key_of
from simulator.native.codegen.levels import GENERATING, CpuLevel, levels, of_host

Function = Callable[[Any], None]
"""Takes a ctypes array of int64 argument words."""


class MicroKernel(Protocol):
    """What `Library.function` compiles."""

    def text(self, name: str) -> str:
        """The LLVM module with a function of this name."""


_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Library:
    """The functions of this process, for the CPU that it runs on or a lower `level` of it.

    `effort` is how hard LLVM works on code, 0 to 3: at 0 it compiles in a fourth of the time what
    runs slower, with the same results.
    """

    effort = 2

    def __init__(self, store: Cache | None = None, level: CpuLevel | None = None) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._llvm = llvm
        target = llvm.Target.from_default_triple()
        self.level = level or of_host(
            target.triple, llvm.get_host_cpu_name(), *_host_features(llvm)
        )
        cpu, features = self.level.cpu, self.level.features
        self._machine = target.create_target_machine(
            cpu=cpu, features=features, opt=self.effort, jit=True
        )
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._machine)
        version = ".".join(map(str, llvm.llvm_version_info))
        label = f"{target.triple} {cpu} {features} {version} {self.effort}"
        self._cache = store or Cache(key_of(label, _generator()))
        self._functions: dict[Any, Function] = {}

    @property
    def folder(self) -> Path:
        """Where compiled code is kept."""
        return self._cache.folder

    def function(self, kernel: MicroKernel) -> Function:
        """The compiled function of a micro-kernel."""
        function = self._functions.get(kernel)
        if function is None:
            function = self._functions[kernel] = self._load(kernel)
        return function

    def _load(self, kernel: MicroKernel) -> Function:
        name = f"kernel_{key_of(repr(kernel))}"
        code = self._cache.read(name)
        if code is None:
            token = GENERATING.set(self.level)
            text = kernel.text(name)
            GENERATING.reset(token)
            module = self._llvm.parse_assembly(text)
            module.verify()
            code = self._machine.emit_object(module)
            self._cache.write(name, code)
        self._engine.add_object_file(self._llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        function = _PROTOTYPE(self._engine.get_function_address(name))
        function.owner = self._engine  # type: ignore[attr-defined]  # whose memory the code is
        return function


def _host_features(llvm: Any) -> tuple[dict[str, bool], str]:
    host = llvm.get_host_cpu_features()
    return dict(host), host.flatten()


def host_levels() -> tuple[CpuLevel, ...]:
    """The levels that this CPU can run, its own last; none without LLVM."""
    try:
        import llvmlite.binding as llvm
    except ImportError:
        return ()
    llvm.initialize_native_target()
    triple = llvm.get_process_triple()
    features, flattened = _host_features(llvm)
    return levels(triple, of_host(triple, llvm.get_host_cpu_name(), features, flattened))


def _generator() -> list[Path]:
    """The files that determine the code of a micro-kernel."""
    root = Path(__file__).resolve().parents[3]
    files = [*(root / "simulator" / "native").rglob("*.py")]
    files += (root / "simulator" / "numerics").glob("*.py")
    return files + [root / "isa" / name for name in ("scalar.py", "alu.py", "dtypes.py")]


@cache
def library() -> Library | None:
    """The library of this process; None, and a warning once, where llvmlite does not work."""
    try:
        return Library()
    except (ImportError, OSError, RuntimeError) as error:
        warnings.warn(
            f"Native kernels are not available ({error}); NumPy computes instead.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
