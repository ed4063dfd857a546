"""Generated graphs that are right: written, read, printed and parsed, they stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_operations import FAMILIES

from graph_compiler import evaluate, parse_text, print_text, verify
from graph_compiler.hlo import PRIMITIVE_TYPES, Computation, Instruction, Module, Record, Shape
from graph_compiler.hlo.proto import from_proto, to_proto
from graph_compiler.sample_inputs import sample_inputs

TYPES = ("f32", "bf16", "f16", "f64", "s32", "u8", "s64", "pred", "f8e4m3fn", "s4", "c64")
FLOATS = ("f32", "bf16", "f16", "f64")

names = st.text("abcxyz_.-019", min_size=1, max_size=6).map(lambda name: "n" + name)
sizes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


class Builder:
    """A computation that grows by instructions on values that it has already."""

    def __init__(self, data: st.DataObject, computations: list[Computation]) -> None:
        self.data = data
        self.computations = computations
        self.items: list[Instruction] = []

    def draw(self, strategy: Any) -> Any:
        return self.data.draw(strategy)

    def one_of(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def shape(self, name: str, dimensions: tuple[int, ...]) -> Shape:
        """With or without a layout, which may be any."""
        order = self.draw(st.none() | st.permutations(range(len(dimensions))))
        return Shape(name, dimensions, layout=None if order is None else tuple(order))

    def add(
        self, opcode: str, shape: Shape, operands: Any = (), called: Any = (), **attributes: Any
    ) -> Instruction:
        if self.draw(st.booleans()):
            attributes["frontend_attributes"] = Record(
                "FrontendAttributes", map={self.draw(names): self.draw(names)}
            )
        if self.draw(st.booleans()):
            attributes["sharding"] = Record(
                "OpSharding", type=self.one_of(("MANUAL", "REPLICATED"))
            )
        metadata = Record("OpMetadata", op_name=self.draw(names), source_file="model.py")
        item = Instruction(
            opcode,
            shape,
            list(operands),
            name=f"{self.draw(names)}.{len(self.items)}",
            attributes=attributes,
            called=list(called),
            metadata=metadata.replace(source_line=len(self.items)) if self.items else None,
        )
        self.items.append(item)
        return item

    def parameter(self, shape: Shape) -> Instruction:
        item = self.add("parameter", shape)
        item.parameter_number = sum(other.opcode == "parameter" for other in self.items) - 1
        return item

    def arrays(self, kinds: Any = TYPES) -> list[Instruction]:
        return [item for item in self.items if item.shape.element_type in kinds]

    def constant(self) -> Instruction:
        shape = self.shape(self.one_of(TYPES), self.draw(sizes))
        dtype, primitive = shape.numpy_dtype(), shape.primitive
        raw = self.draw(st.binary(min_size=shape.size * 16, max_size=shape.size * 16))
        if primitive.kind == "boolean" or primitive.bits < 8:
            low = np.frombuffer(raw, np.uint8)[: shape.size] % (2 if primitive.bits == 8 else 8)
            literal = low.astype(dtype)
        else:
            literal = np.frombuffer(raw[: shape.size * dtype.itemsize], dtype)
        return self.add("constant", shape, literal=literal.reshape(shape.dimensions))

    def like(self, item: Instruction, name: str | None = None) -> Shape:
        return self.shape(name or item.shape.element_type, item.shape.dimensions)

    def elementwise(self) -> None:
        if not (found := self.arrays(FLOATS)):
            return
        x = self.one_of(found)
        same = [item for item in found if item.shape.same_as(x.shape)]
        opcode = self.one_of(["negate", "tanh", "add", "multiply", "maximum", "convert", "clamp"])
        count = {"add": 2, "multiply": 2, "maximum": 2, "clamp": 3}.get(opcode, 1)
        operands = [x, *(self.one_of(same) for _ in range(count - 1))]
        target = self.one_of(TYPES) if opcode == "convert" else None
        self.add(opcode, self.like(x, target), operands)

    def choice(self) -> None:
        if not (found := self.arrays(FLOATS)):
            return
        x = self.one_of(found)
        direction = self.one_of(["EQ", "NE", "GE", "GT", "LE", "LT"])
        chosen = self.add(
            "compare",
            self.like(x, "pred"),
            [x, x],
            comparison_direction=direction,
            comparison_type=self.one_of(["FLOAT", "TOTALORDER"]),
        )
        self.add("select", self.like(x), [chosen, x, x])

    def movement(self) -> None:
        if not (found := self.arrays()):
            return
        x = self.one_of(found)
        dimensions, name, rank = x.shape.dimensions, x.shape.element_type, x.shape.rank
        order = tuple(self.draw(st.permutations(range(rank))))
        turned = tuple(dimensions[axis] for axis in order)
        self.add("transpose", self.shape(name, turned), [x], dimensions=order)
        self.add("reshape", self.shape(name, (1, *dimensions)), [x])
        self.add(
            "broadcast",
            self.shape(name, (2, *dimensions)),
            [x],
            dimensions=tuple(range(1, 1 + rank)),
        )
        if rank:
            axis = self.draw(st.integers(0, rank - 1))
            doubled = [size * (1 + (i == axis)) for i, size in enumerate(dimensions)]
            self.add("concatenate", self.shape(name, tuple(doubled)), [x, x], dimensions=(axis,))
            self.add("reverse", self.like(x), [x], dimensions=(axis,))
            ranges = tuple(
                Record("SliceDimensions", start=0, limit=size, stride=2) for size in dimensions
            )
            halves = tuple((size + 1) // 2 for size in dimensions)
            self.add("slice", self.shape(name, halves), [x], slice_dimensions=ranges)

    def reduction(self) -> None:
        found = [item for item in self.arrays(FLOATS) if item.shape.rank]
        if not found:
            return
        x = self.one_of(found)
        scalar = Shape(x.shape.element_type)
        inner = Builder(self.data, self.computations)
        a, b = inner.parameter(scalar), inner.parameter(scalar)
        root = inner.add(self.one_of(["add", "maximum"]), scalar, [a, b])
        fold = self.finish(inner, root)
        zero = self.add("constant", scalar, literal=np.zeros((), scalar.numpy_dtype()))
        axis = self.draw(st.integers(0, x.shape.rank - 1))
        kept = tuple(size for i, size in enumerate(x.shape.dimensions) if i != axis)
        shape = self.shape(x.shape.element_type, kept)
        self.add("reduce", shape, [x, zero], [fold], dimensions=(axis,))

    def product(self) -> None:
        found = [item for item in self.arrays(FLOATS) if item.shape.rank == 2]
        if not found:
            return
        x = self.one_of(found)
        numbers = Record(
            "DotDimensionNumbers",
            lhs_contracting_dimensions=(1,),
            rhs_contracting_dimensions=(1,),
        )
        rows = x.shape.dimensions[0]
        shape = self.shape(x.shape.element_type, (rows, rows))
        self.add("dot", shape, [x, x], dot_dimension_numbers=numbers)

    def control(self) -> None:
        """A call, a conditional and a loop that ends at once, all of one computation."""
        if not (found := self.arrays(FLOATS)):
            return
        x = self.one_of(found)
        inner = Builder(self.data, self.computations)
        parameter = inner.parameter(x.shape)
        twice = self.finish(inner, inner.add("add", x.shape, [parameter, parameter]))
        self.add("call", x.shape, [x], [twice])
        never = Builder(self.data, self.computations)
        never.parameter(x.shape)
        no = never.add("constant", Shape("pred"), literal=np.array(False))
        self.add("while", x.shape, [x], [twice, self.finish(never, no)])
        index = self.add("constant", Shape("s32"), literal=np.array(1, np.int32))
        self.add("conditional", x.shape, [index, x, x], [twice, twice])

    def finish(self, inner: Builder, root: Instruction) -> Computation:
        found = Computation(f"c{len(self.computations)}", inner.items, root)
        self.computations.append(found)
        return found


STEPS: tuple[Callable[[Builder], Any], ...] = (
    Builder.constant,
    Builder.elementwise,
    Builder.choice,
    Builder.movement,
    Builder.reduction,
    Builder.product,
    Builder.control,
)


@st.composite
def modules(draw: Any) -> Module:
    data = draw(st.data())
    computations: list[Computation] = []
    builder = Builder(data, computations)
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(TYPES[:8]))
        builder.parameter(builder.shape(name, data.draw(sizes)))
    for _ in range(data.draw(st.integers(1, 5))):
        data.draw(st.sampled_from(STEPS))(builder)
    results = builder.items[-3:]
    shape = Shape.tuple_of(item.shape for item in results)
    root = builder.add("tuple", shape, results)
    entry = builder.finish(builder, root)
    module = Module(data.draw(names), computations, entry)
    if any(item.opcode == "parameter" for item in results):
        return module
    donated = module.parameters[0]
    matching = [n for n, item in enumerate(results) if item.shape.bytes == donated.shape.bytes]
    if matching:
        alias = Record("AliasEntryProto", output_shape_index=(matching[0],), kind="MAY_ALIAS")
        module.attributes["input_output_alias"] = Record(
            "HloInputOutputAliasProto", entries=(alias,)
        )
    return module


def bits(outputs: list[np.ndarray[Any, Any]]) -> list[bytes]:
    return [output.tobytes() for output in outputs]


@settings(max_examples=60)
@given(modules())
def test_a_graph_stays_what_it_is(module: Module) -> None:
    verify(module)
    stated = to_proto(module)
    read = from_proto(stated)
    assert to_proto(read) == stated
    text = print_text(read)
    parsed = parse_text(text)
    assert print_text(parsed) == text
    assert to_proto(parsed) == stated
    verify(parsed)
    inputs = list(sample_inputs(module).values())
    expected = bits(evaluate(module, *inputs))
    assert bits(evaluate(read, *inputs)) == expected
    # Without our comments the bits of NaN are lost, and nothing else that is computed.
    plain = parse_text(print_text(read, exact=False))
    for one, other in zip(evaluate(plain, *inputs), evaluate(module, *inputs), strict=True):
        wide = np.complex128 if one.dtype.kind == "c" else np.float64
        assert np.array_equal(one.astype(wide), other.astype(wide), equal_nan=True)


@settings(max_examples=15)
@given(modules())
def test_xla_reads_the_same_instructions(module: Module) -> None:
    hlo = pytest.importorskip("jaxlib._hlo", reason="jax is not installed")
    text = print_text(module)
    found = from_proto(hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
    wanted = sorted((item.opcode, str(item.shape.plain())) for item in module.instructions())
    assert sorted((item.opcode, str(item.shape.plain())) for item in found.instructions()) == wanted


@pytest.mark.parametrize("family", FAMILIES)
def test_operations_with_random_attributes_stay_what_they_are(family: str) -> None:
    generator = np.random.default_rng(7)
    for _ in range(10):
        text = FAMILIES[family](generator)[0]
        stated = to_proto(parse_text(text))
        read = from_proto(stated)
        assert to_proto(read) == stated
        assert to_proto(parse_text(print_text(read))) == stated


def test_every_type_of_the_table_has_constants_above() -> None:
    kinds = {PRIMITIVE_TYPES[name].kind for name in TYPES}
    assert kinds == {"float", "signed", "unsigned", "boolean", "complex"}
