"""Limits on sizes that launch symbols leave open: what a page asks of a size is a guard of the
kernel, or the kernel is refused."""

import pytest
from limits import F32, tile
from surface import psum, sbuf

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError

PACKED = "float8_e5m2_x4"


def guards(body, *shapes, target="trn3", **symbols):
    """What a kernel assumes of its symbols, on arguments of these shapes, which name them."""
    made = {name: nki.symbol(name, **options) for name, options in symbols.items()}

    def kernel(tensor, *others):
        body(tensor, *others)

    specs = [
        nki.TensorSpec(tuple(made.get(size, size) for size in shape[:-1]), shape[-1])
        for shape in shapes
    ]
    traced = nki.jit(kernel, platform_target=target).trace(*specs)
    return {guard.text.partition(" (")[0] for guard in traced.guards}


def quantized(a):
    src = nl.load(a)
    scales = sbuf((128, 2), "uint8")
    nisa.quantize_mx(sbuf((src.shape[0], 2), PACKED), src, scales)


def few_scales(a):
    src = nl.load(a)
    nisa.quantize_mx(sbuf((src.shape[0], 2), PACKED), src, sbuf((36, 2), "uint8"))


def multiplied(a):
    """a only has the sizes of what is multiplied."""
    k, m = a.shape
    data, scales = tile(k, m, dtype=PACKED), tile(128, m, dtype="uint8")
    nisa.nc_matmul_mx(
        psum((m, 16)), data, tile(k, 16, dtype=PACKED), scales, tile(128, 16, dtype="uint8")
    )


def shuffled(mask):
    def body(a):
        src = nl.load(a)
        nisa.nc_stream_shuffle(sbuf(src.shape, a.dtype), src, mask)

    return body


def gathered_turn(a, rows):
    """A transpose of indexed rows, of which there are no more than indices."""
    index, count = nl.load(rows), a.shape[0]
    view = a.ap([[64, count], [1, 64]], vector_offset=index, indirect_dim=0)
    nisa.dma_transpose(sbuf((64, count), a.dtype), view)


def test_fewer_rows_than_indices():
    shapes = ("M", 64, BF16), (128, 1, "uint32")
    assert guards(gathered_turn, *shapes, M={"max": 128, "multiple_of": 16}) == set()
    assert guards(gathered_turn, *shapes, M={"max": 128}) == {"M%16 == 0"}


BACKWARDS = list(range(31, -1, -1))
FIRST = [0] * 32
BF16 = "bfloat16"

CASES = {
    # name: (body, shape, options of M, what is assumed of M)
    "quantize_mx": (quantized, ("M", 8, BF16), {"max": 128}, {"M%32 == 0"}),
    "quantize_mx of half quadrants": (
        quantized,
        ("M", 8, BF16),
        {"max": 128, "multiple_of": 16},
        {"M%32 == 0"},
    ),
    "quantize_mx of quadrants": (
        quantized,
        ("M", 8, BF16),
        {"max": 128, "multiple_of": 32},
        set(),
    ),
    "nc_matmul_mx K": (multiplied, ("M", 16, BF16), {"max": 128}, {"M%32 == 0"}),
    "nc_matmul_mx K of quadrants": (
        multiplied,
        ("M", 16, BF16),
        {"max": 128, "multiple_of": 32},
        set(),
    ),
    "nc_matmul_mx columns": (multiplied, (32, "M", BF16), {"max": 128}, {"M%2 == 0"}),
    "nc_matmul_mx even columns": (
        multiplied,
        (32, "M", BF16),
        {"max": 128, "multiple_of": 2},
        set(),
    ),
    "nc_stream_shuffle": (shuffled(BACKWARDS), ("M", 4, F32), {"max": 128}, {"M%32 == 0"}),
    "nc_stream_shuffle of quadrants": (
        shuffled(BACKWARDS),
        ("M", 4, F32),
        {"max": 128, "multiple_of": 32},
        set(),
    ),
    "nc_stream_shuffle from before": (shuffled(FIRST), ("M", 4, F32), {"max": 128}, set()),
}

REFUSED = {
    # name: (body, shape, options of M, code)
    "quantize_mx": (quantized, ("M", 8, BF16), {"max": 100}, "tile-limit"),
    "quantize_mx scales": (few_scales, ("M", 8, BF16), {"max": 128, "multiple_of": 32},
        "shape-mismatch"),
    "nc_matmul_mx K": (multiplied, ("M", 16, BF16), {"max": 100}, "tile-limit"),
    "nc_matmul_mx columns": (multiplied, (32, "M", BF16), {"max": 99}, "tile-limit"),
    "nc_stream_shuffle": (shuffled(BACKWARDS), ("M", 4, F32), {"max": 100}, "value-not-allowed"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_limit_is_a_guard(name):
    body, shape, options, expected = CASES[name]
    for _ in range(2):
        assert guards(body, shape, M=options) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_a_size_that_breaks_a_limit(name):
    body, shape, options, code = REFUSED[name]
    with pytest.raises(NeuronError) as caught:
        guards(body, shape, M=options)
    assert caught.value.code == code
    assert caught.value.location is not None
