"""A program for each documented code that is raised, through `neuronx-cc`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graph_compiler import GraphOptions, parse_text
from graph_compiler.admission import CHECKS, findings
from graph_compiler.command import main
from graph_compiler.documented import DOCUMENTED, documented_code
from isa.errors import NeuronError
from isa.target import resolve

ADD = "add { a = T[] parameter(0)\n b = T[] parameter(1)\n ROOT r = T[] add(a, b) }\n"


def entry(body: str, *, reducer: str = "") -> str:
    added = ADD.replace("T[]", f"{reducer}[]") if reducer else ""
    return f"HloModule m\n{added}ENTRY e {{\n{body}\n}}"


def unary(type: str, shape: str = "[4]") -> str:
    return entry(f"x = {type}{shape} parameter(0)\n ROOT r = {type}{shape} copy(x)")


def convolution(window: str, size: int) -> str:
    return entry(
        "x = f32[1,4,4,1] parameter(0)\n k = f32[3,3,1,1] parameter(1)\n"
        f"ROOT r = f32[1,{size},{size},1] convolution(x, k), window={{size=3x3 {window}}}, "
        "dim_labels=b01f_01io->b01f"
    )


def scatter(type: str) -> str:
    return entry(
        f"x = {type}[3,4] parameter(0)\n i = s32[10] iota(), iota_dimension=0\n"
        f"j = s32[10,1] reshape(i)\n u = {type}[10,4] parameter(1)\n"
        f"ROOT r = {type}[3,4] scatter(x, j, u), update_window_dims={{1}}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=add",
        reducer=type,
    )


def small_scatter(type: str) -> str:
    return scatter(type).replace("s32[10] iota(), iota_dimension=0", "s32[10] parameter(2)")


GATHER = entry(
    "x = f32[3,4] parameter(0)\n i = s32[10] iota(), iota_dimension=0\n"
    "j = s32[10,1] reshape(i)\n ROOT r = f32[10,4] gather(x, j), offset_dims={1}, "
    "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}"
)


def window(text: str, size: int) -> str:
    return entry(
        "x = f32[8] parameter(0)\n z = f32[] constant(0)\n"
        f"ROOT r = f32[{size}] reduce-window(x, z), window={{size=2 {text}}}, to_apply=add",
        reducer="f32",
    )


TWO_WINDOWS = """HloModule m
both { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  s = f32[] add(a, c)
  t = f32[] add(b, d)
  ROOT r = (f32[], f32[]) tuple(s, t) }
ENTRY e { x = f32[8] parameter(0)
  z = f32[] constant(0)
  ROOT r = (f32[7], f32[7]) reduce-window(x, x, z, z), window={size=2}, to_apply=both }"""


def dot(type: str) -> str:
    return entry(
        f"x = {type}[4,8] parameter(0)\n y = {type}[8,4] parameter(1)\n"
        f"ROOT d = {type}[4,4] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )


TOP = entry("x = s32[8] parameter(0)\n ROOT r = (s32[2], s32[2]) topk(x), k=2, largest=true")
UNCOMPILED = entry("x = f32[4] parameter(0)\n ROOT r = f32[4] acosh(x)")
UNKNOWN = entry('x = f32[4] parameter(0)\n ROOT r = f32[4] custom-call(x), custom_call_target="U"')
NONE = ("--implicit-integer-downcast", "none")
SHIFT = entry(
    "x = s8[4] parameter(0)\n y = s8[4] parameter(1)\nROOT r = s8[4] shift-right-arithmetic(x, y)"
)
POWER = entry("x = s64[4] parameter(0)\n y = s64[4] parameter(1)\n ROOT r = s64[4] power(x, y)")
ALL_REDUCE = entry(
    "x = s32[4] parameter(0)\n ROOT r = s32[4] all-reduce(x), to_apply=add", reducer="s32"
)
REDUCE_SCATTER = entry(
    "x = s32[4] parameter(0)\n ROOT r = s32[2] reduce-scatter(x), replica_groups={{0,1}}, "
    "dimensions={0}, to_apply=add",
    reducer="s32",
)
LARGE = entry(
    "x = u64[1] parameter(0)\n c = u64[1] constant({5000000000})\n ROOT r = u64[1] add(x, c)"
)
INFEED = entry("t = token[] after-all()\n ROOT r = (f32[4], token[]) infeed(t)")
PROGRAMS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "EARG001": (unary("f32"), ("--lnc", "2"), "trn1"),
    "EMOD025": (unary("f32", "[<=4]"), (), "trn2"),
    "EVRF009": (unary("f32", "[100000,100000]"), (), "trn2"),
    "ESFH002": (LARGE, (), "trn2"),
    "ESPP004": (unary("f4e2m1fn"), (), "trn2"),
    "ESPP047": (unary("f8e3m4"), (), "trn2"),
    "EUOC002": (UNCOMPILED, (), "trn2"),
    "EVRF001": (INFEED, (), "trn2"),
    "EVRF004": (unary("c64"), (), "trn2"),
    "EVRF005": (unary("f8e4m3fnuz"), (), "trn2"),
    "EVRF010": (convolution("pad=2_2x2_2 lhs_dilate=2x2 rhs_dilate=2x2", 7), (), "trn2"),
    "EVRF011": (convolution("stride=2x2 pad=1_1x1_1 lhs_dilate=2x2", 4), (), "trn2"),
    "EVRF013": (TOP, (), "trn2"),
    "EVRF015": (UNKNOWN, (), "trn2"),
    "EVRF016": (small_scatter("s8"), (), "trn2"),
    "EVRF017": (window("lhs_dilate=2", 14), (), "trn2"),
    "EVRF018": (window("rhs_dilate=2", 6), (), "trn2"),
    "EVRF019": (TWO_WINDOWS, (), "trn2"),
    "EVRF022": (SHIFT, (), "trn2"),
    "EVRF031": (scatter("f32"), (), "trn2"),
    "EVRF035": (dot("s64"), NONE, "trn1"),
    "EVRF051": (unary("f8e4m3fn"), (), "trn1"),
    "EVRF056": (GATHER, (), "trn2"),
    "EVRF060": (small_scatter("s32"), NONE, "trn2"),
    "EVRF061": (ALL_REDUCE, NONE, "trn2"),
    "EVRF062": (POWER, NONE, "trn2"),
    "EVRF063": (REDUCE_SCATTER, NONE, "trn2"),
    "EVRF064": (unary("f32").replace("f32[4] copy", "f32[5] copy"), (), "trn2"),
}
"""Program, options and target, by code."""

ELSEWHERE = {"EOOM001", "EVRF006"}
"""Codes whose programs stand in tests of their own."""


@pytest.mark.parametrize("code", PROGRAMS)
def test_the_program_of_a_code(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text, options, target = PROGRAMS[code]
    Path("m").write_text(text)
    words = ["compile", "m", "--framework", "XLA", "--target", target, *options]
    assert main(words) == 7
    shown = capsys.readouterr().err
    assert re.findall(r"NCC_([A-Z0-9]+)", shown)[0] == code
    assert f"NCC_{code}" in Path("log-neuron-cc.txt").read_text()
    assert not Path("file.neff").exists()


def test_every_code_has_a_program() -> None:
    assert {*PROGRAMS, *ELSEWHERE} == set(DOCUMENTED)


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
