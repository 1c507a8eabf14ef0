from __future__ import annotations

import builtins
import contextlib
import functools
import io
import operator
import os
import pickle
import struct
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon._utils.errors import CorruptFileError, DataError
from maskcon.data import safe_pickle
from maskcon.data.safe_pickle import load_pickle, read_batch
from tests.data.miniatures import python2_pickle, random_pixels


class Call:
    """Pickles as a call of `function` with `arguments`, the classic way to run code on loading."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, state: Any = None) -> None:
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> Any:
        return self.reduced


def short(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def hostile_payloads(marker: Path) -> dict[str, bytes]:
    """Pickles of which each would, with Python's own unpickler or a careless allow-list, create `marker`."""
    touch = f"touch '{marker}'"
    code = f"open({str(marker)!r}, 'w').close()"
    shell = f"(S{touch!r}\ntR".encode()
    run = b"(" + b"X" + struct.pack("<I", len(touch)) + touch.encode() + b"tR"
    dumps = functools.partial(pickle.dumps, protocol=2)
    return {
        "os.system": dumps({"data": Call(os.system, touch)}),
        "os.system by key": dumps([Call(os.system, touch)]),
        "builtins.eval": dumps({"data": Call(eval, code)}),
        "builtins.exec": dumps({"data": Call(exec, code)}),
        "builtins.open": dumps({"data": Call(open, str(marker), "w")}),
        "subprocess.Popen": dumps({"data": Call(subprocess.Popen, ["touch", str(marker)])}),
        "functools.partial": dumps({"data": Call(functools.partial, os.system, touch)}),
        "operator.methodcaller": dumps({"data": Call(operator.methodcaller, "system", touch)}),
        "operator.attrgetter": dumps({"data": Call(operator.attrgetter, "system")}),
        "getattr": b"\x80\x02cbuiltins\ngetattr\n.",
        "__import__": b"\x80\x02c__builtin__\n__import__\n(U\x02ostR.",
        "protocol 0 text": b"cos\nsystem\n" + shell + b".",
        "python 2 posix": b"\x80\x02cposix\nsystem\n" + run + b".",
        "INST": b"(S" + repr(touch).encode() + b"\nios\nsystem\n.",
        "OBJ": b"\x80\x02(cos\nsystem\nX" + struct.pack("<I", len(touch)) + touch.encode() + b"o.",
        "NEWOBJ": b"\x80\x02csubprocess\nPopen\n" + run[:-1] + b"\x81.",
        "NEWOBJ_EX": b"\x80\x04" + short("subprocess") + short("Popen") + b"\x93)}\x92.",
        "STACK_GLOBAL": b"\x80\x04" + short("os") + short("system") + b"\x93" + run + b".",
        "dotted name": b"\x80\x04" + short("numpy") + short("os.system") + b"\x93" + run + b".",
        "dotted through an allowed name": b"\x80\x04"
        + short("numpy.core.multiarray")
        + short("_reconstruct.__globals__")
        + b"\x93.",
        "allowed module, other name": b"\x80\x02cnumpy\nload\n" + run + b".",
        "numpy.f2py": b"\x80\x02cnumpy.f2py.crackfortran\nmyeval\n" + run + b".",
        "_codecs by other codec": b"\x80\x02c_codecs\nencode\nX\x03\x00\x00\x00abcX\x03\x00\x00\x00hex\x86R.",
        "_codecs.lookup": b"\x80\x02c_codecs\nlookup\nX\x03\x00\x00\x00hex\x85R.",
        "extension code": b"\x80\x02\x82\x01.",
        "extension code, 4 bytes": b"\x80\x02\x84\x01\x00\x00\x00.",
        "persistent id": b"\x80\x02U\x02idQ.",
        "persistent id, text": b"Pid\n.",
        "name from the memo": b"\x80\x04"
        + short("os")
        + b"\x940"
        + short("system")
        + b"\x940h\x00h\x01\x93"
        + run
        + b".",
        "state of a name": b"\x80\x02c_codecs\nencode\nN}U\x0c__defaults__U\x01xs\x86b.",
        "state of a dtype as dictionary": b"\x80\x02cnumpy\ndtype\nU\x02u1\x85R}U\x0c__setstate__U\x01xsb.",
        "object array": b"\x80\x02}U\x04data" + _object_array(touch) + b"s.",
        "ndarray called": b"\x80\x02cnumpy\nndarray\n(K\x01tR.",
        "reconstruct of another class": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n"
        b"(cnumpy\ndtype\nK\x00\x85U\x01btR.",
        "name that is no text": b"\x80\x04)" + b"\x85" * 100_000 + short("system") + b"\x93.",
        "list of a name": b"\x80\x02}U\x06labels](c_codecs\nencode\nes.",
        "list in a list": b"\x80\x02}U\x06labels](]q\x01h\x01aes.",
        "call of a call": b"\x80\x02cnumpy\ndtype\nU\x02u1\x85R)R.",
    }


def _object_array(touch: str) -> bytes:
    inner = b"cos\nsystem\n(X" + struct.pack("<I", len(touch)) + touch.encode() + b"tR"
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01(K\x01tcnumpy\ndtype\nU\x02O8K\x00K\x01\x87R\x89](" + inner + b"etb"
    )


NAMES = sorted(hostile_payloads(Path("marker")))


def test_there_are_at_least_twenty_payloads() -> None:
    assert len(NAMES) >= 20


@pytest.mark.parametrize("name", NAMES)
def test_hostile_pickle_is_refused_and_runs_nothing(name: str, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    path = tmp_path / "data_batch_1"
    path.write_bytes(hostile_payloads(marker)[name])
    with pytest.raises(CorruptFileError, match=r"nothing (of it )?was used"):
        read_batch(path, labels=range(10))
    assert not marker.exists()


def test_the_marker_shows_execution_by_the_ordinary_unpickler(tmp_path: Path) -> None:
    """The payloads are real: Python's own unpickler runs them."""
    for name in (
        "os.system",
        "builtins.eval",
        "STACK_GLOBAL",
        "name from the memo",
        "protocol 0 text",
        "INST",
    ):
        marker = tmp_path / name
        pickle.Unpickler(io.BytesIO(hostile_payloads(marker)[name])).load()
        assert marker.exists(), name


def test_refusal_names_what_the_file_wanted(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(hostile_payloads(tmp_path / "executed")["python 2 posix"])
    with pytest.raises(CorruptFileError, match=r"batch.*'posix\.system'"):
        load_pickle(path)


@pytest.mark.parametrize("order", ["C", "F"])
def test_python_2_file_of_numpy_1_is_read(tmp_path: Path, order: Any) -> None:
    pixels = np.array(random_pixels(300, seed=1), order=order)
    labels = [row % 7 for row in range(300)]
    path = tmp_path / "batch"
    path.write_bytes(
        python2_pickle({"data": pixels, "labels": labels, "batch_label": "b\xe9", "names": ["x", "y"]})
    )
    read = load_pickle(path)
    assert np.array_equal(read["data"], pixels)
    assert read["labels"] == labels
    assert read["batch_label"] == "b\xe9"
    assert read["names"] == ["x", "y"]


def test_our_python_2_bytes_are_what_python_itself_understands() -> None:
    pixels = random_pixels(4, seed=2)
    read = pickle.loads(python2_pickle({"data": pixels, "labels": [1, 300, 70_000, -1]}), encoding="latin1")
    assert np.array_equal(read["data"], pixels)
    assert read["labels"] == [1, 300, 70_000, -1]


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_files_written_by_python_3_are_read(tmp_path: Path, protocol: int, module: str) -> None:
    pixels = random_pixels(3, seed=3)
    data = pickle.dumps({b"data": pixels, b"labels": [3, 1, 2], "none": None}, protocol=protocol)
    if protocol < 4:  # names of protocol 4 carry their length
        data = data.replace(b"numpy._core.multiarray", module.encode())
    path = tmp_path / "batch"
    path.write_bytes(data)
    read = load_pickle(path)
    assert np.array_equal(read["data"], pixels)
    assert read["labels"] == [3, 1, 2]
    assert read["none"] is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"not a pickle at all",
        b"\x80\x02}q\x01",
        b"\x80\x02].",
        b"\x80\x02.",
        b"\x80\x02a.",
        b"\x80\x02}e.",
        b"\x80\x02}U\x01au.",
        b"\x80\x02h\x05.",
        b"\x80\x02R.",
        b"\x80\x02b.",
        b"\x80\x02}(U\x01au.",
        b"\x80\x02}K\x01K\x02s.",
        b"\x80\x02(((t.",
    ],
)
def test_damaged_pickle_is_an_error_of_ours(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "batch"
    path.write_bytes(data)
    with pytest.raises(CorruptFileError):
        load_pickle(path)


def test_array_whose_shape_does_not_fit_its_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(
        python2_pickle({"data": random_pixels(2, seed=0)}).replace(b"M\x00\x0c", b"M\x00\x0d", 1)
    )
    with pytest.raises(CorruptFileError, match="shape"):
        load_pickle(path)


@pytest.mark.parametrize(
    ("written", "instead", "message"),
    [
        (b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", "calls reconstruct"),
        (b"U\x02u1", b"U\x02i8", "type 'i8'"),
        (b"U\x02u1", b"U\x02O8", "type 'O8'"),
    ],
)
def test_array_of_another_kind_is_refused(
    tmp_path: Path, written: bytes, instead: bytes, message: str
) -> None:
    path = tmp_path / "batch"
    path.write_bytes(python2_pickle({"data": random_pixels(2, seed=0)}).replace(written, instead, 1))
    with pytest.raises(CorruptFileError, match=message):
        load_pickle(path)


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", ">f4"])
@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_float_arrays_keep_value_type_and_byte_order(tmp_path: Path, dtype: str, protocol: int) -> None:
    mean = np.linspace(-1, 255, 12).astype(dtype).reshape(3, 4)
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({"mean": mean, "turned": np.asfortranarray(mean)}, protocol=protocol))
    read = load_pickle(path)
    assert read["mean"].dtype == np.dtype(dtype)
    assert np.array_equal(read["mean"], mean)
    assert np.array_equal(read["turned"], mean)


def test_float_array_whose_shape_does_not_fit_its_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({"mean": np.zeros(300)}, protocol=3).replace(b"M\x2c\x01", b"M\x2d\x01"))
    with pytest.raises(CorruptFileError, match="shape"):
        load_pickle(path)


def test_length_that_the_file_does_not_hold_is_refused_without_asking_for_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(b"\x80\x04}U\x04data\x8e" + struct.pack("<Q", 1 << 50) + b"short")
    with pytest.raises(CorruptFileError, match="damaged"):
        load_pickle(path)


def test_missing_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        load_pickle(tmp_path / "absent")


BASE = python2_pickle({"labels": [1, 2, 3], "data": random_pixels(1, seed=5)})


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 250), st.integers(0, 255)), min_size=1, max_size=6))
def test_flipped_bytes_never_escape_as_another_error(
    tmp_path_factory: Any, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(BASE)
    for position, value in flips:
        data[position] = value
    path = tmp_path_factory.getbasetemp() / "flipped"
    path.write_bytes(data)
    before = set(vars(builtins))
    with contextlib.suppress(CorruptFileError):
        assert isinstance(load_pickle(path), dict)
    assert set(vars(builtins)) == before


def test_small_file_cannot_ask_for_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 10,000 letters, turned into bytes over and over by a few opcodes each time."""
    monkeypatch.setattr(safe_pickle, "MAX_FILE_BYTES", 100_000)
    text = b"X" + struct.pack("<I", 10_000) + b"a" * 10_000
    encode = b"c_codecs\nencode\nq\x00" + text + b"U\x06latin1\x86q\x01"
    filled = python2_pickle({"data": np.zeros((4, 2500), dtype=np.uint8)})
    filling = filled[filled.index(b"cnumpy.core") : -2]
    assert filling.endswith(b"tb")
    path = tmp_path / "batch"
    for payload in (encode + b"}U\x01a](" + b"h\x00h\x01R" * 20 + b"es.", None):
        if payload is None:  # an array filled over and over from one text
            state = filling.rindex(b"(K\x01")
            head, build = filling[:state], filling[state:-1]
            payload = b"}U\x04data" + head + build + b"q\xf0" + b"b" + b"h\xf0b" * 20 + b"s."
        path.write_bytes(b"\x80\x02" + payload)
        with pytest.raises(CorruptFileError, match="more than 100000 bytes"):
            load_pickle(path)


LONG_BYTES = b"B" + struct.pack("<I", 10_000) + b"a" * 10_000 + b"q\x01"  # put into the memo


@pytest.mark.parametrize(
    "payload",
    [
        b"}U\x01k](" + LONG_BYTES + b"h\x01" * 20 + b"es.",  # one byte string many times in a list
        b"}(U\x00" + LONG_BYTES + b"".join(b"U\x01%ch\x01" % key for key in range(97, 117)) + b"u.",
        b"cnumpy\ndtype\nq\x02" + LONG_BYTES + b"\x85q\x03R" + b"h\x02h\x03R" * 20 + b".",
        b"}(U\x00]("
        + b"K\x01" * 2_000
        + b"eq\x01"
        + b"".join(b"U\x01%ch\x01" % key for key in range(97, 117))
        + b"u.",
    ],
    ids=["bytes in a list", "bytes under many keys", "bytes as types", "list under many keys"],
)
def test_value_that_a_small_file_asks_for_again_and_again_is_not_copied(
    tmp_path: Path, payload: bytes
) -> None:
    (tmp_path / "batch").write_bytes(b"\x80\x03" + payload)
    tracemalloc.start()
    with contextlib.suppress(CorruptFileError):
        load_pickle(tmp_path / "batch")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000  # 20 copies would take 200,000


def test_array_of_very_many_dimensions_is_refused_at_once(tmp_path: Path) -> None:
    shape = (b"\x8a\xff" + b"\x01" * 255) * 2_000  # multiplying these out would take very long
    data = python2_pickle({"data": np.zeros((2, 3), dtype=np.uint8)}).replace(
        b"(K\x02K\x03t", b"(" + shape + b"t"
    )
    (tmp_path / "batch").write_bytes(data)
    with pytest.raises(CorruptFileError, match="more than 8 dimensions"):
        load_pickle(tmp_path / "batch")


def test_large_memo_index_allocates_no_memo(tmp_path: Path) -> None:
    """The unpickler in C makes a table as long as the largest index, here 64 GB."""
    (tmp_path / "batch").write_bytes(b"\x80\x02}U\x01aK\x01r\xff\xff\xff\xffs.")
    assert load_pickle(tmp_path / "batch") == {"a": 1}


def test_key_that_takes_very_long_to_hash_is_refused_at_once(tmp_path: Path) -> None:
    doubled = b"".join(b"q%ch%c\x86" % (place, place) for place in range(100))  # 2**100 leaves
    (tmp_path / "batch").write_bytes(b"\x80\x02})" + doubled + b"K\x01s.")
    with pytest.raises(CorruptFileError, match="tuple where text"):
        load_pickle(tmp_path / "batch")
