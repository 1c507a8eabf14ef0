"""Numbers of the cost model as a page shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def size(count: float) -> str:
    """Bytes in powers of 1000.

    >>> size(4325376), size(252e9)
    ('4.33 MB', '252 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{figures(count)} {unit}"
        count /= 1000
    return f"{figures(count)} TB"


def figures(value: float) -> str:
    """Three figures at most, thousands set apart.

    >>> figures(1234567), figures(0.01234), figures(5.0)
    ('1,230,000', '0.0123', '5')
    """
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    return f"{rounded:,.{max(0, digits)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{rounded:,.0f}"


def duration(seconds: float) -> str:
    """
    >>> duration(0.0042), duration(90), duration(7200), duration(400000)
    ('4.2 ms', '90 s', '2 h', '4.63 days')
    """
    for limit, unit, length in (
        (1e-3, "us", 1e-6),
        (1, "ms", 1e-3),
        (600, "s", 1),
        (7200, "min", 60),
        (172800, "h", 3600),
    ):
        if seconds < limit:
            return f"{figures(seconds / length)} {unit}"
    return f"{figures(seconds / 86400)} days" if seconds >= 172800 else f"{figures(seconds / 3600)} h"


def share(part: float) -> str:
    return f"{figures(100 * part)} %"
