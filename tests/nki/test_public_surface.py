"""Names, signatures and enumerations of the public namespaces are the documented ones."""

import enum
import inspect
import json
from pathlib import Path
from unittest.mock import ANY

import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.operations import OPERATIONS
from nki.language.operators import Operator

FACTS = Path(__file__).resolve().parents[3] / "shared" / "facts" / "nki_api.json"
NAMESPACES = {"nki": nki, "nki.isa": nisa, "nki.language": nl}


@pytest.fixture(scope="module")
def documented():
    if not FACTS.exists():
        pytest.skip(f"the documented API is not here: {FACTS}")
    return json.loads(FACTS.read_text())["modules"]


def default_of(text):
    """A documented default, written as in a kernel file (`engine.unknown`, `1.0`, `equal`); the
    documents leave some out (`...`)."""
    if text == "...":
        return ANY
    value = eval(text, {}, {**vars(nl), **vars(nisa)})
    return value.alu if isinstance(value, Operator) else value


def documented_parameters(function):
    """(name, default) pairs; parameters without a default have `inspect.Parameter.empty`."""
    return [
        (
            parameter["name"],
            inspect.Parameter.empty
            if parameter["default"] is None
            else default_of(parameter["default"]),
        )
        for parameter in function["params"]
    ]


def parameters(function):
    """(name, default) pairs of a function of ours; variadic keywords as the JSON writes them."""
    variadic = inspect.Parameter.VAR_KEYWORD
    return [
        (f"**{p.name}" if p.kind is variadic else p.name, p.default)
        for p in inspect.signature(function).parameters.values()
    ]


PUBLIC_OPERATIONS = [row.name for row in OPERATIONS.values() if row.public]


@pytest.mark.parametrize("name", [*PUBLIC_OPERATIONS, "register_alloc", "get_nc_version"])
def test_signature_of_an_operation(documented, name):
    assert parameters(getattr(nisa, name)) == documented_parameters(documented["nki.isa"][name])


def test_every_public_operation_is_in_the_namespace():
    assert set(PUBLIC_OPERATIONS) <= set(nisa.__all__)
    assert [n for n in PUBLIC_OPERATIONS if inspect.getdoc(getattr(nisa, n)) is None] == []


LANGUAGE = [
    name
    for name in nl.__all__
    if inspect.isfunction(getattr(nl, name)) and not isinstance(getattr(nl, name), Operator)
]


@pytest.mark.parametrize("name", LANGUAGE)
def test_signature_of_a_language_function(documented, name):
    expected = documented_parameters(documented["nki.language"][name])
    assert parameters(getattr(nl, name)) == expected


@pytest.mark.parametrize("namespace", ["nki.isa", "nki.language"])
def test_every_name_is_documented(documented, namespace):
    assert set(NAMESPACES[namespace].__all__) - set(documented[namespace]) == set()


def test_operators_are_documented_functions(documented):
    """Arity follows from the documented parameters: x and dtype, or x, y and dtype."""
    operators = {
        name: getattr(nl, name) for name in nl.__all__ if isinstance(getattr(nl, name), Operator)
    }
    assert len(operators) > 50
    for name, operator in operators.items():
        function = documented["nki.language"][name]
        if function["kind"] != "function":
            continue  # average, prelu, bypass: names without a call
        names = [p["name"] for p in function["params"]]
        if operator.alu is not None and names[0] == "x" and "axis" not in names:
            assert operator.alu.arity == len(names) - 1, name


def test_launching_takes_what_is_documented(documented):
    simulate = documented_parameters(documented["nki"]["simulate"])
    ours = parameters(nki.simulate)
    assert ours[: len(simulate)] == simulate
    added = list(inspect.signature(nki.simulate).parameters.values())[len(simulate) :]
    assert {parameter.kind for parameter in added} == {inspect.Parameter.KEYWORD_ONLY}
    (name, default), *rest = parameters(nki.jit)
    assert (name, default) == documented_parameters(documented["nki"]["jit"])[0]
    assert [name for name, _ in rest] == [
        "target",
        "platform_target",
        "transformations",
        "**kwargs",
    ]


def test_methods_of_tensors(documented):
    reference = documented["nki.language"]["NkiTensor"]
    assert [n for n in reference["members"] if not hasattr(nl.NkiTensor, n)] == []
    for name, text in reference["methods"].items():
        method = getattr(nl.NkiTensor, name)
        assert parameters(method) == documented_method(text), name


def documented_method(text):
    """(name, default) pairs of `self, dim: int, step: int=1`."""
    signature = inspect.signature(eval(f"lambda {without_annotations(text)}: None", dict(vars(nl))))
    return [(p.name, p.default) for p in signature.parameters.values()]


def without_annotations(text):
    """Parameters without their types: `dim: int, step: int=1` is `dim, step=1`."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    plain = []
    for part in parts:
        name, _, rest = part.strip().partition(":")
        _, equals, default = rest.rpartition("=")
        plain.append(f"{name}={default}" if equals else name)
    return ", ".join(plain)


def test_the_enumerations_are_found():
    assert {"engine", "reduce_cmd", "MemoryRegion"} <= {name for _, name in ENUMERATIONS}


ENUMERATIONS = [
    (namespace, name)
    for namespace in ("nki.isa", "nki.language")
    for name in NAMESPACES[namespace].__all__
    if isinstance(getattr(NAMESPACES[namespace], name), type)
    and issubclass(getattr(NAMESPACES[namespace], name), enum.Enum)
]


@pytest.mark.parametrize("namespace, name", ENUMERATIONS)
def test_members_and_values_of_an_enumeration(documented, namespace, name):
    members = documented[namespace][name]["members"]
    ours = getattr(NAMESPACES[namespace], name)
    assert {m.name: repr(m.value) for m in ours} == members


def test_constants_are_members_of_their_types(documented):
    for namespace in ("nki.isa", "nki.language"):
        for name, entry in documented[namespace].items():
            module = NAMESPACES[namespace]
            if entry["kind"] != "constant" or not hasattr(module, name):
                continue
            kind = {"engine": nisa.engine, "MemoryRegion": nl.MemoryRegion, "DType": nl.DType}.get(
                entry["type"]
            )
            if kind is not None:
                assert isinstance(getattr(module, name), kind), name


DTYPES = [
    "bool_", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "bfloat16",
    "float32", "tfloat32", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
    "float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4",
]  # fmt: skip


def test_every_documented_dtype_exists(documented):
    listed = {n for n, e in documented["nki.language"].items() if e.get("type") == "DType"}
    assert listed == set(DTYPES)
    assert [name for name in listed if not hasattr(nl, name)] == []
