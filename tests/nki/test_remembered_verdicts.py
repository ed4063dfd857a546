"""A call that was checked once is not checked again, but where what it was checked for can differ:
in numbers, in sizes of launch symbols, in addresses. Each case is a call that is right, then one
like it that is wrong."""

import pytest
from limits import F32, empty, refused, tile, traced

import nki
import nki.isa as nisa
import nki.language as nl


def unary(operand):
    nisa.tensor_scalar(empty(4, 8), tile(4, 8), nl.abs, operand)


def second(operand):
    nisa.tensor_scalar(empty(4, 8), tile(4, 8), nl.add, 1.0, op1=nl.abs, operand1=operand)


def one_input(operand):
    nisa.scalar_tensor_tensor(empty(4, 8), tile(4, 8), nl.abs, operand, nl.add, tile(4, 8))


def reduced(operand):
    nisa.tensor_scalar_reduce(empty(4, 8), tile(4, 8), nl.abs, operand, nl.add)


def exponential(first):
    command = nisa.reduce_cmd.reset_reduce
    nisa.exponential(empty(4, 8), tile(4, 8), reduce_cmd=command, reduce_init=first)


def activated(parameter):
    bypass = nl.bypass
    nisa.activate2(empty(4, 8), nl.exp, tile(4, 8), 0.0, 0.0, bypass, bypass, relu_param=parameter)


def ranged(fill):
    nisa.range_select(
        empty(4, 8), tile(4, 8), nl.less, nl.less, tile(4, 1), tile(4, 1), on_false_value=fill
    )


def masked(operand):
    dtype = "int32"
    nisa.tensor_scalar(empty(4, 8, dtype=dtype), tile(4, 8, dtype=dtype), nl.bitwise_and, operand)


NUMBERS = {
    # name: (target, call, a number that is right, one that is not)
    "dropout": ("trn2", lambda p: nisa.dropout(empty(4, 8), tile(4, 8), p), 0.5, 1.5),
    "dropout nan": ("trn2", lambda p: nisa.dropout(empty(4, 8), tile(4, 8), p), 1.0, float("nan")),
    "rand2": ("trn3", lambda low: nisa.rand2(empty(4, 8), low, 1.0), 0.0, 2.0),
    "tensor_scalar": ("trn2", unary, 0.0, 1.0),
    "tensor_scalar, second": ("trn2", second, 0, 1),
    "scalar_tensor_tensor": ("trn2", one_input, 0.0, 1.0),
    "tensor_scalar_reduce": ("trn2", reduced, 0.0, 3.0),
    "tensor_scalar, bits": ("trn2", masked, 2**32 - 1, 2**32),
    "tensor_scalar, negative bits": ("trn2", masked, -(2**31), -(2**31) - 1),
    "exponential": ("trn3", exponential, 0.0, 1.0),
    "activate2": ("trn3", activated, 0.0, 0.5),
    "range_select": ("trn2", ranged, -3.4028235e38, 0.0),
    "range_select infinity": ("trn2", ranged, -3.4028235e38, float("-inf")),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_checked_each_time(name):
    target, call, right, wrong = NUMBERS[name]

    def both():
        call(right)
        call(wrong)

    error = refused(both, target)
    assert error.code == "value-not-allowed"


def test_addresses_are_checked_each_time():
    """The scales of elements lie in their quadrant (SDK nki.isa.quantize_mx)."""

    def quantized(address):
        packed = nl.ndarray((32, 2), dtype="float8_e5m2_x4", buffer=nl.sbuf, address=(32, 0))
        where = {} if address is None else {"address": (address, 4096)}
        scales = nl.ndarray((32, 2), dtype="uint8", buffer=nl.sbuf, **where)
        nisa.quantize_mx(packed, tile(32, 8, dtype="bfloat16"), scales)

    traced(lambda: (quantized(None), quantized(32)), "trn3")
    error = refused(lambda: (quantized(None), quantized(0)), "trn3")
    assert error.code == "view-not-allowed"


def test_a_kernel_that_is_traced_again_has_the_same_guards():
    """What is assumed of two symbols is assumed in every trace, or a launch with other sizes would
    go through."""

    def kernel(a, b):
        total = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=total, data1=nl.load(a), data2=nl.load(b), op=nl.add)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    def guards():
        sizes = [nki.symbol(name, multiple_of=16, max=128) for name in ("left", "right")]
        specs = [nki.TensorSpec((128, size), F32) for size in sizes]
        traced = nki.jit(kernel, platform_target="trn2").trace(*specs)
        return [guard.text for guard in traced.guards]

    first = guards()
    assert any("left - right == 0" in text for text in first)
    assert guards() == first
