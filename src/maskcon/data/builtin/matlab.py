"""A strict reader of MATLAB 5 files (.mat), for the few kinds of values that annotations are made of.

Text, numbers, cell arrays and struct arrays are read, with every length checked against the bytes that are there.
(The reader of scipy.io, written for files one trusts, can crash the whole process on a damaged one.)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

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
STORED_AS = {
    1: "b",
    2: "B",
    3: "h",
    4: "H",
    5: "i",
    6: "I",
    7: "f",
    9: "d",
    12: "q",
    13: "Q",
}  # as in `struct`
UTF = {16: "utf-8", 17: "utf-16", 18: "utf-32"}


class _DamagedError(Exception):
    """What is wrong with the bytes."""


def read_mat(path: Path, names: Sequence[str]) -> dict[str, Value]:
    """The named variables of the file, those of them that it has; others are passed over unread."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return _variables(data, names)
    except _DamagedError as error:
        raise CorruptFileError(f"{path}: not a readable MATLAB 5 file ({error}); get it again") from error


def _variables(data: bytes, names: Sequence[str]) -> dict[str, Value]:
    if len(data) > MAX_BYTES:
        raise _DamagedError(f"more than {MAX_BYTES} bytes")
    mark = data[126:HEADER_BYTES]
    if mark not in (b"IM", b"MI"):
        raise _DamagedError("no such header")
    order = "<" if mark == b"IM" else ">"
    if struct.unpack_from(f"{order}H", data, 124)[0] != 0x100:
        raise _DamagedError("another version")
    found: dict[str, Value] = {}
    outer = _Cursor(data, order, HEADER_BYTES, len(data))
    while not outer.at_end:
        kind, element = outer.element(padded=False)
        if kind == COMPRESSED:
            kind, element = _Cursor(_unpacked(element), order).element(padded=False)
        if kind != MATRIX:
            raise _DamagedError(f"a variable of type {kind}")
        matrix = _Matrix.open(element)
        if matrix.name in names:
            found[matrix.name] = matrix.value(depth=0)
    return found


def _unpacked(element: _Cursor) -> bytes:
    inflate = zlib.decompressobj()
    try:
        unpacked = inflate.decompress(element.rest(), MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise _DamagedError(str(error)) from error
    if not inflate.eof:
        raise _DamagedError(f"a compressed variable is cut off, or has more than {MAX_UNPACKED_BYTES} bytes")
    return unpacked


class _Cursor:
    """A span of bytes, read from its start; nothing beyond its end is ever looked at."""

    def __init__(self, data: bytes, order: str, start: int = 0, end: int | None = None) -> None:
        self.data = data
        self.order = order
        self.at = start
        self.end = len(data) if end is None else end

    @property
    def at_end(self) -> bool:
        return self.at >= self.end

    @property
    def left(self) -> int:
        return self.end - self.at

    def rest(self) -> bytes:
        return self.data[self.at : self.end]

    def element(self, *, padded: bool = True) -> tuple[int, _Cursor]:
        """The type and the content of the next element; small ones have both in 8 bytes."""
        if self.left < 8:
            raise _DamagedError("it ends within an element")
        kind, size = struct.unpack_from(f"{self.order}II", self.data, self.at)
        if kind >> 16:
            kind, size = kind & 0xFFFF, kind >> 16
            start, following = self.at + 4, self.at + 8
            if size > 4:
                raise _DamagedError(f"a small element of {size} bytes")
        else:
            start = self.at + 8
            following = start + (-(-size // 8) * 8 if padded else size)
        if start + size > self.end:
            raise _DamagedError(f"an element of {size} bytes where {max(0, self.end - start)} are left")
        self.at = min(following, self.end)
        return kind, _Cursor(self.data, self.order, start, start + size)

    def numbers(self, kind: int) -> list[float]:
        """All of the span as numbers of the stored type."""
        code = STORED_AS.get(kind)
        if code is None:
            raise _DamagedError(f"numbers of type {kind}")
        count, rest = divmod(self.left, struct.calcsize(f"={code}"))
        if rest:
            raise _DamagedError(f"{self.left} bytes of numbers of type {kind}")
        return list(struct.unpack_from(f"{self.order}{count}{code}", self.data, self.at))


@dataclass
class _Matrix:
    """An array of any class, opened up to where its contents start."""

    kind: int
    is_complex: bool
    size: int
    name: str
    content: _Cursor

    @classmethod
    def open(cls, content: _Cursor) -> _Matrix:
        if content.at_end:  # how MATLAB writes a field that was never filled
            return cls(NUMERIC_CLASSES[0], False, 0, "", content)
        flags = _whole_numbers(content)
        sides = _whole_numbers(content)
        name = _plain_text(content)
        if len(flags) != 2 or not sides or min(sides) < 0:
            raise _DamagedError("an array without class or size")
        if len(sides) > MAX_DIMENSIONS:  # to multiply out millions of them would take hours
            raise _DamagedError(f"an array of {len(sides)} dimensions")
        return cls(flags[0] & 0xFF, bool(flags[0] & COMPLEX_FLAG), prod(sides), name, content)

    def value(self, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise _DamagedError(f"nested deeper than {MAX_DEPTH}")
        if self.kind == CELL:
            return [item.value(depth + 1) for item in self._inner(self.size)]
        if self.kind == STRUCT:
            return self._structs(depth)
        if self.kind == CHAR:
            return self._text()
        if self.kind in NUMERIC_CLASSES and not self.is_complex:
            return self._numbers()
        raise _DamagedError(f"an array of class {self.kind}")

    def _inner(self, count: int) -> list[_Matrix]:
        if count > self.content.left // 8:  # each takes 8 bytes at least
            raise _DamagedError(f"{count} values in {self.content.left} bytes")
        inner = []
        for _ in range(count):
            kind, element = self.content.element()
            if kind != MATRIX:
                raise _DamagedError(f"a value of type {kind}")
            inner.append(_Matrix.open(element))
        return inner

    def _structs(self, depth: int) -> list[dict[str, Value]]:
        widths = _whole_numbers(self.content)
        _, names = self.content.element()
        table = names.rest()
        if len(widths) != 1 or widths[0] < 1 or len(table) % widths[0]:
            raise _DamagedError("a struct without names of fields")
        fields = [
            table[start : start + widths[0]].split(b"\0")[0].decode("latin-1")
            for start in range(0, len(table), widths[0])
        ]
        if not fields or len(set(fields)) != len(fields):
            raise _DamagedError("a struct with no field, or with one twice")
        values = [item.value(depth + 1) for item in self._inner(self.size * len(fields))]
        return [
            dict(zip(fields, values[start : start + len(fields)], strict=True))
            for start in range(0, len(values), len(fields))
        ]

    def _text(self) -> str:
        if not self.size and self.content.at_end:
            return ""
        kind, element = self.content.element()
        if kind in UTF:
            suffix = "" if kind == 16 else ("-le" if self.content.order == "<" else "-be")
            try:
                text = element.rest().decode(UTF[kind] + suffix)
            except UnicodeDecodeError as error:
                raise _DamagedError(str(error)) from error
        elif kind in (1, 2, 4):
            text = "".join(chr(int(code) & 0xFFFF) for code in element.numbers(kind))
        else:
            raise _DamagedError(f"text of type {kind}")
        if len(text) != self.size:
            raise _DamagedError(f"text of {len(text)} instead of {self.size} characters")
        return text

    def _numbers(self) -> list[float]:
        if not self.size and self.content.at_end:
            return []
        kind, element = self.content.element()
        values = element.numbers(kind)
        if len(values) != self.size:
            raise _DamagedError(f"{len(values)} instead of {self.size} numbers")
        return values


def _whole_numbers(content: _Cursor) -> list[int]:
    kind, element = content.element()
    if kind not in (5, 6):  # int32, uint32
        raise _DamagedError(f"sizes of type {kind}")
    return [int(value) for value in element.numbers(kind)]


def _plain_text(content: _Cursor) -> str:
    _, element = content.element()
    return element.rest().decode("latin-1")
