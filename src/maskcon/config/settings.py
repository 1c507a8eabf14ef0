"""Run settings: typed, complete, and refused when misspelt.

A run is described by one `RunConfig`. A preset gives every value, the user changes some (`--set key=value`),
the dataset settles what was left open (image size, view policies), and the result is saved as `config.yaml`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from maskcon._utils.errors import CorruptFileError, UsageError, unknown
from maskcon._utils.paths import check_regular
from maskcon._utils.text import counted
from maskcon.config.earlier import translate

SMALLEST_SIZE = 8  # pixels, of the side of a view; smaller images are enlarged
VALIDATION_FRACTION = 0.2  # of the training images, with evaluate_on=validation

# The first setting of each group, in the order of `RunConfig`.
GROUPS: Mapping[str, str] = {
    "source": "What is learnt",
    "protocol": "Data",
    "query_view": "Views",
    "backbone": "Encoder",
    "freeze": "Frozen",
    "coarse_weight": "Contrast",
    "epochs": "Optimisation",
    "eval_every_epochs": "Evaluation",
    "precision": "Machine",
}


class RunConfig(BaseModel):
    """Everything that decides the result of a run; comments have the paper's symbols."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    # What is learnt
    source: str = Field(description="dataset by name, a folder of images, a manifest, or hf:NAME")
    method: str = Field("maskcon", description="training method, see `maskcon methods`")
    preset: str = Field("cpu", description="where the other values came from")
    seed: int = Field(0, ge=0, lt=2**31, description="seed of every random choice")
    w: float = Field(1.0, ge=0, le=1, description="weight of the label term against self-contrast")  # w
    tau: float = Field(
        0.1, ge=0, allow_inf_nan=True, description="temperature of the soft relation, 0 and inf allowed"
    )  # tau
    fine: str | None = Field(
        None, description="kinds.csv with the finer kinds that are known by name, for any number of images"
    )

    # Data
    protocol: Literal["paper", "reference"] = Field(
        "paper",
        description="details on which text and published code of the paper differ: coarse grouping, test resize, "
        "short last batch, when to evaluate, older keys of the same image as positives",
    )
    image_size: int | None = Field(None, ge=SMALLEST_SIZE, le=1024, description="side of a view in pixels")
    train_limit: int | None = Field(None, ge=2, description="use a balanced part of the training images")
    test_limit: int | None = Field(None, ge=2, description="use a balanced part of the test images")
    evaluate_on: Literal["test", "validation"] = Field(
        "test", description="validation: score on a held-out part of the training images"
    )

    # Views
    query_view: str | None = Field(
        None, description="policy of the query view; weak or strong: that of the dataset's family"
    )
    key_view: str | None = Field(
        None, description="policy of the key view; weak or strong: that of the dataset's family"
    )
    normalise: Literal["dataset", "imagenet", "backbone"] = Field(
        "dataset",
        description="mean and deviation per channel for normalising views: the dataset's, ImageNet's, or "
        "those of the backbone's own training",
    )

    # Encoder
    backbone: str = Field("resnet18", description="encoder by name")  # f
    width: int = Field(64, ge=4, le=512, description="channels of the first stage")
    stem: Literal["auto", "fast", "small", "imagenet", "stride2"] = Field(
        "auto", description="first layers; up to 64 px auto is small (3x3, no pooling), fast is stride2"
    )
    batchnorm: Literal["local", "sync", "frozen"] = Field(
        "local",
        description="BatchNorm statistics: local (of each process), sync (of all), or frozen (of the starting weights)",
    )
    weights: str | None = Field(None, description="start from: 'imagenet', a weights file, or nothing")
    projection_dim: int = Field(
        128,
        ge=2,
        description="size of a key or query; the projector's hidden layer is four times as wide, at most 512",
    )  # D

    # Frozen: a pretrained backbone that stays unchanged, or all but its last stages, and a head that learns
    freeze: bool = Field(
        False,
        strict=True,  # 1 or "yes" would not be recognised where the settings of frozen runs are put together
        description="embed each image once with the pretrained backbone, train a head on its features",
    )
    thaw: int = Field(
        0,
        ge=0,
        description="number of last stages of the frozen backbone that train with the head, on cached maps of "
        "those before them",
    )
    fine_weight: float = Field(
        1.0,
        ge=0,
        description="with known names (fine): they are spread by the backbone's features, and their cross-entropy has "
        "this weight, in place of coarse_weight; 0: neither",
    )

    # Contrast
    coarse_weight: float = Field(
        0.0,
        ge=0,
        le=1e4,
        description="weight of the cross-entropy on the coarse labels beside the method's own loss",
    )
    contrast_temperature: float = Field(0.1, gt=0, description="temperature of the logits")  # tau0
    bank_size: int = Field(8192, ge=1, description="keys kept in the memory bank")  # K
    relation_space: Literal["projection", "features", "hog"] = Field(
        "projection",
        description="where neighbours are found: in what the loss compares, in the encoder's features, or in HOG "
        "features (then keys are running means of queries, and half of the queries are weak views)",
    )
    key_momentum: float = Field(0.99, ge=0, le=1, description="share of the old key encoder kept per step")
    relation_warmup_epochs: float = Field(
        0.0, ge=0, le=1e6, description="epochs over which w rises from 0; bucsfr: epochs before clustering"
    )

    # Optimisation
    epochs: int = Field(200, ge=1, le=1_000_000, description="passes over the training images")
    batch_size: int = Field(128, ge=2, description="images per step, over all processes")  # B
    optimizer: Literal["sgd", "muon"] = Field(
        "sgd",
        description="sgd: the rate falls by half a cosine; muon: updates of weight matrices are made orthogonal, the "
        "rate falls in a straight line",
    )
    learning_rate: float = Field(0.02, gt=0, le=1e4, description="peak rate of the optimiser")
    weight_decay: float = Field(5e-4, ge=0, le=1e4, description="weight decay")
    warmup_epochs: float = Field(0.0, ge=0, le=1e6, description="epochs over which the rate rises from 0")

    # Evaluation
    eval_every_epochs: int = Field(10, ge=0, description="epochs between evaluations; 0: only at the end")

    # Machine
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = Field(
        "32-true", description="number format of the arithmetic"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        if self.bank_size < self.batch_size:
            raise ValueError(
                f"bank_size={self.bank_size} is smaller than batch_size={self.batch_size}; "
                f"raise --set bank_size={self.batch_size} or lower batch_size"
            )
        if self.thaw > 0 and not self.freeze:
            raise ValueError(
                f"thaw={self.thaw} trains the last stages of a frozen backbone, and freeze=no; set freeze=yes"
            )
        return self

    @property
    def test_resize(self) -> Literal["shorter", "both"]:
        """shorter: keep the aspect, centre square; both: stretch."""
        return "both" if self.protocol == "reference" else "shorter"

    @property
    def drop_last(self) -> bool:
        """Whether the last short batch of an epoch is left out."""
        return self.protocol == "reference"

    @property
    def eval_when(self) -> Literal["before", "after"]:
        """Whether an evaluation comes before or after its epoch."""
        return "before" if self.protocol == "reference" else "after"

    @property
    def exclude_own_keys(self) -> bool:
        """Whether older keys of an image are never its positives."""
        return self.protocol == "paper"

    @property
    def projector_hidden(self) -> int:
        """Width of the projector's hidden layer: 512 for the paper's 128, at most."""
        return min(512, 4 * self.projection_dim)

    @property
    def schedule(self) -> Literal["cosine", "linear"]:
        """How the rate falls to 0 after the warm-up."""
        return "linear" if self.optimizer == "muon" else "cosine"

    @property
    def frozen_part(self) -> str:
        """How much of the backbone is frozen, in words, for a run with freeze=yes."""
        return f"frozen but for the last {counted(self.thaw, 'stage')}" if self.thaw else "frozen"

    @property
    def learns_names(self) -> bool:
        """Whether known names are spread to unnamed images and have a cross-entropy."""
        return self.freeze and self.fine is not None and self.fine_weight > 0

    @property
    def uses_hog(self) -> bool:
        """Whether HOG features find the neighbours.

        Then keys need not be compared: they are running means of queries, and half of the queries are weak views like
        those of keys, because strong views alone may teach too little.
        """
        return self.relation_space == "hog"

    @classmethod
    def groups(cls) -> dict[str, list[str]]:
        """Return the names of the settings by group, in the order of the class."""
        found: dict[str, list[str]] = {}
        for key in cls.model_fields:
            found.setdefault(GROUPS.get(key) or list(found)[-1], []).append(key)
        return found

    @classmethod
    def build(cls, values: Mapping[str, Any]) -> RunConfig:
        """Validate; the error names the first invalid value and the way out."""
        for key, value in values.items():
            if key not in cls.model_fields:
                raise unknown("setting", str(key), cls.model_fields)
            if (
                isinstance(value, bool) and cls.model_fields[key].annotation is not bool
            ):  # would count as 0 or 1
                raise UsageError(
                    f"{key}={'yes' if value else 'no'} cannot be used: {key} is not a yes-or-no setting"
                )
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise UsageError(_first_problem(error)) from None

    def changed(self, **values: Any) -> RunConfig:
        """Return a copy with some values changed, validated again."""
        return RunConfig.build({**self.model_dump(), **values})

    def differences(self, other: RunConfig) -> list[str]:
        """Return lines `key: mine -> theirs`, for error messages."""
        mine, theirs = self.model_dump(), other.model_dump()
        return [f"{key}: {mine[key]} -> {theirs[key]}" for key in mine if mine[key] != theirs[key]]

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True)

    @classmethod
    def from_yaml(cls, path: Path) -> RunConfig:
        """Read a saved config; tags, aliases and unknown keys are refused.

        Settings of earlier versions are translated, see `maskcon.config.earlier`.
        """
        try:
            values = read_values(path)
            return cls.build(values if values.keys() <= cls.model_fields.keys() else translate(values, path))
        except UsageError as error:
            raise UsageError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


class Machine(BaseModel):
    """Where and how a run is carried out, which may differ from one call to the next.

    It changes results only by rounding (devices, threads) and, with several processes, by BatchNorm statistics, which
    each process computes from its own rows (see `RunConfig.batchnorm`).

    Attributes:
        threads: of torch, per process. None: on a CPU `fit` takes the free cores; a resumed run keeps its number.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    data_root: str | None = None
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: int = Field(1, ge=1)
    threads: int | None = Field(None, ge=1)
    checkpoint_every_seconds: float = Field(60.0, ge=0)
    tensorboard: bool = False
    download: bool = False
    strict: bool = False


def read_values(path: Path) -> dict[Any, Any]:
    """Read the `key: value` lines of a saved config, not validated."""
    try:
        check_regular(path)
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_PlainLoader)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: bad UTF-8, 2024-99-99
        raise CorruptFileError(f"{path} is not a settings file: {str(error).splitlines()[0]}") from None
    if not isinstance(values, dict):
        raise CorruptFileError(f"{path} is not a settings file: expected `key: value` lines")
    return values


class _PlainLoader(yaml.SafeLoader):
    """Scalars, lists and mappings only; aliases could let a small file grow large."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed in settings")
        return super().compose_node(parent, index)


def parse_override(text: str) -> tuple[str, Any]:
    """Parse one `key=value` of the command line; `inf`, `none` and `1e-3` work.

    >>> parse_override("tau=inf"), parse_override("weights=none"), parse_override("learning_rate=1e-3")
    (('tau', inf), ('weights', None), ('learning_rate', 0.001))
    """
    key, separator, raw = text.partition("=")
    if not separator or not key.strip():
        raise UsageError(f"--set takes key=value, got {text!r}")
    return key.strip(), parse_value(raw.strip())


def parse_value(raw: str) -> Any:
    """Parse a number, yes or no, none, or else text."""
    lowered = raw.lower()
    if lowered in ("inf", "infinity", "+inf"):
        return math.inf
    if lowered in ("none", "null", ""):
        return None
    if lowered in ("true", "yes", "on", "false", "no", "off"):
        return lowered in ("true", "yes", "on")
    for kind in (int, float):
        try:
            return kind(raw)
        except ValueError:
            continue
    return raw


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    given = problem["input"]
    message = problem["msg"].removeprefix("Value error, ")
    if not key:  # a check over several settings names them itself
        return message
    if problem["type"] == "literal_error":
        allowed = [part.strip("'") for part in problem["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return str(unknown(f"value for {key}", str(given), allowed))
    return f"{key}={given!r} cannot be used: {message[0].lower()}{message[1:]}"
