"""Pipes and devices are refused at once wherever a file is expected."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from maskcon._utils.errors import MaskconError
from maskcon._utils.files import file_states
from maskcon.config.settings import read_values
from maskcon.data.archive import extract
from maskcon.data.builtin.sop import read_info
from maskcon.data.decoding import UndecodableError, decode, read_shape
from maskcon.data.kinds_file import read_kinds
from maskcon.data.manifest import read_manifest
from maskcon.data.safe_pickle import load_pickle
from maskcon.discovery.journal import read_records
from maskcon.discovery.kinds_folder import read_folder
from maskcon.models.encoder_file import read_encoder
from maskcon.models.weights import read_state
from maskcon.retrieval.embeddings_file import read_embeddings
from maskcon.training.checkpoint import load_checkpoint

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no pipes among its files")

READERS: dict[str, Callable[[Path], Any]] = {
    "a.png": lambda path: decode(path, 8, 3),
    "a.jpg": read_shape,
    "photos.csv": read_manifest,
    "photos.parquet": read_manifest,
    "kinds.csv": read_kinds,
    "data_batch_1": load_pickle,
    "set.tar.gz": lambda path: extract(path, path.with_name("out"), inside="set"),
    "Ebay_info.txt": read_info,
    "net.pth": read_state,
    "net.safetensors": read_state,
    "encoder.safetensors": read_encoder,
    "embeddings.parquet": read_embeddings,
    "config.yaml": read_values,
    "kinds.npz": lambda path: read_folder(path.parent),
    "edits.jsonl": read_records,
    "SHA256SUMS": lambda path: file_states(path.parent),
    "step-00000001/state.json": lambda path: load_checkpoint(path.parent),
}


def beside(path: Path) -> None:
    """Write what is read before this file."""
    path.parent.mkdir(exist_ok=True)
    if path.name == "state.json":
        for name in ("SHA256SUMS", "state.safetensors"):
            (path.parent / name).touch()


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    signal.alarm(10)  # a reader that waits for the pipe's other end never returns
    yield
    signal.alarm(0)


@pytest.mark.parametrize("name", READERS)
def test_pipe_is_refused_at_once(name: str, tmp_path: Path) -> None:
    beside(tmp_path / name)
    os.mkfifo(tmp_path / name)
    with pytest.raises((MaskconError, UndecodableError), match="not a regular file"):
        READERS[name](tmp_path / name)


@pytest.mark.parametrize("name", READERS)
def test_link_to_a_device_is_refused_at_once(name: str, tmp_path: Path) -> None:
    beside(tmp_path / name)
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises((MaskconError, UndecodableError), match="not a regular file"):
        READERS[name](tmp_path / name)
