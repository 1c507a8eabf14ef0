"""Read CIFAR-like pickles as data, without running what they name.

The data are a dictionary of lists, text, numbers, uint8 and float arrays. Python's unpickler imports and calls what a
file names. The subclass here knows only the opcodes that data needs, imports nothing, and maps the names that numpy
writes for arrays to checked functions of its own.
"""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import CorruptFileError, DataError
from maskcon._utils.paths import check_regular

IMAGE_SHAPE = (3, 32, 32)  # of a batch's images
IMAGE_BYTES = 3 * 32 * 32
MAX_FILE_BYTES = 1 << 30
MAX_DIMENSIONS = 8
MAX_TEXT = 200  # characters of a key, and of a name quoted in a message
ELEMENTS = {"u1": "u1", "uint8": "u1", "|u1": "u1", "f4": "f4", "f8": "f8"}
NDARRAY = object()
OPCODES = frozenset(
    (
        *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE"),
        *("INT", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET", "MEMOIZE"),
        *("APPEND", "APPENDS", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"),
    )
)


class _RefusedError(Exception):
    pass


def read_batch(path: Path, **allowed: range) -> tuple[NDArray[np.uint8], dict[str, NDArray[np.int64]]]:
    """Read a batch of 32x32 images (CIFAR, ImageNet): pixels [N, 3072], labels [N].

    The pixels are a view of the bytes that were read. Copies that the file requests may not exceed MAX_FILE_BYTES.

    Args:
        allowed: the keys of the labels to read, each with the numbers that may occur.

    >>> read_batch(Path("cifar-10-batches-py/data_batch_1"), labels=range(10))[0].shape  # doctest: +SKIP
    (10000, 3072)
    """
    batch = load_pickle(path)
    pixels: Any = batch.get("data")
    wrong = None
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (IMAGE_BYTES,):
        got = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        wrong = f"'data' should be bytes [N, {IMAGE_BYTES}] (32x32 images), got {got}"
    elif not len(pixels):
        wrong = "'data' holds no image"
    for key, numbers in allowed.items():
        labels = batch.get(key)
        if wrong is None and (
            type(labels) is not list
            or len(labels) != len(pixels)
            or any(type(label) is not int or label not in numbers for label in labels)
        ):
            wrong = f"{key!r} should be a list of {len(pixels)} whole numbers in {numbers[0]}..{numbers[-1]}"
    if wrong is not None:
        raise CorruptFileError(f"{path}: {wrong}; nothing was used")
    return pixels, {key: np.array(batch[key], dtype=np.int64) for key in allowed}


def load_pickle(path: Path) -> dict[str, Any]:
    """Read the dictionary in a CIFAR-like pickle; only keys and arrays are checked."""
    try:
        check_regular(path)
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise CorruptFileError(f"{path}: larger than {MAX_FILE_BYTES} bytes; not a CIFAR-like file")
        with path.open("rb") as file:
            return _Unpickler(_Reader(file, size)).load_dictionary()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except _RefusedError as error:
        raise CorruptFileError(f"{path}: {error}; nothing of it was used or run") from error


class _Reader:
    """A file whose reads never exceed its size, whatever length an opcode claims."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.size, self.file, self.readline = size, file, file.readline

    def read(self, count: int) -> bytes:
        return self.file.read(min(count, self.size))


class _Entries(dict[str | bytes, Any]):
    def __setitem__(self, key: str | bytes, value: Any) -> None:
        if type(key) not in (str, bytes):  # before hashing, which takes very long for some tuples
            raise _RefusedError(f"a {type(key).__name__} where text is expected")
        super().__setitem__(key, value)


class _Dtype:
    def __init__(self, code: Any, *_: Any) -> None:
        self.code, self.order = _as_text(code), "<"


class _Array:
    value: np.ndarray[Any, Any] | None = None


class _Opcodes(dict[int, Any]):
    def __missing__(self, code: int) -> Any:
        name = next((op.name for op in pickletools.opcodes if op.code == chr(code)), hex(code))
        raise _RefusedError(f"opcode {name} is not allowed in a data file")


class _Unpickler(pickle._Unpickler):  # the one in Python: its memo is a dictionary, its opcodes a table
    memo: dict[int, Any]
    stack: list[Any]
    append: Callable[[Any], None]

    def __init__(self, file: _Reader) -> None:
        super().__init__(file, encoding="latin1")
        self.encoded_bytes = 0

    def load_dictionary(self) -> dict[str, Any]:
        try:
            result = self.load()
        except _RefusedError:
            raise
        except Exception as error:  # the unpickler raises many types on damaged data
            what = f"{type(error).__name__}: {str(error)[:MAX_TEXT]}"
            raise _RefusedError(f"damaged pickle data ({what})") from error
        finally:
            self.memo.clear()  # it holds the bytes and, by its methods, this object: a cycle
        if type(result) is not _Entries:
            raise _RefusedError(f"holds a {type(result).__name__} instead of a dictionary")
        values = {_as_text(key): value for key, value in result.items()}
        return {key: value.value if type(value) is _Array else value for key, value in values.items()}

    def find_class(self, module: str, name: str) -> Any:
        """Return our own objects for the five names of numpy arrays; import nothing."""
        known = {
            ("numpy.core.multiarray", "_reconstruct"): self.reconstruct,
            ("numpy._core.multiarray", "_reconstruct"): self.reconstruct,
            ("numpy", "ndarray"): NDARRAY,
            ("numpy", "dtype"): _Dtype,
            ("_codecs", "encode"): self.encode,
        }
        if (module, name) not in known:
            raise _RefusedError(f"it names {f'{module}.{name}'[:MAX_TEXT]!r}, which a data file must not")
        return known[module, name]

    def reconstruct(self, kind: Any, *_: Any) -> _Array:
        if kind is not NDARRAY:
            raise _RefusedError("it calls reconstruct in a way that numpy does not write")
        return _Array()

    def encode(self, text: str, encoding: str) -> bytes:
        if type(text) is not str or type(encoding) is not str or encoding not in ("latin1", "latin-1"):
            raise _RefusedError("it calls encode in a way that numpy does not write")
        self.encoded_bytes += len(text)  # a short file can request many copies of one long text
        if self.encoded_bytes > MAX_FILE_BYTES:
            raise _RefusedError(f"more than {MAX_FILE_BYTES} bytes once read")
        return text.encode("latin-1")

    def load_build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if type(target) is _Array and type(state) is tuple and len(state) == 5:
            target.value = self.array(*state[1:])
        elif type(target) is _Dtype and type(state) is tuple and state[1] in ("<", ">", "|"):
            target.order = state[1]
        else:
            raise _RefusedError(f"it sets the state of a {type(target).__name__.strip('_')}")

    def array(self, shape: Any, dtype: Any, fortran: Any, content: Any) -> np.ndarray[Any, Any]:
        if type(dtype) is not _Dtype or dtype.code not in ELEMENTS:
            code = dtype.code if type(dtype) is _Dtype else type(dtype).__name__
            raise _RefusedError(
                f"an array of type {code[:MAX_TEXT]!r}, where bytes (u1) or floats are expected"
            )
        content = self.encode(content, "latin1") if type(content) is str else content
        if type(content) is not bytes or type(shape) is not tuple or len(shape) > MAX_DIMENSIONS:
            raise _RefusedError(f"an array without bytes, or of more than {MAX_DIMENSIONS} dimensions")
        element = np.dtype(dtype.order + ELEMENTS[dtype.code])
        if any(type(side) is not int or side < 0 for side in shape) or prod(shape) * element.itemsize != len(
            content
        ):
            raise _RefusedError(f"an array of shape {shape} with {len(content)} bytes")
        return np.frombuffer(content, dtype=element).reshape(shape, order="F" if fortran else "C")

    def load_empty_dictionary(self) -> None:
        self.append(_Entries())

    dispatch = _Opcodes(
        {
            ord(op.code): pickle._Unpickler.dispatch[ord(op.code)]
            for op in pickletools.opcodes
            if op.name in OPCODES
        }
    )
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.EMPTY_DICT[0]] = load_empty_dictionary


def _as_text(name: Any) -> str:
    """Return a short name as text; files of Python 3 may hold it as bytes."""
    if type(name) not in (str, bytes) or len(name) > MAX_TEXT:
        raise _RefusedError(f"a {type(name).__name__} where a short text is expected")
    return name.decode("latin-1") if type(name) is bytes else str(name)
