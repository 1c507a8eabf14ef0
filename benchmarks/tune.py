"""Choosing w and tau without fine labels: regret of `maskcon tune`, and which scores know the true order.

    python benchmarks/tune.py SOURCE... [--set train_limit=10000] [--seeds 3] [--epochs 10]

SOURCE needs fine labels, which only the truth sees: each setting of the grid trains a head on all training images, once
per seed, and is scored by recall@1 on the test images. All runs share one cache of features; finished ones are kept in
--out, so a stopped benchmark resumes.

regret      recall@1 of the best setting of the grid (mean over seeds) less that of the chosen one, in points
paper       w = 1, tau = tau0, the paper's advice; random: mean over the grid
Spearman    of a score with the true recall@1 over the grid; 1 is the true order
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr, zscore

from maskcon.api.tune import Tuned, tune
from maskcon.cli.terminal import Terminal
from maskcon.config.choices import epoch_settings
from maskcon.config.settings import Machine, RunConfig, parse_override
from maskcon.discovery.tuning import GRID, Setting
from maskcon.training.journal import Journal, read_journal
from maskcon.training.run_folder import short_name
from maskcon.training.trials import FrozenTrials, open_trials


def true_recall(
    config: RunConfig, trials: FrozenTrials, path: Path, seeds: int
) -> dict[Setting, list[float]]:
    """Train every setting on all training images; recall@1 on the test images, per seed."""
    known = {(e["setting"], e["seed"]): e["recall"] for e in (read_journal(path) if path.is_file() else [])}
    coarse = trials.data.train.coarse
    with Journal(path) as journal:
        for seed in range(seeds):
            for place, setting in enumerate(GRID):
                if (place, seed) not in known:
                    run = config.changed(w=setting.w, tau=setting.tau, seed=seed)
                    known[place, seed] = trials.run(run, np.arange(len(coarse)), coarse).recall
                    journal.write("run", setting=place, seed=seed, recall=known[place, seed])
                    print(f"seed {seed}  {setting}: {100 * known[place, seed]:.2f}", flush=True)
    return {setting: [known[place, seed] for seed in range(seeds)] for place, setting in enumerate(GRID)}


def judge(tuned: Tuned, truth: dict[Setting, list[float]], tau0: float) -> dict[str, Any]:
    """Compare the choice, and the order by each score, with the truth."""
    mean = {setting: 100 * float(np.mean(values)) for setting, values in truth.items()}
    best = max(mean, key=lambda setting: mean[setting])
    order = tuned.ranking.settings
    true = np.array([mean[setting] for setting in order])
    others = tuned.others
    scores = {
        "re-coarsening": -tuned.ranking.mean_ranks,
        "rankme": others["rankme"],
        "lidar": others["lidar"],
        "alpha_req": -others["alpha_req"],
        "clid": zscore(others["clid_learnability"]) + zscore(others["clid_dimension"]),
    }
    spreads = [np.std(values, ddof=1) for values in truth.values() if len(values) > 1]
    return {
        "best": f"{best}: {mean[best]:.2f}",
        "worst": round(min(mean.values()), 2),
        "seed_deviation": round(100 * float(np.mean(spreads)), 2) if spreads else None,
        "chosen": f"{tuned.chosen}: {mean[tuned.chosen]:.2f}",
        "runner_up": f"{order[1]}: {mean[order[1]]:.2f}",
        "regret": {
            "tune": round(mean[best] - mean[tuned.chosen], 2),
            "paper": round(mean[best] - mean[Setting(1.0, tau0)], 2),
            "random": round(mean[best] - float(np.mean(true)), 2),
            **{
                f"by {name}": round(mean[best] - float(true[int(np.argmax(values))]), 2)
                for name, values in scores.items()
                if name != "re-coarsening"
            },
        },
        "spearman": {
            name: round(float(spearmanr(values, true).statistic), 2) for name, values in scores.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="of the true runs; by default as `maskcon train` chooses")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--data-root")
    parser.add_argument("--download", action="store_true", help="download the weights if they are missing")
    parser.add_argument("--out", type=Path, default=Path("runs/tune"))
    options = parser.parse_args()
    machine = Machine(device="cpu", data_root=options.data_root, download=options.download, threads=1)
    overrides = dict(parse_override(pair) for pair in options.set)
    for source in options.sources:
        folder = options.out / short_name(source)
        terminal = Terminal()
        config, trials = open_trials(source, "maskcon", overrides, folder, machine, terminal)
        terminal.on_end()
        full = config
        if options.epochs is not None:
            full = config.changed(**epoch_settings(min(options.epochs, config.epochs), {}, config))
        tuned = tune(config, trials, folder, options.rounds)
        truth = true_recall(full, trials, folder / "truth.jsonl", options.seeds)
        result = {"source": short_name(source), "epochs": full.epochs, "seeds": options.seeds}
        result |= judge(tuned, truth, config.contrast_temperature)
        (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")
        print(json.dumps(result, indent=1), flush=True)


if __name__ == "__main__":
    main()
