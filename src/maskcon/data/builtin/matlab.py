"""Read MATLAB 5 files (.mat) that hold annotations: text, numbers, cell arrays and struct arrays.

Every length is checked against the bytes that are there. `scipy.io.loadmat` is not used because it is written for
trusted files: of 400 uncompressed files with 1 to 8 changed bytes, 17 ended the process by SIGSEGV (scipy 1.17.1).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod
from pathlib import Path

import numpy as np

from maskcon._utils.errors import CorruptFileError, DataError

Value = str | list["Value"] | list[dict[str, "Value"]] | list[float]
"""Text; a cell array; a struct array; numbers. Arrays are flat, in MATLAB's order (down the columns)."""

MAX_BYTES = 16 << 20  # of the file
MAX_UNPACKED_BYTES = 64 << 20  # of one compressed variable
MAX_DEPTH = 8
MAX_DIMENSIONS = 8
HEADER_BYTES = 128
MATRIX, COMPRESSED = 14, 15
CELL, STRUCT, CHAR = 1, 2, 4
NUMERIC_CLASSES = range(6, 16)  # double, single, int8 ... uint64
COMPLEX_FLAG = 0x800
DTYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
UTF = {16: "utf-8", 17: "utf-16", 18: "utf-32"}

Elements = Iterator[tuple[int, memoryview]]


def read_mat(path: Path, names: Sequence[str]) -> dict[str, Value]:
    """Read the named variables, those of them that the file has; others are skipped."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return _variables(data, names)
    except (ValueError, struct.error, zlib.error) as error:
        raise CorruptFileError(f"{path}: not a readable MATLAB 5 file ({error}); get it again") from error


def _variables(data: bytes, names: Sequence[str]) -> dict[str, Value]:
    if len(data) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    mark = data[126:HEADER_BYTES]
    if mark not in (b"IM", b"MI"):
        raise ValueError("no such header")
    order = "<" if mark == b"IM" else ">"
    if struct.unpack_from(f"{order}H", data, 124)[0] != 0x100:
        raise ValueError("another version")
    found: dict[str, Value] = {}
    for kind, content in _elements(memoryview(data)[HEADER_BYTES:], order, padded=False):
        if kind == COMPRESSED:
            kind, content = _next(_elements(_decompress(content), order, padded=False))
        if kind != MATRIX:
            raise ValueError(f"a variable of type {kind}")
        name, value = _read_matrix(content, order, names)
        if value is not None:
            found[name] = value
    return found


def _decompress(content: memoryview) -> memoryview:
    inflate = zlib.decompressobj()
    unpacked = inflate.decompress(content, MAX_UNPACKED_BYTES)
    if not inflate.eof:
        raise ValueError(f"a compressed variable is cut off, or has more than {MAX_UNPACKED_BYTES} bytes")
    return memoryview(unpacked)


def _elements(data: memoryview, order: str, *, padded: bool = True) -> Elements:
    """Yield type and content of each element; small ones have both in 8 bytes."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start = at + 8
        if kind >> 16:
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
            if size > 4:
                raise ValueError(f"a small element of {size} bytes")
            at += 8
        else:
            at = start + size + (-size % 8 if padded else 0)
        if start + size > len(data):
            raise ValueError(f"an element of {size} bytes where {max(0, len(data) - start)} are left")
        yield kind, data[start : start + size]


def _next(elements: Elements) -> tuple[int, memoryview]:
    found = next(elements, None)
    if found is None:
        raise ValueError("it ends within an array")
    return found


def _read_matrix(
    data: memoryview, order: str, names: Sequence[str] | None = None, depth: int = 0
) -> tuple[str, Value | None]:
    """Read name and value of an array; the value is None where `names` does not have the name."""
    if not len(data):  # how MATLAB writes a field that was never filled
        return "", []
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    elements = _elements(data, order)
    flags, sides = _sizes(elements, order), _sizes(elements, order)
    name = bytes(_next(elements)[1]).decode("latin-1")
    if len(flags) != 2 or not sides or min(sides) < 0:
        raise ValueError("an array without class or size")
    if len(sides) > MAX_DIMENSIONS:  # to multiply out millions of them would take hours
        raise ValueError(f"an array of {len(sides)} dimensions")
    if names is not None and name not in names:
        return name, None
    kind, size = flags[0] & 0xFF, prod(sides)
    if kind == STRUCT:
        fields = _field_names(elements, order)
        values = _inner(elements, order, size * len(fields), len(data), depth)
        rows = range(0, len(values), len(fields))
        return name, [dict(zip(fields, values[row : row + len(fields)], strict=True)) for row in rows]
    if kind == CELL:
        return name, _inner(elements, order, size, len(data), depth)
    if kind != CHAR and (kind not in NUMERIC_CLASSES or flags[0] & COMPLEX_FLAG):
        raise ValueError(f"an array of class {kind}")
    stored, content = next(elements, (2, memoryview(b"")))
    value = _text(content, stored, order) if kind == CHAR else _numbers(content, stored, order)
    if len(value) != size:
        raise ValueError(f"{len(value)} instead of {size} {'characters' if kind == CHAR else 'numbers'}")
    return name, value


def _inner(elements: Elements, order: str, count: int, size: int, depth: int) -> list[Value]:
    if count > size // 8:  # each takes 8 bytes at least
        raise ValueError(f"{count} values in {size} bytes")
    values: list[Value] = []
    for kind, content in islice(elements, count):
        if kind != MATRIX:
            raise ValueError(f"a value of type {kind}")
        value = _read_matrix(content, order, depth=depth + 1)[1]
        values.append([] if value is None else value)
    if len(values) != count:
        raise ValueError(f"{len(values)} instead of {count} values")
    return values


def _field_names(elements: Elements, order: str) -> list[str]:
    widths, table = _sizes(elements, order), bytes(_next(elements)[1])
    if len(widths) != 1 or widths[0] < 1 or len(table) % widths[0]:
        raise ValueError("a struct without names of fields")
    starts = range(0, len(table), widths[0])
    fields = [table[start : start + widths[0]].split(b"\0")[0].decode("latin-1") for start in starts]
    if not fields or len(set(fields)) != len(fields):
        raise ValueError("a struct with no field, or with one twice")
    return fields


def _text(content: memoryview, stored: int, order: str) -> str:
    if stored in UTF:
        suffix = "" if stored == 16 else ("-le" if order == "<" else "-be")
        return bytes(content).decode(UTF[stored] + suffix)
    if stored not in (1, 2, 4):
        raise ValueError(f"text of type {stored}")
    return "".join(chr(int(code) & 0xFFFF) for code in _numbers(content, stored, order))


def _numbers(content: memoryview, stored: int, order: str) -> list[float]:
    if stored not in DTYPES:
        raise ValueError(f"numbers of type {stored}")
    numbers: list[float] = np.frombuffer(content, dtype=order + DTYPES[stored]).tolist()
    return numbers


def _sizes(elements: Elements, order: str) -> list[int]:
    kind, content = _next(elements)
    if kind not in (5, 6):  # int32, uint32
        raise ValueError(f"sizes of type {kind}")
    return [int(size) for size in _numbers(content, kind, order)]
