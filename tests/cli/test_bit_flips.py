"""A flipped bit in anything that people take away is noticed by its reader, and by `maskcon verify`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import maskcon
from maskcon._utils.errors import MaskconError
from maskcon.cli import app
from maskcon.discovery.edit_kinds import Rename
from maskcon.discovery.journal import EDITS, open_journal, read_records, record_of
from maskcon.discovery.kinds import find_kinds
from maskcon.discovery.kinds_folder import STATE, Origin, read_folder, write_folder
from maskcon.export import export_run
from maskcon.export.write import CARD, CONFIG, HUGGING_FACE, MODEL, WEIGHTS, _module
from maskcon.retrieval.embeddings import INDEX, Index
from maskcon.retrieval.embeddings_file import read_embeddings, write_embeddings
from maskcon.retrieval.store import Entry, Header
from maskcon.training.run_folder import ENCODER
from tests.discovery.generated import clustered
from tests.miniature import miniature
from tests.training.runs import fit

QUICK, ALL = 4, 100


@dataclass(frozen=True)
class Taken:
    """A file that people take away, what reads it, and what `maskcon verify` is given."""

    file: Path
    read: Callable[[], object]
    whole: Path


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Taken]:
    base = tmp_path_factory.mktemp("taken")
    run = fit(base / "run", epochs=1)
    exported = export_run(run, base / "export", data=miniature()).folder
    plain = _module(exported / MODEL)
    entries = [Entry(f"{n}.jpg", n, n, f"{n:064x}") for n in range(20)]
    vectors = list(np.random.default_rng(0).normal(size=(20, 16)).astype(np.float32))
    for path in (base / "embeddings.parquet", base / "index" / INDEX):
        path.parent.mkdir(exist_ok=True)
        write_embeddings(path, Header("ab" * 32, "photos"), entries, vectors)
    kinds = base / "kinds"
    kinds.mkdir()
    found = find_kinds(clustered((20, 15))[0])
    write_folder(kinds, found, Origin("ab" * 32, None))
    journal = open_journal(kinds)
    for name in ("Gala", "Fuji"):
        journal.append(record_of(Rename(coarse=found.rows[0].coarse, kind="kind 1", to=name)))
    read_files = dict.fromkeys((CONFIG, MODEL, WEIGHTS), lambda: plain.load(exported))
    return {
        "encoder": Taken(run.folder / ENCODER, lambda: maskcon.Run.open(run.folder), run.folder),
        "index": Taken(base / "index" / INDEX, lambda: Index(base / "index"), base / "index"),
        "embeddings": Taken(
            base / "embeddings.parquet",
            lambda: read_embeddings(base / "embeddings.parquet"),
            base / "embeddings.parquet",
        ),
        "kinds": Taken(kinds / STATE, lambda: read_folder(kinds), kinds),
        "journal": Taken(kinds / EDITS, lambda: read_records(kinds / EDITS), kinds),
        **{f"export, {name}": Taken(exported / name, read, exported) for name, read in read_files.items()},
    } | {
        f"export, {name}": Taken(exported / name, lambda: verify(exported), exported)  # not read by code
        for name in (CARD, HUGGING_FACE, "SHA256SUMS")
    }


def verify(path: Path) -> None:
    found = CliRunner().invoke(app, ["verify", str(path)])
    if found.exception is not None:
        raise found.exception


FILES = (
    *("encoder", "index", "embeddings", "kinds", "journal"),
    *(f"export, {name}" for name in (CONFIG, MODEL, WEIGHTS, CARD, HUGGING_FACE, "SHA256SUMS")),
)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("count", [QUICK, pytest.param(ALL, marks=pytest.mark.slow)])
def test_every_flipped_bit_is_noticed(taken, name, count):
    it, chance = taken[name], random.Random(name)
    before = it.file.read_bytes()
    noticed = 0
    it.read()
    for number in range(count):
        data = bytearray(before)
        place = (
            -1 if number == 0 else chance.randrange(len(data))
        )  # the last byte first: an end of line, a length
        data[place] ^= 1 << chance.randrange(8)
        it.file.write_bytes(data)
        try:
            with pytest.raises((MaskconError, ValueError)):
                it.read()
            with pytest.raises(MaskconError):
                verify(it.whole)
            noticed += 1
        finally:
            it.file.write_bytes(before)
    assert noticed == count
    verify(it.whole)


def test_a_file_without_its_checksums_is_told_apart_from_a_damaged_one(taken):
    export = taken[f"export, {WEIGHTS}"].whole
    sums = (export / "SHA256SUMS").read_bytes()
    (export / "SHA256SUMS").unlink()
    try:
        taken[f"export, {WEIGHTS}"].read()  # taken away without them: read unchecked
        with pytest.raises(MaskconError, match="holds nothing with checksums"):
            verify(export)
    finally:
        (export / "SHA256SUMS").write_bytes(sums)
