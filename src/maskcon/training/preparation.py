"""What a run is to do, settled before it starts: its data, the settings left open, and how images reach its encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from maskcon import transforms
from maskcon._utils.errors import DataError, UsageError
from maskcon._utils.text import counted
from maskcon.config.choices import FEWEST_TEST, FEWEST_TRAIN
from maskcon.config.settings import Machine, RunConfig
from maskcon.data import Dataset, ImageSet, load, takes_image_size
from maskcon.data.decoding import canvas_for
from maskcon.data.statistics import channel_statistics
from maskcon.methods.registry import method_named
from maskcon.models.backbones import LARGEST_SMALL_IMAGE, has_own_shape
from maskcon.models.encoder_file import EncoderFacts
from maskcon.training import frozen
from maskcon.training.callbacks import Callback

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def load_dataset(
    source: str | Path | Dataset, config: RunConfig, machine: Machine, announce: Callback
) -> Dataset:
    """The data a config asks for: loaded, cut to its limits, with the validation part as test if wanted."""
    if isinstance(source, Dataset):
        data = source
    else:
        # Small images come in the size they have; larger pictures are shrunk to what the views need.
        wanted = config.image_size if takes_image_size(str(source)) else None
        data = load(
            str(source),
            root=None if machine.data_root is None else Path(machine.data_root),
            variant=config.source_variant,
            image_size=None if wanted is None else canvas_for(wanted),
            download=machine.download,
            strict=machine.strict,
            progress=announce.on_load,
        )
    if config.evaluate_on == "validation":
        # at once: a large set that is memory-mapped is never copied whole for the sake of a few images
        return data.hold_out(config.validation_fraction, train=config.train_limit, test=config.test_limit)
    return data.limited(config.train_limit, config.test_limit)


def settle(config: RunConfig, data: Dataset) -> RunConfig:
    """Fill in what was left open from the data, and refuse what cannot work on it."""
    method = method_named(config.method)
    if method.labels == "fine" and data.train.fine is None:
        raise DataError(f"{method.title} needs fine labels, and {data.name} has none")
    if config.coarse_weight > 0 and method.labels != "coarse":
        raise UsageError(
            f"coarse_weight={config.coarse_weight:g} adds the coarse labels to a method that may see them, and "
            f"{method.title} sees {method.labels if method.labels == 'fine' else 'no'} labels; leave it out"
        )
    if config.freeze and config.relation_space == "hog":
        raise UsageError(
            "relation_space=hog compares images, and a frozen backbone's run has none, only their features; "
            "leave it out, or use --set relation_space=features"
        )
    if config.track_bound and data.train.fine is None:
        raise DataError(
            f"track_bound compares relations with fine labels, and {data.name} has none; leave it off"
        )
    if method.labels != "none" and len(np.unique(data.train.coarse)) < 2:
        raise DataError(
            f"{data.name} has a single coarse class, so its labels say nothing; "
            "add a second class, or train without labels: --method selfcon"
        )
    if len(data.train) < FEWEST_TRAIN or len(data.test) < FEWEST_TEST:
        raise DataError(
            f"{data.name} has {counted(len(data.train), 'image')} to train on and {len(data.test)} to test on; "
            f"at least {FEWEST_TRAIN} and {FEWEST_TEST} are needed, and hundreds to learn from"
        )
    canvas = max(data.train.images.shape[2:])
    usual = canvas if canvas <= LARGEST_SMALL_IMAGE else min(224, canvas)
    size = config.image_size or (frozen.size_for(canvas) if config.freeze else usual)
    stem = config.stem
    if has_own_shape(config.backbone) and stem == "fast":
        stem = "auto"  # such a backbone brings its own first layers
    elif stem == "fast":
        # the stem of few operations: a quarter of the small one's pixels in every later layer
        stem = "stride2" if size <= LARGEST_SMALL_IMAGE else "imagenet"
    settled = config.changed(
        image_size=size,
        stem=stem,
        # a backbone that cannot learn to see through strong views is given those that it can read
        query_view=transforms.name_for(
            config.query_view or ("weak" if config.freeze else "strong"), data.family
        ),
        key_view=transforms.name_for(
            config.key_view or ("identity" if config.freeze else "weak"), data.family
        ),
    )
    names = (str(settled.query_view), str(settled.key_view))
    engine = transforms.settled_engine(settled.view_engine, *names)
    if settled.freeze and settled.view_engine == "auto":
        engine = "tensor"  # its views are made once, and cached for runs with and without numba
    return settled.changed(view_engine=engine)


def encoder_facts(config: RunConfig, train: ImageSet) -> EncoderFacts:
    """How images reach the encoder in this run."""
    channels = train.images.shape[1]
    if config.normalise == "imagenet":
        mean, std = IMAGENET_MEAN, IMAGENET_STD
        if channels == 1:  # the mean over channels, as a grey photograph would have it
            mean, std = (sum(mean) / 3,), (sum(std) / 3,)  # type: ignore[assignment]
    else:
        mean, std = channel_statistics(train)  # type: ignore[assignment]
    return EncoderFacts(
        backbone=config.backbone,
        width=config.width,
        stem="auto" if config.stem == "fast" else config.stem,  # fast is settled before this
        norm=config.norm,
        in_channels=channels,
        image_size=int(config.image_size or 0),
        test_resize=config.test_resize,
        mean=tuple(mean),
        std=tuple(std),
    )
