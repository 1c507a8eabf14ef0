"""Points where tests end a process abruptly, as kill -9 would."""

from __future__ import annotations

import os

VARIABLE = "MASKCON_FAILPOINT"


def failpoint(name: str) -> None:
    """Exit if the environment variable names this point; ``name:3`` means the third time it is reached."""
    wanted, _, turn = os.environ.get(VARIABLE, "").partition(":")
    if wanted == name:
        _passed[name] = _passed.get(name, 0) + 1
        if _passed[name] >= int(turn or 1):
            os._exit(99)


_passed: dict[str, int] = {}
