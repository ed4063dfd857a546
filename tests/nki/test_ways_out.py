"""What authors of kernels get wrong most often: each message names the call to write instead."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

A = np.ones((128, 64), np.float32)


def tile(shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def register(a):
    value = nisa.register_alloc()
    nisa.register_load(value, nl.full((1, 1), 3, dtype=nl.int32))
    return value


MISTAKES = {
    "an activation function as operator": (
        lambda a: nisa.tensor_scalar(tile((128, 64)), nl.load(a), nl.exp, 1.0),
        "nl.exp",
        "nisa.activation",
    ),
    "an operator as activation function": (
        lambda a: nisa.activation(tile((128, 64)), nl.add, nl.load(a)),
        "nl.add",
        "nisa.tensor_scalar",
    ),
    "a function of many operations as operator": (
        lambda a: nisa.activation(tile((128, 64)), nl.softmax, nl.load(a)),
        "op is nl.softmax, which",
        "Call nl.softmax itself",
    ),
    "an engine by its name": (
        lambda a: nisa.tensor_copy(tile((128, 64)), nl.load(a), engine="vector"),
        "'vector'",
        "member",
    ),
    "integers of 64 bits": (
        lambda a: nisa.tensor_copy(tile((128, 64)), tile((128, 64), "int64")),
        "src is int64",
        "nl.load(tensor, dtype=nl.int32)",
    ),
    "indices of another type": (
        lambda a: a.vector_select(0, tile((128, 1), nl.float32)),
        "dtype=float32",
        "nl.load(indices, dtype=nl.int32)",
    ),
    "an array of the host": (
        lambda a: nisa.tensor_tensor(tile((128, 64)), nl.load(a), A, nl.add),
        "data2 is an array float32[128, 64], expected a tensor",
        "nl.shared_constant(array)",
    ),
    "an array of the host in a function": (
        lambda a: nl.add(nl.load(a), A),
        "y of nl.add is an array float32[128, 64], not a tile",
        "nl.shared_constant(array)",
    ),
    "one column where a tile is": (
        lambda a: nisa.tensor_tensor(
            tile((128, 64)), nl.load(a), nl.zeros((128, 1), dtype=nl.float32), nl.add
        ),
        "data2 has 1",
        "data2.broadcast(1, 64), or nisa.tensor_scalar",
    ),
    "a sum over partitions": (
        lambda a: nisa.tensor_reduce(tile((1, 64)), nl.add, nl.load(a), axis=0),
        "(0,)",
        "nisa.tensor_partition_reduce",
    ),
    "too few elements": (
        lambda a: nisa.max8(tile((128, 8)), nl.load(a[:, :4])),
        "4 elements",
        "Pad src to 8",
    ),
    "a wide stationary tile": (
        lambda a: nisa.nc_matmul(
            tile((128, 256), buffer=nl.psum), nl.zeros((128, 256), dtype=nl.float32), nl.load(a)
        ),
        "stationary has 256",
        "smaller tiles",
    ),
    "a tile as loop bound": (
        lambda a: list(nl.dynamic_range(nl.full((1, 1), 3, dtype=nl.int32))),
        "a loop bound",
        "nisa.register_load",
    ),
    "arithmetic on a loop variable": (
        lambda a: [a[nl.ds(i * 32, 32)] for i in nl.dynamic_range(4)],
        "register 'i'",
        "nl.dynamic_range(0, tiles * size, size)",
    ),
    "arithmetic on a register": (lambda a: register(a) + 1, "arithmetic", "nisa.register_load"),
    "results by name": (
        lambda a: {"out": nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)},
        "'out'",
        "as a tuple",
    ),
    "results in results": (lambda a: (a, (a, a)), "(NkiTensor(", "one tuple"),
    "a generator": (lambda a: (yield a), "generator", "`return`"),
}


def refusal(kernel, *inputs, mode="device"):
    with pytest.raises(nki.NeuronError) as caught:
        nki.simulate(kernel, mode=mode)(*inputs)
    return caught.value


@pytest.mark.parametrize("mode", ["device", "eager"])
@pytest.mark.parametrize("name", MISTAKES)
def test_the_way_out_is_named(name, mode):
    mistake, what, hint = MISTAKES[name]
    error = refusal(mistake, A, mode=mode)
    assert what in error.what and hint in error.hint
    assert error.location.file == __file__


def test_limits_of_memories_are_not_explained_by_the_tensor_engine():
    error = refusal(lambda a: nisa.memset(tile((128, 100_000)), 0), A)
    assert error.code == "tile-limit" and "tensor engine" not in error.why


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_arrays_of_float64_are_named(mode):
    def kernel(config):
        return config["weights"][1]

    wide = {"weights": [A, A.astype(np.float64)]}
    error = refusal(kernel, wide, mode=mode)
    assert error.code == "dtype-not-allowed" and "float32" in error.hint
    assert error.what.startswith("config['weights'][1] is float64")


@pytest.mark.parametrize("mode", ["device", "eager"])
def test_the_truth_of_one_element_is_no_condition(mode):
    """A loop on it would be traced for ever; `if bias:` asks whether there is one."""

    def looped(a):
        flag = nl.load(a[0:1, 0:1])
        while flag:
            nisa.memset(flag, 0.0)

    error = refusal(looped, A, mode=mode)
    assert error.code == "not-supported" and error.location.text.strip() == "while flag:"
    assert "nisa.register_load" in error.hint and "is not None" in error.hint

    def optional(a, one, none=None):
        tile = nl.load(a)
        assert a and one and tile and not none

    nki.simulate(optional, mode=mode)(A, A[:1, :1])


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_sums_that_no_reduce_command_starts(mode, backend):
    """reduce_cmd is idle unless it is given (SDK nki.isa.activation): nothing was added up."""

    def kernel(a):
        total = tile((128, 1))
        nisa.activation(tile((128, 64)), nl.exp, nl.load(a), reduce_op=nl.add, reduce_res=total)
        out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    with pytest.raises(nki.NeuronError) as caught:
        nki.simulate(kernel, mode=mode, backend=backend)(A)
    error = caught.value
    assert error.code == "uninitialised-output" and "reset_reduce" in error.hint
    assert error.location.text.strip().startswith("nisa.activation") and "reduce_regs" in error.what


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("before", ["device", "eager"])
@pytest.mark.parametrize("kept", ["tile", "argument", "loop"])
def test_tensors_do_not_outlive_their_kernel(kept, before, mode):
    """A cache of constants that holds tiles: they are those of the run that filled it."""
    cache = {}

    def fills(a):
        for name, value in (("tile", nl.load(a)), ("argument", a), ("loop", nl.load(a))):
            cache[name] = value
        return a

    def uses(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        if kept == "loop":
            nl.fori_loop(0, 2, lambda i: nisa.dma_copy(dst=out, src=cache[kept]))
        else:
            nisa.dma_copy(dst=out, src=cache[kept])
        return out

    nki.simulate(fills, mode=before)(A)
    error = refusal(uses, A, mode=mode)
    assert error.code == "value-not-allowed" and "another run" in error.what
    assert "nisa.dma_copy(dst=out" in error.location.text


@pytest.mark.parametrize("mode", ["device", "eager"])
def test_results_of_two_cores_are_shared(mode):
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.hbm)
        nl.store(out, nl.load(a))
        return out

    error = refusal(nki.jit(kernel, platform_target="trn2")[2], A, mode=mode)
    assert error.code == "core-mismatch" and "nl.shared_hbm" in error.hint
    assert error.location.text.strip().startswith("out = nl.ndarray")


@pytest.mark.parametrize(
    ("use", "instead"),
    [
        (lambda t: t.T, "nl.transpose"),
        (lambda t: t.astype("bfloat16"), "nl.copy"),
        (lambda t: t.sum(axis=1), "nl.sum"),
        (lambda t: t.item(), "nisa.register_load"),
    ],
)
def test_methods_of_arrays_name_the_function(use, instead):
    with pytest.raises(AttributeError, match=instead):
        nki.simulate(lambda a: use(nl.load(a)))(A)
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'\n"):
        nki.simulate(lambda a: nl.load(a).nothing)(A)
