"""Signatures of operations: what a call binds, and what it refuses."""

import inspect

from traced import operations, refused, sbuf, traced, value

import nki.isa as nisa
import nki.language as nl
from isa.enums import Engine
from isa.operations import OPERATIONS
from isa.spec import defaults


def test_repeated_signatures_record_the_values_of_each_call():
    """The second call of a signature takes the remembered path: values must still be its own."""

    def kernel():
        t = nl.ndarray((128, 8), dtype=nl.float32)
        u = nl.ndarray((128, 8), dtype=nl.float32)
        for number in (0.0, -0.0, 1, 1.0, True):
            nisa.tensor_scalar(dst=t, data=u, op0=nl.add, operand0=number)
            nisa.tensor_scalar(dst=u, data=t, op0=nl.add, operand0=number)
        for step in ([[1, 8]], [[2, 8]], ((1, 8),), [[1, 2], [3, 4]]):
            nisa.iota(dst=sbuf(128, 8, dtype=nl.int32), pattern=step, offset=step[0][0])
        for engine in (nisa.engine.vector, nisa.engine.gpsimd, nisa.engine.vector):
            nisa.tensor_copy(dst=t, src=u, engine=engine)

    kernel = traced(kernel)
    scalars = operations(kernel, "tensor_scalar")
    shown = [repr(value(op, "operand0")) for op in scalars]
    assert shown == ["0.0"] * 2 + ["-0.0"] * 2 + ["1"] * 2 + ["1.0"] * 2 + ["True"] * 2
    assert value(scalars[0], "dst").storage.name == "t"
    assert value(scalars[1], "dst").storage.name == "u"
    iotas = operations(kernel, "iota")
    assert [value(op, "pattern") for op in iotas] == [
        ((1, 8),),
        ((2, 8),),
        ((1, 8),),
        ((1, 2), (3, 4)),
    ]
    assert [value(op, "offset") for op in iotas] == [1, 2, 1, 1]
    engines = [value(op, "engine") for op in operations(kernel, "tensor_copy")]
    assert engines == [Engine.vector, Engine.gpsimd, Engine.vector]


def test_a_wrong_call_after_a_right_one_of_the_same_shape_is_refused():
    def kernel(partitions, buffer):
        good, bad = sbuf(128, 8), nl.ndarray((partitions, 8), nl.float32, buffer)
        nisa.tensor_copy(dst=good, src=good)
        nisa.tensor_copy(dst=good, src=bad)

    refused("shape-mismatch", lambda: kernel(64, nl.sbuf))
    refused("wrong-memory", lambda: kernel(128, nl.private_hbm))


def test_public_signatures_follow_the_table():
    for row in OPERATIONS.values():
        if not row.public:
            continue
        function = getattr(nisa, row.name)
        parameters = inspect.signature(function).parameters
        named = [n for n in parameters if n != "name"]
        expected = row.parameters()
        assert named == list(expected)
        assert [field for fields in expected.values() for field in fields] == list(row.field_names)
        given = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
        own = {n: d for n, d in defaults(row).items() if n in expected}
        assert given == own | ({"name": None} if "name" in parameters else {})
        assert all(n in function.__doc__ for n in expected)
    assert "name" not in inspect.signature(nisa.register_load).parameters
    assert list(inspect.signature(nisa.iota).parameters)[-1] == "name"


def test_arguments_that_are_missing_unknown_or_wrong():
    t = sbuf
    cases = [
        ("missing-argument", lambda: nisa.tensor_copy(dst=t(128, 8))),
        ("unknown-argument", lambda: nisa.tensor_copy(t(128, 8), t(128, 8), scale=2.0)),
        ("unknown-argument", lambda: nisa.reciprocal(t(128, 8), t(128, 8), None, 1)),
        ("not-a-tensor", lambda: nisa.tensor_copy(dst=t(128, 8), src=3.0)),
        ("operator-not-allowed", lambda: nisa.activation(t(128, 8), nl.maximum, t(128, 8))),
        ("operator-not-allowed", lambda: nisa.tensor_scalar(t(8, 8), t(8, 8), "add", 1.0)),
        ("engine-not-allowed", lambda: nisa.memset(t(128, 8), 0.0, engine=nisa.engine.tensor)),
        ("value-not-allowed", lambda: nisa.register_load(3, t(1, 1))),
        ("value-not-allowed", lambda: nl.ndarray((128, 8), nl.float32, "sbuf")),
        ("value-not-allowed", lambda: nl.ndarray((0, 8), nl.float32)),
        ("dtype-not-allowed", lambda: nl.ndarray((1, 8), "float13")),
        ("partition-limit", lambda: nl.ndarray((64, 8), nl.float32, address=(96, 0))),
        ("value-not-allowed", lambda: nl.ndarray((64, 8), nl.float32, address=(0, -4))),
    ]
    for code, body in cases:
        error = refused(code, body)
        assert error.location.file == __file__ and error.location.function == "<lambda>"
    assert (
        "Did you mean operand0=?"
        in refused(
            "unknown-argument",
            lambda: nisa.tensor_scalar(dst=t(8, 8), data=t(8, 8), op0=nl.add, operand=1.0),
        ).hint
    )
