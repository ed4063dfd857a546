"""Targets against totals and rules that are published separately."""

from __future__ import annotations

import pytest

from isa.enums import SEQUENCERS, Engine
from isa.errors import NeuronError
from isa.target import DEFAULT_TARGET, DOCUMENTS, TARGETS, Target, resolve

MIB = 1 << 20
ROWS = list(TARGETS.values())


def named(row: Target) -> str:
    return row.name


def test_names():
    assert list(TARGETS) == ["trn1", "trn2", "trn3"]
    assert [row.generation for row in ROWS] == [2, 3, 4]
    for name in ("trn1", "inf2", "gen2", "TRN1"):
        assert resolve(name) is TARGETS["trn1"]
    for name in ("trn2", "gen3"):
        assert resolve(name) is TARGETS["trn2"]
    for name in ("trn3", "trn3pre", "gen4"):
        assert resolve(name) is TARGETS["trn3"]
    assert resolve() is resolve(None) is TARGETS[DEFAULT_TARGET] is TARGETS["trn3"]
    assert resolve(TARGETS["trn2"]) is TARGETS["trn2"]


@pytest.mark.parametrize("name", ["trn9", "", "tpu"])
def test_unknown_target_lists_the_accepted_names(name):
    with pytest.raises(NeuronError) as caught:
        resolve(name)
    assert caught.value.code == "unknown-target"
    assert all(known in caught.value.hint for known in ("trn1", "inf2", "gen3", "trn3"))


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_every_number_has_a_source(row):
    figures = row.figures()
    assert len(figures) > 60
    for name, figure in figures.items():
        assert figure.source, name
        assert figure.value >= 0, name
        head = figure.source.split()[0].strip(",;:(")
        if head.isupper() and head not in ("LNC2", "SBUF"):
            assert head in DOCUMENTS, (name, figure.source)


def test_what_is_taken_over_from_trn2_is_marked():
    for row in ROWS:
        for name, figure in row.figures().items():
            if "trn2 value" in figure.source or figure.source.startswith("no source"):
                assert figure.assumed, (row.name, name)
            if figure.source.startswith("MEASURED") and not figure.assumed:
                assert row.name == "trn2", name


@pytest.mark.parametrize(
    "name, sbuf, psum, dma, bf16, fp32",
    [("trn1", 24, 2, 272, 92, 23), ("trn2", 28, 2, 368, 79, 20), ("trn3", 32, 2, 528, 79, 20)],
)
def test_published_totals(name, sbuf, psum, dma, bf16, fp32):
    row = TARGETS[name]
    assert row.partitions.value * row.sbuf_bytes_per_partition.value == sbuf * MIB
    assert row.partitions.value * row.psum_bytes_per_partition.value == psum * MIB
    assert row.psum_banks.value * row.psum_bank_bytes.value == row.psum_bytes_per_partition.value
    assert row.dma_bytes_per_ns == dma
    # 128 x 128 multiply-adds a cycle.
    peak = 2 * 128 * 128 * row.clock_ghz(Engine.tensor) / 1000
    assert peak == pytest.approx(bf16, rel=0.01)
    assert peak / row.fp32_matmul_passes.value == pytest.approx(fp32, rel=0.02)
    assert row.peak_tflops["bfloat16"].value == bf16
    assert row.peak_tflops["float32"].value == fp32


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_moving_tile_fills_psum(row):
    """One bank up to gen3, all banks on gen4."""
    reach = row.psum_bank_bytes if row.generation < 4 else row.psum_bytes_per_partition
    assert 4 * row.moving_free_max.value == reach.value
    assert row.stationary_free_max.value == row.partitions.value


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_every_sequencer_has_a_clock_and_a_completion_time(row):
    assert set(row.clock_hz) == set(row.completion_ns) == set(SEQUENCERS)


@pytest.mark.parametrize(("size", "fraction"), [(4096, 0.9664), (8192, 0.9832)])
def test_descriptor_time_solves_the_published_curve(size, fraction):
    """DM012, DM013: throughput of rows of 4 and 8 KiB against that of rows of 32 KiB."""
    row = TARGETS["trn2"]

    def rate(size):
        payload = size / row.dma_bytes_per_ns_per_engine.value
        return size / (row.dma_descriptor_ns.value + payload)

    assert rate(size) / rate(32768) == pytest.approx(fraction, rel=0.003)


def test_throttling_is_published_for_gen3_and_gen4():
    assert TARGETS["trn1"].throttle_fraction.value == 1.0
    for name in ("trn2", "trn3"):
        assert TARGETS[name].throttle_fraction.value == 0.5
        assert TARGETS[name].throttle_window_ns.value == 3000


def test_targets_are_frozen_and_compare_by_identity():
    with pytest.raises(AttributeError):
        TARGETS["trn2"].name = "other"
    assert len({*ROWS, *ROWS}) == 3


# Memories
