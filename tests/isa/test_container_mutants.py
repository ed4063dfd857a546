"""Containers with something changed and right checksums."""

from __future__ import annotations

import mutation_runs
import run_container_mutations


def test_mutants_are_refused_or_run_as_their_text_says() -> None:
    """The first of those that `run_container_mutations.py` goes through."""
    reports: list[str] = []
    script = run_container_mutations.SUBJECT.script
    tally = mutation_runs.run_all(script, 0, 150, 1, reports.append)
    assert not tally.failures, reports
    assert tally.outcomes["ran"] > 35 and sum(tally.outcomes.values()) == 150
    assert 5 < tally.outcomes[run_container_mutations.REPEATED] < 30
    assert tally.outcomes["refused: container-corrupt"] > 30
    assert tally.outcomes["refused as text: assembler-syntax"] > 20
