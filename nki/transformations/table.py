"""The transformations by name, and how texts name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

from isa.errors import NeuronError
from nki.ir.nodes import TracedKernel
from nki.transformations.copies import BalanceCopies
from nki.transformations.hoist import Hoist
from nki.transformations.in_psum import ReadInPsum
from nki.transformations.reuse import ReuseLoads, ReuseWork
from nki.transformations.squares import SquaresOnVector


class Transformation(Protocol):
    """A rewrite of the tile IR with its options.

    >>> hoist: Transformation = Hoist("weights")
    >>> hoist
    Hoist(of='weights')
    """

    def run(self, kernel: TracedKernel) -> TracedKernel: ...


TRANSFORMATIONS: Mapping[str, type[Transformation]] = MappingProxyType(
    {
        "hoist": Hoist,
        "reuse-loads": ReuseLoads,
        "reuse-work": ReuseWork,
        "read-in-psum": ReadInPsum,
        "squares-on-vector": SquaresOnVector,
        "balance-copies": BalanceCopies,
    }
)
"""Every transformation by its name. Their options are `of`, the name of a tensor, and `uses`."""

_TEXT = re.compile(r"(?P<name>[a-z-]+)(:(?P<of>[\w./]+))?(=(?P<uses>[1-9]\d*))?")


def transformations(texts: Iterable[str]) -> tuple[Transformation, ...]:
    """What texts name. Raises value-not-allowed.

    >>> transformations(["reuse-loads:lhs_t=3", "squares-on-vector"])
    (ReuseLoads(of='lhs_t', uses=3), SquaresOnVector())
    """
    if isinstance(texts, str):
        texts = (texts,)
    return tuple(map(_one, texts))


def _one(text: str) -> Transformation:
    match = _TEXT.fullmatch(str(text))
    made = TRANSFORMATIONS.get(match["name"]) if match else None
    if match is None or made is None:
        raise _refused(f"{text!r} is no transformation")
    options = {"of": match["of"], "uses": match["uses"] and int(match["uses"])}
    given = {name: value for name, value in options.items() if value is not None}
    known = getattr(made, "__dataclass_fields__", {})
    for name in given:
        if name not in known:
            what = "tensor" if name == "of" else "number"
            raise _refused(f"{text!r}: {match['name']} takes no {what}")
    return made(**given)


def _refused(what: str) -> NeuronError:
    return NeuronError(
        "value-not-allowed",
        what,
        why="A transformation is NAME, NAME:TENSOR or NAME:TENSOR=NUMBER, where its page has them.",
        hint="Names are " + ", ".join(TRANSFORMATIONS) + ".",
    )


def transformed(kernel: TracedKernel, chosen: Iterable[Transformation]) -> TracedKernel:
    """A traced kernel after transformations, in order; itself without any.

    >>> import nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     nl.store(a, nl.load(a))
    >>> traced = kernel.trace(nki.TensorSpec((128, 8), nl.float32))
    >>> transformed(traced, []) is traced
    True
    >>> transformed(traced, transformations(["hoist"])).name
    'kernel'
    """
    results = kernel.results
    for one in chosen:
        kernel = one.run(kernel)
    assert kernel.results is results
    return kernel
