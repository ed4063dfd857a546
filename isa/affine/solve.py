"""Index forms and sympy, and launch symbols from the shapes of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isa.affine.polynomial import Polynomial
from isa.affine.symbol import Symbol
from isa.affine.values import evaluate, refused, symbols_of
from isa.errors import NeuronError


def to_sympy(value: Any) -> Any:
    """An int's or polynomial's expression in sympy; floor divisions as `floor(a / b)`."""
    import sympy

    if not isinstance(value, Polynomial):
        return sympy.Integer(value)
    total = sympy.Integer(0)
    for monomial, coefficient in value.terms:
        term = sympy.Integer(coefficient)
        for atom in monomial:
            if isinstance(atom, Symbol):
                term *= atom.sympy / atom.multiple_of
            else:
                left, right = (to_sympy(x) for x in atom.operands)
                if atom.kind == "floordiv":
                    term *= sympy.floor(left / right)
                else:
                    term *= (sympy.Min if atom.kind == "min" else sympy.Max)(left, right)
        total += term
    return total


def solve_shape(
    declared: Sequence[Sequence[Any]], actual: Sequence[Sequence[int]]
) -> dict[str, int]:
    """The values of the launch symbols that make declared shapes the actual ones.

    `declared` holds one shape of ints and Polynomials an input, `actual` one of ints. Raises
    shape-mismatch (ranks or sizes differ), shape-unsolved (a symbol is not determined), and
    guard-refused (a symbol does not admit its value).

    >>> from isa.affine import polynomial
    >>> M = polynomial(Symbol("M", 8192, multiple_of=128))
    >>> solve_shape([(M, 64), (2 * M,)], [(256, 64), (512,)])
    {'M': 256}
    """
    if len(declared) != len(actual):
        raise NeuronError("shape-mismatch", f"{len(actual)} inputs given, {len(declared)} expected")
    equations: list[tuple[int, int, Polynomial, int]] = []
    for number, (form, sizes) in enumerate(zip(declared, actual)):
        if len(form) != len(sizes):
            raise _mismatch(number, form, sizes)
        for axis, (dim, size) in enumerate(zip(form, sizes)):
            if isinstance(dim, Polynomial):
                equations.append((number, axis, dim, int(size)))
            elif dim != size:
                raise _mismatch(number, form, sizes)
    symbols = sorted({s for e in equations for s in symbols_of(e[2])}, key=lambda s: s.key)
    binding = _solve_single(equations)
    unknown = [s for s in symbols if s.name not in binding]
    if unknown:
        binding.update(_solve_jointly(equations, unknown, binding))
    for symbol in symbols:
        if not symbol.admits(binding[symbol.name]):
            number, axis = next(e[:2] for e in equations if symbol in symbols_of(e[2]))
            where = f"dimension {axis} of input {number}"
            raise refused(symbol, binding[symbol.name], where)
    for number, _, dim, size in equations:
        if evaluate(dim, binding) != size:
            raise _mismatch(number, declared[number], actual[number], binding)
    return binding


def _mismatch(
    number: int, form: Sequence[Any], sizes: Sequence[int], binding: Mapping[str, int] | None = None
) -> NeuronError:
    shape = ", ".join(str(d) for d in form)
    given = ", ".join(str(s) for s in sizes)
    where = f" with {', '.join(f'{n} = {v}' for n, v in binding.items())}" if binding else ""
    return NeuronError(
        "shape-mismatch", f"input {number} has shape ({given}), expected ({shape}){where}"
    )


def _solve_single(equations: list[tuple[int, int, Polynomial, int]]) -> dict[str, int]:
    """Symbols that stand alone in a dimension, a * symbol + b."""
    binding: dict[str, int] = {}
    for _, _, dim, size in equations:
        terms = [(m, c) for m, c in dim.terms if m]
        if len(terms) != 1 or len(terms[0][0]) != 1 or not isinstance(terms[0][0][0], Symbol):
            continue
        symbol, coefficient = terms[0][0][0], terms[0][1]
        if symbol.name in binding:
            continue
        value = (size - dict(dim.terms).get((), 0)) * symbol.multiple_of
        if value % coefficient:
            raise NeuronError(
                "guard-refused",
                f"no {symbol.name} makes {dim} equal {size}: {symbol.name} is {symbol.condition}",
            )
        binding[symbol.name] = value // coefficient
    return binding


def _solve_jointly(
    equations: list[tuple[int, int, Polynomial, int]],
    unknown: list[Symbol],
    binding: dict[str, int],
) -> dict[str, int]:
    import sympy

    known = {sympy.Symbol(n, integer=True, positive=True): v for n, v in binding.items()}
    system = [sympy.Eq(dim.sympy.subs(known), size) for _, _, dim, size in equations]
    system = [e for e in system if e not in (sympy.true, sympy.false)]
    wanted = [s.sympy for s in unknown]
    try:
        found = sympy.solve(system, wanted, dict=True) if system else []
    except NotImplementedError:  # sympy's word for equations it has no method for
        found = []
    solutions = [
        {s.name: int(f[s.sympy]) for s in unknown}
        for f in found
        if all(s.sympy in f and f[s.sympy].is_Integer for s in unknown)
    ]
    admitted = [f for f in solutions if all(s.admits(f[s.name]) for s in unknown)]
    if len(admitted) == 1:
        return admitted[0]
    if len(solutions) == 1:
        return solutions[0]
    names = ", ".join(s.name for s in unknown)
    dims = ", ".join(f"{dim} = {size}" for _, _, dim, size in equations)
    raise NeuronError("shape-unsolved", f"{names} does not follow from the input shapes: {dims}")
