"""Why rows of published_latencies.csv have no kernel here."""

from __future__ import annotations

from typing import Any

REASONS = {
    "LN": "its kernel is not re-written yet",
    "DM": "laws of one transfer: compared in tests/simulator/test_timing.py",
    "AG018": "a rate of one instruction: compared in tests/simulator/test_timing.py",
    "AC": "its kernel is not re-written yet",
    "NB": "its kernel is not re-written yet",
    "VG": "an isolated instruction, or the layer norm of LN002, not re-written yet",
    "NS": "its kernel is not re-written yet",
}


def reason(row: dict[str, Any]) -> str:
    found = [name for name in REASONS if row["id"].startswith(name)]
    return REASONS[max(found, key=len)]
