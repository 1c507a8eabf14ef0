"""Fuzz a reader of files, guided by the coverage of our code: pip install atheris (Linux), then

    python scripts/fuzz.py manifest --minutes 10      targets: tests/fuzz/targets.py; see `TARGETS` there

Anything but a value or one line stops it, with the input in crash-*; add that to tests/fuzz/corpus/TARGET.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
with atheris.instrument_imports(include=["maskcon", "PIL"]):
    from tests.fuzz.targets import CORPUS, SECONDS, TARGETS, one_line


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--minutes", type=float, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as found:
        limits = [f"-timeout={10 * SECONDS:.0f}", "-rss_limit_mb=1500", "-max_len=8192"]
        options = [*limits, f"-max_total_time={60 * given.minutes:.0f}", "-verbosity=1"]
        arguments = [sys.argv[0], *options, found, str(CORPUS / given.target)]
        atheris.Setup(arguments, lambda data: one_line(lambda: TARGETS[given.target](data)))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
