"""Groups of ranks, in all forms in which graphs state them."""

from __future__ import annotations

import numpy as np
import pytest
from ranks_of_graphs import ADD, EIGHT, run

from graph_compiler import Instruction, Shape, evaluate_ranks, load, parse_text, print_text
from graph_compiler.hlo import Record
from graph_compiler.hlo.operators.collectives.groups import stated_groups


@pytest.mark.parametrize(
    ("groups", "size"),
    [("[2,4]<=[8]", 4), ("[4,2]<=[2,4]T(1,0)", 2), ("mesh['a'=2,'b'=4] {'a'}", 2)],
)
def test_groups_in_the_protos_of_xla_are_read(groups: str, size: int) -> None:
    """XLA states each form in a field of its own."""
    hlo = pytest.importorskip("jaxlib._hlo", reason="jax is not installed")
    text = (
        f"HloModule m\n{ADD}ENTRY e {{\n  x = f32[1] parameter(0)\n"
        f"  ROOT r = f32[1] all-reduce(x), replica_groups={groups}, to_apply=add\n}}"
    )
    data = hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    module = load(data)
    assert f"replica_groups={groups}" in print_text(module)
    assert evaluate_ranks(module, [[np.float32([1])]] * 8)[0][0].tolist() == [size]
    ours = parse_text(text).entry.root.attributes
    assert module.entry.root.attributes == ours


def test_parts_of_axes_and_devices_in_another_order_make_groups() -> None:
    """Axis `a` of 4 as 2 x 2, of which the inner part; devices counted backwards."""
    axes = (Record("MeshAxis", name="a", size=4), Record("MeshAxis", name="b", size=2))
    part = Record("AxisRefProto", sub_axis_info=Record("SubAxis", pre_size=2, size=2))
    expected = [[0, 2], [1, 3], [4, 6], [5, 7]]
    backwards = Record("IotaTransform", reshape_dims=(2, 4), transpose_perm=(1, 0))
    order = np.arange(8).reshape(2, 4).T.reshape(-1)
    for devices, ids in (
        ({}, range(8)),
        ({"device_ids": tuple(range(7, -1, -1))}, range(7, -1, -1)),
        ({"iota_transform": backwards}, order),
    ):
        mesh = Record("MeshProto", axes=axes, **devices)
        groups = Record("MeshAxesReplicaGroupListProto", mesh=mesh, axes=(part,))
        attributes = {"mesh_axes_replica_group_list": groups}
        item = Instruction("all-reduce", Shape("f32"), attributes=attributes)
        assert stated_groups(item) == [[int(ids[place]) for place in row] for row in expected]


@pytest.mark.parametrize(
    ("groups", "members"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("[2,4]<=[8]", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("[4,2]<=[2,4]T(1,0)", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("[2,4]<=[2,2,2]T(1,0,2)", [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("[8,1]<=[8]", [[rank] for rank in range(8)]),
        ("[1,8]<=[8]", [list(range(8))]),
        ("{}", [list(range(8))]),
        ("mesh['a'=2,'b'=4] {'b'}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("mesh['a'=2,'b'=4] {'a'}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("mesh['a'=2,'b'=2,'c'=2] {'c','a'}", [[0, 4, 1, 5], [2, 6, 3, 7]]),
    ],
)
def test_groups_are_lists_or_numbers_in_an_array_or_axes_of_a_mesh(
    groups: str, members: list[list[int]]
) -> None:
    line = f"ROOT r = f32[1] all-reduce(x), replica_groups={groups}, to_apply=add"
    expected = [
        [[float(sum(1 << other for other in group))]]
        for rank in range(8)
        for group in members
        if rank in group
    ]
    assert run(line, EIGHT) == expected


@pytest.mark.parametrize(
    ("line", "received"),
    [
        # Two replicas of two partitions; rank = 2 replica + partition. Which ranks' values meet:
        ("all-gather(x), replica_groups={{0,1}}, dimensions={0}", "02 13 02 13"),
        ("all-gather(x), channel_id=1, replica_groups={{0},{1}}, dimensions={0}", "01 01 23 23"),
        (
            "all-gather(x), channel_id=1, replica_groups={{0,3},{2,1}}, dimensions={0}, "
            "use_global_device_ids=true",
            "03 21 21 03",
        ),
        ("all-to-all(x, x), replica_groups={{0,1}}", "02 13 02 13"),
        ("all-to-all(x, x), channel_id=1, replica_groups={{0,1}}", "01 01 23 23"),
        ("all-to-all(x, x), channel_id=1, replica_groups={{1,0}}", "10 10 32 32"),
        ("collective-broadcast(x), replica_groups={{1,0}}", "2 3 2 3"),
        ("collective-broadcast(x), channel_id=1, replica_groups={{1,0}}", "1 1 3 3"),
        ("collective-permute(x), source_target_pairs={{0,1},{1,0}}", "2 3 0 1"),
        ("collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}}", "1 0 3 2"),
    ],
)
def test_a_channel_says_whether_groups_are_of_replicas_or_of_partitions(
    line: str, received: str
) -> None:
    opcode = line.partition("(")[0]
    shape = {"all-gather": "f32[2]", "all-to-all": "(f32[1], f32[1])"}.get(opcode, "f32[1]")
    found = run(f"ROOT r = {shape} {line}", [[float(r)] for r in range(4)], partitions=2)
    flat = ["".join(str(int(v)) for output in outputs for v in output) for outputs in found]
    assert flat == received.split()
