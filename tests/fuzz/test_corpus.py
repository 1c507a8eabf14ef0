"""The corpus of every fuzz target, and mutations of it by a seed: a value, or one line."""

from __future__ import annotations

import random
import time

import pytest

from tests.fuzz.targets import CORPUS, SECONDS, TARGETS, one_line

MUTATIONS = 30  # of each file


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Change, repeat, remove or insert a few bytes."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(found) + 1)
        length = chance.randint(1, 8)
        kind = chance.randrange(4)
        if kind == 0:
            found[place : place + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            found[place:place] = found[max(0, place - length) : place] * chance.randint(1, 3)
        elif kind == 2:
            del found[place : place + length]
        else:
            found[place:place] = chance.choice(
                [b'"', b",", b"\n", b"\x00", b"\xff", b"{", b"[", b"99999999999999"]
            )
    return bytes(found)


@pytest.mark.parametrize("name", TARGETS)
def test_a_value_or_one_line(name):
    files = sorted((CORPUS / name).iterdir())
    assert files
    chance = random.Random(name)
    for file in files:
        data = file.read_bytes()
        for each in (data, *(mutated(data, chance) for _ in range(MUTATIONS))):
            start = time.thread_time()
            one_line(lambda each=each: TARGETS[name](each))
            assert time.thread_time() - start < SECONDS, each[:80]
