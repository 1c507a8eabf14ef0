from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from maskcon._utils.errors import CorruptFileError, DataError
from maskcon.data.builtin.matlab import MAX_BYTES, read_mat
from tests.data.miniature_photos import cell_array, struct_array


def oracle(value: Any) -> Any:
    """What scipy's reader gives, as flat lists."""
    if value.dtype.names:
        return [
            {name: oracle(row[name]) for name in value.dtype.names} for row in value.reshape(-1, order="F")
        ]
    if value.dtype == object:
        return [oracle(item) for item in value.reshape(-1, order="F")]
    if value.dtype.kind == "U":
        return str(value[0]) if value.size else ""
    return value.reshape(-1, order="F").tolist()


@pytest.mark.parametrize("compressed", [True, False])
def test_every_kind_of_value_is_read_as_scipy_reads_it(tmp_path: Path, compressed: bool) -> None:
    rows = [
        {"name": "a.jpg", "number": np.uint8(7), "empty": np.zeros((0, 0))},
        {"name": "häuser/größe.jpg", "number": 2.5, "empty": ""},
    ]
    variables = {
        "annotations": struct_array(rows),
        "names": cell_array(("one", "Ram C/V Cargo Van", "x" * 300)),
        "single": struct_array(rows[:1]),
        **{
            f"numbers_{code}": np.array([[1, 2, 3], [4, 5, 6]], dtype=code)
            for code in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
        },
        "text": "plain",
    }
    path = tmp_path / "some.mat"
    scipy.io.savemat(path, variables, do_compression=compressed)
    expected = {name: oracle(value) for name, value in scipy.io.loadmat(path).items() if name[0] != "_"}
    assert read_mat(path, list(variables)) == expected
    assert expected["annotations"][1]["name"] == "häuser/größe.jpg"


def test_variables_that_nobody_asked_for_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "some.mat"
    sparse = scipy.sparse.csc_array(np.eye(3))
    scipy.io.savemat(path, {"odd": sparse, "wanted": "x", "complex": np.array([1j])})
    assert read_mat(path, ["wanted", "absent"]) == {"wanted": "x"}
    for name in ("odd", "complex"):
        with pytest.raises(CorruptFileError, match="class"):
            read_mat(path, [name])


@pytest.mark.parametrize("compressed", [True, False])
def test_damaged_files_are_refused_or_read_but_never_crash(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "some.mat"
    rows = [{"fname": f"{number}.jpg", "class": np.uint8(number)} for number in range(1, 9)]
    scipy.io.savemat(
        path, {"annotations": struct_array(rows), "c": cell_array(("a", "b"))}, do_compression=compressed
    )
    good = path.read_bytes()
    generator = random.Random(0)
    refusals = []
    for _ in range(400):
        data = bytearray(good)
        for _ in range(generator.choice((1, 2, 8))):
            data[generator.randrange(len(data))] = generator.randrange(256)
        path.write_bytes(data[: generator.randrange(len(data)) if generator.random() < 0.3 else None])
        try:
            read_mat(path, ["annotations", "c"])
        except CorruptFileError as error:
            refusals.append(str(error))
    assert len(refusals) > 200
    assert all(str(path) in line and "\n" not in line for line in refusals)


def test_every_truncation_of_a_compressed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "some.mat"
    scipy.io.savemat(path, {"text": "hello"}, do_compression=True)
    good = path.read_bytes()
    for length in range(129, len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(CorruptFileError):
            read_mat(path, ["text"])


def test_bombs_and_other_formats_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.mat"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    with pytest.raises(CorruptFileError, match="header"):
        read_mat(path, ["x"])
    path.write_bytes(bytes(MAX_BYTES + 1))
    with pytest.raises(CorruptFileError, match="more than"):
        read_mat(path, ["x"])
    scipy.io.savemat(path, {"x": np.zeros(100_000)}, do_compression=True)
    assert len(read_mat(path, ["x"])["x"]) == 100_000
    monkeypatch.setattr("maskcon.data.builtin.matlab.MAX_UNPACKED_BYTES", 500_000)
    with pytest.raises(CorruptFileError, match="more than 500000 bytes"):
        read_mat(path, ["x"])
    with pytest.raises(DataError, match="cannot read"):
        read_mat(tmp_path / "absent.mat", ["x"])


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    value: Any = "x"
    for _ in range(12):
        value = cell_array((value,))
    scipy.io.savemat(tmp_path / "deep.mat", {"deep": value})
    with pytest.raises(CorruptFileError, match="nested"):
        read_mat(tmp_path / "deep.mat", ["deep"])


def written_by_hand(order: str, sides: tuple[int, ...], text: str) -> bytes:
    """A file with one variable `x` of text; order: of the bytes, as in `struct`."""

    def element(kind: int, content: bytes) -> bytes:
        return struct.pack(f"{order}II", kind, len(content)) + content + bytes(-len(content) % 8)

    matrix = (
        element(6, struct.pack(f"{order}II", 4, 0))
        + element(5, struct.pack(f"{order}{len(sides)}i", *sides))
        + struct.pack(f"{order}I", 1 << 16 | 1)  # a small element: its size and type in one word
        + b"x\0\0\0"
        + element(4, struct.pack(f"{order}{len(text)}H", *map(ord, text)))
    )
    mark = struct.pack(f"{order}HH", 0x100, int.from_bytes(b"MI"))
    return b"MATLAB 5.0 MAT-file".ljust(124) + mark + element(14, matrix)


@pytest.mark.parametrize("order", ["<", ">"])
def test_files_of_both_byte_orders_are_read_as_scipy_reads_them(tmp_path: Path, order: str) -> None:
    path = tmp_path / "some.mat"
    path.write_bytes(written_by_hand(order, (1, 5), "plain"))
    assert scipy.io.loadmat(path)["x"].tolist() == ["plain"]
    assert read_mat(path, ["x"]) == {"x": "plain"}


def test_array_of_very_many_dimensions_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "some.mat"
    path.write_bytes(written_by_hand("<", (2**31 - 1,) * 200_000, ""))
    with pytest.raises(CorruptFileError, match="200000 dimensions"):
        read_mat(path, ["x"])
