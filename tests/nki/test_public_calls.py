"""Calls of public functions with wrong kinds of arguments and unknown keywords: each is an error of
the catalogue that says what to write."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graph_compiler
import nki
import nki.isa as nisa
import nki.language as nl
import simulator
import simulator.profile
import simulator.timing
from isa.errors import NeuronError
from isa.files import container, text
from simulator.runtime import nrtpy

A = np.ones((4, 8), np.float32)
SPEC = nki.TensorSpec((4, 8), nl.float32)
TEXT = "HloModule m\nENTRY e { a = f32[4] parameter(0)\n ROOT r = f32[4] add(a, a) }"
X = np.ones(4, np.float32)
API: Any = nki  # of no type: the calls are wrong
GRAPHS: Any = graph_compiler


@nki.jit
def copy(a: Any) -> Any:
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=a)
    return out


def graph() -> Any:
    return graph_compiler.parse_text(TEXT)


def saved(path: Any) -> Any:
    nki.compile(copy, SPEC).save(path)


CALLS: dict[str, tuple[Any, str, str]] = {
    "a number for an array": (lambda: API.simulate(copy)(5), "not-a-tensor", "np.asarray"),
    "a list for an array": (lambda: API.simulate(copy)([1, 2]), "not-a-tensor", "np.asarray"),
    "None for an array": (lambda: API.simulate(copy)(None), "not-a-tensor", "np.asarray"),
    "a shape for a specification": (
        lambda: API.compile(copy, (4, 8)),
        "not-a-tensor",
        "np.asarray",
    ),
    "a misspelt option": (
        lambda: API.compile(copy, SPEC, trget="trn2"),
        "unknown-argument",
        "target=?",
    ),
    "a number for a mode": (lambda: API.simulate(copy, mode=3), "unknown-mode", "modes"),
    "a number for a kernel": (lambda: API.simulate(5), "value-not-allowed", "@nki.jit"),
    "a specification without a dtype": (
        lambda: API.TensorSpec((4, 8)),
        "missing-argument",
        "TensorSpec(shape, dtype",
    ),
    "a number for a name": (lambda: API.symbol(5), "value-not-allowed", ""),
    "a number for a path": (lambda: API.load(5), "argument-kind", "pathlib.Path"),
    "bytes for a path": (lambda: API.load(b"k.neff"), "argument-kind", "pathlib.Path"),
    "a number for a path to write": (lambda: saved(5), "argument-kind", "pathlib.Path"),
    "a number for a grid": (lambda: API.sweep(copy, 5), "value-not-allowed", "rows"),
    "a text for a grid": (lambda: API.sweep(copy, "ab"), "value-not-allowed", "rows"),
    "an unknown keyword of evaluate": (
        lambda: GRAPHS.evaluate(graph(), X, loop_limt=1),
        "unknown-argument",
        "loop_limit=?",
    ),
    "an unknown keyword of execute": (
        lambda: GRAPHS.execute(graph(), X, sed=1),
        "unknown-argument",
        "seed=?",
    ),
    "an unknown keyword of compile": (
        lambda: GRAPHS.compile(graph(), optons=None),
        "unknown-argument",
        "options=?",
    ),
    "a number for options": (
        lambda: GRAPHS.compile(graph(), "trn2", 5),
        "argument-kind",
        "GraphOptions",
    ),
    "a number for a graph": (
        lambda: GRAPHS.compile(5),
        "argument-kind",
        "graph_compiler.load",
    ),
}


def compiled() -> Any:
    return GRAPHS.compile(graph(), "trn2")


CALLS |= {
    "a number for weights": (
        lambda: GRAPHS.freeze(graph(), 5),
        "argument-kind",
        "by name or number",
    ),
    "a number for inputs of ranks": (
        lambda: compiled().run_ranks(5),
        "argument-kind",
        "for every rank",
    ),
    "a number for kernels": (
        lambda: GRAPHS.compile(graph(), kernels=5),
        "argument-kind",
        "{name: kernel}",
    ),
    "a number for a set of options": (
        lambda: GRAPHS.GraphOptions(implicit_integer_downcast=5),
        "argument-kind",
        "frozenset",
    ),
}

NODES = frozenset({"Compiled", "Computation", "Instruction", "Module", "Shape"})
"""Classes of graphs that nobody makes by hand."""

PUBLIC: dict[str, Any] = {
    **{f"graph_compiler.{n}": getattr(GRAPHS, n) for n in sorted({*GRAPHS.__all__} - NODES)},
    **{f"nki.{name}": getattr(API, name) for name in ("TensorSpec", "autotune", "benchmark")},
    **{f"nki.{name}": getattr(API, name) for name in ("jit", "load", "profile", "simulate")},
    **{f"nki.{name}": getattr(API, name) for name in ("sweep", "symbol")},
    "simulator.run": simulator.run,
    **{
        f"{module.__name__}.{name}": getattr(module, name)
        for module, names in {
            simulator.profile: ("plot", "profile", "write_perfetto", "write_plot"),
            simulator.timing: ("lower_bounds", "simulate"),
            container: ("load", "read", "save", "write"),
            text: ("assemble", "disassemble"),
            nrtpy: ("configure", "reset"),
        }.items()
        for name in names
    },
}


@pytest.mark.parametrize("name", PUBLIC)
def test_an_unknown_keyword_is_an_error_of_the_catalogue(name: str) -> None:
    with pytest.raises(NeuronError, match="no argument 'whatever'") as caught:
        PUBLIC[name](whatever=1)
    assert caught.value.code == "unknown-argument" and "It takes " in caught.value.hint


@pytest.mark.parametrize("name", ["profile", "profile_ranks", "run_ranks", "save"])
def test_an_unknown_keyword_of_a_compiled_graph(name: str) -> None:
    with pytest.raises(NeuronError, match="no argument 'whatever'") as caught:
        getattr(compiled(), name)(whatever=1)
    assert caught.value.code == "unknown-argument"


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_says_what_to_write(name: str) -> None:
    call, code, way_out = CALLS[name]
    with pytest.raises(NeuronError) as caught:
        call()
    assert caught.value.code == code, caught.value
    assert way_out in str(caught.value)


def test_a_path_may_be_a_text(tmp_path: Path) -> None:
    saved(str(tmp_path / "k.neff"))
    np.testing.assert_array_equal(nki.load(tmp_path / "k.neff")(A), A)
