from __future__ import annotations

import math
from io import StringIO

import pytest
from rich.console import Console

from maskcon.cli import fail, progress
from maskcon.cli.terminal import Terminal

HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"  # the cursor


@pytest.fixture
def screen() -> StringIO:
    return StringIO()


def terminal(screen: StringIO, *, real: bool) -> Terminal:
    made = Terminal()
    made.console = Console(file=screen, force_terminal=real, width=100, highlight=False)
    return made


@pytest.mark.parametrize("what", ["on_load", "on_extract"])
def test_a_bar_that_is_broken_off_gives_the_cursor_back(screen: StringIO, what: str) -> None:
    seen = terminal(screen, real=True)
    if what == "on_load":
        seen.on_load(3, 10)
    else:
        seen.on_extract(0, 10, 0.0)
    assert HIDDEN in screen.getvalue()
    assert SHOWN not in screen.getvalue()
    seen.on_end()
    assert screen.getvalue().rindex(SHOWN) > screen.getvalue().rindex(HIDDEN)
    seen.on_end()  # nothing is left to stop


def test_messages_cannot_steer_the_terminal(screen: StringIO) -> None:
    terminal(screen, real=False).on_message("photo\u202egnp.exe \x1b[2J")
    assert screen.getvalue() == "photo\\u202egnp.exe \\x1b[2J\n"


def test_an_error_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fail("no such file: photo\u202egnp.exe \x1b[2J", 2)
    assert capsys.readouterr().err == "maskcon: no such file: photo\\u202egnp.exe \\x1b[2J\n"


def test_embedding_is_seen_before_its_first_part_is_done(screen: StringIO) -> None:
    seen = terminal(screen, real=True)
    seen.on_extract(0, 2_000, 0.0)
    assert "embedding once" in screen.getvalue()
    assert "views/s" not in screen.getvalue()  # not known yet
    seen.on_extract(384, 2_000, 120.0)
    seen.on_end()
    assert "views/s" in screen.getvalue()


def test_training_shows_its_images_and_its_last_known_loss(screen: StringIO) -> None:
    seen = terminal(screen, real=True)
    seen.on_step(1, 10, 1, 2.5, 0.1)
    seen.on_step(2, 10, 1, math.nan, 0.2)  # not logged
    seen.on_end()
    assert "2 of 10 images" in screen.getvalue()
    assert "loss 2.500" in screen.getvalue()
    assert "nan" not in screen.getvalue()


def test_without_a_terminal_embedding_prints_a_line_per_tenth_and_no_bar(
    screen: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINES_AFTER", 0.0)
    seen = terminal(screen, real=False)
    for done in (500, 520, 2_500):
        seen.on_extract(done, 2_500, 0.0)
    seen.on_end()
    lines = screen.getvalue().splitlines()
    assert [line.split(" views")[0] for line in lines] == [
        "embedding once: 500 of 2,500",
        "embedding once: 2,500 of 2,500",
    ]
