"""`MaskConEmbedder`: training and encoding as one scikit-learn transformer, for arrays and files."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self, get_args

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from maskcon._utils.errors import DataError, UsageError, unknown
from maskcon.api import features_of
from maskcon.config.backbones import FROZEN_BACKBONE, view_size
from maskcon.config.choices import FEWEST_TRAIN, SMALL_VIEW
from maskcon.config.settings import Machine
from maskcon.data import read_images
from maskcon.data.arrays import (
    Channels,
    are_files,
    checked_range,
    chosen_shape,
    flattened,
    images_of,
    planes,
    value_range,
    warn_of_another_scale,
)
from maskcon.data.decoding import canvas_for
from maskcon.data.photos import family_of
from maskcon.methods.registry import Method, method_named
from maskcon.training.callbacks import Lines
from maskcon.training.distributed import threads_of_torch, usable_device
from maskcon.training.temporary_run import dataset_of, fitted_config, train_temporarily

SEEDS = 2**31
# Settings that choose the images to train on and to score; fit trains on all of X and scores nothing.
_PART_SETTINGS = ("protocol", "train_limit", "test_limit", "evaluate_on")
_DEVICES = get_args(Machine.model_fields["device"].annotation)


class MaskConEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learn an embedding from coarse labels in which finer kinds separate; a scikit-learn transformer.

    X is one of
    - an array of images: ``[N, H, W]`` grey, or ``[N, H, W, C]`` / ``[N, C, H, W]`` with C 1 or 3, see `channels`;
    - the same flattened, ``[N, D]``, with `image_shape`;
    - a list of image files or Pillow images of any size and mode, read as colour.
    uint8 without a `pixel_range` is used unchanged; other values are scaled from `pixel_range` to 256 levels.
    y has one coarse label per image, numbers or strings. selfcon, nnclr and ascl need no y; supfine takes fine labels.

    Args:
        method: any of `maskcon methods`.
        preset: start of the settings not given here: "cpu", "paper" or "reference".
        w, tau, epochs, batch_size, learning_rate, bank_size: None keeps the preset's; a small dataset gets smaller
            batches, a lower rate, and a bank of at most half its size.
        image_size: side of the square views. None: the longer side of the arrays, from 16 to 224, and 64 for files;
            with a frozen backbone from 96 to 160, and 160 for files.
        image_shape: (H, W), (H, W, C) or (C, H, W) of a flattened image; one of them may be -1.
        channels: "last" for [.., H, W, C], "first" for [.., C, H, W].
        pixel_range: (black, white). None: 0 and 255 for uint8, else the smallest and largest value in fit.
        views: augmentation: "signs" (no mirroring), "embedded" (with mirroring), "cifar", "photos", "products",
            "cars". None: "signs" for grey images, for colour "cifar" up to 64 px and "photos" above.
        normalize: scale rows to length 1, so that Euclidean distance ranks as cosine does.
        settings: any other setting by name, as for `maskcon.fit`: ``{"backbone": "resnet18"}``, ``{"freeze": True}``.
        download: allow downloading pretrained weights that are missing on this machine.
        random_state: the same int gives the same bits, on the same machine with the same number of threads.
        n_jobs: threads of torch in fit and transform; None keeps the current number, -1 takes all cores.
        device: "auto", "cpu", "cuda" or "mps"; a fitted encoder is kept on the CPU.
        verbose: 1 prints what is trained, and the mean loss after every epoch.

    Attributes:
        encoder_: the trained `torch.nn.Module`, normalised views ``[B, C, S, S]`` -> features ``[B, F]``.
        encoder_facts_: preprocessing of the encoder: size, mean and standard deviation.
        config_: all settings used, a `maskcon.config.settings.RunConfig`.
        classes_: the coarse labels, sorted; only if the method uses labels.
        n_features_in_: D, values per image; not for files.
        image_shape_: shape of one image as given to fit, None for files.
        pixel_range_: values taken as black and white; not for files.
        loss_curve_: mean loss of each epoch.

    Only the cached features of a frozen backbone are kept on disk. For a run folder, with report, search and
    export, use `maskcon.fit`. Load pickles only from people you trust.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> digits = load_digits()
        >>> embedder = MaskConEmbedder(epochs=1, random_state=0)
        >>> embedder.fit_transform(digits.images[:64], digits.target[:64] < 5).shape
        (64, 128)
    """

    def __init__(
        self,
        method: str = "maskcon",
        *,
        preset: str = "cpu",
        w: float | None = None,
        tau: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        bank_size: int | None = None,
        image_size: int | None = None,
        image_shape: Sequence[int] | None = None,
        channels: Channels = "last",
        pixel_range: tuple[float, float] | None = None,
        views: str | None = None,
        normalize: bool = True,
        settings: Mapping[str, Any] | None = None,
        download: bool = False,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.preset = preset
        self.w = w
        self.tau = tau
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.bank_size = bank_size
        self.image_size = image_size
        self.image_shape = image_shape
        self.channels = channels
        self.pixel_range = pixel_range
        self.views = views
        self.normalize = normalize
        self.settings = settings
        self.download = download
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Train on images X and their coarse labels y (see the class); methods without labels ignore y."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # so that nothing of an earlier fit remains if this one fails
        method = method_named(str(self.method))
        if method.labels != "none" and y is None:
            raise UsageError(
                f"MaskConEmbedder(method={method.name!r}) requires y to be passed, but the target y is None; "
                "give the coarse labels, or train without any: method='selfcon'"
            )
        if are_files(X) and method.labels != "none":
            check_consistent_length(X, y)  # before reading the files, which takes a while
        images, sizes = self._images_to_fit(X)
        if len(images) < FEWEST_TRAIN:
            raise DataError(f"n_samples={len(images)} is too few to train on: at least {FEWEST_TRAIN} images")
        labels, names = self._labels(images, y, method)
        data = dataset_of(images, sizes, labels, names, self._family(images), fine=method.labels == "fine")
        config = fitted_config(
            data,
            self._given(),
            method=method.name,
            preset=str(self.preset),
            seed=_seed(self.random_state),
        )
        trained = train_temporarily(
            config,
            data,
            device=self._place(),
            threads=self._threads(),
            download=bool(self.download),
            callback=Lines() if self.verbose else None,
        )
        for text in trained.warnings:
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        self.encoder_, self.encoder_facts_ = trained.encoder, trained.facts
        self.config_, self.loss_curve_ = config, trained.epoch_losses
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """Embed images of the shape that fit saw: float32 ``[N, F]``."""
        check_is_fitted(self)
        images, sizes = self._images_to_embed(X)
        place = self._place()
        # encoder_ stays on the CPU, so that any machine can load its pickle
        encoder = self.encoder_ if place == "cpu" else copy.deepcopy(self.encoder_)
        with threads_of_torch(self._threads()):
            features = features_of(encoder, self.encoder_facts_, images, sizes, place).numpy()
        return np.asarray(normalize(features), dtype=np.float32) if self.normalize else features

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "encoder_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.image_shape is not None
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = []  # always float32
        try:
            tags.target_tags.required = method_named(str(self.method)).labels != "none"
        except UsageError:  # a misspelt method, which fit refuses; printing the estimator reads tags too
            tags.target_tags.required = True
        return tags

    @property
    def _n_features_out(self) -> int:
        return int(self.encoder_.features)

    def _images_to_fit(self, X: Any) -> tuple[NDArray[np.uint8], NDArray[np.int32] | None]:  # noqa: N803
        """Return images and valid sizes; remember shape and scale for `transform`."""
        if are_files(X):
            self.image_shape_ = None
            return read_images(list(X), channels=3, canvas=canvas_for(int(self._given()["image_size"])))
        rows, shape = flattened(X)
        rows = validate_data(self, rows, reset=True)  # [N, D]; counts D as n_features_in_
        if shape is None:
            if self.image_shape is None:
                raise UsageError(
                    f"X is {list(rows.shape)}: to read rows as images, set image_shape=(H, W), or give X as [N, H, W]"
                )
            shape = chosen_shape(self.image_shape, rows.shape[1])
        planes(shape, self.channels)  # refuses a wrong number of channels
        self.image_shape_ = shape
        given = self.pixel_range
        self.pixel_range_ = value_range(rows) if given is None else checked_range(given)
        return images_of(rows, shape, self.channels, self.pixel_range_), None

    def _images_to_embed(self, X: Any) -> tuple[NDArray[np.uint8], NDArray[np.int32] | None]:  # noqa: N803
        facts = self.encoder_facts_
        if are_files(X) != (self.image_shape_ is None):
            saw, now = ("files", "no list of files") if self.image_shape_ is None else ("an array", "files")
            raise DataError(f"this MaskConEmbedder was fitted on {saw}, but X is {now}")
        if self.image_shape_ is None:
            return read_images(list(X), channels=facts.in_channels, canvas=facts.canvas)
        rows, shape = flattened(X)
        rows = validate_data(self, rows, reset=False)
        if shape is not None and shape != self.image_shape_:
            raise DataError(f"X holds images of shape {shape}, but fit saw {self.image_shape_}")
        warn_of_another_scale(rows, self.pixel_range_)
        return images_of(rows, self.image_shape_, self.channels, self.pixel_range_), None

    def _labels(
        self, images: NDArray[np.uint8], y: Any, method: Method
    ) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        if method.labels == "none":
            return np.zeros(len(images), dtype=np.int64), ("images",)
        y = column_or_1d(y, warn=True)
        check_consistent_length(images, y)
        if y.dtype == object:
            for row, label in enumerate(y):
                if not isinstance(label, str):  # a missing one, in most cases
                    raise DataError(
                        f"Unknown label type: y[{row}] is {label!r} ({type(label).__name__}) in an array of objects; "
                        "give every image a label, all of them text or all numbers"
                    )
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(
                f"y has 1 class, {self.classes_[0]!r}; add a second one, or train without labels: "
                "method='selfcon'"
            )
        return labels.astype(np.int64), tuple(map(str, self.classes_))

    def _family(self, images: NDArray[np.uint8]) -> str:
        if self.views is not None:
            return str(self.views)
        return "signs" if images.shape[1] == 1 else family_of(images)

    def _given(self) -> dict[str, Any]:
        """Return the settings of the user, by the names of `RunConfig`, and an image size for files."""
        own = ("w", "tau", "epochs", "batch_size", "learning_rate", "bank_size", "image_size")
        named = {key: getattr(self, key) for key in own if getattr(self, key) is not None}
        given = {key: _plain(value) for key, value in {**(self.settings or {}), **named}.items()}
        if "seed" in given:
            raise UsageError("set the seed by random_state, not in settings")
        for key in _PART_SETTINGS:
            if key in given:
                raise UsageError(f"{key} cannot be set: fit trains on all of X and scores nothing")
        if self.image_shape_ is None:
            backbone = str(given.get("backbone", FROZEN_BACKBONE))
            size = view_size(backbone, math.inf) if given.get("freeze") else SMALL_VIEW
            given.setdefault("image_size", size)
        return given

    def _threads(self) -> int | None:
        return None if self.n_jobs is None else effective_n_jobs(self.n_jobs)

    def _place(self) -> str:
        if self.device not in _DEVICES:
            raise unknown("device", str(self.device), _DEVICES)
        return usable_device(self.device)


def _seed(random_state: Any) -> int:
    """Return an int as the seed, as for `maskcon.fit`; a `RandomState` or None draws one."""
    if isinstance(random_state, int | np.integer) and 0 <= random_state < SEEDS:
        return int(random_state)
    return int(check_random_state(random_state).randint(SEEDS - 1))


def _plain(value: Any) -> Any:
    """Convert numpy scalars, which searches over settings draw, to Python's."""
    return value.item() if isinstance(value, np.generic) else value
