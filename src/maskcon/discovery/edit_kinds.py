"""Define and check single edits of kinds, as requested and as journalled.

Images are named by their row in kinds.npz.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from maskcon._utils.errors import UsageError
from maskcon.data.kinds_file import kind_name

MOST_PARTS = 20


def _named(text: str) -> str:
    name = kind_name(text)
    if not name:
        raise UsageError("the name of the kind is empty")
    return name


Name = Annotated[str, AfterValidator(_named)]
Row = Annotated[int, Field(ge=0, strict=True)]
Rows = Annotated[list[Row], Field(min_length=1)]


class _Edit(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rename(_Edit):
    """Rename a kind; a name that the class has already merges the two."""

    action: Literal["rename"] = "rename"
    coarse: str
    kind: str
    to: Name


class Merge(_Edit):
    """Give several kinds one name."""

    action: Literal["merge"] = "merge"
    coarse: str
    kinds: Annotated[list[str], Field(min_length=1)]
    to: Name


class Move(_Edit):
    """Move images of one class to a kind; a new name makes a new kind."""

    action: Literal["move"] = "move"
    ids: Rows
    to: Name


class Split(_Edit):
    """Split a kind in parts."""

    action: Literal["split"] = "split"
    coarse: str
    kind: str
    parts: Annotated[int, Field(ge=2, le=MOST_PARTS, strict=True)] = 2


class Junk(_Edit):
    """Mark images as junk."""

    action: Literal["junk"] = "junk"
    ids: Rows


class Restore(_Edit):
    """Take images back from junk."""

    action: Literal["restore"] = "restore"
    ids: Rows


class Keep(_Edit):
    """Confirm images in their kind or class, or beside their near-duplicates."""

    action: Literal["keep"] = "keep"
    ids: Rows
    queue: Literal["ask", "mislabelled", "duplicates", "outliers"]


class Reject(_Edit):
    """Reject a suggestion: these images do not belong to this kind."""

    action: Literal["reject"] = "reject"
    ids: Rows
    kind: Name


class Parts(_Edit):
    """The result of a split: the images of each new kind; the others keep theirs."""

    action: Literal["parts"] = "parts"
    coarse: str
    kind: str
    new: dict[Name, Rows]


class Take(_Edit):
    """Changes made in kinds.csv by hand, or that follow from answers.

    moved: class -> new kind -> images
    """

    action: Literal["take"] = "take"
    of: Literal["kinds.csv", "answers"] = "kinds.csv"
    moved: dict[str, dict[str, Rows]] = {}
    junk: list[Row] = []
    restored: list[Row] = []


Request = Rename | Merge | Move | Split | Junk | Restore | Keep | Reject
Edit = Rename | Merge | Move | Junk | Restore | Keep | Reject | Parts | Take  # a split is stored as its parts
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="action")])
_EDIT: TypeAdapter[Edit] = TypeAdapter(Annotated[Edit, Field(discriminator="action")])


def read_request(values: Any) -> Request:
    """Check an edit that a person requests.

    Raises:
        UsageError: with the field and the reason.
    """
    with _one_line():
        return _REQUEST.validate_python(values)


def read_edit(values: Any) -> Edit:
    """Check an edit from the journal."""
    with _one_line():
        return _EDIT.validate_python(values)


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"][1:]) or "action"
        raise UsageError(f"{where}: {problem['msg']}") from None
