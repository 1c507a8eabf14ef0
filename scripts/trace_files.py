"""List the files of maskcon whose functions a command passes through; imports do not count.

python scripts/trace_files.py train ./photos --epochs 1
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import FrameType

import maskcon

PACKAGE = f"{Path(maskcon.__file__).parent}/"
IN_FUNCTION = 0x1  # CO_OPTIMIZED: not set for the bodies of modules and classes


class FileTrace:
    """Count the calls of each function of the package inside the block."""

    def __init__(self) -> None:
        for module in pkgutil.walk_packages(maskcon.__path__, "maskcon."):
            with suppress(ImportError):  # of an extra
                importlib.import_module(module.name)
        self.calls: Counter[tuple[str, str]] = Counter()  # of (file relative to the package, function)

    @property
    def files(self) -> list[str]:
        return sorted({file for file, _ in self.calls})

    def __enter__(self) -> FileTrace:
        self._before = sys.gettrace()
        threading.settrace(self._call)
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        threading.settrace(self._before)

    def _call(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & IN_FUNCTION and code.co_filename.startswith(PACKAGE):
            self.calls[code.co_filename.removeprefix(PACKAGE), code.co_name] += 1


def main() -> None:
    """Run the command and print the files, then their number."""
    from maskcon.cli import main as command_line

    trace = FileTrace()
    try:
        with trace:
            command_line()
    finally:
        print(*trace.files, f"{len(trace.files)} files", sep="\n")


if __name__ == "__main__":
    main()
