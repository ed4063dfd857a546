"""Graphs that the device compiler refuses before it lowers them."""

from __future__ import annotations

import pytest

from graph_compiler import GraphOptions, compile, parse_text
from graph_compiler.admission import CHECKS, findings
from graph_compiler.documented import documented_code
from graph_compiler.documented_programs import UNKNOWN, entry, window
from isa.errors import NeuronError
from isa.target import resolve


def test_an_unknown_custom_call_of_a_graph_that_is_compiled_by_call() -> None:
    with pytest.raises(NeuronError) as caught:
        compile(parse_text(UNKNOWN), "trn2")
    assert documented_code(caught.value) == "EHCA005" and "`r`" in caught.value.what


def test_an_algorithm_of_random_bits() -> None:
    text = entry(
        "x = u64[2] parameter(0)\n"
        "ROOT r = (u64[2], u32[4]) rng-bit-generator(x), algorithm=rng_default"
    )
    module = parse_text(text)
    strict = GraphOptions(documented_limits=True)
    codes = [documented_code(e) for e in findings(module, resolve("trn2"), strict)]
    assert "EVRF006" not in codes
    module.entry.root.attributes["rng_algorithm"] = "RNG_PHILOX"
    codes = [documented_code(e) for e in findings(module, resolve("trn2"), strict)]
    assert codes == ["EVRF006"]


def test_a_program_beyond_the_memory() -> None:
    assert documented_code(NeuronError("hbm-overflow", "m has 2^40 B")) == "EOOM001"


def test_limits_of_the_vendors_compiler_are_those_of_the_command_alone() -> None:
    kept = {row.code for row in CHECKS if not row.limit}
    assert kept == {"EVRF051"}
    module = parse_text(window("rhs_dilate=2", 6))
    assert list(findings(module, resolve("trn2"), GraphOptions())) == []
