"""A run near the least time that its bytes or its engines need: the verdict says so in every form,
in place of advice that cannot help."""

from __future__ import annotations

import html
import json

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from isa.target import TARGETS
from simulator.profile.work import floor


@nki.jit(target="trn2")
def softmax(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        here = nl.ds(start, 128)
        x = nl.load(a[here, :])
        largest = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=x, axis=1)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.subtract, operand0=largest)
        nisa.activation_reduce(dst=x, op=nl.exp, data=x, reduce_op=nl.add, reduce_res=total)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[here, :], src=x)
    return out


def test_the_floor_is_the_verdict_wherever_a_profile_shows_itself(tmp_path) -> None:
    a = np.random.default_rng(0).standard_normal((1024, 2048), dtype=np.float32)
    metrics = nki.profile(softmax)(a)[1]
    moved = 2 * a.nbytes / 368  # bytes read and written once, at the documented 368 GB/s
    assert metrics.path[0].engine == "VectorE", "the chain of waits leads through an engine"
    assert metrics.floor is not None and metrics.floor.least_ns == moved
    assert metrics.bound == metrics.floor.name == "DMA bandwidth"
    said = (
        f"at the floor of DMA bandwidth, {metrics.total_ns / moved:.2f} times the least time; "
        "only fewer bytes to move or a second core would help, such as: "
    )
    fewer, *rest = metrics.advice
    assert fewer.text == "make x, a, out bfloat16 (the caller passes a like that)"
    assert metrics.verdict.startswith(said + "32-bit operands at test_work.py")
    said = metrics.verdict
    assert f"verdict            {said[:60]}" in metrics.text()
    assert html.escape(said) in metrics._repr_html_()
    found = json.loads(json.dumps(metrics.to_dict()))
    assert found["verdict"] == said and found["floor"]["least_ns"] == moved
    metrics.save_html(tmp_path / "page.html")
    assert f'<p id="verdict">{metrics.total_us:.2f} us. {html.escape(said)}</p>' in (
        tmp_path / "page.html"
    ).read_text(encoding="utf-8")
    assert max((one.saved_percent for one in rest), default=0) < 8
    engines = [one for one in metrics.limits if "bandwidth" not in one.name]
    assert max((one.saved_percent for one in engines), default=0) < 8, "as near as the floor is"


def test_fewer_bytes_are_what_lowers_the_floor() -> None:
    """The advice that moves less than now is part of the verdict, and its bottleneck is named."""

    @nki.jit(target="trn2")
    def powers(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for start in range(0, a.shape[0], 128):
            here = nl.ds(start, 128)
            x = nl.load(a[here, :])
            nisa.dma_copy(dst=out[here, :], src=nl.exp(x))
        return out

    metrics = nki.profile(powers)(np.ones((1024, 2048), np.float32))[1]
    assert metrics.bottleneck == "32-bit operands"
    assert "at the floor of DMA bandwidth" in metrics.verdict
    assert "such as: 32-bit operands at test_work.py" in metrics.verdict


def test_what_helps_at_each_floor() -> None:
    trn1, trn2 = TARGETS["trn1"], TARGETS["trn2"]
    dma, vector, hbm = ({one: 100.0, "sync": 5.0} for one in ("dma", "vector", "hbm"))
    for bounds, cores, target, helps in (
        (dma, 1, trn2, "only fewer bytes to move or a second core would help"),
        (dma, 2, trn2, "only fewer bytes to move would help"),
        (dma, 1, trn1, "only fewer bytes to move would help"),
        (hbm, 1, trn2, "only fewer bytes to move would help"),
        (vector, 1, trn2, "only less work for VectorE or a second core would help"),
    ):
        found = floor(bounds, 104.0, cores, target)
        assert found is not None and found.helps == helps
        assert floor(bounds, 120.0, cores, target) is None
    triggers = floor({"gpsimd": 100.0}, 104.0, 2, trn2, frozenset({"gpsimd"}))
    assert triggers is not None
    assert triggers.helps == "only fewer and larger transfers, which GpSimdE starts, would help"
    assert floor({}, 0.0, 1, trn2) is None
