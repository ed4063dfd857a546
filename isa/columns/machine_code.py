"""Walks as machine code: numba compiles them once a machine, LLVM alone loads them from disk.

Loading numba takes longer than most walks do. So what numba makes of a function stays on disk as an
object file, behind the kinds of its results. In that file, `entry(words)` calls the function:

    words[0]     receives 0, or another number where the function raises an error
    words[1]     receives numba's description of the error
    words[2:10]  receive the results
    words[10:]   are the arguments: numbers, and of arrays what numba's functions take (`_enter`)
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from isa.object_cache import Cache, key_of

_RESULTS, _ARGUMENTS = 2, 10
"""Where results and arguments begin in the words."""

_KINDS = _ARGUMENTS - _RESULTS
"""Bytes before an object file: the kinds of the results, as `struct` calls them, then blanks."""

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_LOCK = threading.Lock()
"""LLVM and numba compile for one thread at a time."""

Walk = Callable[..., Any]


def walk_of(function: FunctionType, columns: tuple[Any, ...], compile_it: bool) -> Walk | None:
    """A function as machine code for columns of such types: arrays whose elements lie one behind
    the other, numbers, tuples of these. None where it is not on disk, unless `compile_it`."""
    types = _types(columns)
    with _LOCK:
        machine = _machine()
        found = machine.walks.get((function, types))
        if found is None:
            content = _content(function.__code__, function.__globals__)
            name = f"{function.__name__}_{key_of(repr((content, types)))}"
            kept = machine.cache.read(name)
            if kept is None and compile_it:
                kept = machine.compile(function, types, name)
                machine.cache.write(name, kept)
            if kept is not None:
                found = machine.walks[function, types] = machine.load(name, kept)
    return found


def _types(column: Any) -> Any:
    """The type of a column: data type and dimensions of an array, the class of a number."""
    if isinstance(column, np.ndarray):
        return f"{column.dtype.char}{column.ndim}"
    if isinstance(column, tuple):
        return tuple(map(_types, column))
    return float if isinstance(column, float) else int


def _content(code: CodeType, names: dict[str, Any]) -> tuple[Any, ...]:
    """What a function does: its code, and the global constants and functions that this names."""
    constants = [
        _content(one, names) if isinstance(one, CodeType) else repr(one) for one in code.co_consts
    ]
    known = [repr(names.get(name)) for name in code.co_names]
    return code.co_code, code.co_names, code.co_varnames, constants, known


class _Machine:
    """What compiles and loads for this CPU. `walks` are those that are loaded."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        numba = find_spec("numba")
        assert numba is not None and numba.submodule_search_locations
        folder = Path(numba.submodule_search_locations[0])
        for name, address in _runtime(folder).c_helpers.items():
            llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
        target = llvm.Target.from_default_triple()
        cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
        self._llvm = llvm
        self._target = target.create_target_machine(cpu=cpu, features=features, opt=3, jit=True)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._target)
        label = f"walks {sys.version} {target.triple} {cpu} {features}"
        self.cache = Cache(key_of(label, [folder / "_version.py"]))
        self.walks: dict[Any, Walk] = {}

    def compile(self, function: FunctionType, types: tuple[Any, ...], name: str) -> bytes:
        """A function compiled by numba, as it stays on disk."""
        import numba

        options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        compiled = numba.njit(**options)(function)
        compiled.compile(tuple(map(_numba_type, types)))
        (signature,) = compiled.signatures
        inner = compiled.overloads[signature]
        module = self._llvm.parse_assembly(compiled.inspect_llvm(signature))
        called = module.get_function(inner.fndesc.llvm_func_name)
        text = f"{module}\n{_entry(name, called)}"
        module = self._llvm.parse_assembly(text)
        module.verify()
        kinds = _kinds(inner.signature.return_type).ljust(_KINDS)
        code: bytes = self._target.emit_object(module)
        return kinds.encode() + code

    def load(self, name: str, kept: bytes) -> Walk:
        """What was kept on disk as a Python function."""
        self._engine.add_object_file(self._llvm.ObjectFileRef.from_data(kept[_KINDS:]))
        self._engine.finalize_object()
        entry = _ENTRY(self._engine.get_function_address(name))
        results = struct.Struct(kept[:_KINDS].decode().strip())

        def walk(*columns: Any) -> Any:
            words = [0] * _ARGUMENTS
            for column in columns:
                _enter(words, column)
            given = np.array(words, np.uint64)
            entry(given.ctypes.data)
            if given[0]:
                raise RuntimeError(f"{name} raised an error")
            found = results.unpack_from(given.data, 8 * _RESULTS)
            return found if len(found) > 1 else found[0] if found else None

        return walk


@cache
def _machine() -> _Machine:
    return _Machine()


def _runtime(numba: Path) -> ModuleType:
    """The part of numba that gives compiled functions memory for their lists."""
    if (loaded := sys.modules.get("numba.core.runtime._nrt_python")) is not None:
        return loaded
    spec = PathFinder.find_spec("_nrt_python", [str(numba / "core" / "runtime")])
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _numba_type(form: Any) -> Any:
    """A type of `_types` as numba has it."""
    from numba import from_dtype, types

    if isinstance(form, tuple):
        return types.BaseTuple.from_types([_numba_type(one) for one in form])
    if isinstance(form, str):
        return types.Array(from_dtype(np.dtype(form[:-1])), int(form[-1]), "C")
    return types.float64 if form is float else types.int64


def _kinds(result: Any) -> str:
    """The kinds of the numbers of a result, as `struct` calls them."""
    from numba import types

    if result == types.none:
        return ""
    numbers = getattr(result, "types", [result])  # those of a tuple
    return "".join("d" if one == types.float64 else "q" for one in numbers)


def _entry(name: str, function: Any) -> str:
    """LLVM assembly of the function that takes words and calls another one."""
    lines = [_address("results", _RESULTS), _address("error", 1)]
    values = ["ptr %results", "ptr %error"]
    for number, argument in enumerate(list(function.arguments)[2:]):
        kind, value = str(argument.type), f"%value{number}"
        lines.append(_address(f"at{number}", _ARGUMENTS + number))
        lines.append(f"{value} = load {kind}, ptr %at{number}")
        values.append(f"{kind} {value}")
    lines.append(f'%status = call i32 @"{function.name}"({", ".join(values)})')
    lines += ["store i32 %status, ptr %words", "ret void"]
    return "\n".join([f"define void @{name}(ptr %words) {{", *lines, "}\n"])


def _address(name: str, word: int) -> str:
    return f"%{name} = getelementptr i64, ptr %words, i64 {word}"


def _enter(words: list[int], column: Any) -> None:
    """Append the words of an argument. Those of an array are its owners, which are none, the number
    and the bytes of its elements, where they begin, and shape and strides."""
    if isinstance(column, np.ndarray):
        flags = column.flags
        if not flags.c_contiguous:
            raise ValueError("elements of a column do not lie one behind the other")
        words += 0, 0, column.size, column.itemsize
        if not column.size:
            words.append(0)
        elif flags.writeable:  # as a buffer, it says where it is three times as fast
            words.append(ctypes.addressof(ctypes.c_byte.from_buffer(column.data)))
        else:
            words.append(column.ctypes.data)
        words += *column.shape, *column.strides
    elif isinstance(column, tuple):
        for one in column:
            _enter(words, one)
    elif isinstance(column, float):
        words += struct.unpack("Q", struct.pack("d", column))
    else:
        words.append(int(column) & (1 << 64) - 1)
