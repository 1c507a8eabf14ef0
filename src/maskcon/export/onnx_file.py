"""Write the embedder as an ONNX graph, and run it (extra `onnx`)."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.export.embedder import Embedder

NAME = "model.onnx"
FILES = (NAME, f"{NAME}.data")  # the second exists only for large models
INPUT, OUTPUT = "pixel_values", "embedding"
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
# a graph is limited to 2 GB; weights larger than this go to a second file
LARGEST_SINGLE_FILE = 1 << 30


def check_onnx_installed() -> None:
    """Raise if a package is missing, before any work is done."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(f"--onnx needs {', '.join(missing)}: pip install 'maskcon[onnx]'")


def write_onnx(
    embedder: Embedder,
    folder: Path,
    facts: Mapping[str, Any],
    *,
    largest_single_file: int = LARGEST_SINGLE_FILE,
) -> list[Path]:
    """Write model.onnx, for batches of any size; return the paths of its files.

    The graph takes `pixel_values`, float32 [B, C, S, S] in 0..1, and returns `embedding`, [B, F]. It normalises the
    channels but does not decode or resize. facts: stored in its metadata.
    """
    settings = embedder.preprocessing
    example = torch.zeros(2, settings.in_channels, settings.image_size, settings.image_size)
    weight_bytes = sum(value.nbytes for value in embedder.state_dict().values())
    with _quiet():
        program = torch.onnx.export(
            embedder.eval(),
            (example,),
            dynamo=True,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes={INPUT: {0: torch.export.Dim("batch")}},
            verbose=False,
        )
        if program is None:
            raise MaskconError("torch could not convert this encoder to ONNX")
        program.model.metadata_props["maskcon"] = json.dumps(dict(facts), sort_keys=True)
        program.save(folder / NAME, external_data=weight_bytes > largest_single_file)
    return sorted(folder.glob(f"{NAME}*"))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's output, warnings and logs, which do not help users."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def run_onnx(folder: Path, pixel_values: Tensor) -> Tensor:
    """Compute embeddings with onnxruntime on the CPU: [B, C, S, S] -> [B, F]."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(
        str(folder / NAME), sess_options=options, providers=["CPUExecutionProvider"]
    )
    found: NDArray[np.float32] = session.run([OUTPUT], {INPUT: pixel_values.numpy()})[0]
    return torch.from_numpy(found)
