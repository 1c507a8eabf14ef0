"""Stop after the current step, with a checkpoint: SIGTERM, SIGHUP and Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from maskcon._utils.errors import MaskconError

# SIGHUP: the terminal is gone. Windows has none.
STOPPING = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]


class Interrupted(MaskconError):  # noqa: N818 - it is not an error
    """Stopped on request, with the state saved.

    Exit codes: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


class StopRequest:
    """Note stop signals inside the block; a second Ctrl-C raises at once.

    Outside the main thread it does nothing.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._before: dict[int, Any] = {}

    @property
    def made(self) -> bool:
        return self.signal_number is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` sets SIGHUP
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.made and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = number


def stop_with_parent() -> None:
    """Stop this process when its standard input, a pipe from its parent, ends.

    The kernel also closes the pipe of a killed parent, so none of its runs continues without it.
    """

    def wait() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="stop-with-parent", daemon=True).start()
