"""Read the pickles of CIFAR-like files as data: a dictionary of lists, strings, numbers, uint8 and float arrays.

Python's own unpickler imports and calls what a file names. This reader does neither: it walks the opcodes with a
stack of its own, knows the four names that numpy arrays are written with (under their old and new module names) by
heart, and refuses every other name and every opcode that data does not need.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from maskcon._utils.errors import CorruptFileError, DataError

MAX_FILE_BYTES = 1 << 30
MAX_DIMENSIONS = 8
POINTER_BYTES = 8  # what an item costs in a list
MAX_TEXT = 200  # of a name quoted in a message

# what the four allowed names mean to this reader; they are never imported
RECONSTRUCT, NDARRAY, DTYPE, ENCODE = "reconstruct", "ndarray", "dtype", "encode"
ALLOWED_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): RECONSTRUCT,
    ("numpy", "ndarray"): NDARRAY,
    ("numpy", "dtype"): DTYPE,
    ("_codecs", "encode"): ENCODE,
}


ENCODINGS = ("latin1", "latin-1")


@dataclass(frozen=True)
class _Name:
    meaning: str


# element types that arrays may have; the state of a dtype tells the byte order
ELEMENTS = {"u1": "u1", "uint8": "u1", "|u1": "u1", "f4": "f4", "f8": "f8"}
BYTE_ORDERS = ("<", ">", "|")


@dataclass
class _Dtype:
    code: str
    order: str = "<"


@dataclass
class _Array:
    """An array between its creation and the opcode that fills it."""

    value: NDArray[Any] | None = None


class _Mark:
    pass


class _RefusedError(Exception):
    pass


def load_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a CIFAR-style pickle; keys as text, arrays as numpy, byte strings as Latin-1 text.

    An array is a view of the bytes as they were read (Python 2 wrote them as text, which is made bytes first). What
    else is made of the file's own bytes may not grow beyond MAX_FILE_BYTES, however often the file asks for it.

    >>> load_pickle(Path("cifar-10-batches-py/data_batch_1"))["data"].shape  # doctest: +SKIP
    (10000, 3072)
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise CorruptFileError(f"{path}: larger than {MAX_FILE_BYTES} bytes; not a CIFAR-like file")
        with path.open("rb") as file:
            return _load(_Reader(file, path.stat().st_size))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except _RefusedError as error:
        raise CorruptFileError(f"{path}: {error}; nothing of it was used or run") from error


class _Reader:
    """A file that never asks for more than it holds, whatever length an opcode claims."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file = file
        self.size = size

    def read(self, count: int) -> bytes:
        return self.file.read(min(count, self.size))

    def readline(self) -> bytes:
        return self.file.readline()

    def tell(self) -> int:
        return self.file.tell()


def _load(source: _Reader) -> dict[str, Any]:
    machine = _Machine()
    try:
        for opcode, argument, position in pickletools.genops(source):  # type: ignore[arg-type]
            handler = _HANDLERS.get(opcode.name)
            if handler is None:
                raise _RefusedError(f"opcode {opcode.name} at byte {position} is not allowed in a data file")
            handler(machine, argument)
        result = machine.stack.pop()
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, AttributeError) as error:
        raise _RefusedError(
            f"damaged pickle data ({type(error).__name__}: {str(error)[:MAX_TEXT]})"
        ) from error
    if not isinstance(result, dict):
        raise _RefusedError(f"holds a {type(result).__name__} instead of a dictionary")
    return {key: _finished(machine, value) for key, value in result.items()}


class _Machine:
    """Stack and memo of one file."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.bytes_made = 0

    def count(self, size: int) -> None:
        """Called before a copy is made: a short file can ask for the same long value again and again."""
        self.bytes_made += size
        if self.bytes_made > MAX_FILE_BYTES:
            raise _RefusedError(f"more than {MAX_FILE_BYTES} bytes once read")

    def to_bytes(self, text: str) -> bytes:
        self.count(len(text))
        return text.encode("latin-1")

    def to_text(self, value: Any) -> str:
        if type(value) is bytes:
            self.count(len(value))
            return value.decode("latin-1")
        if type(value) is not str:
            raise _RefusedError(f"a {type(value).__name__.strip('_')} where text is expected")
        return value

    def since_mark(self) -> list[Any]:
        position = len(self.stack) - 1
        while not isinstance(self.stack[position], _Mark):
            position -= 1
            if position < 0:
                raise _RefusedError("damaged pickle data (no mark on the stack)")
        values = self.stack[position + 1 :]
        del self.stack[position:]
        return values

    def pop(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise _RefusedError("damaged pickle data (empty stack)")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values


def _push(machine: _Machine, argument: Any) -> None:
    machine.stack.append(argument)


def _push_new(make: Callable[[], Any]) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.stack.append(make())


def _ignore(_machine: _Machine, _argument: Any) -> None:
    pass


def _put(machine: _Machine, position: Any) -> None:
    machine.memo[position] = machine.stack[-1]


def _memoize(machine: _Machine, _: Any) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _get(machine: _Machine, position: Any) -> None:
    machine.stack.append(machine.memo[position])


def _tuple_of(count: int) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.stack.append(tuple(machine.pop(count)))


def _tuple(machine: _Machine, _: Any) -> None:
    machine.stack.append(tuple(machine.since_mark()))


def _append(machine: _Machine, _: Any) -> None:
    (value,) = machine.pop(1)
    _top(machine, list).append(value)


def _appends(machine: _Machine, _: Any) -> None:
    values = machine.since_mark()
    _top(machine, list).extend(values)


def _set_item(machine: _Machine, _: Any) -> None:
    key, value = machine.pop(2)
    _top(machine, dict)[machine.to_text(key)] = value


def _set_items(machine: _Machine, _: Any) -> None:
    values = machine.since_mark()
    for key, value in zip(values[::2], values[1::2], strict=True):
        _top(machine, dict)[machine.to_text(key)] = value


def _global(machine: _Machine, argument: Any) -> None:
    module, _, name = argument.partition(" ")  # genops joins the two lines with a space
    machine.stack.append(_allowed(module, name))


def _stack_global(machine: _Machine, _: Any) -> None:
    module, name = machine.pop(2)
    machine.stack.append(_allowed(module, name))


def _allowed(module: Any, name: Any) -> _Name:
    if type(module) is not str or type(name) is not str:
        raise _RefusedError("it names something by what is not text")
    if (module, name) not in ALLOWED_NAMES:
        shown = f"{module}.{name}"[:MAX_TEXT]
        raise _RefusedError(f"it names {shown!r}, which a data file must not")
    return _Name(ALLOWED_NAMES[module, name])


def _reduce(machine: _Machine, _: Any) -> None:
    called, arguments = machine.pop(2)
    if not isinstance(called, _Name) or type(arguments) is not tuple:
        raise _RefusedError("it calls something that is not a known name")
    if called.meaning == RECONSTRUCT and len(arguments) == 3 and arguments[0] == _Name(NDARRAY):
        machine.stack.append(_Array())
    elif called.meaning == DTYPE and arguments:
        machine.stack.append(_Dtype(machine.to_text(arguments[0])))
    elif called.meaning == ENCODE and len(arguments) == 2 and arguments[1] in ENCODINGS:
        machine.stack.append(machine.to_bytes(machine.to_text(arguments[0])))
    else:
        raise _RefusedError(f"it calls {called.meaning} in a way that numpy does not write")


def _build(machine: _Machine, _: Any) -> None:
    (state,) = machine.pop(1)
    target = machine.stack[-1]
    if isinstance(target, _Array) and type(state) is tuple and len(state) == 5:
        target.value = _array_of(machine, state)
    elif isinstance(target, _Dtype) and type(state) is tuple and len(state) > 1 and state[1] in BYTE_ORDERS:
        target.order = state[1]
    else:
        raise _RefusedError(f"it sets the state of a {type(target).__name__.strip('_')}")


def _array_of(machine: _Machine, state: tuple[Any, ...]) -> NDArray[Any]:
    _, shape, dtype, fortran, content = state
    if not isinstance(dtype, _Dtype) or dtype.code not in ELEMENTS:
        code = dtype.code if isinstance(dtype, _Dtype) else type(dtype).__name__
        raise _RefusedError(f"an array of type {code[:MAX_TEXT]!r}, where bytes (u1) or floats are expected")
    element = np.dtype(dtype.order + ELEMENTS[dtype.code])
    content = machine.to_bytes(content) if type(content) is str else content
    if type(content) is not bytes or type(shape) is not tuple or any(type(side) is not int for side in shape):
        raise _RefusedError("an array without a shape or without bytes")
    if len(shape) > MAX_DIMENSIONS:
        raise _RefusedError(f"an array of {len(shape)} dimensions")
    if any(side < 0 for side in shape) or prod(shape) * element.itemsize != len(content):
        raise _RefusedError(f"an array of shape {shape} with {len(content)} bytes")
    return np.frombuffer(content, dtype=element).reshape(shape, order="F" if fortran else "C")


def _top(machine: _Machine, kind: type) -> Any:
    if not machine.stack or type(machine.stack[-1]) is not kind:
        raise _RefusedError(f"damaged pickle data (a {kind.__name__} was expected on the stack)")
    return machine.stack[-1]


def _finished(machine: _Machine, value: Any) -> Any:
    if isinstance(value, _Array):
        if value.value is None:
            raise _RefusedError("an array that is never filled")
        return value.value
    if type(value) is list:
        machine.count(POINTER_BYTES * len(value))
        return [_plain(machine, item) for item in value]
    return _plain(machine, value)


def _plain(machine: _Machine, value: Any) -> Any:
    if type(value) is bytes:
        return machine.to_text(value)
    if type(value) in (str, int, float, bool, type(None)):
        return value
    raise _RefusedError(f"a {type(value).__name__.strip('_')} where text or a number is expected")


_HANDLERS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), _ignore),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "INT", "LONG1", "BINFLOAT"), _push),
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), _push),
    **dict.fromkeys(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE"), _push),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"), _push),
    "NONE": _push_new(lambda: None),
    "NEWTRUE": _push_new(lambda: True),
    "NEWFALSE": _push_new(lambda: False),
    "EMPTY_LIST": _push_new(list),
    "EMPTY_DICT": _push_new(dict),
    "EMPTY_TUPLE": _push_new(tuple),
    "MARK": _push_new(_Mark),
    "TUPLE": _tuple,
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _get),
    "MEMOIZE": _memoize,
    "APPEND": _append,
    "APPENDS": _appends,
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "BUILD": _build,
}
