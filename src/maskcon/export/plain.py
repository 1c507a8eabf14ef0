"""`model.py` of an export: model.txt, with the source files that an encoder needs.

An exported model runs the code that trained it. Files are joined in the order of their imports; imports of this
package are dropped, since all names then live in one module (a test keeps them unique).
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module, resources

from torch import nn

from maskcon._utils.errors import UsageError
from maskcon.models import Backbone, EfficientNetLite, FeatureHead, FrozenEncoder, MobileNetV2, ResNet

EMBEDDER = "maskcon.export.embedder"
OWN_IMPORT = re.compile(r"^[ \t]*from (maskcon[\w.]*) import (?:\([^)]*\)|[^\n]*)\n", re.MULTILINE)
FUTURE = "from __future__ import annotations\n"


def model_source(encoder: Backbone) -> str:
    """Return the text of `model.py` for this encoder."""
    expression, classes = _construction(encoder)
    files: dict[str, str] = {}
    for module in [*(kind.__module__ for kind in classes), EMBEDDER]:
        _collect(module, files)
    text = "\n\n".join(f"# {name}\n{content.strip()}\n" for name, content in files.items())
    template = resources.files("maskcon.export").joinpath("model.txt").read_text(encoding="utf-8")
    return template.replace("{expression}", expression).replace("{files}", text)


def _collect(module: str, files: dict[str, str]) -> None:
    """Add the source of a module of this package, after those that it imports."""
    if module in files:
        return
    source = inspect.getsource(import_module(module))
    for used in OWN_IMPORT.findall(source):
        _collect(used, files)
    files[module] = OWN_IMPORT.sub("", source).replace(FUTURE, "")


def _construction(encoder: Backbone) -> tuple[str, list[type[nn.Module]]]:
    """Return a Python expression that builds the network, and the classes in it.

    >>> _construction(ResNet("resnet6", width=8, stem="small"))[0]
    "ResNet('resnet6', in_channels=3, width=8, stem='small')"
    """
    if isinstance(encoder, ResNet):
        shape = {name: getattr(encoder, name) for name in ("in_channels", "width", "stem")}
        given = ", ".join(f"{name}={value!r}" for name, value in shape.items())
        return f"ResNet({encoder.name!r}, {given})", [ResNet]
    if isinstance(encoder, MobileNetV2):
        return f"MobileNetV2(in_channels={encoder.in_channels})", [MobileNetV2]
    if isinstance(encoder, EfficientNetLite):
        return f"EfficientNetLite({encoder.name!r}, in_channels={encoder.in_channels})", [EfficientNetLite]
    if isinstance(encoder, FeatureHead):
        return f"FeatureHead({encoder.features})", [FeatureHead]
    if isinstance(encoder, FrozenEncoder):
        backbone, classes = _construction(encoder.backbone)
        head, others = _construction(encoder.head)
        earlier = f", earlier_weight={encoder.earlier_weight!r}" if encoder.earlier_weight else ""
        return f"FrozenEncoder({backbone}, {head}{earlier})", [*classes, *others, FrozenEncoder]
    raise UsageError(
        f"backbone {encoder.name!r} is not one of maskcon's, so its code cannot be exported; "
        "its library loads it, with the weights of encoder.safetensors in the run's folder"
    )
