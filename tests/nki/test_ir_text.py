"""Text form of the tile IR: round trips on hand-written and random kernels, and its errors."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_comparison import difference, same
from tile_ir.parser import parse_kernel

from isa.affine import Affine, Predicate, Symbol, affine, polynomial
from isa.alu import ACTIVATIONS, ALU
from isa.dtypes import DTYPES
from isa.enums import Engine, Memory, OobMode
from isa.errors import NeuronError
from isa.fields import ENUM_KINDS, Attribute, Kind
from isa.operations import OPERATIONS
from isa.program import Guard, SourceLocation
from nki.ir import Access, Loop, Op, Register, Tensor, TracedKernel, While, walk
from nki.ir.text import print_kernel

TEXT = """\
kernel scale target=trn2
symbol M min=128 max=8192 multiple_of=128
guard (-M + 4096) "M is at most 4096"
tensor %t0 "a": shared_hbm float32[M, 512] role=input
tensor %t1 "n": shared_hbm int32[1, 1] role=input
tensor %t2 "out": shared_hbm float32[M, 512] role=output
tensor %t3 "tile": sbuf float32[128, 512] core=0 address=(0, 1024) loc=0
tensor %t4 "rows": sbuf int32[128, 1] core=0 place=(32, 16)
tensor %t5 "sum": psum float32[128, 512] core=0
tensor %t6 "one": shared_hbm uint8[2, 2] role=constant data=AQIDBA==
input %t0 "x"
input %t1 "count \\"n\\""
result %t2
core 0:
  register %r0 "i" from 0 to (M//128 - 1) loc=1
  register %r1 "limit"
  register %r2 "j"
  loop %r0 = 0 to (M//128) step 1 unroll loc=1:
    storage_begin dst=%t3[128, 512 : 512, 1 @ 0]
    !0: dma_copy dst=%t3[128, 512 : 512, 1 @ 0] src=%t0[128, 512 : 512, 1 @ 65536*%r0]
    tensor_scalar dst=%t3[128, 256 : 512, 2 @ 1] data=%t3[128, 256 : 512, 2 @ 0] op0=multiply \
operand0=2.5 name="twice" loc=0
    nc_matmul dst=%t5[128, 512 : 512, 1 @ 0] stationary=%t3[128, 128 : 512, 1 @ 0] \
moving=%t3[128, 512 : 512, 1 @ 0] accumulate=[%r0 > 0]
    dma_copy dst=%t2[128, 512 : 512, 1 @ 65536*%r0] src=%t3[128, 512 : 512, 1 @ 0] after=(!0)
  register_load dst=%r1 src=%t1[1, 1 : 1, 1 @ 0]
  loop %r2 = 0 to %r1 step 2:
    storage_begin dst=%t4[128, 1 : 1, 1 @ 0]
    dma_copy dst=%t3[128, 512 : 512, 1 @ 0] src=%t0[128, 512 : 512, 1 @ 0] \
rows(%t4[128, 1 : 1, 1 @ 0] * 512 < (M)) oob_mode=skip
    while %r1:
      register_move dst=%r1 src=0
  tensor_copy dst=%t3[128, 1024 : 1024, 1 @ 0]:bfloat16 src=%t3[128, 1024 : 1024, 1 @ 0]:bfloat16
location 0 "kernel.py" 3 4 17 "scale" "    tile = nl.ndarray(\\"µ\\")"
location 1 "kernel.py" 5 9 20 "scale" "    for i in nl.affine_range(M // 128):"
"""


def test_text_prints_as_it_was_written() -> None:
    assert print_kernel(parse_kernel(TEXT)) == TEXT


def test_parsed_kernel_has_the_values_of_the_text() -> None:
    kernel = parse_kernel(TEXT)
    assert [t.name for t in kernel.tensors] == ["a", "n", "out", "tile", "rows", "sum", "one"]
    assert kernel.tensors[3].address == (0, 1024)
    assert kernel.placement == {kernel.tensors[4]: (32, 16)}
    assert kernel.tensors[6].data.tolist() == [[1, 2], [3, 4]]
    assert kernel.parameter_names == ["x", 'count "n"']
    assert kernel.results == [kernel.tensors[2]]
    m = polynomial(kernel.symbols[0])
    (guard,) = kernel.guards
    assert (guard.form, guard.text) == (4096 - m, "M is at most 4096")
    loop = kernel.bodies[0][0]
    assert isinstance(loop, Loop)
    assert loop.unroll and loop.upper == m // 128
    assert loop.variable.upper == m // 128 - 1
    load = loop.body[1]
    assert isinstance(load, Op)
    assert load.values[1].offset.terms == ((loop.variable, 65536),)
    assert load.values[3] is OobMode.error
    scale = loop.body[2]
    assert isinstance(scale, Op)
    assert scale.values[2] is ALU["multiply"]
    assert scale.values[3] == 2.5
    assert scale.name == "twice"
    assert scale.location.text == '    tile = nl.ndarray("µ")'
    assert loop.body[4].after == (load,)
    gather = kernel.bodies[0][2].body[1]
    assert gather.values[1].vector_bound == m
    assert gather.values[1].vector_offset.storage is kernel.tensors[4]


def test_traced_locations_print_as_lines() -> None:
    code = test_traced_locations_print_as_lines.__code__
    kernel = parse_kernel(TEXT)
    kernel.bodies[0][0].location = (code, 0)
    copy = parse_kernel(print_kernel(kernel))
    location = copy.bodies[0][0].location
    assert location.file == __file__
    assert location.function == "test_traced_locations_print_as_lines"
    assert same(kernel, copy)


def test_equal_functions_keep_their_files() -> None:
    kernel = parse_kernel(TEXT)
    codes = [compile("def f():\n    pass\n", name, "exec").co_consts[0] for name in ("a", "b")]
    kernel.bodies[0][0].location = (codes[0], 0)
    kernel.bodies[0][1].location = (codes[1], 0)
    copy = parse_kernel(print_kernel(kernel))
    assert [copy.bodies[0][n].location.file for n in (0, 1)] == ["a", "b"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("kernel scale", "kernl scale", "line 1, column 1: expected `kernel`"),
        ("target=trn2", "target=trn9", "line 1, column 21: expected a target"),
        ("memory", "memory", ""),
        ("sbuf float32[128, 512] core", "sbuf float33[128, 512] core", "expected a dtype"),
        ("result %t2", "result %t9", "line 13, column 8: expected a declared tensor"),
        ("loop %r0 = 0", "loop %r7 = 0", "expected a declared register"),
        ("storage_begin dst=%t3", "storage_start dst=%t3", "expected an operation"),
        ("op0=multiply", "op0=times", "expected an ALU operator"),
        ("operand0=2.5", "operand7=2.5", "expected a field of tensor_scalar"),
        ("after=(!0)", "after=(!5)", "expected the label of an operation above"),
        ("oob_mode=skip", "oob_mode=skip oob_mode=skip", "expected a field of dma_copy"),
        ("register_move dst=%r1 src=0", "register_move dst=%r1", "expected src=..."),
        ("65536*%r0] src", "65536*%r9] src", "expected an index form"),
        ("    while %r1:", "   while %r1:", "expected 4 blanks before the node"),
        ("data=AQIDBA==", "data=AQID", "expected base64 of uint8[2, 2]"),
        ("accumulate=[%r0 > 0]", "accumulate=[%r0]", "expected a condition"),
        ("core 0:", "core 1:", "expected core 0"),
        ("location 1", "location 2", "expected a location table that has entry 1"),
        ("tensor %t1", "tensor %t0", "expected a tensor number that is not taken"),
        ('"tile": sbuf', '"tile: sbuf', "expected"),
    ],
)
def test_mistakes_are_named_with_line_and_column(old: str, new: str, expected: str) -> None:
    changed = TEXT.replace(old, new, 1)
    if old == new:
        assert parse_kernel(changed)
        return
    assert changed != TEXT
    with pytest.raises(NeuronError) as caught:
        parse_kernel(changed)
    assert caught.value.code == "ir-syntax"
    assert expected in str(caught.value)
    assert "line " in str(caught.value) and "column " in str(caught.value)


@pytest.mark.parametrize(
    "form", ["(" * 20000 + "1" + ")" * 20000, "-" * 20000 + "1", "9" * 5000, "M" * 20, "M//0"]
)
def test_absurd_forms_are_refused(form: str) -> None:
    with pytest.raises(NeuronError) as caught:
        parse_kernel(TEXT.replace("65536*%r0] src", form + "] src", 1))
    assert caught.value.code == "ir-syntax"


def test_loops_nested_without_end_are_refused() -> None:
    head = TEXT[: TEXT.index("  loop")]
    deep = range(2, sys.getrecursionlimit() + 1000)
    loops = "".join(f"{' ' * n}loop %r0 = 0 to 1 step 1:\n" for n in deep)
    with pytest.raises(NeuronError) as caught:
        parse_kernel(head.replace("loc=1", "").replace("loc=0", "") + loops)
    assert "nested too deeply" in caught.value.what


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_damaged_text_is_refused_or_parsed(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(TEXT) - 1))
    length = data.draw(st.integers(0, 12))
    inserted = data.draw(st.text(' %t0[]()@:,!="-\nrx9', max_size=6))
    text = TEXT[:start] + inserted + TEXT[start + length :]
    try:
        kernel = parse_kernel(text)
    except NeuronError as error:
        assert error.code in ("ir-syntax", "value-not-allowed")
    else:
        assert same(kernel, parse_kernel(print_kernel(kernel)))


# Random kernels -----------------------------------------------------------------------------

_NAMES = st.text(max_size=6)
_INTEGERS = st.integers(-(2**31), 2**31 - 1)
_DTYPES = st.sampled_from(sorted(DTYPES))
_FLOATS = st.floats(allow_nan=True)
_LOCATIONS = st.none() | st.builds(
    SourceLocation,
    _NAMES,
    st.integers(0, 999),
    st.integers(0, 99),
    st.integers(0, 99),
    _NAMES,
    _NAMES,
)


class _Builder:
    """Draws a kernel: any field values of the right kinds; nothing need make sense."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        maximum = draw(st.none() | st.integers(512, 9999))
        multiple = draw(st.sampled_from([1, 3, 128]))
        self.symbols = [Symbol("M", maximum, None, multiple), Symbol("n_2", 77)]
        self.tensors = [self.tensor(number) for number in range(draw(st.integers(1, 4)))]
        self.registers: list[Register] = []

    def integer_form(self) -> Any:
        if self.draw(st.booleans()):
            return self.draw(_INTEGERS)
        m, n = map(polynomial, self.symbols)
        small = st.integers(-4, 4)
        form = self.draw(small) * m + self.draw(small) * n + self.draw(_INTEGERS)
        if self.draw(st.booleans()):
            form = form + (m + self.draw(small)) // self.draw(st.integers(1, 200)) * n
        return form

    def form(self) -> Any:
        form = self.integer_form()
        if self.registers and self.draw(st.booleans()):
            coefficient = self.integer_form()
            if type(coefficient) is not int or coefficient:
                form = form + affine(self.draw(st.sampled_from(self.registers))) * coefficient
        return form

    def tensor(self, number: int) -> Tensor:
        draw = self.draw
        dtype = draw(_DTYPES)
        memory = draw(st.sampled_from(list(Memory)))
        shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
        data = None
        if draw(st.booleans()):
            raw = draw(st.binary(min_size=math.prod(shape) * 8, max_size=math.prod(shape) * 8))
            numpy = DTYPES[dtype].numpy
            data = np.frombuffer(raw, np.uint8)[: math.prod(shape) * numpy.itemsize]
            data = data.view(numpy).reshape(shape)
        return Tensor(
            number * 3,
            draw(_NAMES),
            memory,
            dtype,
            shape,
            draw(st.sampled_from(["input", "output", "inout", "local", "constant"])),
            draw(st.none() | st.tuples(st.integers(0, 127), st.integers(0, 9999))),
            draw(st.none() | st.integers(0, 1)),
            draw(_LOCATIONS),
            data,
        )

    def access(self, nested: bool = True) -> Access:
        draw = self.draw
        tensor = draw(st.sampled_from(self.tensors))
        rank = draw(st.integers(0, 3))
        shape = tuple(self.integer_form() for _ in range(rank))
        strides = tuple(self.integer_form() for _ in range(rank))
        dtype = tensor.dtype if draw(st.booleans()) else draw(_DTYPES)
        access = Access(tensor, dtype, shape, strides, self.form())
        if nested and draw(st.booleans()):
            access.vector_offset = self.access(nested=False)
            access.vector_stride = self.integer_form()
            access.vector_bound = self.integer_form()
        return access

    def attribute(self, field: Attribute) -> Any:
        draw = self.draw
        if field.optional and draw(st.booleans()):
            return None
        kinds: dict[Kind, Any] = {
            Kind.flag: lambda: draw(st.booleans()),
            Kind.integer: self.integer_form,
            Kind.float32: lambda: draw(_FLOATS),
            Kind.alu: lambda: draw(st.sampled_from(list(ALU.values()))),
            Kind.activation: lambda: draw(st.sampled_from(list(ACTIVATIONS.values()))),
            Kind.pattern: lambda: tuple(
                (self.integer_form(), draw(_INTEGERS)) for _ in range(draw(st.integers(0, 4)))
            ),
            Kind.integers: lambda: tuple(draw(st.lists(_INTEGERS, max_size=3))),
            Kind.numbers: lambda: tuple(draw(st.lists(_INTEGERS | _FLOATS, max_size=3))),
            Kind.register: lambda: draw(st.sampled_from(self.registers)),
            Kind.value: lambda: (
                draw(st.sampled_from(self.registers)) if draw(st.booleans()) else self.form()
            ),
            Kind.accumulate: lambda: (
                draw(st.booleans())
                if draw(st.booleans())
                else Predicate(self.form(), draw(st.sampled_from(["<", "<=", "==", "!="])))
            ),
            Kind.number: lambda: draw(_INTEGERS | _FLOATS),
            Kind.priority: lambda: draw(st.integers(0, 3)),
        }
        if field.kind in ENUM_KINDS:
            return draw(st.sampled_from(list(ENUM_KINDS[field.kind])))
        return kinds[field.kind]()

    def value(self, field: Any) -> Any:
        if isinstance(field, Attribute):
            return self.attribute(field)
        if field.optional and self.draw(st.booleans()):
            return None
        if field.immediate and self.draw(st.booleans()):
            return self.draw(_INTEGERS | _FLOATS)
        return self.access()

    def nodes(self, depth: int, above: list[Op]) -> list[Any]:
        draw = self.draw
        nodes: list[Any] = []
        for _ in range(draw(st.integers(0, 3))):
            kind = draw(st.integers(0, 4 if depth else 2))
            if kind <= 2:
                row = draw(st.sampled_from(list(OPERATIONS.values())))
                values = tuple(self.value(field) for field in row.fields.values())
                after = draw(st.lists(st.sampled_from(above), max_size=2)) if above else []
                name = draw(st.none() | _NAMES)
                op = Op(row, values, draw(_LOCATIONS), name, tuple(after))
                nodes.append(op)
                above.append(op)
            elif kind == 3:
                register = draw(st.sampled_from(self.registers))
                bounds = [
                    draw(st.sampled_from(self.registers)) if draw(st.booleans()) else self.form()
                    for _ in range(2)
                ]
                body = self.nodes(depth - 1, above)
                step, unroll = draw(st.integers(1, 9)), draw(st.booleans())
                nodes.append(Loop(register, *bounds, step, body, unroll, draw(_LOCATIONS)))
            else:
                register = draw(st.sampled_from(self.registers))
                nodes.append(While(register, self.nodes(depth - 1, above), draw(_LOCATIONS)))
        return nodes

    def kernel(self) -> TracedKernel:
        draw = self.draw
        bodies = []
        for _ in range(draw(st.integers(1, 2))):
            self.registers = [Register(n * 2, draw(_NAMES)) for n in range(draw(st.integers(1, 3)))]
            for register in self.registers[1:]:
                register.lower = draw(st.none() | st.integers(0, 9))
                register.upper = self.registers[0] if draw(st.booleans()) else self.integer_form()
            bodies.append(self.nodes(2, []))
        parameters = draw(st.lists(st.sampled_from(self.tensors), max_size=2))
        return TracedKernel(
            "a_kernel.inner",
            draw(st.sampled_from(["trn1", "trn2", "trn3"])),
            parameters,
            [draw(_NAMES) for _ in parameters],
            draw(st.lists(st.sampled_from(self.tensors), max_size=2)),
            bodies,
            self.tensors,
            self.symbols,
            [
                Guard(self.integer_form(), draw(_NAMES), None)
                for _ in range(draw(st.integers(0, 2)))
            ],
        )


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_random_kernels_survive_the_round_trip(data: st.DataObject) -> None:
    kernel = _Builder(data.draw).kernel()
    text = print_kernel(kernel)
    copy = parse_kernel(text)
    assert difference(kernel, copy) is None
    assert print_kernel(copy) == text


@pytest.mark.parametrize(
    "change",
    [
        lambda k: setattr(k.bodies[0][0], "step", 2),
        lambda k: setattr(k.bodies[0][0].body[4], "after", ()),
        lambda k: setattr(k.bodies[0][0].body[2], "name", "thrice"),
        lambda k: setattr(k.bodies[0][0].body[1].values[1], "offset", 0),
        lambda k: setattr(k.tensors[6], "data", np.zeros((2, 2), np.uint8)),
        lambda k: setattr(k.tensors[3], "address", None),
        lambda k: setattr(k.bodies[0][0], "location", None),
        lambda k: setattr(k, "guards", []),
        lambda k: setattr(k, "placement", None),
        lambda k: k.results.append(k.tensors[0]),
    ],
)
def test_comparison_sees_each_difference(change: Any) -> None:
    left, right = parse_kernel(TEXT), parse_kernel(TEXT)
    assert same(left, right)
    change(right)
    assert not same(left, right)
    assert not same(right, left)


def test_comparison_tells_shared_nodes_from_equal_ones() -> None:
    left, right = parse_kernel(TEXT), parse_kernel(TEXT)
    loop = right.bodies[0][0]
    assert isinstance(loop, Loop)
    loop.body[1].values[1].offset = Affine(0, ((Register(0, "i", None, 0), 65536),))
    assert not same(left, right)


def test_defaults_are_left_out() -> None:
    kernel = parse_kernel(TEXT)
    ops = [n for n in walk(kernel.bodies[0]) if isinstance(n, Op) and n.row.name == "dma_copy"]
    ops[0].values = (*ops[0].values[:5], Engine.sync)
    assert "engine=sync" in print_kernel(kernel)
    assert "engine=unknown" not in print_kernel(kernel)
