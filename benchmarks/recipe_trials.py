"""How `fast` was found: changes of a first recipe, then of those that it led to, on validation images.

    python benchmarks/recipe_trials.py embedded                     # every trial of TRIALS, one seed
    python benchmarks/recipe_trials.py cifartoy-good --images PATH  # PATH/{train,test}/<class>/*.jpg: CIFAR-10
    python benchmarks/recipe_trials.py embedded --trials "as it is;rate 0.2" --seeds 3

The first recipe (`FIRST`) is MaskCon with cross-entropy, Muon and a rate that falls from epoch 2 on; the second
(`second`) has a rate and a w that rise longer; the third (`third`) has neighbours by outlines and means for keys. With
measured statistics that is the `fast` of the trials, and with weak views for half of its queries the preset of today.
Each trial is one of them with a change of settings or with a part that the package lacks (`recipe_parts.py`,
`recipe_relations.py`), scored by recall@1 on validation images (a fifth of the training ones). All have the same CPU
time as far as whole epochs allow: what makes an epoch cheaper or dearer by a factor (`cost`, as measured) gets as many
more or fewer of them. Goes on where it was stopped; a folder a run and `trials.json` under --out.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskcon._utils.errors import unknown
from maskcon.training.run_folder import make_writable
from method_table import answer, write_json
from recall_studies import MUON, STUDIES, VALIDATION, Recipe
from recipe_parts import PARTS as STEP_PARTS
from recipe_relations import PARTS as RELATION_PARTS
from time_to_recall import Bench, seconds, spread, table

EPOCHS = {"embedded": 25, "cifartoy-good": 10}  # of a trial whose cost is 1
PARTS = {**STEP_PARTS, **RELATION_PARTS}

# The preset `fast`, as it is now, but for these.
FIRST = {
    "keys": "encoder",
    "final_statistics": 0,
    "weak_queries": 0.0,
    "learning_rate": 0.1,
    "warmup_epochs": 1.0,
    "relation_space": "projection",
    "tau": 0.05,
    "relation_warmup_epochs": 4.0,
}


@dataclass(frozen=True)
class Trial:
    """A change of the first recipe; cost: CPU seconds of an epoch over those of the recipe."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    cost: float = 1.0
    method: str = "maskcon"
    warmup_share: float | None = None
    relation_share: float | None = None  # in which w rises

    def recipe(self, epochs: int) -> Recipe:
        """What is trained, where a trial of cost 1 has so many epochs."""
        shares = {"warmup_share": self.warmup_share, "relation_warmup_share": self.relation_share}
        given = [f"{name}={value}" for name, value in self.parts.items()]
        return Recipe(
            "fast",
            self.method,
            {
                "epochs": max(1, round(epochs / self.cost)),
                **VALIDATION,
                **FIRST,
                **self.settings,
                **{key: share for key, share in shares.items() if share is not None},
            },
            program=(__file__, "run", *given, "--"),
        )


def second(
    settings: Mapping[str, Any] | None = None, parts: Mapping[str, str] | None = None, cost: float = 1.0
) -> Trial:
    """The recipe that the first round of trials led to, with these changes."""
    return Trial(
        {"learning_rate": 0.2, **(settings or {})}, parts or {}, cost, warmup_share=0.3, relation_share=0.5
    )


# The outlines of the trials were simpler than those of today: larger cells, fewer directions, never turned, and an
# image found others by its own looks alone.
EARLIER_OUTLINES = {"coarser": "yes", "upright": "yes", "one_sided": "yes"}
OUTLINES = {"learning_rate": 0.2, "relation_space": "hog", "tau": 0.025, "relation_warmup_epochs": 1.0}


def by_outlines(settings: Mapping[str, Any] | None = None, parts: Mapping[str, str] | None = None) -> Trial:
    """The second recipe with neighbours by outlines, which are there from the start, of images that stay in place."""
    return Trial(
        {**OUTLINES, **(settings or {})},
        {"still": "yes", **EARLIER_OUTLINES, **(parts or {})},
        warmup_share=0.3,
    )


def third(
    settings: Mapping[str, Any] | None = None, parts: Mapping[str, str] | None = None, cost: float = 0.74
) -> Trial:
    """By outlines of images also a little moved, keys being means of queries, with these changes."""
    return Trial(
        {**OUTLINES, "keys": "means", **(settings or {})},
        {**EARLIER_OUTLINES, **(parts or {})},
        cost,
        warmup_share=0.3,
    )


WEAK = {"final_statistics": 2560, "query_view": "weak"}  # on top of the third


TRIALS: Mapping[str, Trial] = {
    "as it is": Trial(),
    "rate 0.2": Trial({"learning_rate": 0.2}),
    "weight decay 0.05": Trial({"weight_decay": 0.05}),
    "batches of 64, rate 0.07": Trial({"batch_size": 64, "learning_rate": 0.07}),
    "BatchNorm in the projector": Trial({"projector_norm": "batch"}),
    "contrast temperature 0.07": Trial({"contrast_temperature": 0.07}),
    "cross-entropy twice as much": Trial({"coarse_weight": 2.0}),
    "no relation (w 0): instances and cross-entropy": Trial({"w": 0.0}),
    "tau 0.02, w rising to the end": Trial({"tau": 0.02}, relation_share=1.0),
    "views grow, 16 px up to 0.4, 24 up to 0.7": Trial(parts={"growing": "16@0.4,24@0.7"}, cost=0.6),
    "views grow, 24 px up to 0.6": Trial(parts={"growing": "24@0.6"}, cost=0.85),
    "keys of 24 px": Trial(parts={"key_size": "24"}, cost=0.92),
    "two queries of 24 px a key": Trial(parts={"crops": "2x24"}, cost=1.2),
    "four queries of 16 px a key": Trial(parts={"crops": "4x16"}, cost=1.2),
    "one whole query and two of 16 px a key": Trial(parts={"crops": "2x16+1"}, cost=1.5),
    "weights averaged over the last third": Trial(parts={"averaged": "0.67"}),
    "averaged over the last half, rate to a fifth": Trial(parts={"averaged": "0.5", "floor": "0.2"}),
    "whitened first layer": Trial(parts={"whitened": "all"}),
    "AdamW, rate 0.003": Trial({"learning_rate": 0.003}, {"adamw": "0.05"}),
    "AdamW, rate 0.01": Trial({"learning_rate": 0.01}, {"adamw": "0.05"}),
    "SGD with Nesterov, rate 0.2": Trial({"optimizer": "sgd", "learning_rate": 0.2, "nesterov": True}),
    "one cycle, rate 0.2": Trial({"learning_rate": 0.2}, warmup_share=0.3),
    "batches of 256, rate 0.14": Trial({"batch_size": 256, "learning_rate": 0.14}),
    "cross-entropy from 2 down to 0": Trial(parts={"early_labels": "2:0"}),
    "cross-entropy from 0 up to 2": Trial(parts={"early_labels": "0:2"}),
    "key momentum 0.95": Trial({"key_momentum": 0.95}),
    "neighbours by features": Trial({"relation_space": "features"}),
    "w 0.5": Trial({"w": 0.5}),
    "contrast temperature 0.2": Trial({"contrast_temperature": 0.2}),
    "bank of 512": Trial({"bank_size": 512}),
    "bank of 4096": Trial({"bank_size": 4096}),
    "bank of 4096, tau 0.02": Trial({"bank_size": 4096, "tau": 0.02}),
    "no key net: each view is the other's key": Trial(parts={"twins": "weak"}, cost=1.5),
    "no key net, batches of 64": Trial({"batch_size": 64}, {"twins": "weak"}, cost=1.5),
    "w rising up to half": Trial(relation_share=0.5),
    "one cycle, rate 0.15": Trial({"learning_rate": 0.15}, warmup_share=0.3),
    "one cycle, rate 0.3": Trial({"learning_rate": 0.3}, warmup_share=0.3),
    "one cycle, rate 0.1": Trial(warmup_share=0.3),
    "one cycle, rate 0.2, whitened": Trial({"learning_rate": 0.2}, {"whitened": "all"}, warmup_share=0.3),
    "one cycle, rate 0.2, BatchNorm in the projector": Trial(
        {"learning_rate": 0.2, "projector_norm": "batch"}, warmup_share=0.3
    ),
    "one cycle, rate 0.15, w rising up to half": Trial(
        {"learning_rate": 0.15}, warmup_share=0.3, relation_share=0.5
    ),
    "one cycle, rate 0.2, w rising up to half": second(),
    "second, own class's negatives alone": second(parts={"own_class": "yes"}),
    "second, own class's negatives alone, no relation (w 0)": second({"w": 0.0}, {"own_class": "yes"}),
    "second, no relation (w 0), 20 clusters a class": second({"w": 0.0}, {"clusters": "20"}),
    "second, no relation (w 0), 10, 20 and 40 clusters a class": second({"w": 0.0}, {"clusters": "10/20/40"}),
    "second, keys are running means of queries": second(parts={"stored": "0.5"}, cost=0.74),
    "second, keys are running means of queries, no relation (w 0)": second(
        {"w": 0.0}, {"stored": "0.5"}, cost=0.74
    ),
    "second, keys are running means that keep 0.7": second(parts={"stored": "0.7"}, cost=0.74),
    "second, told to tell outlines, weight 3": second(parts={"guided": "3:3"}),
    "second, told to tell outlines, weight 10": second(parts={"guided": "10:10"}),
    "second, told to tell outlines, from 10 down to 0": second(parts={"guided": "10:0"}),
    "second, neighbours by outlines, tau 0.1": by_outlines({"tau": 0.1}),
    "second, neighbours by outlines, tau 0.05": by_outlines({"tau": 0.05}),
    "second, neighbours by outlines, tau 0.025": by_outlines(),
    "second, neighbours by outlines, tau 0.0125": by_outlines({"tau": 0.0125}),
    "second, neighbours by outlines, bank of 4096": by_outlines({"bank_size": 4096}),
    "second, neighbours by outlines, w 0.5": by_outlines({"w": 0.5}),
    "second, neighbours by outlines, half the cross-entropy": by_outlines({"coarse_weight": 0.5}),
    "second, neighbours by outlines, twice the cross-entropy": by_outlines({"coarse_weight": 2.0}),
    "second, neighbours by outlines, rate 0.3": by_outlines({"learning_rate": 0.3}),
    "second, neighbours by outlines, contrast temperature 0.2": by_outlines({"contrast_temperature": 0.2}),
    "second, neighbours by outlines, told to tell them, from 10 down to 0": by_outlines(
        parts={"guided": "10:0"}
    ),
    "second, neighbours by FINE labels: what a relation could bring": second(parts={"by_fine_labels": "5"}),
    "second, neighbours by FINE labels, ten times as much": second(parts={"by_fine_labels": "50"}),
    "third": third(),
    "third, keys by the key net": third({"keys": "encoder"}, cost=1.0),
    "third, neighbours by projections, tau 0.05": third({"relation_space": "projection", "tau": 0.05}),
    "third, tau 0.05": third({"tau": 0.05}),
    "third, bank of 4096": third({"bank_size": 4096}, cost=0.78),
    "third, means that keep 0.3": third({"means_kept": 0.3}),
    "third, means that keep 0.7": third({"means_kept": 0.7}),
    "third, rate 0.3": third({"learning_rate": 0.3}),
    "third, momentum 0.8": third({"momentum": 0.8}),
    "third, w falling to 0 from 0.4 on": third(parts={"falling_w": "0.4"}),
    "third, half the cross-entropy": third({"coarse_weight": 0.5}),
    "third, the weak view for queries in the last fifth": third(parts={"calm_end": "0.8"}),
    "third, BatchNorm statistics measured at the end: fast": third({"final_statistics": 2560}),
    "fast, weak views for queries": third(WEAK),
    "fast, weak views for half of the queries": third({"final_statistics": 2560, "weak_queries": 0.5}),
    "fast, weak views for 0.3 of the queries": third({"final_statistics": 2560, "weak_queries": 0.3}),
    "fast, weak views for queries, tau 0.05": third({**WEAK, "tau": 0.05}),
    "fast, weak views for queries, contrast temperature 0.07": third({**WEAK, "contrast_temperature": 0.07}),
    "fast, weak views for queries, contrast temperature 0.15": third({**WEAK, "contrast_temperature": 0.15}),
    "fast, images as they are for queries": third({**WEAK, "query_view": "identity"}),
    "fast, crops of CIFAR for queries": third({**WEAK, "query_view": "cifar-weak"}),
    "fast, contrast temperature 0.07": third({"final_statistics": 2560, "contrast_temperature": 0.07}),
    "fast, batches of 64, rate 0.14": third(
        {"final_statistics": 2560, "batch_size": 64, "learning_rate": 0.14}, cost=0.86
    ),
    "fast, neighbours by FINE labels: what a relation could bring": third(
        {"final_statistics": 2560}, {"fine_neighbours": "yes"}
    ),
    "CoIns by Muon, weak views for queries": Trial(
        {**MUON, "learning_rate": 0.2, "w": 0.8, "query_view": "weak"}, cost=25 / 30, method="coins"
    ),
    "cross-entropy on the FINE labels by Muon": Trial(
        {**MUON, "learning_rate": 0.1}, cost=25 / 44, method="supfine"
    ),
}


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        run_one(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--images", type=Path, help="CIFAR-10 as a folder a class, for CIFARtoy")
    parser.add_argument("--out", type=Path, help="by default runs/recipe-trials-STUDY")
    parser.add_argument("--trials", default="all", help="names of TRIALS, separated by semicolons")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    answer(parser, carry_out)


def run_one(arguments: Sequence[str]) -> None:
    """`run PART=VALUE ... -- train ...`: the command line of the package with these parts in it."""
    from maskcon.cli import main as command_line

    end = arguments.index("--")
    put_in(arguments[:end])
    sys.argv = ["maskcon", *arguments[end + 1 :]]
    command_line()


def put_in(parts: Sequence[str]) -> None:
    """Parts as PART=VALUE, for all that this process trains."""
    for given in parts:
        name, _, value = given.partition("=")
        PARTS[name](value)


def carry_out(options: argparse.Namespace) -> None:
    """Run the trials asked for, and tell what they reach."""
    out: Path = options.out or Path("runs") / f"recipe-trials-{options.study}"
    make_writable(out)
    names = list(TRIALS) if options.trials == "all" else options.trials.split(";")
    for name in names:
        if name not in TRIALS:
            raise unknown("trial", name, TRIALS)
    bench = Bench(STUDIES[options.study].pictures(options.images, out), out, options.jobs)
    found = bench.train({name: TRIALS[name].recipe(EPOCHS[options.study]) for name in names}, options.seeds)
    rows = {name: [str(row["epochs"]), spread(row["recall@1"]), seconds(row)] for name, row in found.items()}
    print(table(["trial", "epochs", "validation R@1", "CPU s"], rows))
    write_json(out / "trials.json", found)


if __name__ == "__main__":
    main()
