"""The command `neuronx-cc`: each option by something that it changes, or says that it does not."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from neuronx_command import DOT, LAYER, NEGATE, compiling, log

import nki
from graph_compiler.command import arguments, main
from graph_compiler.command.arguments import OPTIONS, Option

FLOAT8 = """HloModule small
ENTRY e { x = f8e4m3fn[4] parameter(0)
  ROOT r = f32[4] convert(x) }"""

POWER = """HloModule powers
ENTRY e { x = s64[4] parameter(0)
  y = s64[4] parameter(1)
  ROOT r = s64[4] power(x, y) }"""

INTEGERS = """HloModule product
ENTRY e {
  x = s32[4,8] parameter(0)
  y = s32[8,4] parameter(1)
  ROOT d = s32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""

pytestmark = pytest.mark.usefixtures("own_folder")


def cores_of(path: str) -> int:
    return len(nki.load(path).program.cores)


def test_a_graph_becomes_a_program_that_runs() -> None:
    assert compiling() == 0
    found = nki.load("file.neff")(np.array([1, -2, 3, 0], np.float32))
    np.testing.assert_array_equal(found, [-1, 2, -3, 0])
    assert "wrote file.neff" in log()


def test_what_nkipy_passes() -> None:
    Path("hlo_module.pb").write_text(NEGATE)
    words = "compile --framework XLA hlo_module.pb --pipeline compile SaveTemps --target trn1"
    more = "--output=kernel.neff --lnc 1 --internal-tensorizer-opt-level=2"
    assert main([*words.split(), *more.split()]) == 0
    assert Path("kernel.neff").exists()
    assert Path("graph.hlo.txt").read_text().startswith("HloModule small")
    assert "dma_copy" in Path("tile_ir.txt").read_text()
    assert ".program" in Path("program.txt").read_text()


@pytest.mark.parametrize("name", arguments.TARGETS)
def test_target(name: str) -> None:
    assert compiling(target=name) == 0
    expected = {"inf2": "trn1", "trn1n": "trn1"}.get(name, name)
    assert nki.load("file.neff").target == expected


def result(*words: str) -> np.ndarray:
    assert compiling(*words, text=DOT) == 0
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (8, 4)))
    exact = x.astype(np.float64) @ y
    found = nki.load("file.neff")(x, y)
    bf16, fp16 = (
        x.astype(type).astype(np.float64) @ y.astype(type).astype(np.float64)
        for type in (ml_dtypes.bfloat16, np.float16)
    )
    distances = {"fp32": exact, "bf16": bf16, "fp16": fp16}
    return min(distances, key=lambda name: np.abs(found - distances[name]).max())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "fp32"),
        ("--auto-cast none --auto-cast-type fp16", "fp32"),
        ("--auto-cast=matmult", "bf16"),
        ("--auto-cast all --auto-cast-type=fp16", "fp16"),
        ("--auto-cast matmult --auto-cast=none", "fp32"),
        ("--auto-cast none --auto-cast=matmult", "bf16"),
        ("--auto-cast=matmult --auto-cast-type=tf32", "fp16"),  # has as many bits here
    ],
)
def test_auto_cast_and_the_right_most_option(words: str, expected: str) -> None:
    assert result(*words.split()) == expected


def test_logical_cores(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for spelling in (["--lnc", "2"], ["-lnc", "2"], ["--logical-nc-config=2"]):
        assert compiling(*spelling, target="trn1") != 0
        assert "NCC_EARG001" in capsys.readouterr().err
    assert compiling("--lnc", "2") == 0
    assert cores_of("file.neff") == 2
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    assert compiling() == 0
    assert cores_of("file.neff") == 2
    assert compiling("--lnc", "1") == 0
    assert cores_of("file.neff") == 1


def test_float8(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling(text=FLOAT8) != 0
    assert "NCC_EVRF051" in capsys.readouterr().err
    assert not Path("file.neff").exists()
    assert compiling("--experimental-unsafe-fp8e4m3fn-as-fp8e4m3", text=FLOAT8) == 0
    assert compiling(text=FLOAT8, target="trn3") == 0


@pytest.mark.parametrize("words", ["none", "pow,scatter"])
def test_integers_that_must_not_be_downcast(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling("--implicit-integer-downcast", words, text=INTEGERS) != 0
    assert "NCC_EVRF035: dot `d`" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["default", "all", "dot"])
def test_integers_that_may_be(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling(f"--implicit-integer-downcast={words}", text=INTEGERS) == 0
    assert "dot `d`" in capsys.readouterr().err  # a warning
    x, y = np.ones((4, 8), np.int32), np.arange(32, dtype=np.int32).reshape(8, 4)
    y[0, 0] = (1 << 24) + 1  # fp32 does not hold it
    found = nki.load("file.neff")(x, y)
    expected = x @ y
    expected[:, 0] -= 1
    np.testing.assert_array_equal(found, expected)


def test_downcasts_that_there_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling("--implicit-integer-downcast", "dot,sum") == 2
    assert "dot,sum" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["default", "enabled", "disabled"])
def test_64_bit_integers_never_lose_bits(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--native-int64", mode, "--implicit-integer-downcast", "none"]
    assert compiling(*words, text=POWER) != 0
    assert "NCC_EVRF062" in capsys.readouterr().err


NO_EFFECT = [row for row in OPTIONS if row.no_effect]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    place = tmp_path_factory.mktemp("plain")
    (place / "m").write_text(NEGATE)
    words = ["compile", str(place / "m"), "--framework=XLA", "--target=trn2"]
    assert main([*words, f"--output={place}/o", f"--logfile={place}/l"]) == 0
    return (place / "o").read_bytes()


@pytest.mark.parametrize("row", NO_EFFECT, ids=lambda row: row.names[0])
def test_options_without_effect_say_so_and_have_none(
    row: Option, plain: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    value = [] if row.constant is not None else [row.values[-1] if row.values else "1"]
    assert compiling(row.names[0], *value) == 0
    assert f"{row.names[0]} has no effect: {row.no_effect}" in log()
    assert main(["compile", "--help"]) == 0
    assert f"No effect: {row.no_effect}." in " ".join(capsys.readouterr().out.split())
    assert Path("file.neff").read_bytes() == plain


@pytest.mark.parametrize("row", [r for r in OPTIONS if r.deprecated], ids=lambda r: r.names[0])
def test_deprecated_options_warn(row: Option, capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling(row.names[0], *([] if row.constant else ["4"])) == 0
    assert "is deprecated" in capsys.readouterr().err


def test_accumulation_stays_in_fp32(plain: bytes) -> None:
    assert compiling("--enable-mixed-precision-accumulation") == 0
    assert Path("file.neff").read_bytes() == plain


def test_level_in_all_spellings() -> None:
    """From 2 on plans are tried."""
    made = []
    for words in (["-O1"], ["-O", "3"], ["--optlevel=2"], []):
        assert compiling(*words, text=LAYER) == 0
        made.append(Path("file.neff").read_bytes())
    assert made[0] != made[1] == made[2] == made[3]


def test_the_check_of_the_graph_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    text = NEGATE.replace("f32[4] negate", "f32[2,2] negate")
    assert compiling(text=text) == 7
    assert "NCC_EVRF064" in capsys.readouterr().err
    compiling("--internal-hlo2tensorizer-options=--verify-hlo=false", text=text)
    assert "NCC_EVRF064" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["build"],
        ["compile"],
        ["compile", "m", "--framework", "XLA"],
        ["compile", "m", "--target", "trn2"],
        ["compile", "m", "--framework", "TORCH", "--target", "trn2"],
        ["compile", "m", "--framework", "XLA", "--target", "trn9"],
        ["compile", "m", "--framework", "XLA", "--target", "trn2", "--unknown-option"],
        ["compile", "m", "--framework", "XLA", "--target", "trn2", "--outpu", "x"],
        ["compile", "m", "n", "--framework", "XLA", "--target", "trn2"],
        ["compile", "m", "--framework", "XLA", "--target", "trn2", "--optlevel", "4"],
        ["compile", "m", "--framework", "XLA", "--target", "trn2", "--pipeline", "all"],
        ["list-operators"],
        ["list-operators", "--framework", "TF"],
    ],
)
def test_words_that_it_does_not_take(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compile", "nowhere.pb", "--framework", "XLA", "--target", "trn2"]
    assert main(words) == 6
    assert "nowhere.pb" in capsys.readouterr().err


def test_a_model_behind_the_pipeline() -> None:
    Path("m").write_text(NEGATE)
    words = "compile --framework XLA --target trn2 --pipeline compile SaveTemps m"
    assert main(words.split()) == 0


def test_operators(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list-operators", "--framework", "XLA"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert names == sorted(set(names))
    assert {"Add", "DotGeneral", "BroadcastInDim", "While", "SelectAndScatter"} <= set(names)
    assert "Acosh" not in names


def test_infinities_are_saturated_on_request() -> None:
    """On trn1, whose tensor engine multiplies to transpose; results: `test_compile_options`."""
    programs: dict[tuple[str, bool], bytes] = {}
    for target in ("trn1", "trn2"):
        for words in ([], ["--enable-saturate-infinity"]):
            assert compiling(*words, text=LAYER, target=target) == 0
            programs[target, bool(words)] = Path("file.neff").read_bytes()
    assert programs["trn1", False] != programs["trn1", True]
    assert programs["trn2", False] == programs["trn2", True]
