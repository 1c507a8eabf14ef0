"""Work in a process of its own: once, by `python -m maskcon.bench.fresh MODULE:FUNCTION ARGUMENTS` with JSON both ways;
or again and again in turns, by `Apart`.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from maskcon._utils.errors import MaskconError
from maskcon.bench.measure import ON_ONE_THREAD, Work, timed
from maskcon.training.signals import stop_with_parent


def in_fresh_process(function: str, *, threads: int = 1, **arguments: Any) -> Any:
    """What "module:function" returns for these arguments in a new interpreter with so many threads.

    It ends with this process, however that ends: its standard input is a pipe that only this one holds open.
    """
    command = [sys.executable, "-m", "maskcon.bench.fresh", function, json.dumps(arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            command, env=environment, stdin=reading, capture_output=True, text=True, check=False
        )
    finally:
        os.close(writing)
        os.close(reading)
    if done.returncode != 0:
        told = done.stderr.strip().splitlines() or ["it said nothing"]
        raise MaskconError(f"{function} in a process of its own ended with {done.returncode}: {told[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


class Apart:
    """Pieces of work that wait in a process of their own, on one thread, and time themselves when asked.

    What this process has arranged for itself, such as how it keeps memory, does not reach them. They are pickled, so
    they start from the state that they have now.
    """

    def __init__(self, work: Mapping[str, Work]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._send(dict(work))

    def piece(self, name: str) -> Callable[[int], float]:
        """Carries out that work so many times and returns the mean seconds."""

        def seconds(calls: int) -> float:
            self._send((name, calls))
            assert self._process.stdout is not None
            answer = self._process.stdout.readline()
            if not answer:
                raise MaskconError(f"the process that was to time {name!r} has ended")
            return float(answer)

        return seconds

    def close(self) -> None:
        self._process.communicate()  # it ends where its input does

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, value: object) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(value, self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise MaskconError("the process that was to time work has ended") from error


def serve() -> None:
    """Read work from standard input, then names of it and numbers of calls; answer each with seconds."""
    torch.set_num_threads(1)
    work: dict[str, Work] = pickle.load(sys.stdin.buffer)
    while True:
        try:
            name, calls = pickle.load(sys.stdin.buffer)
        except EOFError:  # no more is wanted
            return
        sys.stdout.write(f"{timed(work[name], calls, ON_ONE_THREAD)}\n")
        sys.stdout.flush()


def main() -> None:
    stop_with_parent()
    module, _, function = sys.argv[1].partition(":")
    result = getattr(importlib.import_module(module), function)(**json.loads(sys.argv[2]))
    if result is not None:  # of several processes, one answers
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
