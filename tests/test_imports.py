"""Who may import whom, read from the source; and what an import costs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
LARGEST_SHARE = 0.2  # of the time that torch takes

# Known to torch and to nobody of ours; errors are allowed everywhere.
ALONE = (
    "maskcon.relations",
    "maskcon.losses",
    "maskcon.bank",
    "maskcon.evaluate.neighbours",
    "maskcon.evaluate.recall",
    "maskcon.evaluate.spread",
    "maskcon.engine.muon",
    "maskcon.engine.schedule",
    "maskcon.search.exact",
)
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "maskcon.sources": ("maskcon.views", "torch"),
    "maskcon.pictures": (
        "torch",
        "maskcon.search",
        "maskcon.embeddings",
        "maskcon.encoder",
        "maskcon.engine",
    ),
    "maskcon.report": ("torch",),
    "maskcon.views": ("maskcon.sources", "maskcon.engine", "maskcon.cli"),
    "maskcon.encoder": ("maskcon.engine", "maskcon.sources", "maskcon.cli", "maskcon.report"),
    "maskcon.search": ("torch", "maskcon.encoder", "maskcon.engine", "maskcon.views", "maskcon.run"),
    "maskcon.engine": ("maskcon.evaluate", "maskcon.report", "maskcon.sources", "maskcon.cli"),
}
MAY_IMPORT_CLI = ("maskcon.cli", "maskcon.__main__")
MAY_IMPORT_BENCH = ("maskcon.bench", "maskcon.cli.bench")


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, module: str, *, is_package: bool) -> set[str]:
    """Every module that an import statement anywhere in the tree may load, in functions and under `if` too."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = module.split(".")
                up = up[: len(up) - node.level + is_package]
                base = ".".join([*up, base] if base else up)
            # `from maskcon import views` loads maskcon.views; a name that is no module matches no rule
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def graph() -> dict[str, set[str]]:
    modules = {}
    for path in sorted((SOURCE / "maskcon").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        name = module_name(path)
        modules[name] = imported(tree, name, is_package=path.name == "__init__.py")
    return modules


def broken_rules(modules: Mapping[str, set[str]]) -> Iterator[str]:
    for module, targets in modules.items():
        for target in sorted(targets):
            ours = within(target, "maskcon") and target != "maskcon.errors"
            if module in ALONE and ours and not target.startswith("maskcon.errors."):
                yield f"{module} must import nothing of ours, and imports {target}"
            for package, others in FORBIDDEN.items():
                if within(module, package) and any(within(target, other) for other in others):
                    yield f"{module} must not import {target}"
            if within(target, "maskcon.cli") and not any(
                within(module, allowed) for allowed in MAY_IMPORT_CLI
            ):
                yield f"{module} must not import the command line ({target})"
            if within(target, "maskcon.bench") and not any(
                within(module, allowed) for allowed in MAY_IMPORT_BENCH
            ):
                yield f"{module} must not import the benchmarks ({target})"
        if module.rpartition(".")[2] == "utils":
            yield f"{module}: give its functions homes that say what they do"


def test_every_import_keeps_the_rules():
    assert list(broken_rules(graph())) == []


def test_the_rules_speak_of_modules_that_exist():
    modules = graph()
    named = {
        *ALONE,
        *FORBIDDEN,
        *MAY_IMPORT_CLI,
        *MAY_IMPORT_BENCH,
        *(o for others in FORBIDDEN.values() for o in others),
    }
    assert {name for name in named if name != "torch" and name not in modules} == set()


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("maskcon.relations", "from maskcon.bank import MemoryBank"),
        ("maskcon.engine.schedule", "from . import feed"),
        ("maskcon.evaluate.recall", "def f():\n    from maskcon import losses"),
        ("maskcon.sources.folder", "def f():\n    import torch.nn"),
        ("maskcon.sources.folder", "from ..views import policy"),
        ("maskcon.report.page", "from torch import Tensor"),
        ("maskcon.views.boxes", "import maskcon.sources.cifar"),
        ("maskcon.engine.loop", "if True:\n    from maskcon.evaluate import recall_at_k"),
        ("maskcon.engine.loop", "from maskcon import sources, views"),
        ("maskcon.encoder.pair", "from maskcon.engine.feed import Feed"),
        ("maskcon.run", "from maskcon.cli.terminal import Terminal"),
        ("maskcon.cli.train", "from maskcon.bench import figures"),
        ("maskcon.report.utils", ""),
    ],
)
def test_each_kind_of_broken_rule_is_noticed(module, text):
    assert list(broken_rules({module: imported(ast.parse(text), module, is_package=False)}))


def run_python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    "module",
    [
        "maskcon",
        "maskcon.cli",
        "maskcon.sources",
        "maskcon.pictures",
        "maskcon.report.write",
        "maskcon.search",
    ],
)
def test_import_does_not_load_torch_directly_or_through_others(module):
    assert run_python(f"import sys, {module}; print('torch' in sys.modules)") == "False"


def test_import_of_the_package_costs_little_beside_torch():
    code = (
        "from time import perf_counter as now\n"
        "a = now(); import torch; b = now(); import maskcon; c = now()\n"
        "print((c - b) / (b - a))"
    )
    assert float(run_python(code)) <= LARGEST_SHARE
