from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.scenarios import Laboratory
from tests.faults.sweep import KILLED, REFUSED, TOLD, UNHARMED


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory) -> Laboratory:
    (root := tmp_path_factory.mktemp("faults") / "laboratory").mkdir()
    return Laboratory(root)


def pytest_terminal_summary(terminalreporter) -> None:
    """Print what came of the faults, by operation."""
    found: Counter[tuple[str, str]] = Counter()
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, trials in report.user_properties:
            if name == "sweep" and report.when == "call":
                found.update((kind, outcome) for _, kind, outcome in trials)
    if not found:
        return
    outcomes = (UNHARMED, REFUSED, TOLD, KILLED)
    terminalreporter.section("operations that failed, and what came of it")
    terminalreporter.line("| operation | faults | " + " | ".join(outcomes) + " |")
    for kind in sorted({kind for kind, _ in found}):
        numbers = [found[kind, outcome] for outcome in outcomes]
        terminalreporter.line(
            f"| {kind} | {sum(numbers):,} | " + " | ".join(f"{n:,}" for n in numbers) + " |"
        )
    numbers = [sum(n for (_, o), n in found.items() if o == outcome) for outcome in outcomes]
    terminalreporter.line(f"| all | {sum(numbers):,} | " + " | ".join(f"{n:,}" for n in numbers) + " |")
