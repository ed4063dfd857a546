"""What authors may write for an operator."""

import operator

import numpy as np
import pytest
from traced import refused, sbuf

import nki.isa as nisa
import nki.language as nl
from isa.alu import ACTIVATIONS, ALU
from isa.enums import Memory


def test_the_operator_that_a_name_or_a_function_of_numpy_means():
    t = sbuf

    def hint(body):
        return refused("operator-not-allowed", body).hint

    for op in ("add", np.add):
        assert hint(lambda op=op: nisa.tensor_scalar(t(8, 8), t(8, 8), op, 1.0)) == "Write nl.add."
    for op in ("exp", np.exp):
        assert hint(lambda op=op: nisa.activation(t(8, 8), op, t(8, 8))) == "Write nl.exp."
    for op in ("load", "nothing", np.vdot, 3):
        assert "nl." not in hint(lambda op=op: nisa.activation(t(8, 8), op, t(8, 8)))
    assert "tensor_tensor takes op=nl.maximum" in hint(
        lambda: nisa.activation(t(8, 8), nl.maximum, t(8, 8))
    )
    for op in ("tanh", np.tanh, nl.tanh):
        assert "activation takes op=nl.tanh" in hint(
            lambda op=op: nisa.tensor_tensor(t(8, 8), t(8, 8), t(8, 8), op)
        )
    for op in ("divide", np.divide, nl.divide, operator.truediv):
        for call in (
            lambda op=op: nisa.tensor_scalar(t(8, 8), t(8, 8), op, t(8, 1)),
            lambda op=op: nisa.tensor_tensor(t(8, 8), t(8, 8), t(8, 1), op),
            lambda op=op: nisa.activation(t(8, 8), op, t(8, 8)),
        ):
            assert "Multiply by the reciprocal: nisa.reciprocal" in hint(call)
    assert "Call nl.fmod(x, y)" in hint(lambda: nisa.tensor_scalar(t(8, 8), t(8, 8), nl.fmod, 2.0))


@pytest.mark.parametrize(
    ("meant", "given"),
    [
        ("add", (nl.sum, np.sum, sum, "sum")),
        ("multiply", (nl.prod, np.prod, operator.mul)),
        ("maximum", (np.max, np.amax, max, "max")),
        ("minimum", (np.min, min, np.fmin)),
        ("logical_and", (nl.all, np.all)),
        ("subtract", (operator.sub, "sub")),
        ("power", (np.float_power, pow)),
    ],
)
def test_the_operator_that_a_reduction_means(meant, given):
    for op in given:
        error = refused(
            "operator-not-allowed",
            lambda op=op: nisa.tensor_reduce(sbuf(8, 1), op, sbuf(8, 8), axis=1),
        )
        assert error.hint == f"Write nl.{meant}."
    assert "bn_stats" in (
        refused(
            "operator-not-allowed",
            lambda: nisa.tensor_reduce(sbuf(8, 1), nl.var, sbuf(8, 8), axis=1),
        ).hint
    )


def test_operator_names_stand_for_table_rows():
    assert nl.add.alu is ALU["add"] and nl.add.activation is None
    assert nl.exp.activation is ACTIVATIONS["exp"] and nl.exp.alu is None
    assert nl.square.alu is ALU["square"] and nl.square.activation is ACTIVATIONS["square"]
    assert {*ALU, *ACTIVATIONS} <= set(nl.__all__)
    assert nl.float32 == "float32" and nl.hbm is nl.private_hbm and nl.sbuf is Memory.sbuf
