"""Graphs for tests of the command `neuronx-cc`, and the command in this process."""

from __future__ import annotations

from pathlib import Path

from graph_compiler.command import main

NEGATE = """HloModule small
ENTRY e { x = f32[4] parameter(0)
  ROOT r = f32[4] negate(x) }"""

DOT = """HloModule product
ENTRY e {
  x = f32[4,8] parameter(0)
  y = f32[8,4] parameter(1)
  ROOT d = f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""

WRONG = """HloModule wrong
ENTRY e { x = f32[4] parameter(0)
  ROOT r = f32[5] negate(x) }"""

LAYER = """HloModule layer
ENTRY e {
  x = f32[64,512] parameter(0)
  w = f32[512,1024] parameter(1)
  b = f32[1024] parameter(2)
  d = f32[64,1024] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[64,1024] broadcast(b), dimensions={1}
  s = f32[64,1024] add(d, c)
  ROOT r = f32[64,1024] tanh(s)
}"""
"""A graph of which another plan than the first is faster."""

LAYERS = """HloModule deep
ENTRY e {
  x = f32[16,32] parameter(0)
LINES
}"""


def compiling(*words: str, text: str = NEGATE, target: str = "trn2") -> int:
    Path("model.hlo").write_text(text)
    return main(["compile", "model.hlo", "--framework", "XLA", "--target", target, *words])


def log() -> str:
    return Path("log-neuron-cc.txt").read_text()


def kept(root: str) -> list[Path]:
    return sorted(Path(root).rglob("*.neff"))


def deep(count: int) -> str:
    """Layers that are alike, with weights of their own, and what has no schedule of its own."""
    lines, value = [], "x"
    for n in range(count):
        lines.append(f"  w{n} = f32[32,32] parameter({n + 1})")
        lines.append(
            f"  d{n} = f32[16,32] dot({value}, w{n}), lhs_contracting_dims={{1}}, "
            "rhs_contracting_dims={0}"
        )
        value = f"d{n}"
        for step in range(24):
            op = ("tanh", "negate", "cosine", "abs")[step % 4]
            lines.append(f"  v{n}_{step} = f32[16,32] {op}({value})")
            value = f"v{n}_{step}"
    lines += [
        f"  i = s32[5,1] parameter({count + 1})",
        f"  u = f32[5,32] parameter({count + 2})",
        f"  ROOT last = f32[16,32] scatter({value}, i, u), update_window_dims={{1}}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=times",
    ]
    times = (
        "times { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        " ROOT r = f32[] multiply(a, b) }\n"
    )
    return LAYERS.replace("LINES", "\n".join(lines)).replace("ENTRY", times + "ENTRY")
