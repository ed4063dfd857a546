"""Shard maps of jax."""

from __future__ import annotations

import numpy as np

from graph_compiler import evaluate, parse_text


def test_shard_maps_split_and_join_by_the_mesh() -> None:
    """Two dimensions over a 2 x 2 mesh, one of them over both axes on the way out."""
    mesh = r"{mesh = #sdy.mesh<[\"a\"=2, \"b\"=2]>}"

    def sharded(result: str, operand: str, direction: str, shardings: str) -> str:
        target = {"in": "GlobalToLocalShape", "out": "LocalToGlobalShape"}[direction]
        value = f"#sdy.sharding_per_value<[<@mesh, [{shardings}]>]>".replace('"', r"\"")
        return (
            f'{result} custom-call({operand}), custom_call_target="xla.sdy.{target}",'
            f' frontend_attributes={{xla.sdy.{direction}_shardings="{value}"}}'
        )

    lines = [
        f'HloModule shards, frontend_attributes={{xla.sdy.meshes="{mesh}"}}',
        "ENTRY entry {",
        "  x = f32[4,2] parameter(0)",
        "  l = " + sharded("f32[2,1]", "x", "in", '{"b"}, {"a"}'),
        "  n = f32[2,1] negate(l)",
        "  r = f32[2] reshape(n)",
        "  ROOT g = " + sharded("f32[8]", "r", "out", '{"b", "a"}'),
        "}",
    ]
    text = "\n".join([*lines, ""])
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    (found,) = evaluate(parse_text(text), x, ranks=4)
    parts = [-x[2 * b : 2 * b + 2, a] for b in range(2) for a in range(2)]
    assert found.tolist() == np.concatenate(parts).tolist()
