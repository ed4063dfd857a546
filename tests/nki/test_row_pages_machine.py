"""Pages of machine instructions."""

from __future__ import annotations

from isa.machine import MACHINE_INSTRUCTIONS
from isa.target import TARGETS


def test_a_machine_page_states_encoding_state_and_cost(generated: dict[str, str]) -> None:
    page = generated["reference/machine/Activate.md"]
    assert f"Opcode `{MACHINE_INSTRUCTIONS['Activate'].opcode:#04x}`" in page
    assert "| 12-15 | `dst` | a tensor, by reference |" in page
    assert "| `accumulators` | reads and writes |" in page
    assert "[activation](../operations/activation.md)" in page
    assert "[activation_reduce](../operations/activation_reduce.md)" in page
    for case in MACHINE_INSTRUCTIONS["Activate"].cost.cases:  # type: ignore[union-attr]
        assert f"`{case.formula}`" in page and case.source in page


def test_figures_carry_their_source_and_say_what_is_assumed(generated: dict[str, str]) -> None:
    text = generated["reference/targets.md"]
    for target in TARGETS.values():
        for name, figure in target.figures().items():
            (line,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
            assert figure.source in line
            if figure.assumed:
                assert "**assumed**" in line
