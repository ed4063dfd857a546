"""Which of Python's exceptions errors are, too."""

from __future__ import annotations

import pickle

import pytest

from isa.errors import CATALOGUE, NeuronError
from isa.errors.built_in import also, built_in


@pytest.mark.parametrize(
    ("code", "exception"),
    [
        ("shape-mismatch", AssertionError),  # SDK nki_simulator.rst: a constraint of an operation
        ("dtype-not-allowed", TypeError),  # SDK release notes 0.4.0
        ("register-branch", TypeError),  # SDK VirtualRegister
        ("unknown-name", AttributeError),  # as Python has it
        ("unknown-argument", TypeError),
    ],
)
def test_programs_catch_what_the_documents_name(code: str, exception: type[Exception]) -> None:
    with pytest.raises(exception) as caught:
        raise NeuronError(code, "what is wrong")
    assert isinstance(caught.value, NeuronError) and caught.value.code == code


def test_errors_that_are_no_constraints_are_no_assertion_errors() -> None:
    for code in ("deadlock", "container-corrupt", "hlo-invalid"):
        assert not isinstance(NeuronError(code, "x"), (AssertionError, TypeError, AttributeError))
        assert built_in(code, CATALOGUE[code].number) == ()


def test_a_class_that_is_several_looks_as_before_and_goes_between_processes() -> None:
    kind = also(KeyError, (AssertionError, TypeError))
    assert issubclass(kind, KeyError) and issubclass(kind, TypeError)
    assert (kind.__name__, kind.__module__) == ("KeyError", "builtins")
    assert also(KeyError, ()) is KeyError
    copied = pickle.loads(pickle.dumps(NeuronError("dtype-not-allowed", "it is bool")))
    assert isinstance(copied, TypeError) and str(copied) == str(
        NeuronError("dtype-not-allowed", "it is bool")
    )
