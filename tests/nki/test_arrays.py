"""Arrays of NumPy, torch and jax: what goes in comes out, and inputs change in place."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

MODES = ("device", "reference", "eager")
DTYPES = ("float32", "bfloat16", "float16", "int32", "uint8", "float8_e5m2")
A = np.arange(6).reshape(2, 3)
ROOT = Path(__file__).resolve().parents[2]


@nki.jit(platform_target="trn2")
def doubled(a):
    tile = nl.load(a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@nki.jit(platform_target="trn2")
def updated(a, b):
    """Writes to `a`; returns `b` and `a`."""
    nisa.dma_copy(dst=a[0:1], src=b)
    out = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=b)
    return out, a


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_torch(mode, dtype):
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(A.tolist()).to(getattr(torch, dtype))
    result = nki.simulate(doubled, mode=mode)(tensor)
    assert isinstance(result, torch.Tensor) and result.dtype == tensor.dtype
    np.testing.assert_array_equal(result.to(torch.float32).numpy(), 2 * A)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_torch_tensors_are_updated_in_place(mode, dtype):
    torch = pytest.importorskip("torch")
    a = torch.zeros(2, 3, dtype=getattr(torch, dtype))
    b = torch.ones(1, 3, dtype=a.dtype)
    out, after = nki.simulate(updated, mode=mode)(a, b)
    np.testing.assert_array_equal(a.to(torch.float32).numpy(), [[1, 1, 1], [0, 0, 0]])
    assert torch.equal(after, a) and torch.equal(out, b)


def test_torch_tensor_that_needs_a_gradient_and_is_no_contiguous_view():
    torch = pytest.importorskip("torch")
    a = torch.arange(6, dtype=torch.float32).reshape(3, 2).requires_grad_().t()
    np.testing.assert_array_equal(doubled(a).numpy(), 2 * a.detach().numpy())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_jax(mode, dtype):
    jax = pytest.importorskip("jax")
    array = jax.numpy.asarray(A).astype(dtype)
    result = nki.simulate(doubled, mode=mode)(array)
    assert isinstance(result, jax.Array) and result.dtype == array.dtype
    np.testing.assert_array_equal(np.asarray(result).astype(np.float32), 2 * A)


@pytest.mark.parametrize("mode", MODES)
def test_what_a_kernel_writes_to_a_jax_array_is_returned(mode):
    jax = pytest.importorskip("jax")
    a, b = jax.numpy.zeros((2, 3)), jax.numpy.ones((1, 3))
    _, after = nki.simulate(updated, mode=mode)(a, b)
    np.testing.assert_array_equal(after, [[1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(a, np.zeros((2, 3)))


@pytest.mark.parametrize("mode", MODES)
def test_numpy_arrays_are_updated_in_place(mode):
    a, b = np.zeros((2, 3), np.float32), np.ones((1, 3), np.float32)
    out, after = nki.simulate(updated, mode=mode)(a, b)
    np.testing.assert_array_equal(a, [[1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(after, a)
    np.testing.assert_array_equal(out, b)


@pytest.mark.parametrize("mode", MODES)
def test_scalar_types_of_jax_are_data_types_of_nki(mode):
    """SDK release-notes/components/nki.rst, 0.4.0: "automatically converted to the equivalent NKI
    dtype. Unsupported JAX dtypes raise TypeError"."""
    jnp = pytest.importorskip("jax").numpy
    seen = []

    @nki.jit(platform_target="trn2")
    def cast(a, dtype, others=()):
        seen.append((dtype == nl.bfloat16, others[0] == nl.int8, others[1]["key"] == nl.float32))
        tile = nl.load(a, dtype=dtype)
        out = nl.ndarray(a.shape, dtype=dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    run = nki.simulate(cast, mode=mode)
    result = run(np.ones((1, 3), np.float32), jnp.bfloat16, others=(jnp.int8, {"key": jnp.float32}))
    assert result.dtype.name == "bfloat16" and seen == [(True, True, True)]
    with pytest.raises(TypeError, match="complex64"):
        run(np.ones((1, 3), np.float32), dtype=jnp.complex64)


@pytest.mark.parametrize("mode", MODES)
def test_jax_transformations(mode):
    jax = pytest.importorskip("jax")
    run = nki.simulate(doubled, mode=mode)
    a = jax.numpy.asarray(A).astype("bfloat16")
    result = jax.jit(lambda a: run(a + 1) * 2)(a)
    assert result.dtype == a.dtype
    np.testing.assert_array_equal(np.asarray(result).astype(np.float32), 4 * (A + 1))
    many = jax.vmap(run)(jax.numpy.stack([a, 3 * a]))
    np.testing.assert_array_equal(np.asarray(many).astype(np.float32), [2 * A, 6 * A])
    assert jax.eval_shape(run, a).shape == A.shape


def test_jax_traces_results_in_their_containers_and_static_arguments():
    jax = pytest.importorskip("jax")

    @nki.jit(platform_target="trn2")
    def kernel(arrays, factor):
        nl.store(arrays["b"], nl.multiply(nl.load(arrays["b"]), factor))
        return [doubled(arrays["a"]), arrays["b"]]

    def call(a, b, factor):
        return kernel({"a": a, "b": b}, factor=factor)

    a, b = jax.numpy.asarray(A, "float32"), jax.numpy.ones((1, 4))
    results = jax.jit(call, static_argnums=2)(a, b, 3.0)
    assert type(results) is list
    np.testing.assert_array_equal(results[0], 2 * A)
    np.testing.assert_array_equal(results[1], [[3, 3, 3, 3]])


@pytest.mark.parametrize("mode", MODES)
def test_read_only_arrays_that_would_lose_what_is_written(mode):
    a, b = np.zeros((2, 3), np.float32), np.ones((1, 3), np.float32)
    a.flags.writeable = b.flags.writeable = False
    _, after = nki.simulate(updated, mode=mode)(a, b)  # it returns `a`
    np.testing.assert_array_equal(after, [[1, 1, 1], [0, 0, 0]])

    def lost(a, b):
        nisa.dma_copy(dst=a[0:1], src=b)

    with pytest.raises(nki.NeuronError, match="a is a read-only array"):
        nki.simulate(lost, mode=mode)(a, b)


@nki.jit(platform_target="trn2")
def cleared(a):
    """Writes to `a`, and returns nothing."""
    nisa.dma_copy(dst=a, src=nl.zeros(a.shape, dtype=a.dtype, buffer=nl.sbuf))


@pytest.mark.parametrize("mode", MODES)
def test_jax_arrays_that_would_lose_what_is_written(mode):
    jax = pytest.importorskip("jax")
    run = nki.simulate(cleared, mode=mode)
    for call in (run, jax.jit(run), jax.vmap(run)):
        with pytest.raises(nki.NeuronError, match="a is an array of JAX, which never changes"):
            call(jax.numpy.ones((2, 2, 3)))


@pytest.mark.parametrize("mode", MODES)
def test_lazy_torch_views(mode):
    torch = pytest.importorskip("torch")
    pairs = torch.arange(12, dtype=torch.float32).reshape(2, 3, 2)
    lazy = torch.view_as_complex(pairs).conj().imag
    assert lazy.is_neg()
    result = nki.simulate(doubled, mode=mode)(lazy)
    np.testing.assert_array_equal(result, -2 * pairs[:, :, 1].numpy())
    with pytest.raises(nki.NeuronError, match="a is a lazy negative"):
        nki.simulate(cleared, mode=mode)(lazy)
    np.testing.assert_array_equal(pairs.flatten(), range(12))


@pytest.mark.parametrize("mode", MODES)
def test_expanded_torch_tensors_are_read_only(mode):
    """As in torch, whose in-place operations refuse them."""
    torch = pytest.importorskip("torch")
    row = torch.arange(3, dtype=torch.float32).reshape(1, 3)
    expanded = row.expand(4, 3)
    result = nki.simulate(doubled, mode=mode)(expanded)
    np.testing.assert_array_equal(result, 2 * expanded.numpy())
    with pytest.raises(RuntimeError, match="single memory location"):
        expanded.add_(1)
    with pytest.raises(nki.NeuronError, match="a is an expanded tensor"):
        nki.simulate(cleared, mode=mode)(expanded)
    np.testing.assert_array_equal(row.flatten(), range(3))


@pytest.mark.parametrize("mode", MODES)
def test_torch_tensors_that_are_no_arrays(mode):
    torch = pytest.importorskip("torch")
    dense = torch.ones(2, 3)
    for tensor, match in (
        (dense.to_sparse(), "a is a torch.sparse_coo tensor"),
        (dense.to("meta"), "a is a tensor without data"),
        (dense.to(torch.complex64), "complex64"),
    ):
        with pytest.raises(nki.NeuronError, match=match):
            nki.simulate(doubled, mode=mode)(tensor)


def test_what_is_no_array():
    compiled = nki.compile(doubled, nki.TensorSpec((2, 3), nl.float32))
    with pytest.raises(nki.NeuronError, match="a is a list"):
        compiled([[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "u2"])
def test_bytes_in_the_other_order(mode, dtype):
    """Their values count, and the order stays where a kernel writes to them."""
    a, b = (A + 258).astype(dtype), np.full((1, 3), 515, dtype)
    other = np.dtype(dtype).newbyteorder("S")
    swapped = a.astype(other)
    np.testing.assert_array_equal(nki.simulate(doubled, mode=mode)(swapped), 2 * a)
    out, after = nki.simulate(updated, mode=mode)(swapped, b.astype(other))
    np.testing.assert_array_equal(swapped, [b[0], a[1]])
    np.testing.assert_array_equal(after, swapped)
    np.testing.assert_array_equal(out, b)
    assert swapped.dtype == other and out.dtype == np.dtype(dtype)


@pytest.mark.parametrize("mode", MODES)
def test_a_constant_with_bytes_in_the_other_order(mode):
    @nki.jit(platform_target="trn2")
    def plus(a):
        tile = nl.load(nl.shared_constant(np.array([[258, 3, 4]], ">i4")))
        nisa.tensor_tensor(dst=tile, data1=tile, data2=nl.load(a), op=nl.add)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    result = nki.simulate(plus, mode=mode)(np.array([[1, 2, 3]], np.int32))
    np.testing.assert_array_equal(result, [[259, 5, 7]])


def test_numpy_takes_the_names_of_data_types_in_a_new_process():
    """Harnesses make inputs by the language's names, and import no ml_dtypes themselves."""
    program = (
        "import numpy as np, nki.language as nl\n"
        "x = np.ones(2, np.float32).astype(nl.bfloat16)\n"
        "print(x.dtype.name, np.zeros(1, nl.float8_e4m3).itemsize)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert result.stdout.split() == ["bfloat16", "1"]
