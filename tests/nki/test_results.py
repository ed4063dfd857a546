"""What a kernel returns, and the configuration objects and numbers that it is given."""

import dataclasses

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

MODES = ("device", "reference", "eager")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cores", [1, 2])
def test_a_result_may_be_returned_in_another_shape(mode, cores):
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        half = a.shape[0] // nl.num_programs()
        rows = nl.ds(nl.program_id(0) * half, half)
        nisa.dma_copy(dst=out[rows], src=a[rows])
        return out.reshape((3, 4, 1)), out.reshape((3, 4, 1))

    a = np.arange(12, dtype=np.float32).reshape(2, 6)
    first, second = nki.simulate(nki.jit(kernel)[cores], mode=mode)(a)
    np.testing.assert_array_equal(first, a.reshape(3, 4, 1))
    np.testing.assert_array_equal(second, a.reshape(3, 4, 1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("dtype", [nl.int32, nl.uint16, nl.uint8])
def test_a_result_may_be_returned_as_another_dtype(mode, cores, dtype):
    """As the generator states of nki-library's experimental/rng are."""

    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        half = a.shape[0] // nl.num_programs()
        rows = nl.ds(nl.program_id(0) * half, half)
        nisa.dma_copy(dst=out[rows], src=a[rows])
        return out.view(dtype), out.view(dtype)

    a = np.arange(12, dtype=np.float32).reshape(2, 6)
    for result in nki.simulate(nki.jit(kernel)[cores], mode=mode)(a):
        assert result.dtype == np.dtype(str(dtype))
        np.testing.assert_array_equal(result, a.view(result.dtype))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "result",
    [
        lambda a, out: out[0:1],
        lambda a, out: (out, out.reshape((3, 4, 1))),
        lambda a, out: a.reshape((3, 4, 1)),
        lambda a, out: (out, out.view(nl.int32)),
        lambda a, out: a.view(nl.int32),
        lambda a, out: out.view(nl.int32)[:, 0:3],
    ],
    ids=["part", "two shapes", "input", "two dtypes", "input as dtype", "part as dtype"],
)
def test_a_result_is_all_of_one_tensor(mode, result):
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        return result(a, out)

    with pytest.raises(nki.NeuronError) as caught:
        nki.simulate(kernel, mode=mode)(np.zeros((2, 6), np.float32))
    assert caught.value.code == "output-not-hbm"


def test_a_number_stands_for_the_member_of_an_enumeration():
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a, dge_mode=3)
        return out

    traced = nki.jit(kernel).trace(nki.TensorSpec((2, 6), nl.float32), target="trn2")
    (copy,) = [node for node in traced.bodies[0] if node.row.name == "dma_copy"]
    assert copy.values[copy.row.field_names.index("dge_mode")] is nisa.dge_mode.none

    def wrong(a):
        nisa.dma_copy(dst=a, src=a, dge_mode=9)

    with pytest.raises(nki.NeuronError, match="dge_mode is 9"):
        nki.jit(wrong).trace(nki.TensorSpec((2, 6), nl.float32), target="trn2")


@dataclasses.dataclass
class Tiling(nl.NKIObject):
    rows: int
    columns: int
    depth: int = 3

    def __post_init__(self):
        self.area = self.rows * self.depth


def test_a_configuration_object_without_a_field():
    tiling = Tiling(rows=2)
    assert (tiling.rows, tiling.depth, tiling.area) == (2, 3, 6)
    with pytest.raises(AttributeError, match="columns"):
        _ = tiling.columns
    assert Tiling(2, 5).columns == 5 and Tiling(2, columns=5) == Tiling(2, 5)
    with pytest.raises(TypeError, match="weight"):
        Tiling(2, 5, weight=1)


@dataclasses.dataclass
class Section(nl.NKIObject):
    index = None
    offset = None
    length: int = 0


def test_a_configuration_object_with_attributes_that_are_no_fields():
    section = Section(index=3, length=2)
    assert (section.index, section.offset, section.length) == (3, None, 2)
    with pytest.raises(TypeError, match="weight"):
        Section(weight=1)
