"""Choose w and tau of a method without fine labels, by the trials of `maskcon.discovery.tuning`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import DataError, UsageError
from maskcon._utils.text import counted
from maskcon.config.settings import RunConfig
from maskcon.data import Dataset
from maskcon.discovery.spread_scores import spread_scores
from maskcon.discovery.tuning import (
    FEWEST_CLASSES,
    GRID,
    Ranking,
    Setting,
    groupings,
    rank_settings,
)
from maskcon.training.journal import Journal, read_journal
from maskcon.training.trials import FrozenTrials, shortened

TRIALS = "trials.jsonl"
TRAINED, SCORED = 4000, 1000  # images of a trial, at most
SCORED_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Tuned:
    """The ranking of the settings.

    others: scores that need no labels, mean over rounds, in the order of the ranking, see `spread_scores`
    """

    ranking: Ranking
    others: Mapping[str, NDArray[np.float64]]

    @property
    def chosen(self) -> Setting:
        """Return the setting with the best mean rank."""
        return self.ranking.settings[0]

    @property
    def is_close(self) -> bool:
        """Whether the lead over the runner-up is below two standard errors."""
        lead, error = self.ranking.lead
        return lead < 2 * error

    @property
    def reason(self) -> str:
        """Say in one line why this setting was chosen, and how sure that is."""
        ranking = self.ranking
        (lead, error), rounds = ranking.lead, ranking.scores.shape[1]
        won = int((ranking.scores[0] > ranking.scores[1]).sum())
        return (
            f"mean rank {ranking.mean_ranks[0]:.1f} of {len(ranking.settings)} in {rounds} rounds by recall@1 of the "
            "coarse classes; "
            f"{100 * lead:.2f} ± {100 * error:.2f} points above the runner-up ({ranking.settings[1]}), "
            f"better in {won} of {rounds}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        ranking = self.ranking
        lead, error = ranking.lead
        rows = zip(ranking.settings, ranking.scores, ranking.mean_ranks, strict=True)
        return {
            "criterion": "re-coarsening",
            "chosen": _plain(ranking.settings[0]),
            "runner_up": _plain(ranking.settings[1]),
            "lead": lead,
            "lead_standard_error": error,
            "reason": self.reason,
            "settings": [
                _plain(setting)
                | {"mean_rank": float(rank), "scores": scores.tolist()}
                | {name: float(values[place]) for name, values in self.others.items()}
                for place, (setting, scores, rank) in enumerate(rows)
            ],
        }


def require_classes(data: Dataset) -> None:
    """Refuse data with fewer than three coarse classes."""
    present = len(np.unique(data.train.coarse))
    if present < FEWEST_CLASSES:
        raise DataError(
            f"{data.name} has {counted(present, 'coarse class', 'coarse classes')}; {FEWEST_CLASSES} are needed to "
            "merge some and separate them again. Train with the default w and tau, or set them"
        )


def tune(
    config: RunConfig,
    trials: FrozenTrials,
    folder: Path,
    rounds: int,
    progress: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
) -> Tuned:
    """Run the trials that the folder does not hold yet, and rank the settings of the grid.

    Args:
        config: settings of the run to tune for; w and tau are replaced, the epochs shortened.
        rounds: groupings; each costs one trial per setting.
        progress: called as progress(trials done, in all).

    Raises:
        DataError: there are fewer than three coarse classes.
        UsageError: the folder holds trials of other data or settings.
    """
    require_classes(trials.data)
    coarse = trials.data.train.coarse
    present, merged = np.unique(coarse, return_inverse=True)
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(coarse))
    held = min(SCORED, round(SCORED_SHARE * len(coarse)))
    scored, rows = np.sort(order[:held]), np.sort(order[held : held + TRAINED])
    short = shortened(config, len(rows))
    groups = groupings(len(present), rounds)[:, merged]  # [R, N]

    def trial(setting: Setting, number: int) -> dict[str, float]:
        settings = short.changed(w=setting.w, tau=setting.tau, seed=config.seed + number)
        one = trials.run(settings, rows, groups[number][rows], scored)
        return {"score": one.recall, **spread_scores(one.embeddings)}

    identity = {
        "data": trials.data.fingerprint(),
        "features": trials.features.key,
        # by way of JSON, as they are read back; w and tau belong to each trial
        "settings": json.loads(short.model_dump_json(exclude={"w", "tau"})),
    }
    known = _read(folder, identity)
    total, done = rounds * len(GRID), 0
    with Journal(folder / TRIALS) as journal:
        if not journal.position():
            journal.write("start", **identity)
        for number in range(rounds):
            for place, setting in enumerate(GRID):
                progress(done, total)
                done += 1
                if (place, number) not in known:
                    known[place, number] = trial(setting, number)
                    journal.write("trial", setting=place, round=number, **known[place, number])
        progress(total, total)

    def table(name: str) -> NDArray[np.float64]:
        values = [[known[place, number][name] for number in range(rounds)] for place in range(len(GRID))]
        return np.array(values, dtype=np.float64)  # [S, R]; null is NaN

    ranking = rank_settings(GRID, table("score"))
    ordered = [GRID.index(setting) for setting in ranking.settings]
    others = {name: table(name).mean(axis=1)[ordered] for name in known[0, 0] if name != "score"}
    return Tuned(ranking, others)


def _read(folder: Path, identity: Mapping[str, Any]) -> dict[tuple[int, int], dict[str, float]]:
    """Read the finished trials of a folder by setting and round."""
    path = folder / TRIALS
    events = read_journal(path) if path.is_file() else []
    if events and {key: events[0].get(key) for key in identity} != identity:
        raise UsageError(
            f"{folder} holds trials of other data or settings; choose another --out, or delete {path}"
        )
    return {
        (event.pop("setting"), event.pop("round")): {k: v for k, v in event.items() if k != "kind"}
        for event in (dict(event) for event in events[1:])
    }


def _plain(setting: Setting) -> dict[str, Any]:
    return {"w": setting.w, "tau": setting.tau if math.isfinite(setting.tau) else "inf"}
