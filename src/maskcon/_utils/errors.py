"""Errors that users can fix: one line that names the value and the way out.

The command line prints a `MaskconError` as a single line and exits with its `exit_code`; any other error is a bug
and shows a traceback only with `--debug`.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

# What any system call may fail with, whatever the program does.
FAILURES = frozenset(
    getattr(errno, name, errno.EIO)
    for name in (
        *("EACCES", "EDQUOT", "EFBIG", "EIO", "EMFILE", "ENFILE", "ENODEV"),
        *("ENOMEM", "ENOSPC", "ENXIO", "EPERM", "EROFS", "ESTALE"),
    )
)
BREAKDOWNS = FAILURES - {errno.EACCES, errno.EPERM}  # of a disk, a network or memory, not of one file
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


def stop_at_breakdown(error: BaseException | None, path: object) -> None:
    """Raise `DataError` if the machine failed, not the file.

    An image must not be left out for that: the next run could read it again, and would train on other data.
    """
    if isinstance(error, OSError) and error.errno in BREAKDOWNS:
        raise DataError(
            f"cannot read {path}: {error.strerror}; rerun the same command when that is resolved, or remove the file"
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type.

    >>> first_line(KeyError()), first_line(OSError("no\\nbut"))
    ('KeyError', 'no')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]


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
