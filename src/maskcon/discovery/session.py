"""Open a folder of kinds to change, for `maskcon kinds` and the explorer.

with open_kinds(run) as session:             # maskcon.api.kinds: gathers, embeds, locks, reads
    kinds = session.next_kinds()             # found, or the previous ones with edits and added images
    session.save(kinds)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import UsageError
from maskcon.data.image_readers import Images, at_once
from maskcon.data.kinds_file import read_kinds
from maskcon.discovery.edits import apply_edits, check_edits
from maskcon.discovery.journal import replay
from maskcon.discovery.kinds import Embedded, Kinds, Progress, Wanted, find_kinds
from maskcon.discovery.kinds_folder import Origin, write_folder
from maskcon.discovery.questions import apply_answers
from maskcon.discovery.revision import add_images, refind_kinds
from maskcon.retrieval.embeddings_file import Embeddings

UNLABELLED = "unlabelled"  # coarse class of images without a label
READ_AT_ONCE = 128


def embedded_of(file: Embeddings) -> Embedded:
    """Convert an embeddings file to what `find_kinds` needs."""
    paths = [text_path(entry.path) for entry in file.entries]
    return Embedded(paths, [entry.coarse or UNLABELLED for entry in file.entries], file.vectors)


def text_path(path: str) -> str:
    """Escape bytes that are not UTF-8, which kinds.csv cannot hold."""
    return path.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, eq=False)
class Session:
    """Images and their kinds in a folder; the opener holds the folder's lock.

    Attributes:
        images: reader of the images; may list some that cannot be read.
        embedded: the embedded images, in the order of the source.
        before: the kinds as last written, without edits of kinds.csv; None if there are none.
        origin: stored with the kinds.
    """

    folder: Path
    images: Images
    embedded: Embedded
    before: Kinds | None
    origin: Origin

    def next_kinds(
        self, anew: Wanted | None = None, *, names: Path | None = None, progress: Progress | None = None
    ) -> Kinds:
        """Find kinds, or apply edits and assign added images.

        Edits come from the explorer and from kinds.csv.

        Args:
            anew: find kinds anew, with these numbers; names stay with the images they fit best.
            names: an edited file, or answers to `maskcon ask`, to apply in place of the folder's own file.
            progress: called as progress(classes done, classes) where kinds are found.

        Raises:
            DataError: an edited file cannot be used; the message names the line.
            UsageError: the folder holds kinds of other images.
        """
        old = self.before
        if old is None:
            return find_kinds(self.embedded, anew, progress=progress)
        if anew is None and not set(self.embedded.paths) & set(old.known()):
            raise UsageError(
                f"{self.folder} holds the kinds of other images, none of them given now; choose another --out, or "
                "give --refresh"
            )
        replayed = replay(self.folder, old, self.embedded)
        if replayed.revision:
            old = replayed.editor.kinds()
        given = [] if names is None else read_kinds(names)
        check_edits(old, given, names or self.folder)
        has_answers = any(row.question for row in given)
        if replayed.by_hand and (has_answers or not given):
            old = apply_edits(old, replayed.by_hand, self.embedded)
        if given:
            old = (apply_answers if has_answers else apply_edits)(old, given, self.embedded)
        if anew is not None:
            return refind_kinds(old, self.embedded, anew, progress)
        return add_images(old, self.embedded)

    def save(
        self,
        kinds: Kinds,
        *,
        sheets: Mapping[str, tuple[str, str]] | None = None,
        keep_backup: bool = False,
    ) -> Origin:
        """Write kinds.csv, kinds.json and kinds.npz.

        Args:
            sheets: contact sheets as `maskcon.report.contact_sheet.draw_sheets` returns them; None: as they were.
            keep_backup: copy the kinds.csv that is there to kinds.before.csv.
        """
        origin = self.origin
        if sheets is not None:
            origin = Origin(origin.encoder, origin.source, sheets)
        write_folder(self.folder, kinds, origin, keep_backup=keep_backup)
        return origin

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {text_path(path): row for row, path in enumerate(self.images.paths)}

    def read_pixels(self, paths: Iterable[str]) -> dict[str, NDArray[np.uint8]]:
        """Decode images, each [C, h, w]; those that cannot be read any more are left out."""
        path_of = {self._row_of[path]: path for path in paths}
        rows, step, found = list(path_of), at_once(self.images, READ_AT_ONCE), {}
        for start in range(0, len(rows), step):
            block = self.images.read(rows[start : start + step])
            for place, row in enumerate(block.rows):
                height, width = block.images.shape[2:] if block.sizes is None else block.sizes[place].tolist()
                found[path_of[row]] = block.images[place, :, :height, :width].copy()
        return found
