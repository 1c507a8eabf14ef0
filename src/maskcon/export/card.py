"""The model card: what was trained on what, how good it is, how to load it. The licence is the user's to choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

# What was learnt from which settings; where the data lay is nobody else's business.
SHAPE = ("width", "stem", "norm")  # of backbones that are built to measure
FROZEN = ("freeze", "freeze_views", "earlier_weight", "head_features")
SETTINGS = (
    *("preset", "backbone", *SHAPE, "weights", *FROZEN, "image_size", "query_view", "key_view"),
    *("epochs", "batch_size", "learning_rate", "weight_decay", "bank_size", "projection_dim"),
    *("contrast_temperature", "key_momentum", "seed"),
)


def card_text(
    run: Run,
    coarse_names: Sequence[str] | None,
    preprocessing: Preprocessing,
    features: int,
    *,
    checks: Sequence[str],
    onnx: bool,
) -> str:
    """README.md of an export; coarse_names: None where nobody knows any more what they were."""
    title = full_title(method_named(run.config.method).title, run.config.coarse_weight)
    name = _plain(short_name(run.config.source))
    return "\n".join(
        [
            *_front_matter(onnx),
            f"# {title} encoder trained on {name}",
            "",
            f"Turns a picture into {features} numbers, meant to be close by cosine for pictures of one finer kind.",
            "",
            *_training(run, coarse_names, title, name),
            *_recall(run),
            *_loading(preprocessing, onnx),
            *_input(preprocessing),
            "## Settings",
            "",
            *_table(("setting", "value"), _settings(run.config)),
            "",
            "## Checked when exported",
            "",
            *(f"- {line}" for line in checks),
            "",
            "## Licence",
            "",
            "Not chosen yet. Whoever publishes this model chooses a licence that the training pictures and the",
            "starting weights allow, and writes it here and as `license:` at the top of this file. The code in the",
            "files ending in .py comes from maskcon, under the MIT licence.",
            "",
            f"Made with maskcon {__version__}.",
            "",
        ]
    )


def _front_matter(onnx: bool) -> list[str]:
    tags = ["image-embedding", "image-retrieval", "coarse-labels", "maskcon", *(["onnx"] if onnx else [])]
    return [
        "---",
        "library_name: transformers",
        "pipeline_tag: image-feature-extraction",
        "tags:",
        *(f"- {tag}" for tag in tags),
        "---",
        "",
    ]


def _training(run: Run, coarse_names: Sequence[str] | None, title: str, name: str) -> list[str]:
    result, config = run.result, run.config
    classes = ""
    if coarse_names is not None:
        names = some([_plain(label) for label in coarse_names], limit=30)
        classes = f" in {counted(len(coarse_names), 'coarse class', 'coarse classes')}: {names}"
    seen = {"none": "no labels", "coarse": "coarse labels", "fine": "fine labels"}[result["labels"]]
    start = {None: "random weights", "imagenet": "ImageNet weights"}.get(
        config.weights, f"the weights {_plain(Path(str(config.weights)).name)}"
    )
    frozen = ", which stayed as they were: only the head on it was trained" if config.freeze else ""
    return [
        "## Training",
        "",
        f"- Data: {name}, {counted(result['train_images'], 'picture')}{classes}",
        f"- Method: {title}, which saw {seen}"
        + (f"; w {result['w']}" if method_named(run.config.method).uses_w else "")
        + (f", tau {result['tau']}" if method_named(run.config.method).uses_tau else ""),
        f"- Encoder: {_plain(config.backbone)}, from {start}{frozen}; {counted(config.epochs, 'epoch')}",
        "",
    ]


def _recall(run: Run) -> list[str]:
    result = run.result
    part = "test" if result["evaluated_on"] == "test" else "held-out training"
    ks = list(result["recall"])
    shown = {"Raw pixels": "raw_pixels", "Backbone alone": "frozen_backbone", "This model": "recall"}
    rows = [
        (name, *(f"{100 * result[key][k]:.2f}" for k in ks)) for name, key in shown.items() if key in result
    ]
    return [
        "## Recall",
        "",
        f"Share (%) of {result['test_images']:,} {part} pictures with one of the same {result['scored_by']} label "
        "among the K nearest others; one run.",
        "",
        *_table(("", *(f"R@{k}" for k in ks)), rows),
        "",
    ]


def _loading(preprocessing: Preprocessing, onnx: bool) -> list[str]:
    lines = [
        "## Use",
        "",
        "Plain PyTorch, in this folder (`pip install torch numpy pillow safetensors`):",
        "",
        *_code("from model import load", "model = load()", 'embeddings = model.encode(["picture.jpg"])'),
        "Hugging Face transformers (runs the code in this folder, so read it first):",
        "",
        *_code(
            "from transformers import AutoModel",
            'model = AutoModel.from_pretrained(".", trust_remote_code=True)',
            'embeddings = model.encode(["picture.jpg"])',
        ),
    ]
    if not onnx:
        return lines
    size, mode = preprocessing.image_size, "L" if preprocessing.in_channels == 1 else "RGB"
    fit = (
        f"picture = ImageOps.fit(picture, ({size}, {size}), Image.Resampling.BILINEAR)"
        if preprocessing.test_resize == "shorter"
        else f"picture = picture.resize(({size}, {size}), Image.Resampling.BILINEAR)"
    )
    axes = "[None, None]" if mode == "L" else ".transpose(2, 0, 1)[None]"
    return [
        *lines,
        "ONNX, without torch (`pip install onnxruntime numpy pillow`). Pillow resizes a little differently, so the",
        "embeddings are close to the others', not equal; pictures with transparent parts or 16 bits need more care:",
        "",
        *_code(
            "import numpy as np",
            "import onnxruntime",
            "from PIL import Image, ImageOps",
            "",
            f'picture = ImageOps.exif_transpose(Image.open("picture.jpg")).convert("{mode}")',
            fit,
            f"pixels = np.asarray(picture, np.float32){axes} / 255",
            'session = onnxruntime.InferenceSession("model.onnx")',
            'embeddings = session.run(None, {"pixel_values": pixels})[0]',
        ),
    ]


def _input(preprocessing: Preprocessing) -> list[str]:
    size = preprocessing.image_size
    cut = {
        "shorter": f"the shorter side is resized to {size} and the central square is cut out",
        "both": f"both sides are resized to {size}, whatever the aspect",
    }[preprocessing.test_resize]
    side = preprocessing.canvas
    colour = "grey" if preprocessing.in_channels == 1 else "RGB"
    mean, std = (
        ", ".join(f"{value:.4f}" for value in values) for values in (preprocessing.mean, preprocessing.std)
    )
    return [
        "## What happens to a picture",
        "",
        f"It is turned upright, made {colour}, and shrunk to fit {side} x {side} pixels if "
        f"it is larger; {cut}; values are divided by 255.",
        f"The model then subtracts the mean ({mean}) and divides by the deviation ({std}) of each channel: that is "
        "part of `forward` and of the ONNX graph.",
        "Embeddings are not normalised; compare them by cosine.",
        "",
    ]


def _settings(config: RunConfig) -> list[tuple[str, str]]:
    values = config.model_dump()
    rows = []
    left_out = {*(SHAPE if has_own_shape(config.backbone) else ()), *(() if config.freeze else FROZEN)}
    for name in SETTINGS:
        if name in left_out:
            continue
        value = values[name]
        if name == "weights" and value is not None:
            value = Path(value).name  # a file's place says nothing
        rows.append((f"`{name}`", "none" if value is None else _plain(str(value))))
    return rows


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'|'.join(['---'] * len(head))}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _code(*lines: str) -> list[str]:
    return ["```python", *lines, "```", ""]


_ESCAPED: Mapping[int, str] = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]<>|#"})


def _plain(name: str) -> str:
    """A name of the user's as it is, not as Markdown or HTML.

    >>> _plain("a|b <i>")
    'a\\\\|b \\\\<i\\\\>'
    """
    return show(name).translate(_ESCAPED)
