"""Rolled loops: what is traced once, what is peeled, and what cannot be one body."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.verify import verify
from traced import loops, operations, psum, refused, sbuf, traced, value

import nki
import nki.isa as nisa
import nki.language as nl
from isa.affine import bounds, ceil_division, evaluate
from nki.ir.builder.loops import whole_trips
from nki.ir.locations import resolve as line_of
from nki.ir.nodes import Loop, While
from nki.kernel import compile_traced
from nki.passes.order.rotate import RotateBuffers

M = nki.symbol("M", multiple_of=128, max=8192)
R = nki.symbol("R", max=8192)
P = 128


def test_ranges_over_ints_unroll():
    def kernel(a):
        seen = []
        for make in (nl.affine_range, nl.sequential_range, nl.static_range):
            for i in make(1, 6, 2):
                seen.append(i)
                nisa.memset(dst=sbuf(P, 4), value=float(i))
        assert seen == [1, 3, 5] * 3 and list(nl.affine_range(2)) == [0, 1]

    kernel = traced(kernel, (4, 4))
    assert not loops(kernel.bodies[0]) and len(operations(kernel, "memset")) == 9


def test_a_loop_over_a_symbol_has_one_body():
    def kernel(a):
        for i in nl.affine_range(a.shape[0] // P):
            tile = sbuf(P, 8)
            nisa.dma_copy(dst=tile, src=a[i * P : (i + 1) * P, :])
            nisa.dma_copy(dst=a[nl.ds(i * P, P), 0:8], src=tile)

    kernel = traced(kernel, (M, 8))
    (loop,) = kernel.bodies[0]
    assert isinstance(loop, Loop) and loop.unroll and (loop.lower, loop.step) == (0, 1)
    assert str(loop.upper) == "M//128" and loop.variable.name == "i"
    assert (loop.variable.lower, str(loop.variable.upper)) == (0, "M//128 - 1")
    assert [n.row.name for n in loop.body] == ["storage_begin", "dma_copy", "dma_copy"]
    source = value(loop.body[1], "src")
    assert source.shape == (P, 8) and source.offset.terms == ((loop.variable, P * 8),)
    assert len(kernel.tensors) == 2 and not kernel.guards
    assert line_of(loop.location).text.strip().startswith("for i in")


def test_names_and_numbers_go_on_as_if_the_body_was_traced_once():
    def kernel(a):
        for i in nl.affine_range(a.shape[0] // P):
            tile = nl.ndarray((P, 8), nl.float32)
            nisa.dma_copy(dst=tile, src=a[nl.ds(i * P, P)])
        tile = nl.ndarray((P, 8), nl.float32)
        for j in nl.affine_range(a.shape[0] // P):
            nisa.dma_copy(dst=tile, src=a[nl.ds(j * P, P)])

    kernel = traced(kernel, (M, 8))
    assert [t.name for t in kernel.tensors] == ["inputs[0]", "tile", "tile.1"]
    assert [t.number for t in kernel.tensors] == [0, 1, 2]
    assert [loop.variable.number for loop in loops(kernel.bodies[0])] == [0, 1]


def test_ranges_with_start_and_step():
    def kernel(a):
        for start in nl.sequential_range(P, a.shape[0], P):
            tile = sbuf(P, 8)
            nisa.dma_copy(dst=tile, src=a[start : start + P, :])

    (loop,) = traced(kernel, (M, 8)).bodies[0]
    assert (loop.lower, str(loop.upper), loop.step) == (P, "M", P)
    assert str(loop.variable.upper) == "M - 128"


@pytest.mark.parametrize(
    "trips", [lambda n: (n + P - 1) // P, lambda n: -(-n // P)], ids=["add", "negate"]
)
def test_a_rounded_up_loop_ends_with_a_body_of_its_own(trips):
    heights = []

    def kernel(a):
        for i in nl.affine_range(trips(a.shape[0])):
            source = a[i * P : (i + 1) * P, :]
            heights.append(source.shape[0])
            assert str(min(P, a.shape[0] - i * P)) == str(source.shape[0])
            tile = sbuf(P, 8)
            nisa.dma_copy(dst=tile[0 : source.shape[0]], src=source)

    whole, rest = traced(kernel, (R, 8)).bodies[0]
    assert (whole.lower, str(whole.upper), whole.unroll) == (0, "R//128", True)
    assert (str(rest.lower), str(rest.upper), rest.unroll) == ("R//128", "(R + 127)//128", False)
    assert [str(h) for h in heights] == ["128", "128", "R%128"]
    last = value(rest.body[1], "src")
    assert str(last.shape[0]) == "R%128" and str(last.offset) == "1024*(R//128)"
    assert whole.body[0] is not rest.body[0]


@settings(max_examples=100, deadline=None)
@given(
    tile=st.integers(2, 300),
    plus=st.integers(0, 400),
    maximum=st.integers(1, 2000),
    size=st.integers(1, 2000),
)
def test_whole_trips_leave_at_most_one(tile, plus, maximum, size):
    n = nki.symbol("N", max=maximum)
    size = min(size, maximum)
    trips = (n + plus) // tile
    whole = whole_trips(trips)
    all_trips, most = (evaluate(t, {"N": size}) for t in (trips, whole))
    assert all_trips == (size + plus) // tile and 0 <= all_trips - most <= 1
    if 0 < plus < tile and not isinstance(trips, int):
        assert most == size // tile and bounds(trips - whole)[1] <= 1


def test_clamping_in_a_rolled_loop_needs_whole_tiles():
    def kernel(a):
        for i in nl.affine_range(a.shape[0] // P + 1):
            a[i * P : (i + 1) * P, :]

    refused("out-of-bounds", kernel, (R, 8))


def test_nested_loops_over_symbols():
    N = nki.symbol("N", multiple_of=512, max=4096)

    def kernel(a):
        for i in nl.affine_range(a.shape[0] // P):
            for j in nl.affine_range(a.shape[1] // 512):
                tile = sbuf(P, 512)
                nisa.dma_copy(dst=tile, src=a[nl.ds(i * P, P), nl.ds(j * 512, 512)])

    (outer,) = traced(kernel, (M, N)).bodies[0]
    (inner,) = outer.body
    source = value(inner.body[1], "src")
    terms = {register.name: str(c) for register, c in source.offset.terms}
    assert terms == {"i": "128*N", "j": "512"}
    assert [r for r, _ in source.offset.terms] == [outer.variable, inner.variable]


def test_dynamic_loops_stay_rolled():
    def kernel(a):
        stop = nisa.register_alloc(64)
        for i in nl.dynamic_range(0, stop, 16):
            assert isinstance(i, nisa.VirtualRegister) and i.name == "i"
            tile = sbuf(16, 8)
            nisa.dma_copy(dst=tile, src=a.ap([[8, 16], [1, 8]], scalar_offset=i))
        for _ in nl.dynamic_range(3):
            pass

    kernel = traced(kernel, (128, 8))
    first, second = loops(kernel.bodies[0])
    assert not first.unroll and first.step == 16 and first.upper.name == "stop"
    assert (first.variable.lower, first.variable.upper) == (0, None)
    assert (second.lower, second.upper, second.variable.upper) == (0, 3, 2)
    source = value(first.body[1], "src")
    assert source.offset.terms == ((first.variable, 8),)


def test_dynamic_bounds_are_read_once():
    def kernel(a):
        count = sbuf(1, 1, dtype=nl.int32)
        nisa.memset(dst=count, value=5)
        stop = nisa.register_alloc(4)
        for _ in nl.dynamic_range(stop):
            nisa.register_load(stop, count)

    kernel = traced(kernel, (4, 4))
    (loop,) = loops(kernel.bodies[0])
    moves = operations(kernel, "register_move")
    assert loop.upper is value(moves[1], "dst") and value(moves[1], "src").name == "stop"
    assert loop.upper.name == "stop_bound"


def test_fori_and_while_functions():
    def kernel(a):
        total = sbuf(1, 1, dtype=nl.int32)
        nisa.memset(dst=total, value=0)
        seen = []
        nl.fori_loop(0, 8, lambda i: seen.append(i), step=2)
        assert len(seen) == 2

        def body(r):
            following = nisa.register_alloc()
            nisa.register_load(following, total)
            return following

        nl.while_loop(nisa.register_alloc(1), body)

    kernel = traced(kernel, (4, 4))
    fori, repeat = loops(kernel.bodies[0])
    assert (fori.lower, fori.upper, fori.step) == (0, 8, 2)
    assert isinstance(repeat, While)
    assert [n.row.name for n in repeat.body] == ["register_load", "register_move"]
    assert value(repeat.body[1], "dst") is repeat.register


def test_while_on_a_register():
    def kernel(a):
        flag = sbuf(1, 1, dtype=nl.int32)
        nisa.memset(dst=flag, value=0)
        left = nisa.register_alloc(1)
        while left:
            nisa.register_load(left, flag)
            if a is None:
                continue
        for _ in range(2):
            again = nisa.register_alloc(1)
            while again:
                inner = nisa.register_alloc(1)
                while inner:
                    nisa.register_load(inner, flag)
                nisa.register_load(again, flag)

    kernel = traced(kernel, (4, 4))
    single, first, second = loops(kernel.bodies[0])
    assert single.register.name == "left" and len(single.body) == 1
    assert first.register is not second.register
    assert [n.register.name for n in loops(first.body)] == ["inner"]


@pytest.mark.parametrize("source", [True, False], ids=["with source", "without source"])
def test_while_and_if_are_told_apart(source):
    """The tracer looks at the kernel's syntax, or at its byte code where there is no source."""
    text = (
        "def loop(a):\n"
        "    reg = nisa.register_alloc(1)\n"
        "    flag = nl.zeros((1, 1), dtype=nl.int32)\n"
        "    while reg:\n"
        "        nisa.register_load(reg, flag)\n"
        "def branch(a):\n"
        "    reg = nisa.register_alloc(1)\n"
        "    if reg:\n"
        "        pass\n"
    )
    namespace = {"nl": nl, "nisa": nisa}
    if source:
        import linecache

        linecache.cache["<kernel text>"] = (len(text), None, text.splitlines(True), "<kernel text>")
    exec(compile(text, "<kernel text>" if source else "<no text>", "exec"), namespace)
    assert isinstance(loops(traced(namespace["loop"], (4, 4)).bodies[0])[0], While)
    refused("register-branch", namespace["branch"], (4, 4))


def line(error):
    return error.location.text.strip()


def test_registers_are_no_python_values():
    def register():
        return nisa.register_alloc(1)

    cases = [
        ("register-branch", lambda r: 1 if r else 2),
        ("register-branch", lambda r: not r),
        ("register-branch", lambda r: r > 3),
        ("register-branch", lambda r: r == 3),
        ("register-arithmetic", lambda r: r + 1),
        ("register-arithmetic", lambda r: 2 * r),
        ("register-arithmetic", lambda r: range(r)),
        ("register-arithmetic", lambda r: nl.affine_range(r)),
        ("register-arithmetic", lambda r: float(r)),
    ]
    for code, use in cases:
        error = refused(code, lambda a, use=use: use(register()), (4, 4))
        assert "lambda r:" in line(error)

    def compound(a):
        r, s = register(), register()
        while r and s:
            pass

    assert line(refused("register-branch", compound, (4, 4))) == "while r and s:"


def test_loop_variables_are_frozen_and_steps_are_known():
    def write(a):
        for i in nl.dynamic_range(4):
            nisa.register_move(i, 3)

    assert line(refused("value-not-allowed", write, (4, 4))) == "nisa.register_move(i, 3)"
    refused("value-not-allowed", lambda a: nl.dynamic_range(0, 4, nisa.register_alloc(1)), (4, 4))
    refused("value-not-allowed", lambda a: nl.dynamic_range(0, 4, 0), (4, 4))


def test_python_state_carried_by_a_loop_is_named():
    def counter(a):
        n = 1
        for _ in nl.affine_range(a.shape[0] // P):
            nisa.memset(dst=sbuf(P, 4), value=float(n))
            n *= 2

    error = refused("loop-carried-state", counter, (M, 8))
    assert "value is 1.0, then 2.0" in error.what and "memset" in line(error)

    def previous(a):
        tile = None
        for i in nl.affine_range(a.shape[0] // P):
            new = nl.ndarray((P, 8), nl.float32)
            nisa.dma_copy(dst=new, src=a[nl.ds(i * P, P)])
            nisa.tensor_copy(dst=new, src=new if tile is None else tile)
            tile = new

    error = refused("loop-carried-state", previous, (M, 8))
    assert "'new'" in error.what and "tensor_copy" in line(error)

    def branch(a):
        first = True
        for _ in nl.dynamic_range(4):
            if first:
                nisa.memset(dst=sbuf(P, 4), value=0.0)
            first = False

    assert "operation" in refused("loop-carried-state", branch, (4, 4)).what

    def condition(a):
        reg = nisa.register_alloc(1)
        while reg:
            reg = nisa.register_alloc(1)

    assert "'reg'" in refused("loop-carried-state", condition, (4, 4)).what


def test_nothing_of_a_body_outlives_its_loop():
    def tile_after(a):
        for i in nl.affine_range(a.shape[0] // P):
            tile = nl.ndarray((P, 8), nl.float32)
            nisa.dma_copy(dst=tile, src=a[nl.ds(i * P, P)])
        nisa.tensor_copy(dst=sbuf(P, 8), src=tile)

    def list_after(a):
        tiles = []
        for i in nl.affine_range(a.shape[0] // P):
            tiles.append(sbuf(P, 8))
            nisa.dma_copy(dst=tiles[-1], src=a[nl.ds(i * P, P)])
        nisa.tensor_copy(dst=sbuf(P, 8), src=tiles[0])

    def variable_after(a):
        for i in nl.affine_range(a.shape[0] // P):
            nisa.memset(dst=sbuf(P, 4), value=0.0, name=f"fill{i}")
        nisa.dma_copy(dst=sbuf(P, 8), src=a[nl.ds(i * P, P)])

    def register_after(a):
        for _ in nl.dynamic_range(4):
            inner = nisa.register_alloc(2)
        nisa.register_store(sbuf(1, 1, dtype=nl.int32), inner)

    for body in (tile_after, list_after, variable_after, register_after):
        error = refused("loop-carried-state", body, (M, 8))
        assert line(error) == inspect.getsource(body).strip().splitlines()[-1].strip()


def test_a_while_line_reached_again_from_inside_of_it():
    def countdown(counts, depth):
        left = nisa.register_alloc()
        nisa.register_load(left, counts[depth])
        while left:
            if depth:
                countdown(counts, depth - 1)
            nisa.tensor_scalar(dst=counts[depth], data=counts[depth], op0=nl.subtract, operand0=1)
            nisa.register_load(left, counts[depth])

    def kernel(a):
        countdown([sbuf(1, 1, dtype=nl.int32) for _ in range(3)], 2)

    (outer,) = whiles(traced(kernel, (4, 4)).bodies[0])
    (middle,) = whiles(outer.body)
    (inner,) = whiles(middle.body)
    assert not whiles(inner.body)
    assert len({outer.register, middle.register, inner.register}) == 3


def whiles(nodes):
    return [node for node in nodes if isinstance(node, While)]


def test_leaving_a_rolled_loop_early():
    def leave(a):
        for _ in nl.affine_range(a.shape[0] // P):
            nisa.memset(dst=sbuf(P, 4), value=0.0)
            break

    assert line(refused("loop-break", leave, (M, 8))).startswith("for _ in")

    def leave_inner(a):
        for _ in nl.dynamic_range(4):
            for _ in nl.dynamic_range(5):
                break

    assert "dynamic_range(5)" in line(refused("loop-break", leave_inner, (M, 8)))

    def leave_by_return(a):
        for _ in nl.dynamic_range(4):
            return

    refused("loop-break", leave_by_return, (M, 8))

    def leave_while(a):
        reg = nisa.register_alloc(1)
        while reg:
            if a is not None:
                break

    assert line(refused("loop-break", leave_while, (M, 8))) == "break"


def test_while_must_change_its_condition():
    def kernel(a):
        reg = nisa.register_alloc(1)
        while reg:
            nisa.memset(dst=sbuf(P, 4), value=0.0)

    refused("value-not-allowed", kernel, (4, 4))


def test_symbol_loops_may_not_be_bounded_by_loop_variables():
    def kernel(a):
        for i in nl.affine_range(a.shape[0] // P):
            for _ in nl.affine_range(i):
                pass

    refused("register-arithmetic", kernel, (M, 8))


def test_on_chip_partitions_cannot_move_with_the_loop():
    def kernel(a):
        tile = sbuf(P, 8)
        for i in nl.dynamic_range(4):
            nisa.memset(dst=tile[nl.ds(i, 1), :], value=0.0)

    refused("view-not-allowed", kernel, (4, 4))


def test_the_free_dimension_can():
    def kernel(a):
        tile = sbuf(P, 8)
        for i in nl.dynamic_range(4):
            nisa.memset(dst=tile[:, nl.ds(i, 1)], value=0.0)

    (loop,) = loops(traced(kernel, (4, 4)).bodies[0])
    assert value(loop.body[0], "dst").offset.terms == ((loop.variable, 1),)


def test_shared_tensors_are_made_before_rolled_loops():
    def kernel(a):
        for _ in nl.dynamic_range(4):
            nl.ndarray((4, 8), nl.float32, nl.shared_hbm)

    refused("not-supported", kernel, (4, 4))


def test_loop_bounds_from_expressions_of_symbols():
    def kernel(a):
        half = a.shape[0] // 2
        for i in nl.affine_range(ceil_division(half, 64)):
            tile = psum(64, 8)
            nisa.dma_copy(dst=sbuf(64, 8), src=a[nl.ds(i * 64, 64)])
            del tile

    (loop,) = traced(kernel, (M, 8)).bodies[0]
    assert str(loop.upper) == "M//128"


def test_copies_of_a_body_have_tensors_in_hbm_of_their_own():
    def body(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(a.shape[0] // 128):
            held = nl.ndarray((128, 16), dtype=a.dtype, buffer=nl.private_hbm)
            tile = nl.load(a[nl.ds(i * 128, 128), :])
            nl.store(held, tile)
            nl.store(out[nl.ds(i * 128, 128), :], nl.load(held))
        return out

    size = nki.symbol("M", multiple_of=128, max=1024)
    kernel = traced(body, (size, 16))
    copied = RotateBuffers().run(kernel)
    verify(copied)
    names = [t.name for t in copied.tensors if t.role == "local" and not t.memory.on_chip]
    assert len(names) > 2 and len(set(names)) == len(names)
    assert {name.partition(".")[0] for name in names} == {"held"}
    data = np.random.default_rng(3).standard_normal((384, 16)).astype(np.float32)
    np.testing.assert_array_equal(compile_traced(kernel)(data), data)
