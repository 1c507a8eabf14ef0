"""One Python file out of our own code: the definitions asked for, with all of ours that they use, and nothing more.

The text is taken from the modules as they are, definition by definition, what is used before what uses it. So an
exported model computes with the very code that trained it, and needs no copy of it kept by hand.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module

from torch import nn

from maskcon._utils.errors import MaskconError, UsageError
from maskcon.models import Backbone, FeatureHead, FrozenEncoder, ResNet
from maskcon.models.mobilenet import MobileNetV2

PACKAGE = "maskcon"
Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign

HEAD = '''"""A trained image encoder in plain PyTorch; needs torch, numpy, pillow and safetensors.

from model import load
model = load()
embeddings = model.encode(["picture.jpg"])

Code of maskcon. Copyright (c) 2026 the maskcon authors. SPDX-License-Identifier: MIT
"""

from __future__ import annotations
'''
TAIL = '''def build_encoder() -> nn.Module:
    """The net without its trained weights."""
    return {expression}


def load(folder: str | Path = Path(__file__).parent) -> Embedder:
    """The trained model from the files beside this one, ready to embed."""
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    model = Embedder(build_encoder(), Preprocessing(**config["preprocessing"]))
    model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return model.eval()
'''


def model_source(encoder: Backbone) -> str:
    """The text of `model.py` for this encoder."""
    expression, classes = _construction(encoder)
    bundle = _Bundle()
    for module, name in [*((kind.__module__, kind.__name__) for kind in classes), *_AROUND]:
        bundle.include(module, name)
    bundle.needs("json")
    bundle.needs("pathlib", "Path")
    bundle.needs("torch", "nn")
    bundle.needs("safetensors.torch", "load_file")
    text = "\n\n\n".join([*bundle.texts, TAIL.format(expression=expression)])
    return f"{HEAD}\n{bundle.import_lines()}\n\n\n{text}"


_AROUND = (("maskcon.export.embedder", "Preprocessing"), ("maskcon.export.embedder", "Embedder"))


def _construction(encoder: Backbone) -> tuple[str, list[type[nn.Module]]]:
    """Python text that builds the net, and the classes it names.

    >>> _construction(ResNet("resnet6", width=8, stem="small"))[0]
    "ResNet('resnet6', in_channels=3, width=8, norm='batch', stem='small')"
    """
    if isinstance(encoder, ResNet):
        shape = {name: getattr(encoder, name) for name in ("in_channels", "width", "norm", "stem")}
        given = ", ".join(f"{name}={value!r}" for name, value in shape.items())
        return f"ResNet({encoder.name!r}, {given})", [ResNet]
    if isinstance(encoder, MobileNetV2):
        return f"MobileNetV2(in_channels={encoder.in_channels})", [MobileNetV2]
    if isinstance(encoder, FeatureHead):
        return f"FeatureHead({encoder.features})", [FeatureHead]
    if isinstance(encoder, FrozenEncoder):
        backbone, classes = _construction(encoder.backbone)
        head, others = _construction(encoder.head)
        earlier = f", earlier_weight={encoder.earlier_weight!r}" if encoder.earlier_weight else ""
        return f"FrozenEncoder({backbone}, {head}{earlier})", [*classes, *others, FrozenEncoder]
    raise UsageError(
        f"backbone {encoder.name!r} is no net of ours, so its code cannot be exported; "
        "its library loads it, with the weights of encoder.safetensors in the run's folder"
    )


@dataclass
class _Module:
    """A module's top-level definitions and imports, by the name they have in it."""

    lines: list[str]
    definitions: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)  # module, name in it

    @classmethod
    def named(cls, name: str) -> _Module:
        source = inspect.getsource(import_module(name))
        module = cls(source.splitlines())
        for node in ast.parse(source).body:
            if isinstance(node, Definition):
                module.definitions.update(dict.fromkeys(_names(node), node))
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    module.imports[alias.asname or alias.name] = (str(node.module), alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    module.imports[alias.asname or alias.name.partition(".")[0]] = (alias.name, None)
        return module

    def text(self, node: Definition) -> str:
        """The definition with its decorators and the comment right above it, without the imports of ours inside it."""
        decorators = getattr(node, "decorator_list", [])
        first = self._with_comment(min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1)
        left_out: set[int] = set()
        for inner in _own_imports(node):
            end = inner.end_lineno or inner.lineno
            left_out |= set(range(self._with_comment(inner.lineno - 1), end + (not self.lines[end])))
        return "\n".join(
            self.lines[row] for row in range(first, node.end_lineno or first) if row not in left_out
        )

    def _with_comment(self, row: int) -> int:
        """The first row of the comment right above a row."""
        while row and self.lines[row - 1].lstrip().startswith("#"):
            row -= 1
        return row


def _own_imports(node: Definition) -> list[ast.ImportFrom]:
    """Imports of ours that wait inside a function until they are needed."""
    return [
        inner
        for inner in ast.walk(node)
        if isinstance(inner, ast.ImportFrom) and str(inner.module).partition(".")[0] == PACKAGE
    ]


def _names(node: Definition) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
        return
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for part in ast.walk(target):
            if isinstance(part, ast.Name):
                yield part.id


class _Bundle:
    """Definitions gathered so far, in an order in which they can be executed."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._modules: dict[str, _Module] = {}
        self._begun: set[Definition] = set()
        self._home: dict[str, str] = {}  # name -> module it was taken from
        self._external: set[tuple[str, str | None, str]] = set()  # module, name in it, name here

    def include(self, module_name: str, name: str) -> None:
        """A definition of ours, after everything of ours that it uses."""
        if module_name not in self._modules:
            self._modules[module_name] = _Module.named(module_name)
        module = self._modules[module_name]
        if name in module.imports:
            self._include_import(*module.imports[name], name)
            return
        if self._home.setdefault(name, module_name) != module_name:
            raise MaskconError(f"{name!r} is defined in {self._home[name]} and in {module_name}; rename one")
        node = module.definitions[name]
        if node in self._begun:
            return
        self._begun.add(node)
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} - {name}
        for other in (*module.imports, *module.definitions):
            if other in used:
                self.include(module_name, other)
        for inner in _own_imports(node):
            for alias in inner.names:
                self._include_import(str(inner.module), alias.name, alias.asname or alias.name)
        self.texts.append(module.text(node))

    def needs(self, module: str, name: str | None = None) -> None:
        """An import from elsewhere."""
        self._external.add((module, name, name or module))

    def _include_import(self, module: str, original: str | None, name: str) -> None:
        if module.partition(".")[0] != PACKAGE:
            self._external.add((module, original, name))
        elif original is None or original != name:
            raise MaskconError(f"{module} is imported as {name!r}, which an export cannot follow")
        else:
            self.include(module, original)

    def import_lines(self) -> str:
        plain = {
            f"import {module}" + ("" if here == module.partition(".")[0] else f" as {here}")
            for module, name, here in self._external
            if name is None
        }
        by_module: dict[str, set[str]] = {}
        for module, name, here in self._external:
            if name is not None:
                by_module.setdefault(module, set()).add(name if name == here else f"{name} as {here}")
        froms = [f"from {module} import {', '.join(sorted(names))}" for module, names in by_module.items()]
        return "\n".join([*sorted(plain), *sorted(froms, key=str.lower)])
