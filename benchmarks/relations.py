"""Recall@1 on a frozen backbone against how often a method's relation was right, with the true fine labels as bound.

    python benchmarks/relations.py cifar100 --data-root FOLDER --train 10000 --epochs 8 --out runs/relations
    python benchmarks/relations.py GROCERY --epochs 58 --out runs/relations        # a folder with fine labels
    python benchmarks/relations.py --draw --out runs/relations                     # table and figure of all sources

Every method has its default settings for a frozen backbone; "teachcon tau=0.1" is a row with another one. `truth` is
SupCon on the fine labels: its relation is always right. The share of right neighbours is that of the weight on bank
entries which lies on the query's fine class, over all steps. Images are embedded once, at the default size; runs share
the features. A rerun makes only the runs that --out lacks or that had other limits. --validation scores on a fifth of
the training images, held out; --whitening changes how far the axes of the features are whitened.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maskcon.config.backbones import FROZEN_BACKBONE
from maskcon.config.resolution import resolve
from maskcon.config.settings import Machine, RunConfig, parse_override
from maskcon.methods import registry
from maskcon.methods.registry import Method, RelationInputs, method_named
from maskcon.report.figures import save
from maskcon.report.style import class_look, figure_style, new_figure
from maskcon.retrieval.recall import recall_at_k
from maskcon.training.callbacks import Lines
from maskcon.training.frozen import features
from maskcon.training.run_folder import make_writable
from maskcon.training.trials import FrozenTrials, open_trials
from method_table import answer, write_json

METHODS = [
    "selfcon",
    "supce",
    "supcon",
    "grafit",
    "coins",
    "maskcon",
    "bucsfr",
    "teachcon",
    "truth",
    "supfine",
]
OWN = (
    "w",
    "tau",
    "learning_rate",
    "weight_decay",
    "coarse_weight",
    "relation_space",
    "relation_warmup_epochs",
)
ALONE = "backbone alone"  # as reports show it
BEFORE = "input of the head"
Rows = dict[str, dict[str, Any]]  # "source | row | seed" -> recall, share


class Watch:
    """Adds up the weight of a relation on bank entries, and the part of it on the query's fine class."""

    def __init__(self, fine: Tensor) -> None:
        self.fine = fine
        self.right = self.weight = 0.0

    @property
    def share(self) -> float | None:
        return self.right / self.weight if self.weight else None

    @contextmanager
    def over(self, method: Method) -> Iterator[None]:
        """Watch a registered method inside the block."""
        recipe = method.relation

        def relation(inputs: RelationInputs) -> Tensor:
            assert recipe is not None
            made = recipe(inputs)
            assert inputs.index is not None
            assert inputs.bank_index is not None
            same = self.fine[inputs.index][:, None] == self.fine[inputs.bank_index]
            self.weight += made[:, 1:].sum().item()
            self.right += made[:, 1:][same].sum().item()
            return made

        watched = method if recipe is None else replace(method, relation=relation)
        registry._METHODS[method.name] = watched
        try:
            yield
        finally:
            registry._METHODS[method.name] = method


def settings_of(row: str, seed: int, config: RunConfig) -> RunConfig:
    """Return the settings of a row, such as "teachcon tau=0.1": data, views and sizes of `config`."""
    method, *changes = row.split()
    like = "supcon" if method == "truth" else method
    given = {"freeze": True, "epochs": config.epochs}
    own = resolve(config.source, method=like, preset=config.preset, overrides=given).config
    values = {key: getattr(own, key) for key in OWN} | dict(map(parse_override, changes))
    return config.changed(method=method, seed=seed, **values)


def run(trials: FrozenTrials, config: RunConfig) -> dict[str, Any]:
    train = trials.data.train
    assert train.fine is not None
    method = method_named(config.method)
    watch = Watch(torch.from_numpy(train.fine))
    with watch.over(method):
        labels = train.fine if method.labels == "fine" else train.coarse
        recall = trials.run(config, np.arange(len(train)), labels).recall
    return {"recall": recall, "share": watch.share}


def alone(trials: FrozenTrials, embeddings: Tensor) -> float:
    """Return recall@1 of the test images by features that no head has changed."""
    return recall_at_k(embeddings, torch.from_numpy(trials.data.test.finest), (1,))[1]


def table(rows: Rows) -> str:
    sources = list(dict.fromkeys(key.split(" | ")[0] for key in rows))
    lines = ["| row |" + "".join(f" {source} | right |" for source in sources)]
    lines.append("|---|" + "---:|" * (2 * len(sources)))
    for row in dict.fromkeys(key.split(" | ")[1] for key in rows):
        cells = []
        for source in sources:
            found = [value for key, value in rows.items() if key.startswith(f"{source} | {row} |")]
            recalls = [100 * value["recall"] for value in found]
            shares = [100 * value["share"] for value in found if value["share"] is not None]
            spread = f" ± {stdev(recalls):.2f}" if len(recalls) > 1 else ""
            cells.append(f"{mean(recalls):.2f}{spread}" if recalls else "-")
            cells.append(f"{mean(shares):.0f} %" if shares else "")
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(rows: Rows, out: Path) -> None:
    """Draw recall@1 minus the backbone's against the share of right neighbours, a point per run."""
    sources = list(dict.fromkeys(key.split(" | ")[0] for key in rows))
    with figure_style():
        figure = new_figure(5.2, 3.4, "")
        axes = figure.add_subplot()
        for place, source in enumerate(sources):
            own = {key: value for key, value in rows.items() if key.startswith(f"{source} | ")}
            floor = next(value["recall"] for key, value in own.items() if f"| {ALONE} |" in key)
            seen = [value for value in own.values() if value["share"] is not None]
            colour, marker = class_look(place)
            axes.scatter(
                [100 * value["share"] for value in seen],
                [100 * (value["recall"] - floor) for value in seen],
                color=colour,
                marker=marker,
                label=f"{source} (backbone {100 * floor:.1f})",
            )
        axes.set_xlabel("share of right neighbours in the relation (%)")
        axes.set_ylabel("recall@1 above the backbone (points)")
        axes.legend()
        save(figure, out / "relations")


def carry_out(options: argparse.Namespace) -> None:
    out: Path = options.out
    make_writable(out)
    kept = out / "rows.json"
    rows: Rows = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    if not options.draw:
        torch.set_num_threads(1)
        registry.register(replace(method_named("supcon"), name="truth", title="Truth", labels="fine"))
        given = {"train_limit": options.train, "test_limit": options.test, "epochs": options.epochs}
        given = {key: value for key, value in given.items() if value is not None}
        given |= {
            "backbone": options.backbone,
            "evaluate_on": "validation" if options.validation else "test",
        }
        features.WHITENING = options.whitening
        machine = Machine(threads=1, device="cpu", data_root=options.data_root, download=options.download)
        place = out / "settings"  # where no run is
        config, trials = open_trials(options.source, "teachcon", given, place, machine, Lines())
        name = options.name or config.source
        sizes = len(trials.data.train), len(trials.data.test)
        made_with = [config.backbone, config.epochs, *sizes, config.evaluate_on, options.whitening]
        rows[f"{name} | {ALONE} | "] = {"recall": alone(trials, trials.features.whole_test), "share": None}
        rows[f"{name} | {BEFORE} | "] = {"recall": alone(trials, trials.features.test), "share": None}
        for row in options.methods:
            for seed in range(options.seeds):
                key = f"{name} | {row} | {seed}"
                if rows.get(key, {}).get("made with") != made_with:
                    rows[key] = run(trials, settings_of(row, seed, config)) | {"made with": made_with}
                    print(key, rows[key], flush=True)
                    write_json(kept, rows)
    print(table(rows))
    draw(rows, out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", nargs="?", help="a data set with fine labels")
    parser.add_argument("--draw", action="store_true", help="only the table and figure of what --out has")
    parser.add_argument("--name", help="of the source in table and figure")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--backbone", default=FROZEN_BACKBONE)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--train", type=int, help="training images, at most")
    parser.add_argument("--test", type=int, help="test images, at most")
    parser.add_argument("--validation", action="store_true", help="score on held-out training images")
    parser.add_argument("--whitening", type=float, default=features.WHITENING, help="0: none, 1: whole")
    parser.add_argument("--data-root")
    parser.add_argument("--download", action="store_true", help="fetch weights that are not here")
    parser.add_argument("--out", type=Path, default=Path("runs/relations"))
    answer(parser, carry_out)


if __name__ == "__main__":
    main()
