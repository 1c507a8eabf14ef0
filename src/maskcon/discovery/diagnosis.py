"""Judge in plain words whether an embedding is fit to find kinds in.

    spread        1 - |mean|^2                                          of unit rows
    rank          exp(entropy of the shares of variance by direction)   of rows, and of rows minus their class mean
    within        share of the variance that lies within coarse classes
    agreement     (o - c) / (1 - c): o is the share of an image's 10 nearest images in its class that two embeddings
                  have in common; c = 10 / (images of the class - 1), what chance gives

The thresholds lie between runs made for this: docs/kinds.md lists them. Letters in shapes: N images, D embedding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.text import counted
from maskcon.discovery.clusters import Floats, unit_rows
from maskcon.discovery.kinds import Kinds
from maskcon.discovery.spread_scores import entropy_rank

NEIGHBOURS = 10
COLLAPSED_RANK, COLLAPSED_SPREAD = 2.5, 0.02
REPEATED, LEANING = 0.3, 0.45  # share of the variance within classes
FEW_DIRECTIONS = 10.0
# Where noise added to MaskCon's embeddings of CIFAR-100 costs a fifth of the recall within classes (CIFARtoy and
# Fashion-MNIST: a tenth or less): of views one side has the noise, of seeds both.
STEADY_VIEWS, STEADY_SEEDS = 0.4, 0.3
STABLE, BORDERLINE = 0.6, 0.3  # stability of kinds; share of borderline images

State = Literal["good", "doubtful", "bad", "unknown"]
Labels = NDArray[np.integer]


@dataclass(frozen=True)
class Measures:
    """Measurements, None where impossible; see the head of the module.

    Attributes:
        views: agreement of an image with an augmented view of it; seeds: mean agreement with runs of other seeds.
        stability: of the kinds, mean over classes of several kinds, weighted by images; whole: classes of one kind.
        recall, purity: share of images whose nearest one in their coarse class has their fine label; share of images
            that have the most frequent fine label of their kind.
        confusions: fine labels and the share of images of the first whose nearest image in the class is of the second.
    """

    images: int
    coarse_classes: int
    spread: float
    rank: float
    within: float
    within_rank: float
    views: float | None = None
    seeds: float | None = None
    other_seeds: int = 0
    kinds: int | None = None
    whole: int | None = None
    stability: float | None = None
    borderline: float | None = None
    recall: float | None = None
    purity: float | None = None
    confusions: tuple[tuple[str, str, float], ...] = ()


@dataclass(frozen=True)
class Finding:
    """One question, its answer in words, and a rating."""

    question: str
    answer: str
    state: State


@dataclass(frozen=True)
class Diagnosis:
    """A verdict, its findings, and commands or settings to try next."""

    state: State
    verdict: str
    findings: tuple[Finding, ...]
    advice: tuple[str, ...]
    measures: Measures

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def measure(
    vectors: Floats,
    coarse: Labels,
    *,
    views: Floats | None = None,
    others: Sequence[Floats] = (),
    kinds: Kinds | None = None,
    fine: Labels | None = None,
    fine_names: Sequence[str] = (),
    kind_of: Sequence[str] | None = None,
) -> Measures:
    """Measure an embedding.

    Args:
        vectors: embeddings [N, D] of images with coarse labels [N].
        views: embeddings of an augmented view of each; others: by runs of other seeds.
        kinds: found with this embedding, in any images.
        fine: fine labels [N], if known; fine_names: their names; kind_of: kinds [N] of the same images.
    """
    rows = unit_rows(vectors.astype(np.float64))
    inner = rows.copy()
    for label in np.unique(coarse):
        inner[coarse == label] -= rows[coarse == label].mean(0)
    spread = float(1 - (rows.mean(0) ** 2).sum())
    near = neighbours(rows, coarse)
    seeds = [
        agreement(near, neighbours(unit_rows(other.astype(np.float64)), coarse), coarse) for other in others
    ]
    known = [value for value in seeds if value is not None]
    view_agreement = None
    if views is not None:
        near_views = neighbours(rows, coarse, queries=unit_rows(views.astype(np.float64)))
        view_agreement = agreement(near, near_views, coarse)
    return Measures(
        images=len(rows),
        coarse_classes=len(np.unique(coarse)),
        spread=round(spread, 4),
        rank=round(effective_rank(rows - rows.mean(0)), 1),
        within=round(float((inner**2).sum(1).mean()) / spread, 3) if spread > 1e-6 else 0.0,
        within_rank=round(effective_rank(inner), 1),
        views=None if view_agreement is None else round(view_agreement, 3),
        seeds=round(float(np.mean(known)), 3) if known else None,
        other_seeds=len(known),
        **(_measure_kinds(kinds) if kinds is not None else {}),
        **(_measure_fine(near, coarse, fine, fine_names, kind_of) if fine is not None else {}),
    )


def effective_rank(rows: Floats) -> float:
    """Return exp(entropy) of the variance shares of centred rows [N, D], at least 1."""
    shares = np.linalg.svd(rows, compute_uv=False) ** 2
    return 1.0 if shares.sum() <= 1e-9 * max(1, len(rows)) else entropy_rank(shares)


def neighbours(rows: Floats, coarse: Labels, queries: Floats | None = None) -> NDArray[np.int64]:
    """Find each image's nearest others in its class, [N, 10]; -1 in small classes."""
    found = np.full((len(rows), NEIGHBOURS), -1, dtype=np.int64)
    for label in np.unique(coarse):
        own = np.flatnonzero(coarse == label)
        cosines = (rows if queries is None else queries)[own] @ rows[own].T
        np.fill_diagonal(cosines, -np.inf)
        count = min(NEIGHBOURS, len(own) - 1)
        found[own, :count] = own[np.argsort(-cosines, axis=1, kind="stable")[:, :count]]
    return found


def agreement(one: NDArray[np.int64], other: NDArray[np.int64], coarse: Labels) -> float | None:
    """Return the agreement of neighbours [N, 10]; None if all classes are too small."""
    _, label, counts = np.unique(coarse, return_inverse=True, return_counts=True)
    sizes = counts[label]
    used = np.flatnonzero(sizes > 2 * NEIGHBOURS)
    if not len(used):
        return None
    shared = np.array([len(np.intersect1d(one[row], other[row])) for row in used]) / NEIGHBOURS
    chance = NEIGHBOURS / (sizes[used] - 1)
    return float(((shared - chance) / (1 - chance)).mean())


def _measure_kinds(kinds: Kinds) -> dict[str, Any]:
    several = [group for group in kinds.classes.values() if len(set(group.kinds)) > 1]
    images = Counter(row.coarse for row in kinds.rows if row.role != "junk")
    judged = [(group.stability, images[group.name]) for group in several if group.stability is not None]
    weights = [weight for _, weight in judged]
    inside = sum(images[group.name] for group in several)
    names = {group.name for group in several}
    border = sum(row.role == "borderline" for row in kinds.rows if row.coarse in names)
    return {
        "kinds": sum(len(set(group.kinds)) for group in kinds.classes.values()),
        "whole": len(kinds.classes) - len(several),
        "stability": round(float(np.average([value for value, _ in judged], weights=weights)), 3)
        if judged
        else None,
        "borderline": round(border / inside, 3) if inside else None,
    }


def _measure_fine(
    near: NDArray[np.int64],
    coarse: Labels,
    fine: Labels,
    names: Sequence[str],
    kind_of: Sequence[str] | None,
) -> dict[str, Any]:
    first = near[:, 0]
    has_one = first >= 0
    right = fine[has_one] == fine[first[has_one]]
    pairs = Counter(
        (a, b) for a, b in zip(fine[has_one].tolist(), fine[first[has_one]].tolist(), strict=True) if a != b
    )
    sizes = Counter(fine[has_one].tolist())
    worst = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:3]
    confusions = tuple((names[a], names[b], round(count / sizes[a], 3)) for (a, b), count in worst)
    purity = None
    if kind_of is not None:
        tables: dict[tuple[int, str], Counter[int]] = {}
        for label, kind, truth in zip(coarse.tolist(), kind_of, fine.tolist(), strict=True):
            tables.setdefault((label, kind), Counter())[truth] += 1
        purity = round(sum(max(table.values()) for table in tables.values()) / len(fine), 3)
    recall = round(float(right.mean()), 3) if has_one.any() else None
    return {"recall": recall, "purity": purity, "confusions": confusions}


def diagnose(found: Measures, settings: Mapping[str, Any], name: str = "RUN") -> Diagnosis:
    """Turn measures into words and advice.

    Args:
        settings: of the run: method, epochs, learning_rate, weight_decay, w, image_size.
        name: of the run's folder, for commands.
    """
    if found.rank < COLLAPSED_RANK or found.spread < COLLAPSED_SPREAD:
        answer = f"yes: all images lie along {found.rank:.1f} directions, spread {found.spread:.3f}"
        return Diagnosis(
            "bad",
            "Collapsed: the embedding tells hardly any image from another; nothing can be found in it.",
            (Finding("collapsed?", answer, "bad"),),
            (
                f"train again with --set learning_rate={settings['learning_rate'] / 10:g} --set weight_decay="
                f"{min(settings['weight_decay'], 5e-4):g}",
            ),
            found,
        )
    findings = [
        Finding("collapsed?", f"no: {found.rank:.0f} directions in use, spread {found.spread:.2f}", "good"),
        _repeats(found),
        _directions(found),
        _views(found),
        _seeds(found),
        _kinds(found),
    ]
    if found.recall is not None:
        worst = "; ".join(f"{a} taken for {b} ({share:.0%})" for a, b, share in found.confusions)
        purity = "" if found.purity is None else f", kinds are {found.purity:.0%} pure"
        answer = f"nearest image in the class has the fine label for {found.recall:.0%}{purity}"
        findings.append(Finding("by fine labels?", answer + (f"; {worst}" if worst else ""), "unknown"))
    state: State = "good"
    verdict = "Good: images differ within the coarse classes, and reliably so."
    doubts = [finding.question.rstrip("?") for finding in findings if finding.state in ("bad", "doubtful")]
    if findings[1].state == "bad":
        state = "bad"
        verdict = "Repeats the coarse classes: little of the embedding is left for finer kinds."
    elif doubts:
        state = "doubtful"
        verdict = f"Usable with care: in doubt are {', '.join(doubts)}."
    return Diagnosis(state, verdict, tuple(findings), tuple(_advice(found, findings, settings, name)), found)


def _repeats(found: Measures) -> Finding:
    state: State = "bad" if found.within < REPEATED else "doubtful" if found.within < LEANING else "good"
    word = {"bad": "yes", "doubtful": "partly"}.get(state, "no")
    answer = f"{word}: {found.within:.0%} of the variance lies within coarse classes"
    return Finding("coarse classes repeated?", answer, state)


def _directions(found: Measures) -> Finding:
    few = found.within_rank < FEW_DIRECTIONS
    answer = f"{found.within_rank:.0f} (effective rank){', few' if few else ''}"
    return Finding("directions within classes?", answer, "doubtful" if few else "good")


def _views(found: Measures) -> Finding:
    if found.views is None:
        return Finding("same neighbours in another view?", "not known: the classes are too small", "unknown")
    steady = found.views >= STEADY_VIEWS
    answer = f"{'yes' if steady else 'hardly'}: agreement {found.views:.2f} (1: all, 0: by chance)"
    return Finding("same neighbours in another view?", answer, "good" if steady else "doubtful")


def _seeds(found: Measures) -> Finding:
    if found.seeds is None:
        return Finding(
            "same neighbours by another seed?", "not known: no such run beside this one", "unknown"
        )
    steady = found.seeds >= STEADY_SEEDS
    answer = f"{'yes' if steady else 'hardly'}: agreement {found.seeds:.2f} with {counted(found.other_seeds, 'run')}"
    return Finding("same neighbours by another seed?", answer, "good" if steady else "doubtful")


def _kinds(found: Measures) -> Finding:
    if found.kinds is None:
        return Finding("kinds sure?", "not known: `maskcon kinds` has not been run", "unknown")
    counts = f"{counted(found.kinds, 'kind')}, {counted(found.whole or 0, 'class', 'classes')} left whole"
    if found.stability is None:
        unknown = "not known: too few images per kind; " if found.kinds > (found.whole or 0) else ""
        return Finding("kinds sure?", unknown + counts, "unknown")
    sure = found.stability >= STABLE and (found.borderline or 0) <= BORDERLINE
    answer = (
        f"{'yes' if sure else 'not very'}: stability {found.stability:.2f}, {found.borderline or 0:.0%} of the images "
        f"borderline; {counts}"
    )
    return Finding("kinds sure?", answer, "good" if sure else "doubtful")


def _advice(
    found: Measures, findings: Sequence[Finding], settings: Mapping[str, Any], name: str
) -> list[str]:
    states = {finding.question: finding.state for finding in findings}
    advice = []
    if states["coarse classes repeated?"] in ("bad", "doubtful"):
        if settings["method"] in ("supce", "supcon", "coins", "grafit"):
            advice.append("train again with --method teachcon, which looks for neighbours within classes")
        else:
            advice.append(
                f"train again with --w {settings['w'] / 2:g}, or --epochs {max(1, settings['epochs'] // 2)}"
            )
    if "doubtful" in (states["directions within classes?"], states["same neighbours in another view?"]):
        size = settings.get("image_size") or 32
        advice.append(
            f"train longer (--epochs {2 * settings['epochs']}) or on larger images (--set image_size={size * 3 // 2})"
        )
    if states["same neighbours by another seed?"] == "doubtful":
        advice.append("trust only kinds that both seeds find; train longer")
    if states["kinds sure?"] == "doubtful":
        advice.append(f"maskcon kinds {name} --coarser, or name images: maskcon ask {name} -n 50")
    if found.kinds is None:
        advice.append(f"next: maskcon kinds {name}")
    return advice
