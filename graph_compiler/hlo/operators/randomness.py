"""Random numbers: ThreeFry and Philox bit generators, and seeded distributions.

ThreeFry-2x32-20 and Philox-4x32-10 are those of Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3" (SC 2011). The order in which counters fill an array is that of XLA.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.numerics import narrow
from graph_compiler.hlo.operators.row import (
    TRANSCENDENTAL,
    Array,
    Evaluation,
    HloOperator,
    operand_array,
    require_shape,
    require_type,
    result_array,
)

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import Shape

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def threefry_2x32(key: tuple[Any, Any], counter: tuple[Array, Array]) -> tuple[Array, Array]:
    """20 rounds of ThreeFry on pairs of 32-bit words.

    The known answer of key and counter zero:

    >>> zero = np.zeros(1, np.uint32)
    >>> [hex(int(word[0])) for word in threefry_2x32((zero, zero), (zero, zero))]
    ['0x6b200159', '0x99ba4efe']
    """
    first, second = (np.asarray(word, np.uint32) for word in key)
    keys = (first, second, first ^ second ^ _PARITY)
    x, y = (np.asarray(word, np.uint32) for word in counter)
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = (y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation))
            y = y ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def philox_4x32(key: tuple[Any, Any], counter: list[Array]) -> list[Array]:
    """10 rounds of Philox on quadruples of 32-bit words.

    The known answer of key and counter zero:

    >>> zero = np.zeros(1, np.uint32)
    >>> [hex(int(word[0])) for word in philox_4x32((zero, zero), [zero] * 4)]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    first, second = (np.asarray(word, np.uint32) for word in key)
    words = [np.asarray(word, np.uint32) for word in counter]
    for _ in range(10):
        left = words[0].astype(np.uint64) * np.uint64(0xD2511F53)
        right = words[2].astype(np.uint64) * np.uint64(0xCD9E8D57)
        words = [
            (right >> _HALF).astype(np.uint32) ^ words[1] ^ first,
            (right & _LOW).astype(np.uint32),
            (left >> _HALF).astype(np.uint32) ^ words[3] ^ second,
            (left & _LOW).astype(np.uint32),
        ]
        first = first + np.uint32(0x9E3779B9)
        second = second + np.uint32(0xBB67AE85)
    return words


def _halves(words: Array) -> tuple[Array, Array]:
    """(low, high) 32 bits of 64-bit words."""
    return (words & _LOW).astype(np.uint32), (words >> _HALF).astype(np.uint32)


def _joined(low: Array, high: Array) -> Array:
    return low.astype(np.uint64) | (high.astype(np.uint64) << _HALF)


def _threefry_bits(state: Array, shape: tuple[int, ...], bits: int) -> tuple[Array, Array]:
    """(new state, unsigned integers of 32 or 64 bits) from a state of (key, counter)."""
    key = _halves(state[0])
    if bits == 64:
        count = math.prod(shape)
        counter = (state[1] + np.arange(count, dtype=np.uint64)).reshape(shape)
        words = _joined(*threefry_2x32(key, _halves(counter)))
    else:
        # Both words of a result stand next to each other along the first even dimension, or the
        # longest one: of a dimension of 2n elements, counter i fills elements 2i and 2i + 1.
        sizes = shape or (1,)
        even = [axis for axis, size in enumerate(sizes) if size % 2 == 0]
        axis = even[0] if even else int(np.argmax(sizes))
        half = [-(-size // 2) if i == axis else size for i, size in enumerate(sizes)]
        count = math.prod(half)
        counter = (state[1] + np.arange(count, dtype=np.uint64)).reshape(half)
        pair = np.stack(threefry_2x32(key, _halves(counter)), axis=axis + 1)
        half[axis] *= 2
        words = np.take(pair.reshape(half), range(sizes[axis]), axis=axis).reshape(shape)
    return np.array([state[0], state[1] + np.uint64(count)], np.uint64), words


def _philox_bits(state: Array, shape: tuple[int, ...], bits: int) -> tuple[Array, Array]:
    """(new state, unsigned integers of 32 or 64 bits) from a state of (key, counter[, upper])."""
    key = _halves(state[0])
    # XLA's state of two words has the key stand for the upper half of the counter as well.
    low, high = state[1], state[2] if len(state) > 2 else state[0]
    elements = math.prod(shape)
    per_counter = 4 if bits == 32 else 2
    count = -(-elements // per_counter)
    counter_low = low + np.arange(count, dtype=np.uint64)
    counter_high = high + (counter_low < low).astype(np.uint64)
    words = philox_4x32(key, [*_halves(counter_low), *_halves(counter_high)])
    if bits == 64:
        words = [_joined(words[0], words[1]), _joined(words[2], words[3])]
    flat = np.stack(words, axis=-1).reshape(-1)[:elements]
    next_low = low + np.uint64(count)
    next_high = high + np.uint64(1 if next_low < low else 0)
    new_state = np.array([state[0], next_low, next_high][: len(state)], np.uint64)
    return new_state, flat.reshape(shape)


_GENERATORS = {
    "RNG_DEFAULT": _philox_bits,
    "RNG_THREE_FRY": _threefry_bits,
    "RNG_PHILOX": _philox_bits,
}
_STATE_SIZES = {"RNG_DEFAULT": (2, 3), "RNG_THREE_FRY": (2,), "RNG_PHILOX": (2, 3)}


class RngBitGenerator(HloOperator):
    """(new state, random bits) of a generator; a pure function of the state.

    ThreeFry has the state u64[2] (key, counter), Philox u64[2] or u64[3] (key, counter of 64 or
    128 bits). The default is Philox, as on XLA's CPU.
    """

    opcode = "rng-bit-generator"
    builders = ("RngBitGenerator",)
    stablehlo = "rng_bit_generator"
    attributes = ("rng_algorithm",)
    arity = (1, 1)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        from graph_compiler.hlo.types import Shape

        state = operand_array(instruction, 0)
        algorithm = instruction.attribute("rng_algorithm")
        require_type(
            algorithm in _GENERATORS,
            instruction,
            f"its algorithm is {algorithm!r}.",
            "An algorithm is one of " + ", ".join(_GENERATORS) + ".",
        )
        sizes = _STATE_SIZES[algorithm]
        require_shape(
            state.element_type == "u64" and state.rank == 1 and state.dimensions[0] in sizes,
            instruction,
            f"its state is {state}.",
            f"The state of {algorithm} is u64[n], n in {sizes}.",
        )
        parts = instruction.shape.tuple_shapes
        require_shape(
            len(parts) == 2 and parts[1].is_array and not parts[1].primitive.is_complex,
            instruction,
            f"its shape is {instruction.shape}.",
            "It gives the new state and an array.",
        )
        return Shape.tuple_of([state, parts[1]])

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Any:
        generator = _GENERATORS[instruction.attribute("rng_algorithm")]
        shape = instruction.shape.tuple_shapes[1]
        bits, dtype = shape.primitive.bits, shape.numpy_dtype()
        state, words = generator(operands[0], shape.dimensions, max(bits, 32))
        if bits < 32:
            words = (words & np.uint32((1 << bits) - 1)).astype(
                np.uint8 if bits < 16 else np.uint16
            )
        if dtype == np.bool_:
            return state, (words & 1).astype(np.bool_)
        return state, np.ascontiguousarray(words).view(dtype).reshape(shape.dimensions)


class Rng(HloOperator):
    """Numbers of a distribution with the parameters (a, b), from the evaluator's seed.

    RNG_UNIFORM lies in [a, b), RNG_NORMAL has mean a and standard deviation b.
    """

    opcode = "rng"
    builders = ("RngUniform", "RngNormal")
    per_element = TRANSCENDENTAL
    stablehlo = "rng"
    attributes = ("distribution",)
    arity = (2, 2)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = result_array(instruction)
        for position in range(2):
            bound = operand_array(instruction, position)
            require_type(
                bound.is_scalar and bound.element_type == shape.element_type,
                instruction,
                f"parameter {position} is {bound}, the result {shape}.",
                "Parameters are scalars of the result's element type.",
            )
        distribution = instruction.attribute("distribution")
        require_type(
            distribution == "RNG_UNIFORM"
            or (distribution == "RNG_NORMAL" and shape.primitive.is_float),
            instruction,
            f"{distribution} of {shape}.",
            "Distributions are RNG_UNIFORM, and RNG_NORMAL of floats.",
        )
        return shape

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        shape, primitive = instruction.shape, instruction.shape.primitive
        sizes, dtype = shape.dimensions, shape.numpy_dtype()
        if primitive.is_float:
            low, high = (float(operand) for operand in operands)
            if instruction.attribute("distribution") == "RNG_NORMAL":
                return narrow(np.asarray(context.random.normal(low, high, sizes)), dtype)
            drawn = narrow(np.asarray(context.random.random(sizes) * (high - low) + low), dtype)
            return np.where(drawn.astype(np.float64) >= high, operands[0], drawn).astype(dtype)
        if primitive.kind == "boolean":
            low, high = int(operands[0]), int(operands[1])
            return context.random.integers(low, high + 1, sizes).astype(dtype)
        low, high = int(operands[0]), int(operands[1])
        if low >= high:
            return np.full(sizes, low, dtype)
        container = np.int64 if primitive.kind == "signed" else np.uint64
        return context.random.integers(low, high, sizes, dtype=container).astype(dtype)


class RngGetAndUpdateState(HloOperator):
    """The evaluator's generator as a state of u64[2]; `delta` is how far it moves on."""

    opcode = "rng-get-and-update-state"
    attributes = ("delta",)
    arity = (0, 0)

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        return result_array(instruction)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        shape = instruction.shape
        drawn = context.random.integers(0, 1 << 64, shape.dimensions, dtype=np.uint64)
        return np.asarray(drawn).astype(shape.numpy_dtype())
