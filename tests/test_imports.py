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

# Each room may import from the rooms of earlier lines, and rooms of one line not from each other. cli is last.
LAYERS = (
    ("_utils",),
    ("config",),
    ("data", "methods"),
    ("transforms",),
    ("models",),
    ("retrieval",),
    ("training",),
    ("discovery",),
    ("api",),
    ("report", "export", "sklearn"),
    ("paper", "app"),
    ("cli",),
    ("__main__",),
)
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
WITHOUT_TORCH = ("config", "data", "discovery", "report")
MAY_LOAD_TORCH_LATE = ("maskcon.data.shrinking",)


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
            # `from maskcon import views` loads maskcon.transforms; a name that is no module matches no rule
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def graph() -> dict[str, set[str]]:
    modules = {}
    for path in sorted((SOURCE / "maskcon").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        name = module_name(path)
        modules[name] = imported(tree, name, is_package=path.name == "__init__.py")
    return modules


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def broken_rules(modules: Mapping[str, set[str]]) -> Iterator[str]:
    for module, targets in modules.items():
        for target in sorted(targets):
            if target == "torch" or target.startswith("torch."):
                if room(module) in WITHOUT_TORCH and module not in MAY_LOAD_TORCH_LATE:
                    yield f"{module} must not import torch"
                continue
            if not within(target, "maskcon"):
                continue
            here, there = room(module), room(target)
            if here in RANK and there in RANK and here != there and RANK[here] <= RANK[there]:
                yield f"{module} must not import {target}: {there} is not below {here}"
        if module.rpartition(".")[2] == "utils":
            yield f"{module}: give its functions homes that say what they do"


def edges_of(modules: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The modules of ours that each imports. `from package import module` counts as the module alone."""
    edges = {}
    for module, targets in modules.items():
        ours = {target for target in targets if target in modules and target != module}
        loaded = {target.rpartition(".")[0] for target in ours}
        named = {target.rpartition(".")[0] for target in targets if target not in modules}
        edges[module] = {target for target in ours if target not in loaded or target in named}
    return edges


def cycles(modules: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected groups of two or more modules, late imports included; a package is its `__init__`."""
    edges = edges_of(modules)
    order: list[str] = []
    seen: set[str] = set()

    def visit(module: str, graph: Mapping[str, set[str]], out: list[str]) -> None:
        stack = [(module, iter(sorted(graph[module])))]
        seen.add(module)
        while stack:
            current, rest = stack[-1]
            for target in rest:
                if target not in seen:
                    seen.add(target)
                    stack.append((target, iter(sorted(graph[target]))))
                    break
            else:
                stack.pop()
                out.append(current)

    for module in edges:
        if module not in seen:
            visit(module, edges, order)
    backwards: dict[str, set[str]] = {module: set() for module in edges}
    for module, targets in edges.items():
        for target in targets:
            backwards[target].add(module)
    seen.clear()
    found = []
    for module in reversed(order):
        if module not in seen:
            group: list[str] = []
            visit(module, backwards, group)
            if len(group) > 1:
                found.append(sorted(group))
    return found


def test_every_import_keeps_the_layers():
    assert list(broken_rules(graph())) == []


def test_no_modules_import_each_other_in_a_circle():
    assert cycles(graph()) == []


def test_layers_name_every_room_of_the_package():
    rooms = {path.stem for path in (SOURCE / "maskcon").iterdir() if path.suffix in ("", ".py")}
    assert rooms - {"__init__", "__pycache__"} == set(RANK)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("maskcon.methods.relations", "from maskcon.models.heads import unit_rows"),
        ("maskcon.methods.relations", "def f():\n    from maskcon.data import load"),
        ("maskcon.config.settings", "from ..data import load"),
        ("maskcon.data.folder_layout", "def f():\n    import torch.nn"),
        ("maskcon.report.page", "from torch import Tensor"),
        ("maskcon.training.loop", "if True:\n    from maskcon.report import page"),
        ("maskcon.training.loop", "from maskcon import api"),
        ("maskcon.api", "from maskcon.cli.terminal import Terminal"),
        ("maskcon.report.utils", ""),
    ],
)
def test_each_kind_of_broken_rule_is_noticed(module, text):
    assert list(broken_rules({module: imported(ast.parse(text), module, is_package=False)}))


def test_a_circle_through_three_modules_is_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


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
        "maskcon.data",
        "maskcon.data.collection",
        "maskcon.report.write",
        "maskcon.retrieval.embeddings",
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
