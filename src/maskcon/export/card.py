"""Fill in the model card (card.txt): training data, recall, how to load it. The user chooses the licence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2

from maskcon import __version__
from maskcon._utils.text import counted, full_title
from maskcon.api import Run
from maskcon.data.folder_layout import show, some
from maskcon.export.embedder import Preprocessing
from maskcon.methods.registry import method_named
from maskcon.models import has_own_shape
from maskcon.training.run_folder import short_name

# Settings that shaped the encoder; paths of the data stay private.
SHAPE = ("width", "stem")  # only of backbones without a fixed shape
SETTINGS = (
    *("preset", "backbone", *SHAPE, "weights", "freeze", "thaw", "image_size", "query_view", "key_view"),
    *("epochs", "batch_size", "learning_rate", "weight_decay", "bank_size", "projection_dim"),
    *("contrast_temperature", "key_momentum", "seed"),
)
ESCAPES = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]<>|#"})


def card_text(
    run: Run,
    coarse_names: Sequence[str] | None,
    preprocessing: Preprocessing,
    features: int,
    *,
    checks: Sequence[str],
    onnx: bool,
) -> str:
    """Fill in README.md of an export; coarse_names: None if they are unknown."""
    config, method = run.config, method_named(run.config.method)
    classes = ""
    if coarse_names is not None:
        names = some([_escape(label) for label in coarse_names], limit=30)
        classes = f"{counted(len(coarse_names), 'coarse class', 'coarse classes')}: {names}"
    weights = None if config.weights is None else Path(config.weights).name  # the name of the file only
    start = {None: "random weights", "imagenet": "ImageNet weights"}.get(
        weights, f"the weights {_escape(str(weights))}"
    )
    hidden = {name for name in ("freeze", "thaw") if not getattr(config, name)}
    hidden |= set(SHAPE if has_own_shape(config.backbone) else ())
    values = config.model_dump() | {"weights": weights}
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("maskcon.export", ""),
        autoescape=False,  # Markdown: names are escaped by the filter
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {
        "counted": counted,
        "escaped": lambda value: _escape(str(value)),
        "numbers": lambda given: ", ".join(f"{value:.4f}" for value in given),
    }
    return templates.get_template("card.txt").render(
        title=full_title(method.title, config.coarse_weight),
        name=_escape(short_name(config.source)),
        features=features,
        result=run.result,
        config=config,
        method=method,
        classes=classes,
        start=start,
        onnx=onnx,
        grey=preprocessing.in_channels == 1,
        images=preprocessing,
        settings={name: values[name] for name in SETTINGS if name not in hidden},
        checks=checks,
        version=__version__,
    )


def _escape(name: str) -> str:
    """Write a user's name so that Markdown and HTML show it unchanged.

    >>> _escape("a|b <i>")
    'a\\\\|b \\\\<i\\\\>'
    """
    return show(name).translate(ESCAPES)
