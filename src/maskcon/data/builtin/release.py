"""Find a dataset's published archive; download and unpack it on request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from maskcon._utils.download import Progress, fetch
from maskcon._utils.errors import DataError
from maskcon._utils.paths import has_file, has_folder
from maskcon.data.archive import MAX_MEMBERS, extract
from maskcon.data.folder_layout import some


@dataclass(frozen=True)
class Release:
    """An archive and its content, which may also lie directly in the data folder.

    folder: the archive's top folder; urls: tried in order; size: of the download, for messages
    content: files and folders of a complete copy
    max_bytes, max_members: limits on the unpacked archive
    """

    title: str
    folder: str
    archive: str
    md5: str
    urls: tuple[str, ...]
    size: str
    content: tuple[str, ...]
    max_bytes: int
    max_members: int = MAX_MEMBERS

    def find(self, root: Path) -> Path | None:
        """Return the folder of a complete copy."""
        return next((folder for folder in (root / self.folder, root) if not self.lacking(folder)), None)

    def lacking(self, folder: Path) -> list[str]:
        """List what a folder lacks to be a complete copy."""
        return [
            name for name in self.content if not has_file(folder / name) and not has_folder(folder / name)
        ]

    def missing(self, root: Path) -> tuple[str, ...]:
        """List what is not here, one line each; the archive counts as complete."""
        own = root / self.folder
        if self.find(root) is not None or (has_file(root / self.archive) and not has_folder(own)):
            return ()
        folder = own if has_folder(own) else root  # an archive is not unpacked over a folder
        lacking = self.lacking(folder)
        if folder == root and len(lacking) == len(self.content):
            return (f"{self.archive} (from {self.urls[0]}) in {root}",)
        return tuple(f"{name} in {folder}" for name in lacking)

    def get(self, root: Path, *, download: bool = False, progress: Progress | None = None) -> Path:
        """Return the folder of a complete copy; unpack or download it if necessary."""
        own, archive = root / self.folder, root / self.archive
        folder = self.find(root)
        if folder is not None:
            return folder
        if not has_folder(own):
            if not download and not has_file(archive):
                lacking = self.lacking(root)
                partial = f" whole (missing: {some(lacking)})" if len(lacking) < len(self.content) else ""
                raise DataError(
                    f"{self.title} was not found{partial} in {root}; download it with --download ({self.size}), "
                    f"or put {self.archive} (from {self.urls[0]}) there"
                )
            self._fetch(archive, progress)
            try:
                extract(
                    archive, own, inside=self.folder, max_bytes=self.max_bytes, max_members=self.max_members
                )
            except DataError:
                if not has_folder(own):  # else another process unpacked it meanwhile
                    raise
        if lacking := self.lacking(own):
            raise DataError(
                f"{self.title} in {own} is not complete: {some(lacking)} not found; take them from "
                f"{self.archive} ({self.urls[0]}), or delete the folder and try again"
            )
        return own

    def _fetch(self, target: Path, progress: Progress | None) -> None:
        """Download the archive from the first address that has it; check an existing one."""
        for url in self.urls:
            try:
                fetch(url, target, algorithm="md5", digest=self.md5, progress=progress)
                return
            except DataError:  # a wrong checksum is another error and ends the search
                if url == self.urls[-1]:
                    raise
