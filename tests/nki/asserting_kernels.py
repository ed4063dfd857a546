"""Kernels that assert what tensors hold (pytest writes the asserts of test files anew)."""

from typing import Any

import nki.language as nl


def stored(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def sum_is(a: Any, expected: Any) -> Any:
    """As the examples of the SDK's pages, which add tiles of 3.0 and 2.0."""
    c = nl.add(nl.load(a), 2.0)
    for _ in range(2):
        assert nl.equal(c, nl.load(expected)), "another sum"
    return stored(c)


def one_element_is(a: Any, expected: Any) -> Any:
    assert nl.equal(nl.load(a[0:1, 0:1]), nl.load(expected[0:1, 0:1]))
    return stored(nl.load(a))


def there_are_tensors(a: Any, zeros: Any) -> Any:
    """Zeros are tensors, too; `loaded` makes one elsewhere."""

    def loaded(tensor: Any) -> Any:
        return nl.load(tensor) if tensor else None

    tile = nl.load(zeros)
    assert a and zeros
    assert tile
    assert loaded(zeros)
    if tile and zeros:
        tile = nl.load(a)
    return stored(tile)


def branch(a: Any, expected: Any) -> Any:
    if nl.equal(nl.load(a), nl.load(expected)):
        return stored(nl.load(a))
    return None


def refused_assert(a: Any, expected: Any) -> Any:
    assert not nl.equal(nl.load(a), nl.load(expected))
    return stored(nl.load(a))


def conversion(a: Any, expected: Any) -> Any:
    return stored(nl.load(a)) if bool(nl.equal(nl.load(a), nl.load(expected))) else None
