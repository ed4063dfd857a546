"""Tensors in HBM within others: loops over equal parameters, slices of arguments, reused bytes; in
device and reference mode against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ir_comparison import difference
from reference_run import run_reference
from tile_ir.parser import parse_kernel
from tile_ir.verify import verify

from isa.binding import bind
from isa.errors import NeuronError
from isa.files.container import read, write
from isa.files.text import assemble, disassemble
from isa.program import Program
from nki.ir import TracedKernel
from nki.ir.text import print_kernel
from nki.pipeline import compile_kernel
from simulator.execute import run
from simulator.races.happens_before import check

MODES = pytest.mark.parametrize("mode", ["device", "numpy", "reference"])
LAYERS = 12
RANDOM = np.random.default_rng(11)


def kernel_of(text: str) -> TracedKernel:
    """A kernel from its text, which is checked and survives printing."""
    kernel = parse_kernel(text)
    verify(kernel)
    assert difference(parse_kernel(print_kernel(kernel)), kernel) is None
    return kernel


def program_of(kernel: TracedKernel, **symbols: int) -> Program:
    """The proven program, from a container and from assembly."""
    program = compile_kernel(kernel)
    assert read(write(program)) == program
    assert assemble(disassemble(program)) == program
    bound = bind(program, symbols)
    assert check(bound) == []
    return bound


def outputs(kernel: TracedKernel, inputs: list[Any], mode: str, **symbols: int) -> list[Any]:
    if mode == "reference":
        return run_reference(kernel, inputs, symbols).outputs
    return run(program_of(kernel, **symbols), inputs, native=mode == "device").outputs


# -- loops over equal parameters ------------------------------------------------------------------


def chain(rolled: bool, layers: str = str(LAYERS)) -> str:
    """y = x, then y = relu(w[layer].T @ y) for each of the layers, whose weights are parameters
    within one arena; the loop, or every layer by itself."""
    weights = [
        f'tensor %t{10 + i} "w{i}": shared_hbm float32[64, 64] role=input within=%t0 at={16384 * i}'
        for i in range(LAYERS)
    ]
    body = """\
  storage_begin dst=%t5[64, 64 : 64, 1 @ 0]
  dma_copy dst=%t5[64, 64 : 64, 1 @ 0] src=SOURCE engine=sync
  storage_begin dst=%t6[64, 32 : 32, 1 @ 0]
  nc_matmul dst=%t6[64, 32 : 32, 1 @ 0] stationary=%t5[64, 64 : 64, 1 @ 0] \
moving=%t4[64, 32 : 32, 1 @ 0] accumulate=false
  tensor_scalar dst=%t4[64, 32 : 32, 1 @ 0] data=%t6[64, 32 : 32, 1 @ 0] op0=maximum operand0=0.0 \
engine=vector
"""
    if rolled:
        lines = body.replace("SOURCE", "%t2[64, 64 : 64, 1 @ 0]").splitlines()
        steps = [f"  loop %r0 = 0 to {layers} step 1:", *("  " + line for line in lines)]
        head = [f'  register %r0 "layer" from 0 to ({layers} - 1)', "  place %t2 at=(16384*%r0)"]
        if layers.isdigit():
            head[0] = f'  register %r0 "layer" from 0 to {int(layers) - 1}'
    else:
        head = []
        steps = [
            line
            for i in range(LAYERS)
            for line in body.replace("SOURCE", f"%t{10 + i}[64, 64 : 64, 1 @ 0]").splitlines()
        ]
    moved = ['tensor %t2 "w": shared_hbm float32[64, 64] within=%t0'] if rolled else []
    return "\n".join(
        [
            "kernel chain target=trn2",
            *([] if layers.isdigit() else [f"symbol N min=1 max={LAYERS} multiple_of=1"]),
            f'tensor %t0 "arena": shared_hbm uint8[{16384 * LAYERS}]',
            *weights,
            *moved,
            'tensor %t1 "x": shared_hbm float32[64, 32] role=input',
            'tensor %t3 "out": shared_hbm float32[64, 32] role=output',
            'tensor %t4 "y": sbuf float32[64, 32] core=0',
            'tensor %t5 "tile": sbuf float32[64, 64] core=0',
            'tensor %t6 "sum": psum float32[64, 32] core=0',
            'input %t1 "x"',
            *[f'input %t{10 + i} "w{i}"' for i in range(LAYERS)],
            "result %t3",
            "core 0:",
            *head,
            "  storage_begin dst=%t4[64, 32 : 32, 1 @ 0]",
            "  dma_copy dst=%t4[64, 32 : 32, 1 @ 0] src=%t1[64, 32 : 32, 1 @ 0] engine=sync",
            *steps,
            "  dma_copy dst=%t3[64, 32 : 32, 1 @ 0] src=%t4[64, 32 : 32, 1 @ 0] engine=gpsimd",
            "",
        ]
    )


WEIGHTS = [RANDOM.standard_normal((64, 64)).astype(np.float32) / 8 for _ in range(LAYERS)]
X = RANDOM.standard_normal((64, 32)).astype(np.float32)


def unrolled_at(symbols: dict[str, int]) -> Any:
    """What the unrolled kernel of so many layers gives."""
    count = symbols.get("N", LAYERS)
    text = chain(rolled=False).splitlines()
    last = [i for i, line in enumerate(text) if "tensor_scalar" in line][count - 1]
    kernel = kernel_of("\n".join([*text[: last + 1], text[-1], ""]))
    return outputs(kernel, [X, *WEIGHTS], "numpy")[0]


@MODES
@pytest.mark.parametrize("symbols", [{}, {"N": 1}, {"N": 7}, {"N": 12}])
def test_a_loop_over_weights_in_an_arena_is_the_unrolled_one(
    symbols: dict[str, int], mode: str
) -> None:
    kernel = kernel_of(chain(rolled=True, layers="(N)" if symbols else str(LAYERS)))
    (found,) = outputs(kernel, [X, *WEIGHTS], mode, **symbols)
    assert found.tobytes() == unrolled_at(symbols).tobytes()
    expected = X
    for weights in WEIGHTS[: symbols.get("N", LAYERS)]:
        expected = np.maximum(weights.T @ expected, 0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# -- slices of arguments, donated arguments -------------------------------------------------------

SLICES = """\
kernel slices target=trn2
tensor %t0 "a": shared_hbm float32[8, 16] role=inout
tensor %t1 "rows": shared_hbm float32[2, 16] within=%t0 at=128
tensor %t2 "words": shared_hbm bfloat16[4, 16] within=%t1 at=0
tensor %t3 "first": shared_hbm float32[2, 16] role=output within=%t0 at=0
tensor %t4 "tile": sbuf float32[2, 16] core=0
tensor %t5 "out": shared_hbm bfloat16[4, 16] role=output
input %t0 "a"
result %t3
result %t5
core 0:
  storage_begin dst=%t3[2, 16 : 16, 1 @ 0]
  dma_copy dst=%t5[4, 16 : 16, 1 @ 0] src=%t2[4, 16 : 16, 1 @ 0] engine=sync
  storage_begin dst=%t4[2, 16 : 16, 1 @ 0]
  dma_copy dst=%t4[2, 16 : 16, 1 @ 0] src=%t1[2, 16 : 16, 1 @ 0] engine=sync
  dma_copy dst=%t3[2, 16 : 16, 1 @ 0] src=%t4[2, 16 : 16, 1 @ 0] engine=gpsimd
"""
A = RANDOM.standard_normal((8, 16)).astype(np.float32)


@MODES
def test_slices_of_an_argument_are_its_bytes(mode: str) -> None:
    first, words = outputs(kernel_of(SLICES), [A.copy()], mode)
    np.testing.assert_array_equal(first, A[2:4])
    assert words.tobytes() == A[2:4].tobytes()


def test_a_result_within_an_argument_changes_the_argument() -> None:
    result = run(program_of(kernel_of(SLICES)), [A.copy()])
    (after,) = result.inputs_after
    np.testing.assert_array_equal(after[:2], A[2:4])
    np.testing.assert_array_equal(after[2:], A[2:])


@MODES
def test_a_result_within_an_argument_has_to_be_written(mode: str) -> None:
    """Its bytes held the argument's until it began."""
    *lines, store = SLICES.splitlines()
    kernel = kernel_of("\n".join([*lines, store.replace("[2, 16", "[1, 16"), ""]))
    with pytest.raises(NeuronError, match=r"Output first: 16 of its 32 elements were never") as e:
        outputs(kernel, [A.copy()], mode)
    assert e.value.code == "output-not-written"


def test_the_same_result_without_a_beginning_keeps_the_argument() -> None:
    lines = [line for line in SLICES.splitlines() if "dst=%t3" not in line]
    first, _ = outputs(kernel_of("\n".join(lines) + "\n"), [A.copy()], "device")
    np.testing.assert_array_equal(first, A[:2])


# -- bytes that one tensor after the other has ----------------------------------------------------

TURNS = """\
kernel turns target=trn2
tensor %t0 "arena": private_hbm uint8[2048] core=0
tensor %t1 "early": private_hbm float32[8, 16] core=0 within=%t0 at=256
tensor %t2 "late": private_hbm float32[16, 16] core=0 within=%t0 at=512
tensor %t3 "a": shared_hbm float32[8, 16] role=input
tensor %t4 "out": shared_hbm float32[8, 16] role=output
input %t3 "a"
result %t4
core 0:
  storage_begin dst=%t1[8, 16 : 16, 1 @ 0]
  dma_copy dst=%t1[8, 16 : 16, 1 @ 0] src=%t3[8, 16 : 16, 1 @ 0] engine=sync
  storage_begin dst=%t2[16, 16 : 16, 1 @ 0]
  dma_copy dst=%t2[ROWS, 16 : 16, 1 @ 0] src=%t1[ROWS, 16 : 16, 1 @ 0] engine=gpsimd
  dma_copy dst=%t4[8, 16 : 16, 1 @ 0] src=%t2[8, 16 : 16, 1 @ 0] engine=sync
"""


@MODES
def test_a_tensor_in_used_bytes_begins_uninitialised(mode: str) -> None:
    """Rows 4 to 7 of the later one have what the earlier one's rows had, of which none is left."""
    with pytest.raises(NeuronError, match="Output out: 64 of its 128 elements depend") as error:
        outputs(kernel_of(TURNS.replace("ROWS", "4")), [A], mode)
    assert error.value.code == "uninitialised-output"


@MODES
def test_a_beginning_leaves_the_bytes_around_it(mode: str) -> None:
    """What lies before the later tensor is still there, and what it wrote too."""
    text = TURNS.replace("ROWS", "4").replace(
        "dst=%t4[8, 16 : 16, 1 @ 0] src=%t2[8, 16 : 16, 1 @ 0]",
        "dst=%t4[8, 16 : 16, 1 @ 0] src=%t0[8, 16 : 16, 1 @ 64]:float32",
    )
    kernel = kernel_of(text)
    (found,) = outputs(kernel, [A], mode)
    np.testing.assert_array_equal(found, np.concatenate([A[:4], A[:4]]))


# -- bounds ---------------------------------------------------------------------------------------


def test_a_view_outside_of_its_slice_is_refused_though_inside_of_the_argument() -> None:
    kernel = parse_kernel(
        SLICES.replace("src=%t1[2, 16 : 16, 1 @ 0]", "src=%t1[2, 16 : 16, 1 @ 1]")
    )
    with pytest.raises(
        NeuronError, match=r"is out of bounds of <shared_hbm rows float32\[2, 16\]>"
    ):
        verify(kernel)
    with pytest.raises(NeuronError, match=r"leaves 'rows', which is float32\[2, 16\]") as error:
        compile_kernel(kernel)
    assert error.value.code == "out-of-bounds"


DYNAMIC = """\
kernel dynamic target=trn2
tensor %t0 "a": shared_hbm float32[8, 16] role=input
tensor %t1 "n": shared_hbm int32[1, 2] role=input
tensor %t2 "rows": shared_hbm float32[3, 16] within=%t0 AT
tensor %t3 "out": shared_hbm float32[1, 16] role=output
input %t0 "a"
input %t1 "n"
result %t3
core 0:
  register %r0 "row"
  register %r1 "first"
  PLACE
  register_load dst=%r0 src=%t1[1, 1 : 1, 1 @ 0]
  register_load dst=%r1 src=%t1[1, 1 : 1, 1 @ 1]
  dma_copy dst=%t3[1, 16 : 16, 1 @ 0] src=%t2[1, 16 : 16, 1 @ 16*%r0] engine=sync
"""


@MODES
@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("row", [0, 2, 3, -1])
def test_a_register_stays_inside_of_a_slice(row: int, moving: bool, mode: str) -> None:
    text = DYNAMIC.replace("AT", "" if moving else "at=128")
    kernel = kernel_of(text.replace("  PLACE\n", "  place %t2 at=(64*%r1)\n" if moving else ""))
    inputs = [A, np.array([[row, 2]], np.int32)]
    if 0 <= row < 3:
        np.testing.assert_array_equal(outputs(kernel, inputs, mode)[0], A[2 + row : 3 + row])
        return
    expected = r"leaves bytes 128 to 319 of 'a'" if moving else r"leaves 'rows', which is float32"
    with pytest.raises(NeuronError, match=expected) as error:
        outputs(kernel, inputs, mode)
    assert error.value.code == "dynamic-out-of-bounds"


def test_launch_sizes_beyond_a_slice_are_refused() -> None:
    kernel = kernel_of("""\
kernel sized target=trn2
symbol N min=1 max=8 multiple_of=1
tensor %t0 "a": shared_hbm float32[8, 16] role=input
tensor %t1 "rows": shared_hbm float32[4, 16] within=%t0 at=64
tensor %t2 "out": shared_hbm float32[N, 16] role=output
input %t0 "a"
result %t2
core 0:
  dma_copy dst=%t2[N, 16 : 16, 1 @ 0] src=%t1[N, 16 : 16, 1 @ 0] engine=sync
""")
    (found,) = outputs(kernel, [A], "device", N=4)
    np.testing.assert_array_equal(found, A[1:5])
    with pytest.raises(NeuronError, match=r"a view of rows stays inside") as error:
        outputs(kernel, [A], "device", N=5)
    assert error.value.code == "guard-refused"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("within=%t0 at=128", "within=%t0 at=130", "no multiple of 4"),
        ("within=%t0 at=128", "within=%t0 at=512", "out of bounds of <shared_hbm a"),
        ("bfloat16[4, 16] within", "bfloat16[5, 16] within", "out of bounds of <shared_hbm rows"),
        ("within=%t1 at=0", "within=%t1 at=0 data=AAAA", "base64"),
        ('"first": shared_hbm', '"first": private_hbm', "in memory of another kind"),
        ('"tile": sbuf float32[2, 16] core=0', '"tile": sbuf float32[2, 16] core=0 within=%t0',
         "within another tensor on chip"),
        ('input %t0 "a"', 'input %t0 "a"\ninput %t1 "b"', "is local, not input"),
    ],
)  # fmt: skip
def test_the_verifier_names_what_is_wrong(old: str, new: str, message: str) -> None:
    assert SLICES.count(old) == 1
    with pytest.raises(NeuronError, match=message):
        verify(parse_kernel(SLICES.replace(old, new)))


def test_parameters_share_no_bytes() -> None:
    text = chain(rolled=False).replace("at=16384", "at=16380")
    with pytest.raises(NeuronError, match="share bytes"):
        verify(parse_kernel(text))
