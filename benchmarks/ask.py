"""What answers to `maskcon ask` are worth: clustering accuracy and recall, against random questions.

    python benchmarks/ask.py runs/grocery-seed0 runs/grocery-seed1 runs/grocery-seed2 [--recall] [--json FILE]

Runs of one source that differ in their seed. Kinds are found in the training images of each; their fine labels answer.
By number of answers:

accuracy  share of training images whose kind is the fine label that it is matched with (Hungarian) inside its coarse
          class; coarse classes of several fine labels only
named     share of the same images that have the right name
R@1       on the test images, of a run trained again with these names (`--recall`; sources with image paths)
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from torch import Tensor

import maskcon
from kinds import Levels, matched, numbered
from maskcon._utils.errors import UsageError
from maskcon.api import Run, data_of, features_of
from maskcon.config.settings import Machine
from maskcon.data.kinds_file import KindRow, write_kinds
from maskcon.discovery.kinds import Embedded, Kinds, find_kinds
from maskcon.discovery.questions import apply_answers, choose_questions
from maskcon.models import FrozenEncoder
from maskcon.models.encoder_file import read_encoder
from maskcon.training.run_folder import ENCODER

ANSWERS = (25, 50, 100, 200)


def random_paths(kinds: Kinds, count: int, random: np.random.Generator) -> list[str]:
    free = [row.path for row in kinds.rows if row.path not in kinds.answered]
    return [free[place] for place in random.permutation(len(free))[:count]]


def score(kinds: Kinds, fine_of: dict[str, str]) -> dict[str, float]:
    right = named = total = 0
    for coarse in kinds.classes:
        rows = [row for row in kinds.rows if row.coarse == coarse]
        truth = [fine_of[row.path] for row in rows]
        if len(set(truth)) > 1:
            right += matched(numbered(truth), numbered([row.kind for row in rows]))
            named += sum(row.kind == name for row, name in zip(rows, truth, strict=True))
            total += len(rows)
    return {"accuracy": 100 * right / total, "named": 100 * named / total}


def recall_with(run: Run, kinds: Kinds, out: Path, machine: Machine) -> float:
    """Train again with the names that are there; return recall@1."""
    out.mkdir(parents=True, exist_ok=True)
    write_kinds(out / "kinds.csv", [replace(row, kind=row.name or "") for row in kinds.rows])
    kept = ("freeze", "image_size", "bank_size", "batch_size", "epochs", "w", "tau", "seed", "train_limit")
    settings = {name: getattr(run.config, name) for name in kept} | {"eval_every_epochs": 0}
    fine = out / "kinds.csv" if any(row.name for row in kinds.rows) else None
    again = maskcon.fit(
        run.source, method=run.config.method, settings=settings, fine=fine, out=out / "run", machine=machine
    )
    return 100 * again.recall[1]


def training_images(runs: Sequence[Run], machine: Machine) -> list[tuple[Embedded, dict[str, str]]]:
    """Embed the training images with each run, through the backbone once; also return their fine labels by path."""
    data = data_of(runs[0], machine)
    train = data.train
    if train.fine is None or data.fine_names is None:
        raise UsageError(f"{data.name} has no fine labels to answer by")
    paths = list(train.paths or [f"train/{index}" for index in train.index.tolist()])
    coarse = [data.coarse_names[label] for label in train.coarse.tolist()]
    fine_of = {path: data.fine_names[label] for path, label in zip(paths, train.fine.tolist(), strict=True)}
    seen: Tensor | None = None
    found = []
    for run in runs:
        encoder, facts = read_encoder(run.folder / ENCODER)
        if not isinstance(encoder, FrozenEncoder) or run.result["data"] != runs[0].result["data"]:
            raise UsageError(
                f"{run.folder} is not a run on a frozen backbone and the images of {runs[0].folder}"
            )
        if seen is None:
            seen = features_of(Levels(encoder), facts, train.images, train.sizes, "cpu")
        with torch.no_grad():
            vectors = encoder.head(encoder.axes(seen)).numpy()
        found.append((Embedded(paths, coarse, vectors), fine_of))
    return found


def walk(
    run: Run, embedded: Embedded, fine_of: dict[str, str], machine: Machine, *, recall: bool, out: Path
) -> list[dict[str, object]]:
    """Ask in rounds until 25, 50, 100, 200 answers are there; return one record per number and kind of question."""
    start = find_kinds(embedded)
    records: list[dict[str, object]] = []
    for how in ("random", "ask"):
        kinds, random = start, np.random.default_rng(run.config.seed)
        for count in (0, *ANSWERS):
            more = count - len(kinds.answered)
            if how == "random":
                asked = random_paths(kinds, more, random)
            else:
                asked = [question.path for question in choose_questions(kinds, embedded, more)]
            class_of = kinds.known()
            answers = [KindRow(path, class_of[path].coarse, fine_of[path]) for path in asked]
            kinds = apply_answers(kinds, answers, embedded) if answers else kinds
            record: dict[str, object] = {"how": how, "answers": count, "seed": run.config.seed}
            record |= score(kinds, fine_of)
            if recall and (count or how == "random"):
                record["recall"] = recall_with(run, kinds, out / f"{how}-{count}-{run.config.seed}", machine)
            records.append(record)
            print(json.dumps(record), flush=True)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--recall", action="store_true", help="also train again with the names")
    parser.add_argument("--out", type=Path, default=Path("runs/ask"))
    parser.add_argument("--data-root")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path, help="write the records to this file")
    chosen = parser.parse_args()
    machine = Machine(data_root=chosen.data_root, threads=chosen.threads)
    runs = [Run.open(folder) for folder in chosen.runs]
    records = [
        record
        for run, (embedded, fine_of) in zip(runs, training_images(runs, machine), strict=True)
        for record in walk(run, embedded, fine_of, machine, recall=chosen.recall, out=chosen.out)
    ]
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(records, indent=1) + "\n")
    table: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        for figure in ("accuracy", "named", "recall"):
            if figure in record:
                table[figure, str(record["how"])][int(str(record["answers"]))].append(
                    float(str(record[figure]))
                )
    for (figure, how), by_count in table.items():
        cells = [
            f"{count}: {mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")
            for count, values in by_count.items()
        ]
        print(f"{figure:8} {how:6} {'  '.join(cells)}")


if __name__ == "__main__":
    main()
