"""NumPy data types for packed elements: `float8_e4m3fn_x4` and the like.

NumPy has no such types, and `ml_dtypes` only those of their values. They are registered through
NumPy's public C interface (numpy/ndarraytypes.h: PyArray_RegisterDataType), once a process, under
their own names: `str(array.dtype)` is "float8_e4m3fn_x4", and after the first registration
`numpy.zeros(shape, "float8_e4m3fn_x4")` works. Elements are copied whole and read as integers,
their words; there is no conversion to or from numbers (TypeError). `array.view("uint32")` gives the
words.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_Pointer = ctypes.c_void_p

# Entries of NumPy's table of C functions (numpy/__multiarray_api.h).
_DESCR_FROM_TYPE = 45
_REGISTER_DATA_TYPE = 192
_INIT_ARR_FUNCS = 195
_GET_ARR_FUNCS = 365  # from 2.0 on

_USE_GETITEM_AND_SETITEM = 0x20 | 0x40
_CASTS, _SORTS = 21, 3

_GetItem = ctypes.PYFUNCTYPE(ctypes.py_object, _Pointer, _Pointer)
_SetItem = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, _Pointer, _Pointer)


class _ArrFuncs(ctypes.Structure):
    """PyArray_ArrFuncs."""

    _fields_ = (
        ("cast", _Pointer * _CASTS),
        ("getitem", _GetItem),
        ("setitem", _SetItem),
        ("copyswapn", _Pointer),
        ("copyswap", _Pointer),
        ("compare", _Pointer),
        ("argmax", _Pointer),
        ("dotfunc", _Pointer),
        ("scanfunc", _Pointer),
        ("fromstr", _Pointer),
        ("nonzero", _Pointer),
        ("fill", _Pointer),
        ("fillwithscalar", _Pointer),
        ("sort", _Pointer * _SORTS),
        ("argsort", _Pointer * _SORTS),
        ("castdict", _Pointer),
        ("scalarkind", _Pointer),
        ("cancastscalarkindto", _Pointer),
        ("cancastto", _Pointer),
        ("unused", _Pointer * 3),
        ("argmin", _Pointer),
    )


class _DescrProto(ctypes.Structure):
    """PyArray_DescrProto, which is PyArray_Descr before NumPy 2.0."""

    _fields_ = (
        ("ob_refcnt", ctypes.c_ssize_t),
        ("ob_type", _Pointer),
        ("typeobj", _Pointer),
        ("kind", ctypes.c_char),
        ("type", ctypes.c_char),
        ("byteorder", ctypes.c_char),
        ("flags", ctypes.c_char),
        ("type_num", ctypes.c_int),
        ("elsize", ctypes.c_int),
        ("alignment", ctypes.c_int),
        ("subarray", _Pointer),
        ("fields", _Pointer),
        ("names", _Pointer),
        ("f", ctypes.POINTER(_ArrFuncs)),
        ("metadata", _Pointer),
        ("c_metadata", _Pointer),
        ("hash", ctypes.c_ssize_t),
    )


_KEPT: dict[str, tuple[Any, ...]] = {}
"""What NumPy keeps pointers to, for as long as the process lives."""


@cache
def packed_dtype(name: str, size: int) -> np.dtype[Any]:
    """The NumPy data type `name` of elements of `size` bytes (2 or 4), registered at first use.

    >>> dtype = packed_dtype("float8_e4m3fn_x4", 4)
    >>> str(dtype), dtype.itemsize
    ('float8_e4m3fn_x4', 4)
    >>> import numpy as np
    >>> words = np.zeros(2, "float8_e4m3fn_x4")
    >>> words.view(np.uint32)[:] = [1, 0x38383838]
    >>> print(words)
    [1 943208504]
    """
    import numpy

    scalar = type(name, (numpy.generic,), {"__slots__": (), "__module__": __name__})
    word = numpy.dtype(f"u{size}")
    table = _functions()
    funcs = _ArrFuncs()
    _entry(table, _INIT_ARR_FUNCS, None, ctypes.POINTER(_ArrFuncs))(ctypes.byref(funcs))
    base = _funcs_of(word, table)
    funcs.copyswap, funcs.copyswapn = base.copyswap, base.copyswapn
    funcs.nonzero = base.nonzero
    get, store = _item_functions(size)
    funcs.getitem, funcs.setitem = get, store
    prototype = _DescrProto(
        ob_refcnt=1,
        ob_type=id(numpy.dtype),
        typeobj=id(scalar),
        kind=b"V",
        type=b"x",
        byteorder=b"=",
        flags=bytes([_USE_GETITEM_AND_SETITEM]),
        elsize=size,
        alignment=size,
        f=ctypes.pointer(funcs),
        hash=-1,
    )
    _KEPT[name] = scalar, funcs, get, store, prototype
    register = _entry(table, _REGISTER_DATA_TYPE, ctypes.c_int, ctypes.POINTER(_DescrProto))
    number = register(ctypes.byref(prototype))
    dtype: np.dtype[Any] = _entry(table, _DESCR_FROM_TYPE, ctypes.py_object, ctypes.c_int)(number)
    names: dict[str, Any] = numpy.sctypeDict  # type: ignore[assignment]
    names[name] = dtype
    return dtype


def _item_functions(size: int) -> tuple[Any, Any]:
    """How NumPy reads one element, as its word, and writes one."""

    def get(data: int, array: int) -> int:
        return int.from_bytes(ctypes.string_at(data, size), sys.byteorder)

    def store(value: Any, data: int, array: int) -> int:
        try:
            word = int(value) & (1 << 8 * size) - 1
        except (TypeError, ValueError):
            return -1  # NumPy raises an error
        ctypes.memmove(data, word.to_bytes(size, sys.byteorder), size)
        return 0

    return _GetItem(get), _SetItem(store)


def _functions() -> Any:
    """NumPy's table of C functions."""
    import numpy

    core = numpy._core if hasattr(numpy, "_core") else numpy.core
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = _Pointer
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    capsule = core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]
    return ctypes.cast(pointer(capsule, None), ctypes.POINTER(_Pointer))


def _entry(table: Any, index: int, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)(table[index])


def _funcs_of(dtype: np.dtype[Any], table: Any) -> _ArrFuncs:
    """The functions of a type that NumPy has."""
    import numpy

    if int(numpy.__version__.partition(".")[0]) < 2:
        return ctypes.cast(id(dtype), ctypes.POINTER(_DescrProto)).contents.f.contents
    get = _entry(table, _GET_ARR_FUNCS, ctypes.POINTER(_ArrFuncs), ctypes.py_object)
    found: _ArrFuncs = get(dtype).contents
    return found
