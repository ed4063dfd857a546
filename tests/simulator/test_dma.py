"""What DMA transfers cost, against published figures of trn2.

Row names (DM001, ...) are those of the published calibration data.
"""

from __future__ import annotations

import pytest
from timing_programs import ACT, POOL, SP, Builder, hbm, sbuf, spans

from isa.access import AccessPattern
from isa.enums import DgeMode, Memory, OobMode
from isa.machine import control, dma
from simulator.timing import simulate


def test_one_dma_engine_moves_8_kib_rows():
    """DM001: 4 rows of 8 KiB, all in the partitions of one engine, take it 1416 ns."""
    b = Builder()
    b.load(sbuf(4096, "bfloat16", partitions=4), hbm(4, 4096, 4096, "bfloat16"))
    ((start, end, *_),) = spans(simulate(b.program()), "loads")
    assert end - start == pytest.approx(1416, rel=0.07)


def test_time_from_trigger_to_first_byte():
    """DM004: 739 ns from a software-generated trigger to the first DMA activity."""
    b = Builder(queues=(("loads", POOL),))
    b.load(sbuf(128, "bfloat16"), hbm(128, 128, 128, "bfloat16"), mode=DgeMode.swdge, engine=POOL)
    timeline = simulate(b.program())
    ((_, issued, *_),) = spans(timeline, "gpsimd")
    ((first, *_),) = spans(timeline, "loads")
    assert first - issued == pytest.approx(739, rel=0.02)


# DM005 - DM015: throughput of transfers of 128 partitions against that of 32 KiB a partition.
CURVE = {
    32: 0.0132, 64: 0.0264, 128: 0.0504, 256: 0.1031, 1024: 0.4233, 4096: 0.9664, 8192: 0.9832
}  # fmt: skip


def test_dma_bandwidth_curve():
    def rate(size):
        b = Builder(queues=(("loads", POOL),))
        for _ in range(40):
            b.load(
                sbuf(size, "int8"), hbm(128, size, size, "int8"), mode=DgeMode.swdge, engine=POOL
            )
        timeline = simulate(b.program())
        found = spans(timeline, "loads")
        return 39 * 128 * size / (found[-1][1] - found[0][1])

    plateau = rate(32768)
    assert plateau == pytest.approx(368, rel=0.03)  # nki-dma-bandwidth-guide.rst
    for size, fraction in CURVE.items():
        assert rate(size) / plateau == pytest.approx(fraction, rel=0.07)


@pytest.mark.parametrize(("store", "fixed", "slope"), [(False, 1957, 1.3046), (True, 1692, 0.9628)])
def test_isolated_transfer_law(store, fixed, slope):
    """The measured law: a fixed time, and the bytes of the busiest engine at 23 B/ns."""
    for columns in (128, 512, 1024):
        b = Builder()
        b.add(control.Nop, SP, waits=[(0, 1)])
        chip, memory = sbuf(columns), hbm(128, columns, 8192)
        b.load(*((memory, chip) if store else (chip, memory)), updates=[(0, 1)], engine=POOL)
        measured = fixed + slope * 8 * columns * 4 / 23
        assert simulate(b.program()).total_ns == pytest.approx(measured, rel=0.20)


def test_transfers_use_the_engines_of_their_partitions():
    """Two transfers on different engines overlap; two on the same follow each other."""

    def span(second_start):
        b = Builder(queues=(("one", SP), ("two", ACT)))
        b.load(sbuf(8192, partitions=8), hbm(8, 8192, 8192))
        b.load(sbuf(8192, partitions=8, start=second_start), hbm(8, 8192, 8192), engine=ACT)
        tracks = simulate(b.program()).cores[0].tracks
        found = [span for track in tracks if track.queue >= 0 for span in track.spans]
        return max(end for _, end, *_ in found) - min(start for start, *_ in found)

    assert span(0) == pytest.approx(2 * span(8), rel=0.01)


def test_strided_hbm_rows_cost_a_descriptor_an_element():
    def active(stride):
        b = Builder()
        source = AccessPattern(
            Memory.shared_hbm, "float32", 0, ((512 * stride, 128), (stride, 512)), tensor=0
        )
        b.load(sbuf(512), source)
        return simulate(b.program()).cores[0]

    assert active(1).descriptors == 128
    assert active(2).descriptors == 128 * 512
    assert active(2).dma_work > 40 * active(1).dma_work


def test_casting_transfers_run_at_half_rate():
    def active(dtype):
        b = Builder()
        b.load(sbuf(8192, dtype), hbm(128, 8192, 8192))
        return simulate(b.program()).cores[0].dma_active

    assert active("int32") == pytest.approx(2 * active("float32"), rel=0.03)


@pytest.mark.parametrize(("on_chip", "fraction"), [(True, 0.5), (False, 0.9)])
def test_transposes_run_at_a_part_of_the_rate(on_chip, fraction):
    """ARCH3: of the DMA throughput they achieve up to 90 % from HBM, 50 % from SBUF."""

    def active(row):
        b = Builder()
        chip = sbuf(8192, "bfloat16", offset=64 << 10)
        source = chip if on_chip else hbm(128, 8192, 8192, "bfloat16")
        b.add(row, SP, sbuf(8192, "bfloat16"), source, 0, DgeMode.none, OobMode.error)
        return simulate(b.program()).cores[0].dma_active

    assert active(dma.DmaTranspose) * fraction == pytest.approx(active(dma.DmaCopy), rel=0.03)


def test_bytes_by_direction():
    b = Builder()
    b.load(sbuf(512), hbm(128, 512, 512))
    b.load(hbm(128, 512, 512), sbuf(512), engine=POOL)
    b.load(hbm(128, 512, 512), hbm(128, 512, 512))
    core = simulate(b.program()).cores[0]
    size = 128 * 512 * 4
    assert core.bytes == {"hbm->sbuf": size, "sbuf->hbm": size, "hbm->hbm": size}
    assert (core.hbm_read_bytes, core.hbm_write_bytes) == (2 * size, 2 * size)
