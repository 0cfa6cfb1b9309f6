"""The cases of other projects' tests that cannot pass, from `suites.tsv`."""

from __future__ import annotations

from pathlib import Path

LIST = Path(__file__).resolve().parents[1] / "suites.tsv"


def impossible(suite: str) -> dict[str, str]:
    """Return a suite's cases that cannot pass, and why."""
    rows = (line.split("\t") for line in LIST.read_text().splitlines())
    return {case: reason for name, case, reason in rows if name == suite and case}
