"""Modules below `nki` that are not here."""

from __future__ import annotations

import importlib
import sys

import pytest

from isa.errors import NeuronError
from nki.superseded.absent import ABSENT, AbsentModules, earlier_module, install


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_modules_of_the_vendor_say_what_to_use_instead(name: str) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(name)
    error = caught.value
    assert isinstance(error, NeuronError) and name in error.what and error.hint == ABSENT[name][1]


def test_other_names_are_left_to_python() -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("nki.no_such_module")
    assert not isinstance(caught.value, NeuronError)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_package")


def test_modules_of_earlier_versions_are_made() -> None:
    spec = earlier_module("nki.dtype")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.warns(Warning):
        assert module.float32 == "float32"
    with pytest.raises(AttributeError):
        _ = module.nothing_like_that


def test_finders_are_asked_once() -> None:
    install()
    install()
    assert sys.meta_path.count(AbsentModules) == 1
