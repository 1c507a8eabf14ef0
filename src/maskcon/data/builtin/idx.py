"""The IDX format of the MNIST family: a magic number, the sizes, then the bytes. Read strictly."""

from __future__ import annotations

import gzip
import struct
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import CorruptFileError, DataError

UNSIGNED_BYTE = 0x08  # the only element type that the MNIST family uses
MAX_BYTES = 1 << 30  # far above the largest genuine file (47 MB); stops a decompression bomb


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes, gzipped or not, with exactly this number of dimensions."""
    data = _read_bytes(path)
    header = 4 + 4 * dimensions
    if len(data) < header:
        raise CorruptFileError(f"{path}: {len(data)} bytes is too short for an IDX header of {header}")
    zero, element_type, rank = struct.unpack(">HBB", data[:4])
    if zero != 0 or element_type != UNSIGNED_BYTE or rank != dimensions:
        raise CorruptFileError(
            f"{path}: magic number 0x{data[:4].hex()} is not that of {dimensions}-dimensional unsigned bytes "
            f"(0x0000{UNSIGNED_BYTE:02x}{dimensions:02x})"
        )
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    if prod(shape) != len(data) - header:
        raise CorruptFileError(
            f"{path}: the header promises {shape} = {prod(shape)} bytes, the file holds {len(data) - header}"
        )
    return np.frombuffer(data, dtype=np.uint8, offset=header).reshape(shape)


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            gzipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if not gzipped:
                data = file.read(MAX_BYTES + 1)
            else:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    data = unpacked.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorruptFileError(f"{path}: damaged gzip data ({error}); fetch the file again") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise CorruptFileError(f"{path}: more than {MAX_BYTES} bytes once unpacked; not an MNIST-like file")
    return data
