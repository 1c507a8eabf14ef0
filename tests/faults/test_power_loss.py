"""Power lost after any operation: what was acknowledged is there, and the same command ends as if nothing had been."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from maskcon.training.checkpoint import load_latest
from tests.faults.disk import Disk, Fault
from tests.faults.forked import Outcome, digest_of, in_child
from tests.faults.power import losses
from tests.faults.scenarios import EDITS, OUT, RUN, SCENARIOS, Laboratory, comparable

pytestmark = pytest.mark.faults


def recorded(laboratory: Laboratory, name: str, work: Callable[[], None]) -> Outcome:
    """Run a scenario undisturbed, with what it acknowledges among its operations."""
    laboratory.put_back(laboratory.start(name))
    done = in_child(work, laboratory.root)
    assert done.code == 0, done.output
    return done


def states_of(laboratory: Laboratory, name: str, done: Outcome):
    """Lose power after each operation; states that were met before, with as much acknowledged, are left out."""
    start, seen = laboratory.start(name), set()
    places = {OUT: (0o40755, b""), "cache": (0o40755, b"")}
    for number, acknowledged, state in losses(
        str(laboratory.root), {**places, **start}, done.operations, random.Random(0)
    ):
        key = digest_of(state), len(acknowledged)
        if key not in seen:
            seen.add(key)
            yield number, acknowledged, state


def train_and_acknowledge() -> None:
    from maskcon.training import loop

    save = loop.save_checkpoint

    def acknowledged(root, step, *arguments, **more):
        folder = save(root, step, *arguments, **more)
        Disk.here.acknowledge(str(step))
        return folder

    loop.save_checkpoint = acknowledged
    SCENARIOS["train"].work()


def rerun_ends_alike(laboratory: Laboratory, name: str, state) -> str:
    laboratory.put_back(state)
    done = in_child(SCENARIOS[name].work, laboratory.root)
    assert done.code == 0, done.output
    assert comparable(name, laboratory.tree()) == comparable(name, laboratory.end(name)), done.output
    return done.output


def test_no_acknowledged_checkpoint_is_lost(laboratory):
    done = recorded(laboratory, "train", train_and_acknowledge)
    chance, rerun, states = random.Random(1), 0, 0
    for _number, acknowledged, state in states_of(laboratory, "train", done):
        states += 1
        laboratory.put_back(state)
        checkpoint, notes = load_latest(laboratory.root / RUN / "checkpoints")
        assert notes == []
        step = 0 if checkpoint is None else checkpoint.values["step"]
        assert step >= int((acknowledged or ["0"])[-1])
        if chance.random() < 0.3:
            said = rerun_ends_alike(laboratory, "train", state)
            assert (f"resuming from step {step} of" in said) == (step > 0 and "finished" not in said)
            rerun += 1
    print(f"power loss, train: {states} states, {rerun} run to their end")
    assert states > 100
    assert rerun > 30


@pytest.mark.parametrize("name", ["index", "embed", "export", "kinds", "kinds --export", "report", "ask"])
def test_what_a_command_wrote_is_there_once_it_has_ended(laboratory, name):
    done = recorded(laboratory, name, SCENARIOS[name].work)
    *_, (last, _, _) = states = list(states_of(laboratory, name, done))
    expected = comparable(name, laboratory.end(name))
    for number, _, state in states:
        if number == last:
            found = comparable(name, {n: c for n, c in state.items() if n not in (OUT, "cache")})
            assert {n: c for n, (_, c) in found.items()} == {n: c for n, (_, c) in expected.items()}
    for _, _, state in random.Random(2).sample(states, min(12, len(states))):
        rerun_ends_alike(laboratory, name, state)


def has_whole_export(laboratory: Laboratory, state) -> bool:
    """Whether the export is in its place, or where the next one takes it from."""
    place, scratch = f"{RUN}/export/", f"{RUN}/.export-scratch/replaced/"
    old = {n[len(place) :]: c for n, (_, c) in laboratory.end("export").items() if n.startswith(place)}
    return any(
        old == {n[len(folder) :]: c for n, (_, c) in state.items() if n.startswith(folder)}
        for folder in (place, scratch)
    )


def test_no_export_is_lost_while_another_takes_its_place(laboratory):
    name = "export again"
    done = recorded(laboratory, name, SCENARIOS[name].work)
    for _, _, state in states_of(laboratory, name, done):
        assert has_whole_export(laboratory, state)
    moves = [n for n, found in enumerate(done.operations, start=1) if found.kind == "rename"]
    for place in range(moves[0], moves[-1] + 3):
        for how in ("EIO", "kill", "dead"):
            laboratory.put_back(laboratory.start(name))
            in_child(SCENARIOS[name].work, laboratory.root, Fault(place, how))
            assert has_whole_export(laboratory, laboratory.tree()), (done.operations[place - 1], how)
    laboratory.put_back(laboratory.start(name))
    in_child(SCENARIOS[name].work, laboratory.root, Fault(moves[-1], "kill"))
    assert not (laboratory.root / RUN / "export").exists()
    created = [n for n, found in enumerate(done.operations, start=1) if found.kind == "create"]
    in_child(SCENARIOS[name].work, laboratory.root, Fault(created[-1], "full"))
    assert has_whole_export(laboratory, laboratory.tree())  # although no new one could be written


def test_no_acknowledged_edit_is_lost(laboratory):
    def edit() -> None:
        from maskcon.app.workspace import Workspace

        apply = Workspace.edit

        def acknowledged(self, values):
            answer = apply(self, values)
            Disk.here.acknowledge(values["edit_id"])
            return answer

        Workspace.edit = acknowledged
        SCENARIOS["explorer"].work()

    done = recorded(laboratory, "explorer", edit)
    for _, acknowledged, state in states_of(laboratory, "explorer", done):
        laboratory.put_back(state)
        there = in_child(lambda: print("there:", *answers(Path(RUN))), laboratory.root)
        assert there.code == 0, there.output
        assert set(acknowledged) <= set(there.output.split()), there.output
        rerun_ends_alike(laboratory, "explorer", state)


def answers(run: Path) -> list[str]:
    """Return the names of the edits that are kept."""
    from maskcon.discovery.journal import replay
    from maskcon.discovery.kinds_folder import read_folder
    from maskcon.discovery.session import embedded_of
    from maskcon.retrieval.embeddings_file import read_embeddings

    found = read_folder(run / "kinds")
    assert found is not None
    kept = replay(run / "kinds", found[0], embedded_of(read_embeddings(run / "kinds" / "embeddings.parquet")))
    assert len(kept.answers) <= len(EDITS)
    return sorted(kept.answers)
