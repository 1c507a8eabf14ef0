"""Work in a process of its own: `python -m maskcon.bench.fresh MODULE:FUNCTION ARGUMENTS`, both ways in JSON."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from typing import Any

from maskcon.errors import MaskconError


def in_fresh_process(function: str, *, threads: int = 1, **arguments: Any) -> Any:
    """What "module:function" returns for these arguments in a new interpreter with so many threads."""
    command = [sys.executable, "-m", "maskcon.bench.fresh", function, json.dumps(arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        told = done.stderr.strip().splitlines() or ["it said nothing"]
        raise MaskconError(f"{function} in a process of its own ended with {done.returncode}: {told[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    module, _, function = sys.argv[1].partition(":")
    result = getattr(importlib.import_module(module), function)(**json.loads(sys.argv[2]))
    if result is not None:  # of several processes, one answers
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
