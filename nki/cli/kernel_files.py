"""FILE:KERNEL on the command line: import a file by its path and find a kernel in it."""

from __future__ import annotations

import difflib
import inspect
import os
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from isa.errors import NeuronError
from isa.wording import did_you_mean
from nki.cli.options import KernelChoice
from nki.kernel import Kernel, as_kernel
from nki.settings import target as resolve_target


@dataclass(frozen=True, slots=True)
class Reference:
    """`FILE:KERNEL`, or a container (`k.neff`) when `kernel` is None and `file` no Python file."""

    file: str
    kernel: str | None

    @property
    def is_container(self) -> bool:
        return self.kernel is None and not self.file.endswith(".py")


def read_reference(text: str) -> Reference:
    """The parts of `FILE:KERNEL` or `FILE`. Raises file-not-found when there is no such file."""
    file, colon, kernel = text.rpartition(":")
    reference = Reference(file, kernel) if colon else Reference(text, None)
    if colon and os.path.isfile(text):
        reference = Reference(text, None)
    if not os.path.isfile(reference.file):
        found = "is a folder" if os.path.isdir(reference.file) else "does not exist"
        raise NeuronError("file-not-found", f"{reference.file or text!r} {found}")
    if reference.kernel is not None and not reference.file.endswith(".py"):
        raise NeuronError(
            "unknown-kernel",
            f"{reference.file} is no Python file, so that it holds no {reference.kernel}",
            hint="Name a file that ends in .py, or a container without a kernel: FILE.neff.",
        )
    return reference


def load_kernel(reference: Reference, choice: KernelChoice) -> Kernel:
    """The kernel that a reference names, for the target, cores and transformations of a choice.

    A plain function is taken as a kernel. Without a name, the file's only kernel is meant. Raises
    unknown-target; unknown-kernel, with the names of the file's kernels; and whatever the file
    itself raises.
    """
    resolve_target(choice.target)
    module = load_module(reference.file)
    name = reference.kernel
    if name is None:
        name = _only_kernel(module, reference.file)
    found = _find(module, name, reference.file)
    kernel = as_kernel(found)[choice.cores].on(choice.target)
    transformations = choice.transformations
    return kernel.with_transformations(*transformations) if transformations else kernel


def load_function(text: str, kernel_file: str) -> Callable[..., Any]:
    """`FUNCTION` in the kernel's file, or `FILE:FUNCTION`. Raises unknown-function, file-not-found
    and whatever the file itself raises."""
    file, colon, name = text.rpartition(":")
    if colon:
        read_reference(text)
    else:
        file = kernel_file
    module = load_module(file)
    found = vars(module).get(name)
    if not callable(found):
        raise _no_function(module, name, file)
    return found.function if isinstance(found, Kernel) else found


def _no_function(module: ModuleType, name: str, file: str) -> NeuronError:
    """The error for an `--expect` that names none of the functions of a file."""
    names = [
        other
        for other, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    return NeuronError(
        "unknown-function",
        f"{file} has no function {name!r}; its functions are {', '.join(names) or '(none)'}",
        hint=did_you_mean(name, names, cutoff=0.5),
    )


def load_module(file: str) -> ModuleType:
    """The module that a Python file defines, imported once a process.

    It gets a private name, so that it hides no other module; its folder joins the end of
    `sys.path`, so that it can import its neighbours.
    """
    path = os.path.abspath(file)
    name = f"_nki_file_{zlib.crc32(path.encode()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        with open(path, encoding="utf-8") as source:
            code = compile(source.read(), file, "exec", dont_inherit=True)
    except (OSError, UnicodeDecodeError) as error:
        raise NeuronError("file-not-found", f"{file} cannot be read: {error}") from error
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module  # dataclasses and pickle look a class's module up
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def kernel_names(module: ModuleType) -> list[str]:
    """The kernels at the top level of a module, in the order of the file."""
    return [name for name, value in vars(module).items() if isinstance(value, Kernel)]


def _only_kernel(module: ModuleType, file: str) -> str:
    names = kernel_names(module)
    if len(names) == 1:
        return names[0]
    raise NeuronError(
        "unknown-kernel",
        f"{file} names no kernel, and the file holds {', '.join(names) or 'none'}",
        hint=f"Write {file}:{names[0]}." if names else "",
    )


def _find(module: ModuleType, name: str, file: str) -> Any:
    found = vars(module).get(name)
    if callable(found):
        return found
    names = kernel_names(module)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    ordered = close + [other for other in names if other not in close]
    what = f"{file} has no kernel {name!r}"
    if name in vars(module):
        what = f"{name} in {file} is a {type(found).__name__}, not a function"
    raise NeuronError(
        "unknown-kernel",
        f"{what}; its kernels are {', '.join(ordered)}" if ordered else f"{what}, and no kernels",
        hint=f"Did you mean {file}:{close[0]}?" if close else "",
    )
