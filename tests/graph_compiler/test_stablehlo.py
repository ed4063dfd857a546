"""Front-ends: StableHLO and jax programs become the graphs that XLA makes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graph_compiler.frontends import converter, stablehlo
from graph_compiler.frontends import jax as from_jax
from isa.errors import NeuronError

ADD = """
module @jit_f {
  func.func public @main(%a: tensor<2x3xf32>, %b: tensor<3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %1 = stablehlo.add %a, %0 : tensor<2x3xf32>
    return %1 : tensor<2x3xf32>
  }
}
"""

needs_jax = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import jax"], capture_output=True).returncode != 0,
    reason="jax is not installed (pip install 'opennki[jax]')",
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (ADD.encode(), True),
        (b"// made by hand\n#loc = loc(unknown)\nmodule {", True),
        (b"func.func @main() {", True),
        (b'"builtin.module"() ({', True),
        (b"ML\xefR\rStableHLO_v1.0.0", True),
        (b"HloModule jit_f, is_scheduled=true", False),
        (b"\n\x05jit_f\x12\x04main", False),
        (b"modules of programs", False),
        (b"", False),
    ],
)
def test_stablehlo_is_known_by_its_first_bytes(data: bytes, expected: bool) -> None:
    assert stablehlo.is_stablehlo(data) is expected


@needs_jax
def test_text_and_bytecode_become_the_same_graph() -> None:
    from jaxlib.mlir.dialects import stablehlo as dialect

    portable = dialect.serialize_portable_artifact_str(ADD, dialect.get_current_version())
    text, binary = (stablehlo.load(source) for source in (ADD, portable))
    assert str(text.result_shape.plain()) == "f32[2,3]"
    assert [item.opcode for item in text.entry.instructions] == [
        item.opcode for item in binary.entry.instructions
    ]
    assert {"parameter", "broadcast", "add"} == {item.opcode for item in text.entry.instructions}


@needs_jax
@pytest.mark.parametrize(
    ("source", "words"),
    [
        (ADD.replace("stablehlo.add", "stablehlo.addd"), ["line 5", "stablehlo.addd"]),
        (ADD.replace("%1 = stablehlo.add %a, %0", "%1 = stablehlo.add %a, %b"), ["line 5"]),
        (ADD.replace("@main", "@other"), ["main"]),
        (ADD[: len(ADD) // 2], ["line"]),
        (b"ML\xefR\rStableHLO_v1.0.0", ["XLA"]),
        ("", []),
    ],
)
def test_a_program_that_xla_refuses_is_an_error_with_its_line(
    source: str | bytes, words: list[str]
) -> None:
    with pytest.raises(NeuronError) as caught:
        stablehlo.load(source)
    assert caught.value.code == "front-end"
    assert all(word in caught.value.what for word in words), caught.value.what


@needs_jax
def test_a_program_on_which_xla_ends_its_process_is_an_error() -> None:
    constant = "%c = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf6E2M3FN>"
    source = f"""module {{ func.func public @main() -> tensor<2xf6E2M3FN> {{
      {constant}
      return %c : tensor<2xf6E2M3FN> }} }}"""
    with pytest.raises(NeuronError) as caught:
        stablehlo.load(source)
    assert caught.value.code == "front-end"


@needs_jax
def test_leaves_of_jax_arguments_are_the_parameters_and_unused_ones_stay() -> None:
    import jax

    def function(x, weights, *, scale):
        return {"y": x @ weights["w"] * scale}

    weights = {"unused": np.zeros(3, np.int32), "w": np.ones((3, 4), np.float32)}
    x = jax.ShapeDtypeStruct((2, 3), "float32")
    module = from_jax.trace(function, x, weights, scale=np.float32(2))
    shapes = [str(item.shape.plain()) for item in module.parameters]
    assert shapes == ["f32[2,3]", "s32[3]", "f32[3,4]", "f32[]"]
    assert str(module.result_shape.plain()) == "f32[2,4]"


@needs_jax
def test_a_jitted_function_keeps_its_options() -> None:
    import jax

    function = jax.jit(lambda x, n: x * n, static_argnums=1)
    module = from_jax.trace(function, np.ones(4, np.float32), 3)
    assert [str(item.shape.plain()) for item in module.parameters] == ["f32[4]"]


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(NeuronError) as caught:
        from_jax.trace(lambda x: x, np.ones(3))
    assert caught.value.code == "missing-extra"
    assert "pip install 'opennki[jax]'" in caught.value.hint


def test_a_missing_converter_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter, "_PROGRAM", "import sys; sys.exit(3)")
    with pytest.raises(NeuronError) as caught:
        stablehlo.load(ADD)
    assert caught.value.code == "missing-extra"


@pytest.mark.parametrize("path", ["", "."])
@pytest.mark.parametrize(
    "start", [("-c", "import graph_compiler as g; g.load('a.mlir')"), ("-m", "nki.cli", "hlo")]
)
def test_nothing_beside_a_program_runs_when_it_is_loaded(
    start: tuple[str, ...], path: str, tmp_path: Path
) -> None:
    """Whoever unpacks a stranger's folder and loads the model in it does not run its jaxlib or
    jax."""
    for name in ("jaxlib", "jax"):
        (tmp_path / f"{name}.py").write_text("open('it_ran', 'w').close()\n")
    (tmp_path / "a.mlir").write_text(ADD)
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, path]))}
    command = [sys.executable, *start, *(("info", "a.mlir") if start[0] == "-m" else ())]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert not (tmp_path / "it_ran").exists(), result.stderr
    assert "jaxlib" in result.stderr or result.returncode == 0, result.stderr


@pytest.fixture
def without_xla(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The converter's process with an empty module in the place of jaxlib."""
    package = tmp_path / "jaxlib"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "xla_client.py").write_text("class _xla:\n    mlir = None\n")
    path = [str(tmp_path), *sys.path]
    monkeypatch.setattr(converter, "_trusted_path", lambda: path)


@pytest.mark.usefixtures("without_xla")
def test_a_conversion_has_a_limit_on_its_memory() -> None:
    with pytest.raises(NeuronError) as caught:
        converter.convert("\n    result = bytes(1 << 36)\n", b"", "reading StableHLO")
    assert caught.value.code == "hlo-too-large"
    assert "4096 MiB" in caught.value.what


@pytest.mark.usefixtures("without_xla")
def test_a_conversion_has_a_limit_on_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter, "LEAST_SECONDS", 1)
    with pytest.raises(NeuronError) as caught:
        converter.convert("\n    while True: pass\n", b"", "reading StableHLO")
    assert caught.value.code == "front-end"
