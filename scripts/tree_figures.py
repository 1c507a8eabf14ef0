"""Size and structure of the source tree, for one revision or two side by side.

    python scripts/tree_figures.py                   # the working tree
    python scripts/tree_figures.py 7b0d224 HEAD      # two revisions

Import cycles and broken layers are those of tests/test_imports.py of this working tree.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETTINGS = """
from maskcon.{module} import Machine, RunConfig
print(len(RunConfig.model_fields), "+", len(Machine.model_fields))
"""


def lines(folder: Path, *suffixes: str) -> int:
    """Count the lines of all files with these suffixes."""
    files = [path for path in folder.rglob("*") if path.suffix in suffixes and path.is_file()]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def settings(tree: Path) -> str:
    """Count the settings of a run and of a machine, by importing the tree."""
    for module in ("config.settings", "config"):
        code = SETTINGS.format(module=module)
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": str(tree / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout.strip()
    return "-"


def figures(tree: Path) -> dict[str, str]:
    """Return all figures of a source tree by name."""
    package = tree / "src" / "maskcon"
    sources = list(package.rglob("*.py"))
    entries = [path for path in package.iterdir() if path.name != "__pycache__"]
    of_modules, of_entries, broken = imports_of(package)
    return {
        "lines of src": f"{lines(package, '.py'):,}",
        "files of src": f"{len(sources):,}",
        "entries in src/maskcon": f"{len(entries)} ({sum(path.suffix == '.py' for path in entries)} .py)",
        "settings (run + machine)": settings(tree),
        "import cycles of modules": of_modules,
        "import cycles of entries": of_entries,
        "layers broken": broken,
        "lines of tests": f"{lines(tree / 'tests', '.py'):,}",
        "lines of benchmarks": f"{lines(tree / 'benchmarks', '.py'):,}",
        "lines of docs": f"{lines(tree / 'docs', '.md') + len((tree / 'README.md').read_text().splitlines()):,}",
    }


def imports_of(package: Path) -> tuple[str, str, str]:
    """Return cycles of modules, cycles of entries of the package, and the number of broken layer rules."""
    sys.path.insert(0, str(ROOT))
    rules = importlib.import_module("tests.test_imports")
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules[name] = rules.imported(tree, name, is_package=path.name == "__init__.py")
    entries: dict[str, set[str]] = {rules.room(name): set() for name in modules if rules.room(name)}
    for name, targets in modules.items():
        if rules.room(name):
            entries[rules.room(name)] |= {rules.room(x) for x in targets if rules.within(x, "maskcon")}
    has_layers = set(entries) <= set(rules.RANK)
    broken = str(len(list(rules.broken_rules(modules)))) if has_layers else "no layers"
    return described(rules.cycles(modules)), described(rules.cycles(entries)), broken


def described(cycles: list[list[str]]) -> str:
    """Describe cycles by their number and sizes.

    >>> described([]), described([["a", "b"], ["c", "d", "e"]])
    ('0', '2 (of 2, 3)')
    """
    return f"{len(cycles)} (of {', '.join(str(len(cycle)) for cycle in cycles)})" if cycles else "0"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", nargs="*", metavar="REVISION", help="none: the working tree")
    chosen: list[str] = parser.parse_args().revisions
    columns: dict[str, dict[str, str]] = {}
    for revision in chosen:
        packed = subprocess.run(
            ["git", "-C", str(ROOT), "archive", revision], capture_output=True, check=True
        )
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
                archive.extractall(folder, filter="data")
            columns[revision] = figures(Path(folder))
    if not chosen:
        columns["working tree"] = figures(ROOT)
    print("| | " + " | ".join(columns) + " |")
    print("|---|" + "---:|" * len(columns))
    for name in next(iter(columns.values())):
        print(f"| {name} | " + " | ".join(column[name] for column in columns.values()) + " |")


if __name__ == "__main__":
    main()
