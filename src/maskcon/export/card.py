"""The model card (card.txt, filled in): training data, recall, how to load it. The user chooses the licence."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from maskcon import __version__
from maskcon._utils.text import counted, full_title
from maskcon.api import Run
from maskcon.config.settings import RunConfig
from maskcon.data.folder_layout import show, some
from maskcon.export.embedder import Preprocessing
from maskcon.methods.registry import method_named
from maskcon.models import has_own_shape
from maskcon.training.run_folder import short_name

# Settings that shaped the encoder; paths of the data stay private.
SHAPE = ("width", "stem")  # only of backbones without a fixed shape
SETTINGS = (
    *("preset", "backbone", *SHAPE, "weights", "freeze", "image_size", "query_view", "key_view"),
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
    """Fill in README.md of an export; coarse_names: None if they are no longer known."""
    result, config, size = run.result, run.config, preprocessing.image_size
    method = method_named(config.method)
    title = full_title(method.title, config.coarse_weight)
    classes = ""
    if coarse_names is not None:
        names = some([_escape(label) for label in coarse_names], limit=30)
        classes = f" in {counted(len(coarse_names), 'coarse class', 'coarse classes')}: {names}"
    labels = {"none": "no labels", "coarse": "coarse labels", "fine": "fine labels"}[result["labels"]]
    start = {None: "random weights", "imagenet": "ImageNet weights"}.get(
        config.weights, f"the weights {_escape(Path(str(config.weights)).name)}"
    )
    frozen = ", kept frozen: only the head was trained" if config.freeze else ""
    shown = {"Raw pixels": "raw_pixels", "Backbone alone": "frozen_backbone", "This model": "recall"}
    recall = [
        [name, *(f"{100 * share:.2f}" for share in result[key].values())]
        for name, key in shown.items()
        if key in result
    ]
    mean, std = (", ".join(f"{v:.4f}" for v in values) for values in (preprocessing.mean, preprocessing.std))
    return _template("card.txt").format(
        onnx_tag="\n- onnx" if onnx else "",
        title=title,
        name=_escape(short_name(config.source)),
        features=features,
        data=f"{counted(result['train_images'], 'image')}{classes}",
        method=f"{title}, trained with {labels}"
        + (f"; w {result['w']}" if method.uses_w else "")
        + (f", tau {result['tau']}" if method.uses_tau else ""),
        encoder=f"{_escape(config.backbone)}, from {start}{frozen}; {counted(config.epochs, 'epoch')}",
        test_images=f"{result['test_images']:,}",
        part="test" if result["evaluated_on"] == "test" else "held-out training",
        scored_by=result["scored_by"],
        recall=_table(["", *(f"R@{k}" for k in result["recall"])], recall),
        onnx=_onnx(preprocessing) if onnx else "",
        colour="grey" if preprocessing.in_channels == 1 else "RGB",
        canvas=preprocessing.canvas,
        resize={
            "shorter": f"the shorter side is resized to {size} and the central square is cropped",
            "both": f"both sides are resized to {size}, whatever the aspect ratio",
        }[preprocessing.test_resize],
        mean=mean,
        std=std,
        settings=_table(["setting", "value"], _settings(config)),
        checks="\n".join(f"- {line}" for line in checks),
        version=__version__,
    )


def _template(name: str) -> str:
    return files("maskcon.export").joinpath(name).read_text(encoding="utf-8")


def _onnx(preprocessing: Preprocessing) -> str:
    is_grey = preprocessing.in_channels == 1
    square = f"({preprocessing.image_size}, {preprocessing.image_size})"
    return _template("card_onnx.txt").format(
        mode="L" if is_grey else "RGB",
        fit=f"ImageOps.fit(picture, {square}, Image.Resampling.BILINEAR)"
        if preprocessing.test_resize == "shorter"
        else f"picture.resize({square}, Image.Resampling.BILINEAR)",
        axes="[None, None]" if is_grey else ".transpose(2, 0, 1)[None]",
    )


def _settings(config: RunConfig) -> list[list[str]]:
    values = config.model_dump()
    if config.weights is not None:
        values["weights"] = Path(config.weights).name  # not where the file was
    hidden = {*(SHAPE if has_own_shape(config.backbone) else ()), *(() if config.freeze else ("freeze",))}
    chosen = {name: values[name] for name in SETTINGS if name not in hidden}
    return [[f"`{name}`", "none" if value is None else _escape(str(value))] for name, value in chosen.items()]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _escape(name: str) -> str:
    """Write a user's name so that Markdown and HTML show it unchanged.

    >>> _escape("a|b <i>")
    'a\\\\|b \\\\<i\\\\>'
    """
    return show(name).translate(ESCAPES)
