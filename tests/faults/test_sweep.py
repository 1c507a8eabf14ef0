"""Every operation of every command fails once: the end is the same, or there is one clear line; never silence.

`make test-faults` takes each operation that changes something and every third that reads, each with one fault, in
turn of its kinds; `FAULTS=all` takes every fault of every operation.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import groupby

import pytest

from tests.faults.disk import READING, Fault
from tests.faults.scenarios import SCENARIOS
from tests.faults.sweep import REFUSED, Sweep

pytestmark = pytest.mark.faults
PARTS = {"train": 3, "train, frozen": 3, "inspect": 2, "kinds --export": 2, "report": 3}  # to share the work


def chosen(sweep: Sweep) -> list[Fault]:
    """One fault per operation, another way to fail at each; or all."""
    if os.environ.get("FAULTS") == "all":
        return sweep.faults()
    ways = [list(same) for _, same in groupby(sweep.faults(), key=lambda fault: fault.at)]
    kinds = [operation.kind for operation in sweep.undisturbed.operations]
    taken = [way for n, way in enumerate(ways) if kinds[n] not in READING or n % 3 == 0]
    return [way[number % len(way)] for number, way in enumerate(taken)]


@pytest.mark.parametrize(
    ("name", "part"), [(name, part) for name in SCENARIOS for part in range(PARTS.get(name, 1))]
)
def test_no_failing_operation_goes_unnoticed(laboratory, record_property, name, part):
    sweep = Sweep(laboratory, name)
    faults = chosen(sweep)[part :: PARTS.get(name, 1)]
    trials = [sweep.trial(fault) for fault in faults]
    record_property("sweep", [(name, trial.kind, trial.outcome) for trial in trials])
    wrong = [(trial.kind, trial.fault, trial.wrong, trial.output[-300:]) for trial in trials if trial.wrong]
    assert wrong == []
    assert Counter(trial.outcome for trial in trials)[REFUSED] > len(trials) / 10
