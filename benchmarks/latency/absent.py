"""Why rows of published_latencies.csv have no kernel here."""

from __future__ import annotations

from typing import Any

REASONS = {
    "VG016": "is the figure accumulator_read_ns itself",
    "VG018": "is the figure activation_table_load_ns itself",
    "NS": "a threshold of a test, and the generation it ran on is not stated",
}


def reason(row: dict[str, Any]) -> str:
    found = [name for name in REASONS if row["id"].startswith(name)]
    return REASONS[max(found, key=len)]
