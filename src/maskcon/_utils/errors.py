"""Errors that are the user's to fix: one line that names the value and the way out.

The command line prints a `MaskconError` as a single line and exits with its `exit_code`; anything else is a
defect of ours and shows a traceback only with `--debug`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LISTED_AT_MOST = 20  # names an error line still lists in full


class MaskconError(Exception):
    """A failure with a message meant for people."""

    exit_code = 1


class UsageError(MaskconError, ValueError):
    """A name, value, path or dataset given by the user cannot be used."""

    exit_code = 2


class DataError(UsageError):
    """The data given cannot be trained on or read."""


class CorruptFileError(MaskconError):
    """A file does not match its checksum or its format; nothing of it was used."""


class TrainingError(MaskconError):
    """Training had to stop: the message names the step and what to change."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a misspelt name, with the nearest valid one.

    >>> print(unknown("method", "maskcom", ["maskcon", "selfcon"]))
    unknown method 'maskcom'; did you mean 'maskcon'? (known: maskcon, selfcon)
    """
    options = list(known)
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    known_list = f" (known: {', '.join(options)})" if len(options) <= LISTED_AT_MOST else ""
    return UsageError(f"unknown {kind} {name!r}{hint}{known_list}")
