"""The command line as a user meets it: a process, its output, its exit code."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.miniature import TINY

QUICK = [part for key, value in {**TINY, "epochs": 1}.items() for part in ("--set", f"{key}={value}")]
ONE_THREAD = ["--device", "cpu", "--threads", "1"]
LIMITED = [
    *QUICK,
    "--set",
    "train_limit=80",
    "--set",
    "test_limit=40",
    "--device",
    "cpu",
]  # for `compare` too
SMALL = [*LIMITED, "--threads", "1"]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def without_a_package_index() -> dict[str, str]:
    """Environment variables by which pip reaches nothing: a port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        index = f"http://127.0.0.1:{free.getsockname()[1]}/simple"
    nothing = dict.fromkeys((name for name in os.environ if name.startswith("PIP_")), "")
    return nothing | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": index,
        "PIP_RETRIES": "1",
        "NO_PROXY": "127.0.0.1",
    }


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "maskcon", *arguments],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def maskcon(
    *arguments: str, cwd: Path, timeout: float = 180, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "maskcon", *arguments],
        cwd=cwd,
        env=environment() | variables,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
