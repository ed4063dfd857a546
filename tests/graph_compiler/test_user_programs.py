"""A few programs as users write them, device and host executor against jax; more by

python tests/graph_compiler/run_user_programs.py
"""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")

from mutation_runs import Failure  # noqa: E402
from run_user_programs import FORMS, Form, compared, difference, subject_of  # noqa: E402
from user_programs import PROGRAMS, Draw  # noqa: E402
from user_programs.drawing import Program  # noqa: E402

import graph_compiler  # noqa: E402

jnp = jax.numpy
REFUSED = frozenset({"hlo-not-supported"})

FEW = (
    *("causal_attention_gradients", "adam", "cached_decoding_step", "selective_scan"),
    *("top_two_experts", "group_norm", "dynamic_trips", "gather_modes", "bit_operations"),
    *("special_numbers", "kernel_in_a_loop", "largest_few", "whole_updates", "whitening"),
)


@pytest.mark.parametrize(("seed", "name"), list(enumerate(FEW)))
def test_the_device_and_the_host_executor_agree_with_jax(seed: int, name: str) -> None:
    assert compared(PROGRAMS[name](Draw(seed)), FORMS[seed % len(FORMS)]) == "agrees"


def test_a_command_chooses_programs_and_forms() -> None:
    subject = subject_of(
        ["--programs", "lion,adam", "--targets", "trn1", "--levels", "2", "--seeds", "3:4"]
    )
    assert subject.show(3).startswith("adam: trn1, cores 1, -O2\nHloModule")
    assert subject_of(subject.arguments).arguments == subject.arguments


def test_what_is_wrong_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that differs, a refusal that the program does not state, and any other error."""
    form, x = Form("trn2", 1, 1), np.ones((3, 3), np.float32)
    with pytest.raises(Failure, match="hlo-not-supported"):
        compared(Program(jnp.linalg.svd, (x,)), form)
    assert (
        compared(Program(jnp.linalg.svd, (x,), refusals=REFUSED), form)
        == "refused: hlo-not-supported"
    )
    with pytest.raises(Failure, match="jax: TracerArrayConversionError"):
        compared(Program(lambda x: np.linalg.inv(x), (x,)), form)
    monkeypatch.setattr(graph_compiler, "execute", lambda module, *inputs: inputs)
    with pytest.raises(Failure, match=r"host executor, result 0: float32\[3, 3\]: 9 of 9 differ"):
        compared(Program(jnp.sin, (x,)), form)


def test_differences_are_found() -> None:
    a = np.array([1.0, np.nan, np.inf], np.float32)
    assert difference(a, a, 0.0) == ""
    assert difference(a + np.float32(0.01), a, 0.1) == ""
    assert difference(a + np.float32(0.2), a, 0.1).startswith("float32[3]: 1 of 3 differ")
    assert "2 of 3 differ" in difference(np.zeros(3, np.float32), a, 2.0)
    assert difference(a.astype(np.float64), a, 1.0) == "float64[3] instead of float32[3]"
    assert "1 of 2 differ" in difference(np.array([1, 2]), np.array([1, 3]), 9.0)
