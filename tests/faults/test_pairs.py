"""Two faults, one after the other: the second meets the recovery from the first."""

from __future__ import annotations

import random

import pytest

from tests.faults.disk import Fault
from tests.faults.forked import Outcome, in_child
from tests.faults.scenarios import RUN, SCENARIOS, Laboratory, comparable

pytestmark = pytest.mark.faults


def disturbed(laboratory: Laboratory, name: str, fault: Fault | None = None) -> Outcome:
    done = in_child(SCENARIOS[name].work, laboratory.root, fault)
    assert done.code in (0, 99) or done.is_clear, done.output
    return done


def ends_as_if_nothing_had_been(laboratory: Laboratory, name: str) -> None:
    done = in_child(SCENARIOS[name].work, laboratory.root)
    assert done.code == 0, done.output
    found = {n: c for n, c in comparable(name, laboratory.tree()).items() if "/damaged-" not in n}
    assert found == comparable(name, laboratory.end(name)), done.output


def output_operations(done: Outcome) -> list[int]:
    """Return the numbers of the operations that do not only read the images."""
    return [n for n, found in enumerate(done.operations, start=1) if "/photos" not in found.path]


@pytest.mark.parametrize("first", ["kill", "full"])
@pytest.mark.parametrize(
    "name", ["train", "train, frozen", "index", "export again", "kinds --export", "explorer"]
)
def test_a_kill_in_the_recovery_from_a_kill_or_a_full_disk(laboratory, name, first):
    chance = random.Random(f"{name} {first}")
    places = output_operations(laboratory.undisturbed(name))
    for place in chance.sample(places, 8):
        laboratory.put_back(laboratory.start(name))
        disturbed(laboratory, name, Fault(place, first))
        disturbed(laboratory, name, Fault(chance.choice(places), "kill"))
        ends_as_if_nothing_had_been(laboratory, name)


def test_a_kill_or_a_failing_disk_while_a_damaged_checkpoint_is_set_aside(laboratory):
    whole = laboratory.undisturbed("train")
    saves = [
        number
        for number, found in enumerate(whole.operations, start=1)
        if found.kind == "rename" and "checkpoints/step-" in found.target
    ]
    laboratory.put_back({})
    disturbed(laboratory, "train", Fault(saves[-1], "kill"))
    newest = max((laboratory.root / RUN / "checkpoints").glob("step-*"))
    with (newest / "state.safetensors").open("ab") as file:
        file.write(b" ")
    damaged = laboratory.tree()
    recovery = disturbed(laboratory, "train")
    assert (
        f"{newest.name}: state.safetensors does not match its checksum; kept as damaged-" in recovery.output
    )
    assert "resuming from step" in recovery.output
    ends_as_if_nothing_had_been(laboratory, "train")
    aside = next(n for n, found in enumerate(recovery.operations, start=1) if "damaged-" in found.target)
    for place in range(aside - 4, aside + 6):
        for how in ("kill", "EIO", "full"):
            laboratory.put_back(damaged)
            disturbed(laboratory, "train", Fault(place, how))
            ends_as_if_nothing_had_been(laboratory, "train")
            kept = [path.name for path in (laboratory.root / RUN / "checkpoints").glob("damaged-*")]
            assert kept == [f"damaged-{newest.name}"]
