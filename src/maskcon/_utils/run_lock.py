"""One run a folder: a lock that the kernel lets go when its holder dies, so that it is never stale."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from maskcon._utils.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows: the folder is not guarded there
    fcntl = None  # type: ignore[assignment]


class FolderLock:
    """Held while a run writes to its folder; a second run there is refused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._handle: int | None = None

    def __enter__(self) -> Self:
        handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(handle)
                if isinstance(error, BlockingIOError):
                    reason = f"another run is writing to {self.folder}; wait for it, or"
                else:
                    reason = f"{self.folder} cannot be locked ({error.strerror});"
                raise UsageError(f"{reason} choose another --out") from None
        self._handle = handle
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            os.close(self._handle)  # closing lets the lock go
            self._handle = None
