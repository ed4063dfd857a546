"""Loops on the device, counted by Python: every mode gives what the loops say."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError

MODES = ("device", "reference", "eager")
in_every_mode = pytest.mark.parametrize("mode", MODES)


def counter():
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0)
    return tile


def count(tile):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1)


def stored(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@in_every_mode
@pytest.mark.parametrize("inner", ["for", "fori", "twice"])
def test_a_bound_that_the_body_of_an_inner_loop_writes(mode, inner):
    """Bounds are read when a loop begins: what its body writes counts from the next time on."""

    def kernel(bounds):
        bounds, total = nl.load(bounds), counter()
        stop = nisa.register_alloc(bounds[:, 0:1])

        def body(_):
            count(total)
            nisa.register_load(stop, bounds[:, 1:2])

        for _ in nl.dynamic_range(3):
            if inner == "fori":
                nl.fori_loop(0, stop, body)
                continue
            for _ in range(2 if inner == "twice" else 1):
                for i in nl.dynamic_range(stop):
                    body(i)
        return stored(total)

    result = nki.simulate(nki.jit(kernel), mode=mode)(np.array([[2, 5]], np.int32))
    assert result.item() == 2 + (5 * 5 if inner == "twice" else 2 * 5)


@in_every_mode
@pytest.mark.parametrize("times", [0, 3])
def test_a_while_whose_condition_an_inner_loop_writes(mode, times):
    """The inner loop may have no iterations in the first one of the outer loop."""

    def kernel(times):
        times, total = nl.load(times), counter()
        left = nisa.register_alloc(1)
        while left:
            count(total)
            stop = nisa.register_alloc(times)
            for i in nl.dynamic_range(stop):
                nisa.register_move(left, i)
            nisa.tensor_scalar(dst=times, data=times, op0=nl.add, operand0=1)
            nisa.tensor_scalar(dst=times, data=times, op0=nl.minimum, operand0=1)
        return stored(total)

    result = nki.simulate(nki.jit(kernel), mode=mode)(np.array([[times]], np.int32))
    # The last index of three is 2, that of one is 0.
    assert result.item() == 2


@in_every_mode
def test_a_while_that_never_writes_its_condition_is_refused(mode):
    def kernel():
        total = counter()
        left = nisa.register_alloc(1)
        while left:
            count(total)
        return stored(total)

    with pytest.raises(NeuronError, match="never writes 'left'") as caught:
        nki.simulate(nki.jit(kernel), mode=mode)()
    assert caught.value.location.text.strip() == "while left:"


@in_every_mode
@pytest.mark.parametrize("kind", ["after", "previous", "shared"])
def test_what_a_body_makes_ends_with_the_iteration(mode, kind):
    def kernel():
        total = counter()
        tiles = [total]
        for _ in nl.dynamic_range(3):
            if kind == "shared":
                stored(total)  # makes a tensor in shared HBM
            tile = counter()
            if kind == "previous":
                nisa.tensor_copy(dst=tile, src=tiles[-1])
            tiles.append(tile)
            count(tile)
        if kind == "after":
            nisa.tensor_copy(dst=total, src=tile)
        return stored(total)

    with pytest.raises(NeuronError) as caught:
        nki.simulate(nki.jit(kernel), mode=mode)()
    code, line = {
        "after": ("loop-carried-state", "nisa.tensor_copy(dst=total, src=tile)"),
        "previous": ("loop-carried-state", "nisa.tensor_copy(dst=tile, src=tiles[-1])"),
        "shared": ("not-supported", "out = nl.ndarray("),
    }[kind]
    assert caught.value.code == code
    assert caught.value.location.text.strip().startswith(line)


@in_every_mode
def test_messages_name_registers_as_the_author_does(mode):
    def beyond(a):
        tile = nl.load(a)
        for row in nl.dynamic_range(0, 12, 3):
            count(tile[:, nl.ds(row, 1)])

    def start_partition(a):
        tile = nl.load(a)
        first = nisa.register_alloc(0)
        count(tile[nl.ds(first, 1), :])

    a = np.zeros((2, 8), np.float32)
    with pytest.raises(NeuronError, match="elements row to row; row is 0 to 9"):
        nki.simulate(nki.jit(beyond), mode=mode)(a)
    with pytest.raises(NeuronError, match="the start partition is first,"):
        nki.simulate(nki.jit(start_partition), mode=mode)(a)


@in_every_mode
def test_waits_that_imply_each_other_in_turns_settle(mode):
    """The waits of the outer loop would change for ever, each missing where another one is."""

    def kernel(a, n):
        tiles = [nl.ndarray((16, 32), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2)]
        for number, tile in enumerate(tiles):
            nisa.dma_copy(dst=tile, src=a[nl.ds(16 * number, 16), :])
        counts = nl.load(n)
        other = nl.load(n)
        junk = nl.ndarray((16, 32), dtype=nl.float32, buffer=nl.sbuf)
        sums = nl.ndarray((16, 1), dtype=nl.float32, buffer=nl.sbuf)
        command = nisa.reduce_cmd.reset_reduce
        nisa.activation(
            junk, nl.copy, tiles[0], reduce_op=nl.add, reduce_res=sums, reduce_cmd=command
        )
        one, two, three = (nisa.register_alloc(number) for number in (1, 2, 3))
        for _ in nl.dynamic_range(one):
            for _ in nl.dynamic_range(two):
                nisa.tensor_scalar(other, counts, nl.add, 3)
                nisa.tensor_scalar(other, other, nl.bitwise_and, 3)
                command = nisa.reduce_cmd.reduce
                nisa.activation(
                    junk, nl.copy, tiles[1], reduce_op=nl.add, reduce_res=sums, reduce_cmd=command
                )
                nisa.tensor_scalar(
                    tiles[0][:, 0:1], sums, nl.minimum, 300.0, op1=nl.maximum, operand1=-3.0
                )
            left = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=left, src=counts[:, 1:2])
            going = nisa.register_alloc(left)
            while going:
                nisa.dma_copy(dst=tiles[1], src=a[nl.ds(three, 16), :])
                nisa.tensor_scalar(tiles[1], tiles[1], nl.minimum, 3.0)
                nisa.register_store(other[0:1, 2:3], two)
                nisa.tensor_scalar(left, left, nl.subtract, 1)
                nisa.register_load(going, left)
        return stored(tiles[0]), stored(tiles[1])

    a = np.arange(32 * 32, dtype=np.float32).reshape(32, 32) % 5
    results = nki.simulate(nki.jit(kernel), mode=mode)(a, np.ones((1, 4), np.int32))
    first = a[:16].copy()
    first[:, 0] = a[:16].sum(axis=1) + 2 * a[16:].sum(axis=1)
    np.testing.assert_array_equal(results[0], first)
    np.testing.assert_array_equal(results[1], np.minimum(a[3:19], 3))


def nested(levels, body):
    """Calls `body` in so many loops on the device."""
    if levels:
        nl.fori_loop(0, 2, lambda _: nested(levels - 1, body))
    else:
        body()


def test_a_level_of_loops_adds_one_run_of_the_python_inside():
    runs = []

    def kernel(a):
        tile = nl.load(a)
        nested(7, lambda: (runs.append(1), count(tile)))
        return stored(tile)

    nki.jit(kernel).trace(np.zeros((1, 1), np.int32))
    assert len(runs) == 8


@in_every_mode
def test_a_loop_inside_that_differs_in_the_next_iteration_outside_is_refused(mode):
    """The loop inside is alike in its first two iterations, and not in its third."""

    def kernel(a):
        tile, runs = nl.load(a), []

        def body():
            runs.append(1)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1 if len(runs) < 3 else 2)

        nested(2, body)
        return stored(tile)

    run = nki.simulate(nki.jit(kernel), mode=mode)
    if mode == "eager":  # runs what Python does
        assert run(np.zeros((1, 1), np.int32)).item() == 1 + 1 + 2 + 2
        return
    with pytest.raises(NeuronError) as caught:
        run(np.zeros((1, 1), np.int32))
    assert caught.value.code == "loop-carried-state"


@in_every_mode
@pytest.mark.parametrize("where", range(4))
def test_a_sum_over_three_loops_starts_once_wherever_its_tile_is(mode, where):
    """The flag of the matmul follows from the loops that stand between it and its tile."""
    numbers = np.arange(64, dtype=np.float32).reshape(8, 8) % 5

    def kernel(a):
        left, out = nl.load(a), nl.zeros((8, 8), dtype=nl.float32, buffer=nl.sbuf)

        def tile():
            return nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)

        def level(depth, total):
            total = tile() if depth == where else total
            if depth == 3:
                nisa.nc_matmul(dst=total, stationary=left, moving=left)
            else:
                nl.fori_loop(0, 2, lambda _: level(depth + 1, total))
            if depth == where:
                nisa.tensor_tensor(dst=out, data1=out, data2=total, op=nl.add)

        level(0, None)
        return stored(out)

    result = nki.simulate(nki.jit(kernel), mode=mode)(numbers)
    np.testing.assert_array_equal(result, 8 * numbers.T @ numbers)


@pytest.mark.parametrize("levels", [64, 65])
def test_loops_that_are_nested_have_a_limit(levels):
    def kernel(a):
        tile = nl.load(a)
        nested(levels, lambda: count(tile))
        return stored(tile)

    trace = nki.jit(kernel).trace
    if levels == 64:
        trace(np.zeros((1, 1), np.int32))
        return
    with pytest.raises(NeuronError) as caught:
        trace(np.zeros((1, 1), np.int32))
    assert caught.value.code == "register-overflow"
    assert caught.value.location is not None


@in_every_mode
@pytest.mark.parametrize("use", ["offset", "bound", "value"])
def test_a_loop_variable_ends_with_its_loop(mode, use):
    def kernel(a):
        tile, kept = nl.load(a), []
        nl.fori_loop(0, 4, kept.append)
        if use == "bound":
            nl.fori_loop(0, kept[0], lambda _: nisa.tensor_copy(dst=tile, src=tile))
        elif use == "value":
            nisa.register_move(nisa.register_alloc(0), kept[0])
        return stored(tile[:, nl.ds(kept[0] if use == "offset" else 0, 1)])

    with pytest.raises(NeuronError) as caught:
        nki.simulate(nki.jit(kernel), mode=mode)(np.zeros((2, 8), np.float32))
    assert caught.value.code == "loop-carried-state"
    assert __file__ in str(caught.value)
