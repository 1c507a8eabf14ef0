"""What a disk may hold after a power loss: the operations of a run, replayed with what was not synced dropped.

The model is stricter than common file systems. Data of a file are there if it was synced after them; else none, all,
half of them, or zeros. Names in a folder are there if the folder was synced after them; else they appear in the order
in which they were made, up to any point, and each folder has a point of its own. A rename is there as a whole or not.
"""

from __future__ import annotations

import random
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.faults.disk import Operation
from tests.faults.forked import Tree

Data = Literal["none", "all", "half", "zeros"]
FILE, FOLDER, LINK = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777
ROOT = 0


@dataclass
class _Node:
    """A file, folder or link; a file's bytes as synced, and as written."""

    kind: int
    synced: bytes = b""
    written: bytes = b""
    entries: dict[str, int] = field(default_factory=dict)  # of a folder, newest state


@dataclass
class _Change:
    """One change of names: (folder, name, node or None) each; on the disk or not yet."""

    names: list[tuple[int, str, int | None]]
    synced: bool = False


class Platter:
    """A folder on a disk, driven by recorded operations."""

    def __init__(self, root: str, start: Tree) -> None:
        self.root = root
        self._nodes = {ROOT: _Node(FOLDER)}
        self._changes: list[_Change] = []
        self._of_file: dict[int, int] = {}  # the number of an operation's file -> node
        for path, (mode, content) in sorted(start.items()):
            self._add(path, mode, content)
        for change in self._changes:
            change.synced = True

    def apply(self, operation: Operation) -> bool:
        """Replay one operation; returns whether it changed what a power loss may leave."""
        path = operation.path[len(self.root) :].strip("/")
        node = self._find(path)
        if self._find(path.rpartition("/")[0]) is None:
            return False  # refused: its folder is not there yet
        if operation.kind in ("open", "create") and node is not None:
            self._of_file[operation.file] = node
        elif operation.kind == "create":
            link = operation.target.encode()
            self._of_file[operation.file] = self._add(path, LINK if link else FILE, link)
        elif operation.kind == "mkdir" and node is None:
            self._add(path, FOLDER)
        elif operation.kind in ("unlink", "rmdir") and node is not None:
            self._change([(*self._place(path), None)])
        elif operation.kind == "rename" and node is not None:
            target = operation.target[len(self.root) :].strip("/")
            self._change([(*self._place(path), None), (*self._place(target), node)])
        elif operation.kind == "sync folder" and node is not None:
            self._sync_names(node)
        elif operation.kind in ("write", "resize", "sync") and operation.file in self._of_file:
            self._write(self._nodes[self._of_file[operation.file]], operation)
        else:
            return False
        return operation.kind != "open"

    def states(self, chance: random.Random) -> Iterator[dict[str, tuple[int, bytes]]]:
        """Return what the disk may hold if power is lost now."""
        whole = {folder: len(self._changes) for folder in self._nodes}
        for data in ("none", "all", "half", "zeros"):
            yield self._tree(whole, dict.fromkeys(self._nodes, data))
        yield self._tree({}, dict.fromkeys(self._nodes, "none"))
        yield self._tree({}, dict.fromkeys(self._nodes, "all"))
        for _ in range(2):
            until = {folder: chance.randint(0, len(self._changes)) for folder in self._nodes}
            choice: dict[int, Data] = {
                n: chance.choice(("none", "all", "half", "zeros")) for n in self._nodes
            }
            yield self._tree(until, choice)

    def _tree(self, until: dict[int, int], data: dict[int, Data]) -> dict[str, tuple[int, bytes]]:
        entries: dict[int, dict[str, int]] = {number: {} for number in self._nodes}
        stopped: set[int] = set()  # folders that lack a change, and so every later one
        for place, change in enumerate(self._changes):
            folders = {folder for folder, _, _ in change.names}
            if not change.synced and (folders & stopped or any(until.get(f, 0) <= place for f in folders)):
                stopped |= folders
                continue
            for folder, name, node in change.names:
                entries[folder].pop(name, None)
                if node is not None:
                    entries[folder][name] = node
        found: dict[str, tuple[int, bytes]] = {}

        def walk(folder: int, prefix: str) -> None:
            for name, number in sorted(entries[folder].items()):
                node = self._nodes[number]
                found[prefix + name] = (node.kind, _content(node, data[number]))
                walk(number, f"{prefix}{name}/")

        walk(ROOT, "")
        return found

    def _find(self, path: str) -> int | None:
        number: int | None = ROOT
        for part in path.split("/") if path else ():
            number = None if number is None else self._nodes[number].entries.get(part)
        return number

    def _place(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        found = self._find(folder)
        assert found is not None, path
        return found, name

    def _add(self, path: str, mode: int, content: bytes = b"") -> int:
        number = len(self._nodes)
        self._nodes[number] = _Node(mode, content, content)
        self._change([(*self._place(path), number)])
        return number

    def _change(self, names: list[tuple[int, str, int | None]]) -> None:
        for folder, name, node in names:
            self._nodes[folder].entries.pop(name, None)
            if node is not None:
                self._nodes[folder].entries[name] = node
        self._changes.append(_Change(names))

    def _sync_names(self, folder: int) -> None:
        """Write the names of a folder, and of others what is one with them."""
        folders = {folder}
        for change in reversed(self._changes):
            if any(place in folders for place, _, _ in change.names):
                change.synced = True
                folders |= {place for place, _, _ in change.names}

    @staticmethod
    def _write(node: _Node, operation: Operation) -> None:
        if operation.kind == "sync":
            node.synced = node.written
        elif operation.kind == "resize":
            node.written = node.written[: operation.offset].ljust(operation.offset, b"\0")
        else:
            before = node.written.ljust(operation.offset, b"\0")
            end = operation.offset + len(operation.data)
            node.written = before[: operation.offset] + operation.data + before[end:]


def _content(node: _Node, data: Data) -> bytes:
    """Return the bytes of a file after a power loss."""
    if node.synced == node.written or data == "all":
        return node.written
    if data == "none":
        return node.synced
    same = next(
        (n for n, (a, b) in enumerate(zip(node.synced, node.written, strict=False)) if a != b),
        min(len(node.synced), len(node.written)),
    )
    kept = same + (len(node.written) - same) // 2 if data == "half" else same
    return node.written[:kept] + (b"\0" * (len(node.written) - kept) if data == "zeros" else b"")


def losses(
    root: str, start: Tree, operations: Sequence[Operation], chance: random.Random
) -> Iterator[tuple[int, list[str], dict[str, tuple[int, bytes]]]]:
    """Lose power after each operation: how many were done, what was acknowledged by then, and what is on the disk."""
    platter, acknowledged = Platter(root, start), []
    for number, operation in enumerate(operations, start=1):
        if operation.kind == "acknowledged":
            acknowledged.append(operation.path)
        elif not platter.apply(operation):
            continue
        for state in platter.states(chance):
            yield number, list(acknowledged), state
