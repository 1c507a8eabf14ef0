"""Places where a test lets a process die, as by a kill, to see what is left on the disk."""

from __future__ import annotations

import os

VARIABLE = "MASKCON_FAILPOINT"


def failpoint(name: str) -> None:
    """Die here when the environment names this place; ``name:3`` means the third time it is passed."""
    wanted, _, turn = os.environ.get(VARIABLE, "").partition(":")
    if wanted == name:
        _passed[name] = _passed.get(name, 0) + 1
        if _passed[name] >= int(turn or 1):
            os._exit(99)


_passed: dict[str, int] = {}
