"""The picture of `time_to_recall.py`: recall over CPU seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

LEADING = ("fast", "reference", "paper")


def draw(
    curves: Mapping[str, Sequence[Sequence[tuple[float, float]]]], path: Path, name: str, goal: float
) -> None:
    """Recall@1 over CPU seconds, mean of the seeds, with the range between them shaded."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    for recipe_name, of_seeds in curves.items():
        seconds = [fmean(point[0] for point in points) for points in zip(*of_seeds, strict=True)]
        recalls = [[100 * point[1] for point in points] for points in zip(*of_seeds, strict=True)]
        leading = recipe_name in LEADING
        (line,) = axes.plot(
            seconds,
            [fmean(values) for values in recalls],
            label=recipe_name,
            linewidth=2.2 if leading else 1.1,
            linestyle="-" if leading else "--",
        )
        axes.fill_between(
            seconds, [min(v) for v in recalls], [max(v) for v in recalls], color=line.get_color(), alpha=0.12
        )
    axes.axhline(100 * goal, color="grey", linewidth=0.8, linestyle=":")
    axes.set(xlabel="CPU seconds of training, one thread", ylabel="recall@1 on test images, %", title=name)
    axes.legend(ncols=2, frameon=False)
    axes.grid(alpha=0.25)
    figure.savefig(path, dpi=110)
    plt.close(figure)
