"""The rows in the order in which they are run: cheap ones first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from maskcon._utils.errors import unknown
from maskcon.bench.busy_core import busy_core
from maskcon.bench.figures import Row
from maskcon.bench.loss_memory import loss_memory
from maskcon.bench.measure import Effort
from maskcon.bench.packing import pack_read
from maskcon.bench.recall import recall_eval
from maskcon.bench.scaling import scaling
from maskcon.bench.startup import startup
from maskcon.bench.steps import step_overhead, step_vs_plain
from maskcon.bench.views import views_per_core

ROWS: Mapping[str, Callable[[Effort], Row]] = {
    "startup": startup,
    "views_per_core": views_per_core,
    "pack_read": pack_read,
    "busy_core": busy_core,
    "loss_memory": loss_memory,
    "scaling": scaling,
    "recall_eval": recall_eval,
    "step_overhead": step_overhead,
    "step_vs_plain": step_vs_plain,
}


def chosen(names: Iterable[str]) -> list[str]:
    """The rows of these names, each perhaps several with commas between; all of them for none."""
    wanted = [name.strip() for text in names for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in ROWS:
            raise unknown("row", name, ROWS)
    return [name for name in ROWS if name in wanted or not wanted]
