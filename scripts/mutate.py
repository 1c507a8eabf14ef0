"""Mutation testing: change a module in one place at a time, and see whether its tests notice.

    python scripts/mutate.py                     all modules of TESTS
    python scripts/mutate.py methods/losses.py   one of them; --only LINE for the mutants of one line

Each mutant runs in a fork of a process that has imported the libraries, with `pytest -x` on the module's own tests and
doctests; one that fails, or takes far longer than the unchanged module, is killed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.abc
import importlib.util
import io
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from itertools import zip_longest
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "maskcon"
TESTS = {
    "methods/relations.py": ["tests/methods/test_relations.py", "tests/methods/test_names.py"],
    "methods/losses.py": [f"tests/methods/test_{name}.py" for name in ("losses", "name_spreading", "bucsfr")],
    "methods/memory_bank.py": ["tests/methods/test_memory_bank.py"],
    "retrieval/recall.py": ["tests/retrieval/test_recall.py"],
    "training/checkpoint.py": ["tests/training/test_checkpoint.py"],
    "_utils/files.py": [
        *(f"tests/_utils/test_{name}.py" for name in ("files", "checksums", "locks", "download")),
        "tests/data/test_special_files.py",
    ],
}
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift,
}  # fmt: skip
LONGEST, PATIENCE = (
    20.0,
    5.0,
)  # seconds of a mutant: at least the one, and so often the time of the unchanged module

Site = tuple[ast.AST, str, int | None, Any]  # a node, its field, place in a list, what stands there instead


def sites(tree: ast.AST) -> Iterator[Site]:
    """Yield every change: operators, constants, conditions, returns, left-out statements and keywords."""
    left_out = {id(part) for node in ast.walk(tree) for inner in unmutated(node) for part in ast.walk(inner)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        for name, value in ast.iter_fields(node):
            for place, part in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(part, ast.AST) and id(part) not in left_out:
                    where = place if isinstance(value, list) else None
                    yield from ((node, name, where, new) for new in instead(part, node))


def unmutated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield annotations and what errors say: tests need not fix those."""
    if isinstance(node, ast.Raise):
        yield from ast.iter_child_nodes(node)
    if isinstance(node, ast.JoinedStr):
        yield node
    for name in ("annotation", "returns"):
        if isinstance(found := getattr(node, name, None), ast.AST):
            yield found


def instead(part: ast.AST, parent: ast.AST) -> Iterator[ast.AST | None]:
    """Yield what could stand in place of a node; None: nothing."""
    statements = ast.Raise | ast.Continue | ast.Break | ast.AugAssign
    if type(part) in SWAPS:
        yield SWAPS[type(part)]()
    elif isinstance(part, ast.Constant) and isinstance(part.value, bool):
        yield ast.Constant(not part.value)
    elif isinstance(part, ast.Constant) and isinstance(part.value, int | float):
        yield from (ast.Constant(part.value + 1), ast.Constant(part.value - 1))
    elif isinstance(part, ast.UnaryOp):
        yield part.operand
    elif isinstance(part, ast.Return) and part.value is not None:
        yield ast.Return(ast.Constant(None))
    elif isinstance(part, ast.keyword) and part.arg is not None:
        yield None
    elif (
        isinstance(part, statements)
        or (isinstance(part, ast.Expr) and not isinstance(part.value, ast.Constant))
        or (isinstance(part, ast.Assign) and not isinstance(part.targets[0], ast.Name | ast.Tuple))
    ):
        yield ast.Pass()
    if isinstance(parent, ast.If | ast.IfExp | ast.While) and part is parent.test:
        yield ast.UnaryOp(ast.Not(), part)


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports one module from code that was compiled here."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self.name, self.path, self.code = name, path, code

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_source(self, fullname: str) -> str:  # noqa: ARG002
        return self.path.read_text(encoding="utf-8")

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        return self.code


def run_tests(finder: Mutated | None, tests: Sequence[str], patience: float) -> tuple[bool, set[str], float]:
    """Run tests in a fork: whether they pass, the libraries that they imported, and seconds."""
    start = time.monotonic()
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(receiver)
        if finder is not None:
            sys.meta_path.insert(0, finder)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            import pytest

            options = [
                "-x",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                "--capture=no",
                "--assert=plain",
            ]
            status = int(pytest.main([*options, "-m", "not slow", *tests]))
        if finder is None:
            own = ("maskcon", "tests", "conftest", "__")
            os.write(sender, "\n".join(name for name in sys.modules if not name.startswith(own)).encode())
        os._exit(status)
    os.close(sender)
    with contextlib.closing(os.fdopen(receiver)) as pipe:
        while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() - start < patience:
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it started, too
        if done[0] == 0:
            os.waitpid(child, 0)
        imported = set(pipe.read().split())
    return done[0] != 0 and done[1] == 0, imported, time.monotonic() - start


def mutate(relative: str, only: int | None) -> tuple[int, list[str]]:
    """Return the number of mutants, and the survivors."""
    path = PACKAGE / relative
    name = "maskcon." + relative.removesuffix(".py").replace("/", ".")
    tests = [str(ROOT / test) for test in TESTS[relative]] + [str(path)]
    passed, imported, _ = run_tests(None, tests, 600)
    if not passed:
        sys.exit(f"the tests of {relative} fail without any change")
    for library in sorted(imported):
        with contextlib.suppress(Exception):
            importlib.import_module(library)
    seconds = run_tests(None, tests, 600)[2]
    print(f"{relative}: {seconds:.1f} s without a change", flush=True)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    count, survivors = 0, []
    for node, field, place, new in list(sites(tree)):
        old = getattr(node, field) if place is None else getattr(node, field)[place]
        line = getattr(old, "lineno", getattr(node, "lineno", 0))
        if only is not None and line != only:
            continue
        before, all_before = (
            ast.unparse(node),
            list(holder) if isinstance(holder := getattr(node, field), list) else [],
        )
        if place is None:
            setattr(node, field, new)
        else:
            holder[place : place + 1] = [] if new is None else [new]
        after, code = ast.unparse(node), None
        with contextlib.suppress(SyntaxError, ValueError):
            code = compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)
        if place is None:
            setattr(node, field, old)
        else:
            holder[:] = all_before
        if code is None or before == after:
            continue
        count += 1
        if run_tests(Mutated(name, path, code), tests, max(LONGEST, PATIENCE * seconds))[0]:
            survivors.append(f"{relative}:{line}: {changed_line(before, after)}")
            print("survived", survivors[-1], flush=True)
    return count, survivors


def changed_line(before: str, after: str) -> str:
    """Return the first line that differs, before and after."""
    pairs = zip_longest(before.splitlines(), after.splitlines(), fillvalue="")
    old, new = next(pair for pair in pairs if pair[0] != pair[1])
    return f"{old.strip()[:90]}  ->  {new.strip()[:90]}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", default=list(TESTS), help=f"of {', '.join(TESTS)}")
    parser.add_argument("--only", type=int, metavar="LINE", help="mutants of this line alone")
    given = parser.parse_args()
    rows = []
    for relative in given.modules:
        count, survivors = mutate(relative, given.only)
        rows.append(
            f"| `{relative}` | {count} | {count - len(survivors)} | {1 - len(survivors) / max(1, count):.0%} |"
        )
        print("\n".join(["| module | mutants | killed | share |", "|---|---|---|---|", *rows]), flush=True)


if __name__ == "__main__":
    main()
