"""The transposes and copies that a profile names, and the calls that they are for."""

from __future__ import annotations

import numpy as np
import pytest

import graph_compiler
import nki
import nki.isa as nisa
import nki.language as nl

A, B = nki.TensorSpec((128, 128), nl.float32), nki.TensorSpec((128, 512), nl.float32)


def _found(kernel, *inputs):
    profile = nki.profile(kernel, target="trn2")(*inputs)[1]
    return profile, {(one.text, one.kind, one.engine): one.count for one in profile.inserted}


def test_a_product_of_tiles_as_they_are_needs_a_transpose_and_its_copy():
    @nki.jit
    def product(a, b):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        for _ in range(3):
            summed = nl.matmul(x, y)
            y = nl.copy(summed)
        nl.store(out, y)
        return out

    profile, found = _found(product, A, B)
    call = "summed = nl.matmul(x, y)"
    assert found == {(call, "transpose", "TensorE"): 3, (call, "copy", "VectorE"): 3}
    for shown in (profile.text(), profile._repr_html_()):
        assert "transposes and copies that were inserted, and for whom" in shown
        assert call in shown
    data = profile.to_dict()["inserted"]
    assert [one["count"] for one in data] == [3, 3]
    assert all(one["ns"] > 0 and one["file"] == __file__ for one in data)


def test_what_the_author_calls_for_is_not_inserted():
    @nki.jit
    def asked(a):
        out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
        x = nl.load(a)
        turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=x)
        again = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=again, src=turned)
        nl.store(out, again)
        return out

    profile, found = _found(asked, A)
    assert found == {}
    assert "were inserted" not in profile.text()


def test_a_transpose_that_converts_has_its_copy_inserted():
    @nki.jit
    def converted(a):
        out = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.shared_hbm)
        turned = nl.transpose(nl.load(a), dtype=nl.bfloat16)
        nl.store(out, nl.copy(turned))
        return out

    _, found = _found(converted, A)
    assert [kind for _, kind, _ in found] == ["copy"]


@pytest.mark.parametrize("contracted", [0, 1])
def test_in_graphs_they_are_for_an_instruction(contracted):
    """Rows of the left side that are contracted lie on partitions, those of columns do not."""
    text = f"""HloModule product
ENTRY e {{
  a = f32[256,256] parameter(0)
  b = f32[256,512] parameter(1)
  ROOT r = f32[256,512] dot(a, b), lhs_contracting_dims={{{contracted}}}, rhs_contracting_dims={{0}}
}}"""
    compiled = graph_compiler.compile(graph_compiler.parse_text(text), target="trn2")
    arrays = np.ones((256, 256), np.float32), np.ones((256, 512), np.float32)
    profile = compiled.profile(*arrays)[1]
    transposes = [one for one in profile.inserted if one.kind == "transpose"]
    assert bool(transposes) == bool(contracted)
    assert all(one.text == "r = f32[256,512] dot" and one.line == 0 for one in transposes)
