"""Equal layers as one loop. NumPy says what a stack of layers must give, and the evaluator of the
operator table what random ones must."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki
from graph_compiler import GraphOptions, compile, evaluate, freeze, parse_text
from graph_compiler.lower.control import layers as rolling
from nki.ir.begins import written_by
from nki.ir.nodes import Loop, operations, walk
from simulator.runtime.nrtpy import NrtpyModel, NrtpyTensor

ROWS, SIZE = 8, 16
ROWS_BY_SIZE = f"f32[{ROWS},{SIZE}]"
BY_SIZE = f"f32[{SIZE},{SIZE}]"
CONTRACT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
CLAMPS = 12
"""Pairs of a maximum and a minimum, which make a layer long enough to be rolled."""


@dataclass
class Text:
    """A graph that is written: `lines`, and where the next parameter is."""

    lines: list[str]
    parameters: int = 0

    def parameter(self, form: str, name: str) -> str:
        self.lines.append(f" {name} = {form} parameter({self.parameters})")
        self.parameters += 1
        return name

    def add(self, name: str, form: str, value: str) -> str:
        self.lines.append(f" {name} = {form} {value}")
        return name

    def module(self, *results: str, form: str = ROWS_BY_SIZE, header: str = "") -> Any:
        forms = ", ".join([form] * len(results))
        root = f" ROOT root = ({forms}) tuple({', '.join(results)})"
        body = "\n".join([*self.lines, root])
        return parse_text(f"HloModule m{header}\nENTRY e {{\n{body}\n}}")


def clamps(text: Text, at: str, x: str) -> str:
    """What leaves values from -8 to 8 as they are, in many operations."""
    for number in range(CLAMPS):
        for op, bound in (("maximum", -8 - number), ("minimum", 8 + number)):
            constant = text.add(f"c{op}{at}_{number}", "f32[]", f"constant({bound})")
            whole = text.add(
                f"b{op}{at}_{number}", ROWS_BY_SIZE, f"broadcast({constant}), dimensions={{}}"
            )
            x = text.add(f"{op}{at}_{number}", ROWS_BY_SIZE, f"{op}({x}, {whole})")
    return x


def layer(text: Text, at: str, x: str, weight: str, bias: str) -> str:
    """x + max(0, x W + b)."""
    product = text.add(f"d{at}", ROWS_BY_SIZE, f"dot({x}, {weight}), {CONTRACT}")
    wide = text.add(f"w{at}", ROWS_BY_SIZE, f"broadcast({bias}), dimensions={{1}}")
    sums = text.add(f"s{at}", ROWS_BY_SIZE, f"add({product}, {wide})")
    zero = text.add(f"z{at}", "f32[]", "constant(0)")
    zeros = text.add(f"o{at}", ROWS_BY_SIZE, f"broadcast({zero}), dimensions={{}}")
    positive = text.add(f"r{at}", ROWS_BY_SIZE, f"maximum({sums}, {zeros})")
    return text.add(f"x{at}", ROWS_BY_SIZE, f"add({x}, {clamps(text, at, positive)})")


def stack(count: int) -> Any:
    text = Text([])
    x = text.parameter(ROWS_BY_SIZE, "p")
    own = [
        (text.parameter(BY_SIZE, f"q{at}"), text.parameter(f"f32[{SIZE}]", f"v{at}"))
        for at in range(count)
    ]
    for at, (weight, bias) in enumerate(own):
        x = layer(text, str(at), x, weight, bias)
    return text.module(x)


def arrays(module: Any, seed: int = 1) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    return [
        (random.standard_normal(p.shape.dimensions) / 8).astype(np.float32)
        for p in module.parameters
    ]


def in_numpy(x: Any, own: Any) -> Any:
    for weight, bias in zip(own[::2], own[1::2], strict=True):
        x = x + np.maximum(x @ weight + bias, 0)
    return x


def trips(module: Any, options: GraphOptions | None = None) -> list[int]:
    """How often each loop over layers runs."""
    stages: dict[str, Any] = {}
    compile(module, "trn2", options, lambda stage, made: stages.setdefault(stage, made))
    loops = [node for body in stages["trace"].bodies for node in walk(body)]
    return [node.upper for node in loops if isinstance(node, Loop)]


def assert_as_evaluated(
    module: Any, inputs: list[Any], options: GraphOptions | None = None
) -> None:
    found = compile(module, "trn2", options)(*inputs)
    for one, other in zip(found, evaluate(module, *inputs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("count", [3, 7])
def test_a_stack_of_layers(count: int, cores: int) -> None:
    module, options = stack(count), GraphOptions(logical_cores=cores)
    assert set(trips(module, options)) == {count}
    x, *own = arrays(module)
    (found,) = compile(module, "trn2", options)(x, *own)
    np.testing.assert_allclose(found, in_numpy(x, own), rtol=1e-5, atol=1e-5)


def test_the_program_does_not_grow_with_the_layers() -> None:
    sizes = {compile(stack(count), "trn2").kernel.program.instruction_count for count in (4, 40)}
    assert len(sizes) == 1


def test_what_layers_change_row_by_row_stays_on_chip() -> None:
    """No layer stores what the next one needs; the last one's is stored behind the loop."""
    stages: dict[str, Any] = {}
    compile(stack(4), "trn2", None, stages.__setitem__)
    (loop,) = [
        one for body in stages["trace"].bodies for one in walk(body) if isinstance(one, Loop)
    ]
    made = {tensor for op in operations([loop]) for tensor in written_by(op)}
    assert all(tensor.memory.on_chip for tensor in made)


def test_weights_that_are_constants() -> None:
    module = stack(5)
    x, *own = arrays(module)
    frozen = freeze(module, {number + 1: array for number, array in enumerate(own)})
    assert trips(frozen) == [5]
    (found,) = compile(frozen, "trn2")(x)
    np.testing.assert_allclose(found, in_numpy(x, own), rtol=1e-5, atol=1e-5)


def test_a_saved_program_takes_the_same_arrays(tmp_path: Path) -> None:
    """Each weight is an argument of its own, wherever it lies."""
    module = stack(4)
    x, *own = arrays(module)
    compile(module, "trn2").save(tmp_path / "stack.neff")
    found = nki.load(tmp_path / "stack.neff")(x, *own)
    np.testing.assert_allclose(found, in_numpy(x, own), rtol=1e-5, atol=1e-5)
    model = NrtpyModel.load_from_neff(tmp_path / "stack.neff")
    named = zip(model.input_tensors_info, (x, *own), strict=True)
    outputs = model(inputs={n: NrtpyTensor.from_numpy(a, name=n) for n, a in named})
    assert outputs is not None
    (result,) = outputs.values()
    np.testing.assert_array_equal(result.numpy(), found)


def test_what_all_layers_share_and_the_first_one_lists() -> None:
    text = Text([])
    x = text.parameter(ROWS_BY_SIZE, "p")
    mask = text.parameter(ROWS_BY_SIZE, "mask")
    own = [
        (text.parameter(BY_SIZE, f"q{at}"), text.parameter("f32[16]", f"v{at}")) for at in "abcd"
    ]
    for at, (weight, bias) in zip("abcd", own):
        x = layer(text, at, x, weight, bias)
        if at == "a":
            text.add("shared", ROWS_BY_SIZE, f"multiply({mask}, {mask})")
        x = text.add(f"m{at}", ROWS_BY_SIZE, f"multiply({x}, shared)")
    module = text.module(x)
    assert trips(module) == [4]
    assert_as_evaluated(module, arrays(module))


def test_layers_that_slice_one_stack_of_weights() -> None:
    count, text = 4, Text([])
    x = text.parameter(ROWS_BY_SIZE, "p")
    weights = text.parameter(f"f32[{count},{SIZE},{SIZE}]", "weights")
    biases = text.parameter(f"f32[{count},{SIZE}]", "biases")
    for at in reversed(range(count)):  # so that each is before the other in memory
        cut = f"slice={{[{at}:{at + 1}], [0:{SIZE}]"
        part = text.add(f"i{at}", f"f32[1,{SIZE},{SIZE}]", f"slice({weights}), {cut}, [0:{SIZE}]}}")
        weight = text.add(f"q{at}", BY_SIZE, f"reshape({part})")
        part = text.add(f"j{at}", f"f32[1,{SIZE}]", f"slice({biases}), {cut}}}")
        bias = text.add(f"v{at}", f"f32[{SIZE}]", f"reshape({part})")
        x = layer(text, str(at), x, weight, bias)
    module = text.module(x)
    assert trips(module) == [count]
    assert_as_evaluated(module, arrays(module))


def test_two_runs_of_layers_and_weights_used_again() -> None:
    """Whose weights lie one behind another in the first run, they lie in another order for the
    second one, which stays as it is."""
    text = Text([])
    x, y = text.parameter(ROWS_BY_SIZE, "p"), text.parameter(ROWS_BY_SIZE, "q")
    names = "abcd"
    own = [(text.parameter(BY_SIZE, f"q{at}"), text.parameter("f32[16]", f"v{at}")) for at in names]
    for at, (weight, bias) in zip(names, own):
        x = layer(text, at, x, weight, bias)
    for at, place in zip("ijkl", (2, 0, 1, 3)):
        y = layer(text, at, y, *own[place])
    module = text.module(x, y)
    assert trips(module) == [4]
    assert_as_evaluated(module, arrays(module))


def test_layers_whose_activations_are_used_stay() -> None:
    module = stack(4)
    text = Text([])
    x = text.parameter(ROWS_BY_SIZE, "p")
    kept = []
    for at in "abcd":
        x = layer(
            text, at, x, text.parameter(BY_SIZE, f"q{at}"), text.parameter("f32[16]", f"v{at}")
        )
        kept.append(x)
    module = text.module(*kept)
    assert trips(module) == []
    assert_as_evaluated(module, arrays(module))


def test_layers_that_use_the_one_before_the_last_stay() -> None:
    text = Text([])
    before = x = text.parameter(ROWS_BY_SIZE, "p")
    for at in "abcde":
        made = layer(
            text, at, x, text.parameter(BY_SIZE, f"q{at}"), text.parameter("f32[16]", f"v{at}")
        )
        before, x = x, text.add(f"t{at}", ROWS_BY_SIZE, f"add({made}, {before})")
    module = text.module(x)
    assert_as_evaluated(module, arrays(module))


def test_a_donated_weight_keeps_its_memory() -> None:
    text = Text([])
    x = text.parameter(ROWS_BY_SIZE, "p")
    for at in "abcd":
        weight = text.parameter(ROWS_BY_SIZE, f"g{at}")
        x = text.add(f"m{at}", ROWS_BY_SIZE, f"multiply({clamps(text, at, x)}, {weight})")
    new = text.add("new", ROWS_BY_SIZE, f"add({x}, gb)")
    module = text.module(x, new, header=", input_output_alias={ {1}: (2, {}, may-alias) }")
    assert_as_evaluated(module, arrays(module))


OPERATIONS = ("add", "subtract", "multiply", "maximum", "minimum")


@st.composite
def random_stacks(draw: Any) -> Any:
    """Layers of random wiring over what was made in a layer, its own weights, what is carried and
    what all share; one layer may differ from the others."""
    count, carried = draw(st.sampled_from([5, 4, 6, 3])), draw(st.integers(1, 3))
    wiring = [
        (draw(st.sampled_from(OPERATIONS)), draw(st.integers(0, 99)))
        for _ in range(draw(st.integers(rolling.SMALLEST, 36)))
    ]
    handed_on = [draw(st.integers(0, 99)) for _ in range(carried)]
    strange = draw(st.sampled_from([None, None, None, *range(count)]))
    text = Text([])
    state = [text.parameter(ROWS_BY_SIZE, f"p{number}") for number in range(carried)]
    shared = text.parameter(ROWS_BY_SIZE, "shared")
    for at in range(count):
        own = [text.parameter(ROWS_BY_SIZE, f"g{at}_{number}") for number in range(2)]
        values = [*state, shared, *own]
        for number, (op, other) in enumerate(wiring):
            if at == strange and number == 7:
                op = "maximum" if op == "minimum" else "minimum"
            name = f"n{at}_{number}"
            text.add(name, ROWS_BY_SIZE, f"{op}({values[-1]}, {values[other % len(values)]})")
            # Values stay small enough to be compared.
            values.append(text.add(f"t{name}", ROWS_BY_SIZE, f"tanh({name})"))
        state = [values[len(values) - 1 - place % 20] for place in handed_on]
    return text.module(*state, shared)


@settings(max_examples=12, deadline=None)
@given(module=random_stacks(), seed=st.integers(0, 99))
def test_random_layers(module: Any, seed: int) -> None:
    assert_as_evaluated(module, arrays(module, seed))
