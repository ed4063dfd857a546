"""nki.compiler.kernel_builder: options of a compilation by the SDK's names."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.compiler.kernel_builder import CompileOptions, compile_kernel


def tiled(input_tensor, output_tensor, tile_fn):
    for start in range(0, input_tensor.shape[0], 128):
        rows = nl.ds(start, 128)
        tile = nl.load(input_tensor[rows, :])
        result = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        tile_fn(result, tile)
        nl.store(output_tensor[rows, :], result)


def halved(dst, src):
    nisa.tensor_scalar(dst=dst, data=src, op0=nl.multiply, operand0=0.5)


def options(tmp_path):
    return CompileOptions(target="trn2", output_path=str(tmp_path / "kernel.neff"))


def test_a_function_as_a_hyperparameter(tmp_path):
    """SDK nki/get-started/nki-language-guide.rst."""
    a = np.random.default_rng(7).standard_normal((256, 32)).astype(np.float32)
    out = np.zeros_like(a)
    compiled = compile_kernel(
        tiled,
        inputs={"input_tensor": a},
        outputs={"output_tensor": nki.TensorSpec(a.shape, "float32")},
        compile_opts=options(tmp_path),
        tile_fn=halved,
    )
    ((name, spec),) = compiled.output_specs
    assert (name, spec.shape, compiled.input_output_aliases) == ("output_tensor", (256, 32), {0: 1})
    nki.load(compiled.neff_path)(a, out)
    np.testing.assert_array_equal(out, a / 2)


def test_what_a_kernel_builder_refuses(tmp_path):
    a = np.zeros((4, 4), np.float32)

    def returns(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(a))
        return out

    with pytest.raises(nki.NeuronError, match="returns out"):
        compile_kernel(returns, {"a": a}, {"b": a}, options(tmp_path))
    with pytest.raises(nki.NeuronError, match="given twice"):
        compile_kernel(returns, {"a": a}, {"a": a}, options(tmp_path))
    with pytest.raises(nki.NeuronError, match="missing-argument"):
        compile_kernel(returns, {"a": a}, {"c": a}, options(tmp_path))
    assert list(tmp_path.iterdir()) == []
