"""The arrays that --input describes: made, read from files, or computed from other inputs."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.dtypes import DTYPES
from isa.errors import NeuronError
from nki.cli.input_specs import read_input, read_inputs
from nki.cli.input_values import KINDS, Inputs


def make_array(spec, seed, **others):
    """The array of one spec; `others` are the texts of further inputs."""
    texts = [f"{name}={text}" for name, text in others.items()]
    return Inputs({spec.name: spec, **read_inputs(texts, {})}, seed).array(spec.name)


@st.composite
def specifications(draw):
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    kind = draw(
        st.sampled_from([kind for kind, row in KINDS.items() if None not in row.options.values()])
    )
    floats = [name for name, row in DTYPES.items() if row.is_float and row.packed_values == 1]
    dtype = draw(st.sampled_from(floats if kind in ("normal", "uniform") else sorted(DTYPES)))
    return kind, shape, dtype


@given(specifications())
def test_generated_inputs_have_the_stated_shape_and_dtype(specification) -> None:
    kind, shape, dtype = specification
    spec = read_input(f"x={kind}({','.join(map(str, shape))}):{dtype}", {})
    assert (spec.name, spec.kind, spec.shape, spec.dtype) == ("x", kind, shape, dtype)
    array = make_array(spec, 3)
    assert array.shape == shape and array.dtype == DTYPES[dtype].numpy
    assert array.tobytes() == make_array(spec, 3).tobytes()
    expected = {
        "zeros": lambda: np.zeros(shape),
        "ones": lambda: np.ones(shape),
        "arange": lambda: np.arange(np.prod(shape)).reshape(shape),
    }
    if kind in expected:
        wanted = expected[kind]().astype(DTYPES[dtype].words)
        assert array.tobytes() == wanted.tobytes()


def test_random_inputs_depend_on_seed_and_name_only() -> None:
    def make(text, seed):
        return make_array(read_input(text, {}), seed)

    first = make("a=normal(64,64):float32", 0)
    assert abs(first.mean()) < 0.1 and abs(first.std() - 1) < 0.1
    assert not np.array_equal(first, make("b=normal(64,64):float32", 0))
    assert not np.array_equal(first, make("a=normal(64,64):float32", 1))
    uniform = make("a=uniform(64,64):float32", 0)
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.05


def made(name, **texts):
    """The array of one of some inputs."""
    return Inputs(read_inputs([f"{key}={text}" for key, text in texts.items()], {}), 0).array(name)


def test_kinds_take_options() -> None:
    normal = made("a", a="normal(64,64,mean=3,scale=0.5)")
    assert abs(normal.mean() - 3) < 0.05 and abs(normal.std() - 0.5) < 0.05
    uniform = made("a", a="uniform(64,64, low=-2, high=-1)")
    assert uniform.min() >= -2 and uniform.max() < -1
    whole = made("a", a="randint(1000,low=-3,high=4)")
    assert whole.dtype == np.int32 and set(whole.tolist()) == set(range(-3, 4))
    assert set(made("a", a="choice(100,of=[0.5,4])").tolist()) == {0.5, 4}
    rows = made("a", a="permutation(5,16):int16")
    assert rows.dtype == np.int16 and (np.sort(rows, axis=1) == np.arange(16)).all()
    hot = made("a", a="onehot(9,7):bfloat16").astype(np.float32)
    assert (hot.sum(axis=1) == 1).all() and set(hot.ravel().tolist()) == {0, 1}


def test_options_behind_sizes_in_parentheses_need_no_names() -> None:
    for short, long in (
        ("normal((8,9), 0.5)", "normal(8,9,scale=0.5)"),
        ("normal((8,9),2,mean=-1)", "normal(8,9,mean=-1,scale=2)"),
        ("uniform((8,9),-2,-1)", "uniform(8,9,low=-2,high=-1)"),
        ("randint((8,9),0,10)", "randint(8,9,high=10)"),
        ("choice((9,),[1,2.5]):float16", "choice(9,of=[1,2.5]):float16"),
        ("onehot((4,5)):int8", "onehot(4,5):int8"),
        ("1 + randint((8,9),0,high=10)", "1 + randint(8,9,high=10)"),
    ):
        first, second = made("a", a=short), made("a", a=long)
        assert first.dtype == second.dtype and np.array_equal(first, second)
    for wrong in ("normal((8,9),1,2,3)", "normal((8,9) 1)", "zeros((2),1)", "ones(())"):
        with pytest.raises(NeuronError, match="bad-input-spec"):
            made("a", a=wrong)


def test_sizes_follow_from_other_inputs() -> None:
    beside = made("b", a="zeros(40,50)", b="a + randint(3,5):int32")
    assert beside.shape == (40, 50) and set(beside.ravel().tolist()) == {3, 4}
    alike = made("b", a="zeros(40,50)", b="randint(-1,1,like=a)")
    assert alike.dtype == np.int32 and set(alike.ravel().tolist()) == {-1, 0}
    wide = made("b", a="zeros(40,50)", b="normal(scale=3,like=a):bfloat16")
    assert wide.shape == (40, 50) and abs(wide.astype(np.float32).std() - 3) < 0.3
    assert made("b", a="zeros(2,1)", c="ones(3)", b="a*c + uniform()").shape == (2, 3)
    assert made("a", a="randint(4,8,high=2)").shape == (4, 8), "two sizes where high is named"


@pytest.mark.parametrize(
    ("text", "way_out"),
    [
        ("randint(0,10)", "--input 'b=randint((128,512),0,10)'"),
        ("normal(scale=2)", "--input 'b=normal((128,512),scale=2)'"),
        ("ones()", "--input 'b=ones(128,512)'"),
        ("1 + randint(0,10)", "--input 'b=1 + randint((128,512),0,10)'"),
    ],
)
def test_sizes_that_follow_from_nothing_are_asked_for(text, way_out) -> None:
    with pytest.raises(NeuronError) as raised:
        made("b", b=text, a="ones(4)")
    assert way_out in raised.value.hint and "like=a" in raised.value.hint
    made("b", b=raised.value.hint.partition("'b=")[2].partition("'")[0])


def test_a_number_is_no_tensor() -> None:
    with pytest.raises(NeuronError) as raised:
        made("scale", scale="1/2")
    assert "--arg scale=0.5" in raised.value.hint and "scale=[0.5]" in raised.value.hint


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a.T", lambda a: a.T),
        ("2*a - a/4", lambda a: 2 * a - a / 4),
        ("(a[0:2, ::2] + 1) ** 2", lambda a: (a[0:2, ::2] + 1) ** 2),
        ("a @ transpose(a)", lambda a: a @ a.T),
        ("where(a > 0, a, exp(a))", lambda a: np.where(a > 0, a, np.exp(a))),
        ("maximum(abs(-a), 1)", lambda a: np.maximum(abs(-a), 1)),
        ("ones(3, 4) + a", lambda a: 1 + a),
    ],
)
def test_expressions_between_inputs(text, wanted) -> None:
    a = made("a", a="normal(3,4)")
    found = made("b", b=text, a="normal(3,4)")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted(a), rtol=1e-6)
    low = made("b", b=f"{text}:bfloat16", a="normal(3,4)")
    np.testing.assert_array_equal(low, wanted(a).astype(np.float32).astype(ml_dtypes.bfloat16))


def test_expressions_have_whole_numbers_and_masks() -> None:
    assert made("b", b="a % 3 == 1", a="arange(4):int32").tolist() == [0, 1, 0, 0]
    whole = made("b", b="a // 2", a="arange(4):int32")
    assert whole.dtype == np.int32 and whole.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"b": "a + 1"}, "there is no --input a"),
        ({"b": "c", "c": "b"}, "computed from itself"),
        ({"b": "a @ a", "a": "ones(2,3)"}, "no array can be made"),
        ({"b": "a.shape", "a": "ones(2)"}, "not .shape"),
        ({"b": "__import__('os')"}, "none of"),
        ({"b": "a[a]", "a": "arange(3)"}, "no array can be made"),
        ({"b": "randint(3)"}, "needs high="),
        ({"b": "normal(3,width=2)"}, "there is no option width; there are scale, mean"),
        ({"b": "choice(3,of=[x])"}, "expected a number"),
        ({"b": "a +"}, "expected an expression"),
        ({"b": "[i for i in a]", "a": "ones(3)"}, "list of numbers"),
        ({"b": "1 + (lambda: 1)()"}, "expected names"),
        ({"b": "a << 1", "a": "ones(3)"}, "no operator LShift"),
    ],
)
def test_bad_expressions_say_what_is_wrong(texts, words) -> None:
    with pytest.raises(NeuronError) as raised:
        made("b", **texts)
    assert raised.value.code == "bad-input-spec" and words in raised.value.what


def test_arrays_of_files_have_names(tmp_path) -> None:
    both = tmp_path / "both.npz"
    np.savez(both, a=np.array([1.5], np.float32), other=np.array([7], np.int64))
    assert made("a", a=f"@{both}").tolist() == [1.5]
    assert made("a", a=f"@{both}:other:int32").dtype == np.int32
    assert made("a", a=f"@{both}:other").tolist() == [7]
    one = tmp_path / "one.npz"
    np.savez(one, weights=np.array([2.0]))
    assert made("a", a=f"@{one}:float16").dtype == np.float16
    with pytest.raises(NeuronError, match="holds no array b, but a, other"):
        made("b", b=f"@{both}")
    (tmp_path / "bad.npz").write_text("no array")
    with pytest.raises(NeuronError, match="not a NumPy archive"):
        made("a", a=f"@{tmp_path / 'bad.npz'}")


def test_arrays_of_safetensors(tmp_path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "x.safetensors"
    numpy.save_file({"a": np.array([[1.5, 2]], np.float32), "b": np.arange(3)}, path)
    assert made("a", a=f"@{path}").tolist() == [[1.5, 2]]
    assert made("x", x=f"@{path}:b:int32").tolist() == [0, 1, 2]
    with pytest.raises(NeuronError, match=r"holds no array c, but (a, b|b, a)"):
        made("c", c=f"@{path}")


def test_arrays_of_torch(tmp_path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.tensor([1.5], dtype=torch.bfloat16)}, tmp_path / "x.pt")
    assert made("a", a=f"@{tmp_path / 'x.pt'}").dtype == ml_dtypes.bfloat16


def test_what_a_torch_file_holds_instead_of_tensors_is_said_in_a_line(tmp_path) -> None:
    torch = pytest.importorskip("torch", reason="needs opennki[torch]")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    (tmp_path / "other.pt").write_bytes(b"other")
    for name, said in (
        ("module.pt", "it holds a torch.nn.modules.linear.Linear"),
        ("other.pt", ""),
    ):
        with pytest.raises(NeuronError) as raised:
            made("a", a=f"@{tmp_path / name}")
        assert said in raised.value.what and "\n" not in raised.value.what
        assert "weights_only" not in raised.value.what
        assert "torch.save(tensor, path)" in raised.value.hint


def test_a_missing_library_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    (tmp_path / "x.safetensors").write_bytes(b"")
    with pytest.raises(NeuronError) as raised:
        made("a", a=f"@{tmp_path / 'x.safetensors'}")
    assert raised.value.code == "missing-extra" and "pip install safetensors" in raised.value.hint


def test_values_and_files_are_inputs(tmp_path) -> None:
    array = make_array(read_input("a=[[1,2],[3,4]]", {}), 0)
    assert array.dtype == np.int32 and array.tolist() == [[1, 2], [3, 4]]
    assert make_array(read_input("a=[0.5]:bfloat16", {}), 0).dtype == ml_dtypes.bfloat16
    stored = np.array([[1.5, -2.0]], ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", stored)
    loaded = make_array(read_input(f"a=@{tmp_path / 'x.npy'}:bfloat16", {}), 0)
    np.testing.assert_array_equal(loaded, stored)
    np.save(tmp_path / "y.npy", np.array([1, 2], np.int64))
    assert make_array(read_input(f"a=@{tmp_path / 'y.npy'}:float16", {}), 0).dtype == np.float16


def test_ragged_values_are_refused() -> None:
    with pytest.raises(NeuronError, match="full array"):
        make_array(read_input("a=[[1],[2,3]]", {}), 0)


def test_an_array_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(NeuronError) as caught:
        make_array(read_input("x=normal(99999999999,64)", {}), 0)
    assert caught.value.code == "bad-input-spec" and "99999999999" in caught.value.what


def test_options_before_sizes_are_told_where_they_belong() -> None:
    with pytest.raises(NeuronError, match="expected a size") as caught:
        made("a", a="choice([1,2],4,8)")
    assert "(4,8,of=[1,2])" in caught.value.hint


def test_a_file_of_another_kind_is_named_in_words_of_ours(tmp_path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("import nki\n")
    with pytest.raises(NeuronError, match="not a NumPy array file: it does not begin") as caught:
        made("a", a=f"@{path}")
    assert "pickle" not in str(caught.value)
