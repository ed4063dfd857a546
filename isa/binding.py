"""Binding: a program with launch symbols becomes a program of plain integers, for one launch.

A compiled program may hold polynomials in launch symbols wherever it holds an integer. `bind`
evaluates each of them once, after it has checked the sizes against what the program admits.
Instructions without a symbol are shared with the original program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from isa.access import AccessPattern
from isa.errors import NeuronError
from isa.program import CoreProgram, Program, TensorDeclaration
from isa.spec import Instruction


def is_bound(program: Program) -> bool:
    """Whether every field of `program` is a plain integer: it has no launch symbols left."""
    return not program.symbols


def bind(program: Program, values: Mapping[str, int]) -> Program:
    """The program for one launch, in which launch symbol `name` is `values[name]`.

    `program` stays as it is; a program without symbols is returned itself. Operands that were
    symbolic and become equal are one object. Raises NeuronError guard-refused when a symbol has no
    value, a value belongs to no symbol, or a value breaks a symbol's range or one of the guards.
    """
    _check_names(program, values)
    if is_bound(program):
        return program
    binding = {name: int(value) for name, value in values.items()}
    _check_ranges(program, binding)
    _check_guards(program, binding)
    binder = _Binder(binding)
    return replace(
        program,
        cores=[_bind_core(core, binder) for core in program.cores],
        tensors=[_bind_tensor(tensor, binder) for tensor in program.tensors],
        symbols=[],
        guards=[],
    )


def _assignment(binding: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(binding.items()))


def _check_names(program: Program, values: Mapping[str, int]) -> None:
    names = [symbol.name for symbol in program.symbols]
    missing = [name for name in names if name not in values]
    unknown = sorted(set(values) - set(names))
    if missing:
        raise NeuronError(
            "guard-refused",
            f"{program.name}: no value for launch symbol {', '.join(missing)}",
            why="Every launch symbol needs a value before the program can run.",
            hint=f"Bind all of: {', '.join(names)}.",
        )
    if unknown:
        raise NeuronError(
            "guard-refused",
            f"{program.name} has no launch symbol {', '.join(unknown)}",
            why="Only the launch symbols of the program can be given values.",
            hint=f"Its symbols: {', '.join(names) or 'none'}.",
        )


def _check_ranges(program: Program, binding: Mapping[str, int]) -> None:
    for symbol in program.symbols:
        if not symbol.admits(binding[symbol.name]):
            raise NeuronError(
                "guard-refused",
                f"{program.name} does not admit {_assignment(binding)}: "
                f"{symbol.name} must be {symbol.condition}",
            )


def _check_guards(program: Program, binding: Mapping[str, int]) -> None:
    from isa.affine import evaluate

    for guard in program.guards:
        if evaluate(guard.form, binding) < 0:
            location = guard.location
            if isinstance(location, int):
                location = program.locations[location] if location else None
            raise NeuronError(
                "guard-refused",
                f"{program.name} does not admit {_assignment(binding)}: it needs {guard.text}",
                location=location,
            )


def _bind_core(core: CoreProgram, binder: _Binder) -> CoreProgram:
    return replace(
        core,
        streams={
            engine: [binder.instruction(instruction) for instruction in stream]
            for engine, stream in core.streams.items()
        },
    )


def _bind_tensor(tensor: TensorDeclaration, binder: _Binder) -> TensorDeclaration:
    if all(type(number) is int for number in (*tensor.shape, tensor.offset)):
        return tensor
    shape = tuple(binder.integer(size) for size in tensor.shape)
    return replace(tensor, shape=shape, offset=binder.integer(tensor.offset))


class _Binder:
    """Evaluates fields under one binding; remembers operands by identity and by value."""

    def __init__(self, binding: Mapping[str, int]) -> None:
        from isa.affine import Polynomial, evaluate

        self._binding = binding
        self._evaluate = evaluate
        self._polynomial = Polynomial
        self._integers: dict[int, int] = {}
        self._by_identity: dict[int, AccessPattern] = {}
        self._by_value: dict[tuple[Any, ...], AccessPattern] = {}

    def integer(self, value: Any) -> Any:
        """`value` itself, or what it evaluates to if it is a polynomial."""
        if type(value) is not self._polynomial:
            return value
        known = self._integers.get(id(value))
        if known is None:
            known = self._integers[id(value)] = int(self._evaluate(value, self._binding))
        return known

    def instruction(self, instruction: Instruction) -> Instruction:
        values = instruction.values
        bound = tuple([v if type(v) in _PLAIN else self._value(v) for v in values])
        for new, old in zip(bound, values):
            if new is not old:
                return Instruction(
                    instruction.row,
                    instruction.engine,
                    bound,
                    instruction.waits,
                    instruction.updates,
                    instruction.location,
                )
        return instruction

    def _value(self, value: Any) -> Any:
        if type(value) is AccessPattern:
            known = self._by_identity.get(id(value))
            if known is None:
                known = self._by_identity[id(value)] = self._pattern(value)
            return known
        if type(value) is tuple:
            bound = tuple([self._value(item) for item in value])
            return value if all(new is old for new, old in zip(bound, value)) else bound
        return self.integer(value)

    def _pattern(self, pattern: AccessPattern) -> AccessPattern:
        """The bound operand; `pattern` itself when it is bound already."""
        if _is_plain(pattern):
            return pattern
        offset = self.integer(pattern.offset)
        dims = self._value(pattern.dims)
        partitions = self.integer(pattern.partitions)
        registers = self._value(pattern.registers)
        vector = self._value(pattern.vector_offset)
        stride = self.integer(pattern.vector_stride)
        bound = self.integer(pattern.vector_bound)
        limits = self._value(pattern.limits)
        form, first = (pattern.memory, pattern.dtype, offset, dims), pattern.start_partition
        place = first, partitions, pattern.tensor, registers
        rows = stride, bound, limits
        # Every field, as AccessPattern's own hash leaves out those that may be symbolic.
        key = (*form, *place, id(vector), *rows)
        known = self._by_value.get(key)
        if known is None:
            known = self._by_value[key] = AccessPattern(*form, *place, vector, *rows)
        return known


def _is_plain(pattern: AccessPattern) -> bool:
    """Whether every field holds a plain integer already."""
    if type(pattern.offset) is not int or type(pattern.partitions) is not int:
        return False
    for first, second in pattern.dims:
        if type(first) is not int or type(second) is not int:
            return False
    for _, scale in pattern.registers:
        if type(scale) is not int:
            return False
    if pattern.limits is not None:
        return False
    vector = pattern.vector_offset
    return (
        type(pattern.vector_stride) is int
        and type(pattern.vector_bound) is int
        and (vector is None or _is_plain(vector))
    )


_PLAIN = frozenset({int, float, bool, type(None)})
