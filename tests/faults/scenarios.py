"""What is swept: each command that writes, on small images, with the state that it starts from."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.cli.commands import SMALL
from tests.faults.forked import Outcome, Tree, in_child, put_back, tree_of

PHOTOS, OUT, RUN = "photos", "out", "out/run"
SHAPE = ["--set", "epochs=2", "--set", "bank_size=16", "--set", "batch_size=8", "--set", "image_size=16"]
TRAIN = ["train", PHOTOS, "--method", "maskcon", "--preset", "cpu", *SMALL, *SHAPE]
EDITS = [
    {"action": "move", "ids": [0, 1], "to": "narrow", "edit_id": "a"},
    {"action": "junk", "ids": [9], "edit_id": "b"},
    {"action": "move", "ids": [2], "to": "wide", "edit_id": "c"},
]


def command(*arguments: str) -> Callable[[], None]:
    """Return the call of `maskcon` with these arguments."""

    def call() -> None:
        from maskcon.cli import main

        sys.argv = ["maskcon", *arguments]
        main()

    return call


def as_command(work: Callable[[], None]) -> Callable[[], None]:
    """Let a call end as a command does: with one line if it fails."""

    def call() -> None:
        from maskcon.cli import explained, fail

        try:
            work()
        except Exception as error:
            fail(*explained(error, []))

    return call


def edit() -> None:
    """Give the edits of a person, as the page does; those that are there already are not repeated."""
    from maskcon.app.startup import open_workspace

    workspace = open_workspace(Path(RUN))
    try:
        for values in EDITS:
            workspace.edit(values)
    finally:
        workspace.close()


def tune() -> None:
    """Score the grid by trials that are made up."""
    from maskcon._utils.files import FolderLock
    from maskcon.api.tune import tune
    from maskcon.training.run_folder import make_writable
    from tests.api.test_tune import CONFIG, Generated

    folder = Path("out/tune")
    make_writable(folder)
    with FolderLock(folder):
        print(tune(CONFIG, Generated(classes=5), folder, 2).chosen)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Scenario:
    """A command, and what must have run before it.

    Attributes:
        left: names that may differ in the end: what is set aside for people, and journals.
        shows_gaps: it leaves a grey place where an image can no longer be read.
        prints: what it prints is its result.
    """

    work: Callable[[], None]
    after: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    shows_gaps: bool = False
    prints: bool = False


FROZEN = ["--freeze", "--set", "backbone=resnet6", "--set", "weights=weights.safetensors"]
SCENARIOS: Mapping[str, Scenario] = {
    "train": Scenario(command(*TRAIN, "--checkpoint-every-seconds", "0", "--out", RUN)),
    "train, frozen": Scenario(command(*TRAIN, *FROZEN, "--set", "epochs=1", "--out", RUN)),
    "inspect": Scenario(command("inspect", PHOTOS, "--out", "out/look", "--device", "cpu"), shows_gaps=True),
    "index": Scenario(command("index", RUN, PHOTOS, "--device", "cpu"), ("train",)),
    "embed": Scenario(command("embed", RUN, PHOTOS, "-o", "out/all.parquet", "--device", "cpu"), ("train",)),
    "export": Scenario(command("export", RUN), ("train",)),
    "export again": Scenario(command("export", RUN), ("train", "export")),
    "report": Scenario(command("report", RUN, "--device", "cpu"), ("train",)),
    "kinds": Scenario(command("kinds", RUN, "--device", "cpu"), ("train",)),
    "kinds --export": Scenario(
        command("kinds", RUN, "--device", "cpu", "--export", "out/sorted"), ("train", "kinds")
    ),
    "ask": Scenario(command("ask", RUN, "--device", "cpu", "-n", "4"), ("train", "kinds")),
    "explorer": Scenario(as_command(edit), ("train", "kinds"), ("edits.jsonl",)),
    "tune": Scenario(as_command(tune)),
    "evaluate": Scenario(command("evaluate", RUN, "--json"), ("train",), prints=True),
    "search": Scenario(
        command("search", RUN, "photos/a/00.png", "--device", "cpu"), ("train", "index"), prints=True
    ),
}


class Laboratory:
    """A folder with images and weights, in which scenarios are run; their starts and ends are made once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ends: dict[str, Tree] = {}
        self._operations: dict[str, Outcome] = {}
        for name, dark in (("a", False), ("b", True)):
            for number in range(10):
                _draw(root / PHOTOS / name / f"{number:02}.png", dark, 100 * dark + number)
        _write_weights(root / "weights.safetensors")

    def start(self, name: str) -> Tree:
        """Return the state of `out` that a scenario starts from."""
        after = SCENARIOS[name].after
        return self.end(after[-1]) if after else {}

    def end(self, name: str) -> Tree:
        """Return the state of `out` after an undisturbed run."""
        if name not in self._ends:
            self.undisturbed(name)
        return self._ends[name]

    def undisturbed(self, name: str) -> Outcome:
        """Run a scenario once, from its start."""
        if name not in self._operations:
            self.put_back(self.start(name))
            self._operations[name] = done = in_child(SCENARIOS[name].work, self.root)
            assert done.code == 0, done.output
            self._ends[name] = self.tree()
        return self._operations[name]

    def put_back(self, tree: Tree) -> None:
        """Make `out` and the cache what they were."""
        for part in (OUT, "cache"):
            inside = {n[len(part) + 1 :]: v for n, v in tree.items() if n.startswith(f"{part}/")}
            put_back(self.root / part, inside)

    def tree(self) -> dict[str, tuple[int, bytes]]:
        """Return `out` and the cache."""
        return {
            f"{part}/{name}": value
            for part in (OUT, "cache")
            for name, value in tree_of(self.root / part).items()
        }


def comparable(name: str, tree: Tree) -> dict[str, Any]:
    """Return what must be equal in the end; of checkpoints only the newest, as older ones may not be removable."""
    newest = max((path for path in tree if re.search(r"checkpoints/step-\d+$", path)), default="")
    older = re.compile(r".*/checkpoints/step-")
    return {
        path: _state(value[1]) if path.endswith("kinds.npz") else value
        for path, value in tree.items()
        if Path(path).name not in SCENARIOS[name].left and not path.endswith(("sqlite-wal", "sqlite-shm"))
        # the one that a second save of the same step replaced is of that step too
        if not older.match(path) or (path.startswith(newest) and ".old" not in path)
    }


def are_close(found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether two ends are the same but for rounding of embeddings.

    On some processors it depends on the images in the batch; one that was left out is embedded alone later.
    """
    return found.keys() == expected.keys() and all(
        value == expected[path]
        or (path.endswith(".parquet") and _have_close_vectors(value[1], expected[path][1]))
        for path, value in found.items()
    )


def _have_close_vectors(found: bytes, expected: bytes) -> bool:
    from pyarrow.parquet import read_table

    tables = [read_table(io.BytesIO(content)) for content in (found, expected)]
    vectors = [np.array(table["vector"].to_pylist()) for table in tables]
    texts = [table.drop_columns(["vector"]) for table in tables]
    return texts[0].equals(texts[1]) and np.allclose(*vectors, rtol=1e-4, atol=1e-5)


def _state(content: bytes) -> Any:
    """Return what kinds.npz holds, but for which kinds.csv it replaces."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {key: file[key].tobytes() for key in file.files}
    return json.loads(arrays.pop("state")) | {"replaces": ""}, arrays


def _draw(path: Path, dark: bool, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 60, (16, 16, 3))
    stripes = (np.arange(16) % (2 if seed % 2 else 6) * 40)[:, None, None] * (1 + dark)
    Image.fromarray(np.clip(noise + stripes, 0, 255).astype(np.uint8)).save(path)


def _write_weights(path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    from maskcon.models import build_backbone

    torch.manual_seed(5)
    net = build_backbone("resnet6", image_size=16, in_channels=3, width=8, stem="stride2")
    net.train()
    net(torch.rand(64, 3, 16, 16))
    save_file(net.state_dict(), path)
