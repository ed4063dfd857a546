"""Numbers of registers on their engines."""

import pytest

from isa.enums import Engine
from isa.errors import NeuronError
from nki.ir.nodes import Register
from nki.passes.emit.registers import RegisterFile


def test_registers_that_are_given_back_are_taken_again():
    one, other, third = (Register(number) for number in range(3))
    file = RegisterFile(Engine.vector, 2, frozenset())
    assert [file.take(register, None) for register in (one, other, one)] == [0, 1, 0]
    file.release([one])
    assert file.take(third, None) == 0


def test_registers_that_may_be_unset_share_their_number_with_no_other():
    one, other = (Register(number) for number in range(2))
    file = RegisterFile(Engine.vector, 2, {one})
    assert file.take(one, None) == 0
    file.release([one])
    assert file.take(other, None) == 1


def test_an_engine_has_so_many_registers():
    file = RegisterFile(Engine.scalar, 1, frozenset())
    file.take(Register(0), None)
    with pytest.raises(NeuronError) as error:
        file.take(Register(1), None)
    assert error.value.code == "register-overflow"
    assert "scalar" in error.value.what
