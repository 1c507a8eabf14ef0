"""Writing the file: stopped and gone on with, refreshed, and nothing foreign overwritten."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from maskcon._utils.errors import MaskconError, UsageError
from maskcon._utils.files import FolderLock
from maskcon.api import Run, embedding
from maskcon.retrieval.embeddings_file import read_embeddings
from tests.finished_run import finished_run, write_photo
from tests.retrieval.images_to_embed import close_to, photos, write_embeddings


def watch_encoder(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of images of each call of the encoder from now on."""
    seen: list[int] = []
    embed = embedding.features_of

    def counted(backbone: object, facts: object, images: np.ndarray, *rest: object) -> object:
        seen.append(len(images))
        return embed(backbone, facts, images, *rest)

    monkeypatch.setattr(embedding, "features_of", counted)
    return seen


class Killed(BaseException):
    """Stands for a kill: nothing of ours catches it."""


def test_a_stopped_command_resumes_to_the_same_bytes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = photos(tmp_path / "photos", 11), tmp_path / "e.parquet"
    (folder / "cat" / "broken.jpg").write_bytes(b"no picture")
    write_embeddings(run, folder, tmp_path / "undisturbed.parquet", chunk_images=3)

    def stop(done: int, total: int) -> None:
        if done >= 7:
            raise Killed

    with pytest.raises(Killed):
        write_embeddings(run, folder, out, chunk_images=3, progress=stop)
    assert not out.exists()
    seen = watch_encoder(monkeypatch)
    outcome = write_embeddings(run, folder, out, chunk_images=3)
    assert (outcome.embedded, outcome.reused) == (sum(seen), 11 - sum(seen))
    assert 0 < sum(seen) <= 5
    assert out.read_bytes() == (tmp_path / "undisturbed.parquet").read_bytes()
    assert not list(tmp_path.glob(".*"))


KILLED_ITSELF = """
import os, signal, sys
from maskcon.api import Run
from tests.retrieval.images_to_embed import write_embeddings

def kill(done, total):
    if done >= int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

write_embeddings(Run.open(sys.argv[1]), sys.argv[2], sys.argv[3], chunk_images=2, progress=kill)
"""


@pytest.mark.slow
def test_three_real_kills_resume_to_the_same_bytes(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos", 12), tmp_path / "e.parquet"
    write_embeddings(run, folder, tmp_path / "undisturbed.parquet", chunk_images=2)
    for done in (4, 6, 12):
        arguments = [str(run.folder), str(folder), str(out), str(done)]
        ended = subprocess.run([sys.executable, "-c", KILLED_ITSELF, *arguments], check=False)
        assert ended.returncode == -signal.SIGKILL
    outcome = write_embeddings(run, folder, out, chunk_images=2)
    assert (outcome.embedded, outcome.reused) == (0, 12)
    assert out.read_bytes() == (tmp_path / "undisturbed.parquet").read_bytes()


def test_a_damaged_part_is_embedded_anew_and_reported(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos"), tmp_path / "e.parquet"

    def stop(done: int, total: int) -> None:
        if done == 6:
            raise Killed

    with pytest.raises(Killed):
        write_embeddings(run, folder, out, chunk_images=3, progress=stop)
    part = min((tmp_path / ".e.parquet.parts").glob("*.part"))
    content = part.read_bytes()
    part.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    outcome = write_embeddings(run, folder, out, chunk_images=3)
    assert (outcome.embedded, outcome.reused) == (7, 3)
    assert "is damaged; its images are embedded again" in outcome.notes[0]
    found = read_embeddings(out)
    close_to(found.vectors, run.encode([found.file(row) for row in range(10)]).numpy())


def test_only_what_is_new_or_changed_is_embedded_again(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos"), tmp_path / "e.parquet"
    write_embeddings(run, folder, out, chunk_images=4)
    before, written = out.read_bytes(), out.stat().st_mtime_ns
    again = write_embeddings(run, folder, out, chunk_images=4)
    assert (again.embedded, again.reused) == (0, 10)
    assert (out.read_bytes(), out.stat().st_mtime_ns) == (before, written)  # not even written again

    write_photo(folder / "cat" / "01.png", 99)  # changed
    write_photo(folder / "cat" / "00_new.png", 98)  # added
    (folder / "dog" / "02.png").unlink()  # removed
    outcome = write_embeddings(run, folder, out, chunk_images=4)
    assert (outcome.embedded, outcome.reused) == (2, 8)
    found = read_embeddings(out)
    assert [entry.path for entry in found.entries] == sorted(
        path.relative_to(folder).as_posix() for path in folder.glob("*/*")
    )
    close_to(found.vectors, run.encode([found.file(row) for row in range(10)]).numpy())


def test_another_encoder_takes_nothing_over(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos", 4), tmp_path / "e.parquet"
    write_embeddings(run, folder, out)
    other = finished_run(tmp_path / "other", seed=1)
    before = out.read_bytes()
    with pytest.raises(UsageError, match=r"e\.parquet holds .*made with another model.* or give --replace"):
        write_embeddings(other, folder, out)
    assert out.read_bytes() == before
    outcome = write_embeddings(other, folder, out, replace=True)
    assert (outcome.embedded, outcome.reused) == (4, 0)
    assert "was replaced" in outcome.notes[0]
    close_to(read_embeddings(out).vectors, other.encode(sorted(folder.glob("*/*"))).numpy())


def test_a_foreign_file_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos", 2), tmp_path / "thesis.parquet"
    out.write_bytes(b"years of work")
    with pytest.raises(UsageError, match="it was not changed: delete it, or choose another --out"):
        write_embeddings(run, folder, out)
    assert out.read_bytes() == b"years of work"
    assert {path.name for path in tmp_path.iterdir()} == {"photos", "thesis.parquet"}


def test_a_device_that_is_not_there_is_refused_before_anything_is_read(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown device"):
        write_embeddings(run, tmp_path / "not even there", tmp_path / "e.parquet", device="abacus")
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written_are_refused_before_anything_is_embedded(
    run: Run, tmp_path: Path
) -> None:
    folder = photos(tmp_path / "photos", 2)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        write_embeddings(run, folder, tmp_path / "file" / "e.parquet")
    with pytest.raises(UsageError, match="is a folder; give a file to write"):
        write_embeddings(run, folder, folder)
    for name in ("e.csv", "e.NPY"):
        with pytest.raises(UsageError, match=r"are written as Parquet, .* name it e.parquet"):
            write_embeddings(run, folder, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_two_commands_do_not_write_one_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".e.parquet.parts").mkdir()
    with (
        FolderLock(tmp_path / ".e.parquet.parts"),
        pytest.raises(UsageError, match=r"another run or explorer is writing to .* choose another --out"),
    ):
        write_embeddings(run, photos(tmp_path / "photos", 2), tmp_path / "e.parquet")


def test_memory_does_not_grow_with_the_images(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watch_encoder(monkeypatch)
    write_embeddings(run, photos(tmp_path / "photos", 9), tmp_path / "e.parquet", chunk_images=2)
    assert seen == [2, 2, 2, 2, 1]


def test_progress_is_reported_chunk_by_chunk(run: Run, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    write_embeddings(
        run,
        photos(tmp_path / "photos", 5),
        tmp_path / "e.parquet",
        chunk_images=2,
        progress=lambda *counts: told.append(counts),
    )
    assert told == [(0, 5), (2, 5), (4, 5), (5, 5)]


def test_an_encoder_that_gives_no_numbers_is_an_error(run: Run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(embedding, "features_of", lambda *_: torch.full((2, 16), torch.nan))
    with pytest.raises(MaskconError, match="NaN or Inf"):
        write_embeddings(run, photos(tmp_path / "photos", 2), tmp_path / "e.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_a_renamed_or_copied_image_is_not_embedded_again(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos", 4), tmp_path / "e.parquet"
    write_embeddings(run, folder, out)
    (folder / "cat" / "01.png").rename(folder / "dog" / "moved.png")
    (folder / "dog" / "copy.png").write_bytes((folder / "dog" / "00.png").read_bytes())
    outcome = write_embeddings(run, folder, out)
    assert (outcome.embedded, outcome.reused) == (0, 5)
    found = read_embeddings(out)
    close_to(found.vectors, run.encode([found.file(row) for row in range(5)]).numpy())


def test_a_changed_label_is_written_without_embedding(run: Run, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos", 4), tmp_path / "e.parquet"
    (tmp_path / "list.csv").write_text("path,coarse\nphotos/dog/00.png,dog\nphotos/cat/01.png,cat\n")
    write_embeddings(run, tmp_path / "list.csv", out)
    (tmp_path / "list.csv").write_text("path,coarse\nphotos/dog/00.png,wolf\nphotos/cat/01.png,cat\n")
    assert write_embeddings(run, tmp_path / "list.csv", out).embedded == 0
    assert [entry.coarse for entry in read_embeddings(out).entries] == ["wolf", "cat"]
    assert folder.is_dir()
