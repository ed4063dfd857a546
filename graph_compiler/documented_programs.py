"""For each documented code a program that has it: what its page shows, and tests compile."""

from __future__ import annotations

import base64
import json
from typing import NamedTuple

from graph_compiler.kernels import TARGET
from graph_compiler.scaled_calls import QUANTIZE, SCALED_DOT


class DocumentedProgram(NamedTuple):
    """HLO text, and how `neuronx-cc` is called for it."""

    text: str
    options: tuple[str, ...] = ()
    target: str = "trn2"


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
_SHORT: dict[str, tuple[str, tuple[str, ...], str]] = {
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


def called(
    target: str, result: str, operands: tuple[str, ...], configuration: str
) -> DocumentedProgram:
    """A custom call of parameters."""
    given = [f" p{i} = {shape} parameter({i})\n" for i, shape in enumerate(operands)]
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    stated = configuration.replace("\\", "\\\\").replace('"', '\\"')
    return DocumentedProgram(entry(
        f'{"".join(given)}ROOT r = {result} custom-call({names}), custom_call_target="{target}", '
        f'backend_config="{stated}"'
    ))  # fmt: skip


def quantised(
    result: str = "(u32[8,16], u8[8,2])",
    operands: tuple[str, ...] = ("bf16[8,64]",),
    configuration: str | None = None,
    **changes: object,
) -> DocumentedProgram:
    """A call of QuantizeMX that is right but for what is given."""
    stated = {"dim": -1, "block_size": 32, "scale_method": "EMAX", "dtype": "float8_e5m2"}
    text = json.dumps(stated | changes) if configuration is None else configuration
    return called(QUANTIZE, result, operands, text)


def scaled(
    left: str = "u32[2,8,16]",
    right: str = "u32[2,4,16]",
    result: str = "f32[2,8,4]",
    more: tuple[str, ...] = ("u8[2,8,2]", "u8[2,4,2]"),
    configuration: str | None = None,
    **changes: list[int],
) -> DocumentedProgram:
    """A scaled product that is right but for what is given."""
    stated = {"lhs_batch_dimensions": [0], "rhs_batch_dimensions": [0]} | changes
    text = json.dumps({"scaled_dot_backend_config": stated})
    operands = (left, right, *more)
    return called(SCALED_DOT, result, operands, text if configuration is None else configuration)


def kernel(**parts: str) -> DocumentedProgram:
    """A call of an NKI kernel whose configuration has these parts of a binary."""
    text = json.dumps({"func_name": "k", "klir_binary": parts})
    return called(TARGET, "f32[4]", ("f32[4]",), base64.b64encode(text.encode()).decode())


def repeated(times: int) -> str:
    """Computations of which each calls the one before twice."""
    parts = ["f0 {\n x = f32[2] parameter(0)\n ROOT r = f32[2] tanh(x)\n}\n"]
    for number in range(1, times):
        calls = f"y = f32[2] call(x), to_apply=f{number - 1}\n ROOT r = f32[2] call(y), "
        parts.append(
            f"f{number} {{\n x = f32[2] parameter(0)\n {calls}to_apply=f{number - 1}\n}}\n"
        )
    body = f"x = f32[2] parameter(0)\n ROOT r = f32[2] call(x), to_apply=f{times - 1}"
    return f"HloModule m\n{''.join(parts)}ENTRY e {{\n {body}\n}}"


def block_of_sum(size: int, *, whole: bool) -> str:
    """A block of a sum of [size, size], at a place that is computed: of a parameter with itself if
    `whole`, else of a row and a column."""
    shape = f"f32[{size},{size}]"
    given = f"x = {shape if whole else f'f32[{size}]'} parameter(0)\n"
    row, column = ("x", "x") if whole else ("a", "b")
    spread = [f"{name} = {shape} broadcast(x), dimensions={{{axis}}}\n"
              for axis, name in enumerate(() if whole else ("b", "a"))]  # fmt: skip
    return entry(
        f"{given} i = s32[] parameter(1)\n{' '.join(spread)} y = {shape} add({row}, {column})\n"
        "ROOT r = f32[1,8] dynamic-slice(y, i, i), dynamic_slice_sizes={1,8}"
    )


PROGRAMS: dict[str, DocumentedProgram] = {
    **{code: DocumentedProgram(*parts) for code, parts in _SHORT.items()},
    "EOOM002": DocumentedProgram(block_of_sum(60_000, whole=True)),
    "EVRF007": DocumentedProgram(repeated(20)),
    "EVRF036": quantised(configuration="EMAX"),
    "EVRF037": quantised(operands=("bf16[8,64]", "bf16[8,64]")),
    "EVRF038": quantised("(u32[2,4,64], u8[2,1,64])", ("bf16[8,4,64]",), dim=0),
    "EVRF039": quantised(block_size=16),
    "EVRF040": quantised(scale_method="MEAN"),
    "EVRF041": quantised(operands=("f32[8,64]",)),
    "EVRF042": quantised("(u8[8,16], u8[8,2])"),
    "EVRF043": scaled(more=("u8[2,8,2]",)),
    "EVRF044": scaled(left="u8[2,8,16]"),
    "EVRF045": scaled(result="f16[2,8,4]"),
    "EVRF046": scaled(left="u32[16]"),
    "EVRF047": scaled(right="u32[16]"),
    "EVRF048": scaled(right="u32[3,4,16]"),
    "EVRF049": scaled(configuration="{"),
    "EVRF050": scaled(right="u32[2,4,32]"),
    "EVRF053": scaled(lhs_batch_dimensions=[2]),
    "EVRF054": scaled(rhs_batch_dimensions=[3]),
    "EVRF055": scaled(lhs_contracting_dimensions=[4]),
    "EVRF057": quantised("u32[8,16]"),
    "EVRF058": quantised("(u32[8,16], u8[8,2])", ("bf16[8,66]",)),
    "EVRF059": kernel(binary="/nowhere/71adab98/kernel", version_identifier="2"),
    "EVRF065": kernel(binary=""),
    "EXSP001": DocumentedProgram(block_of_sum(100_000, whole=False)),
}
"""A program for each code that the command finds in graphs."""
