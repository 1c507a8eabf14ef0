"""A finished run in its folder, made without training: weights of a seed, and the files a real run leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from maskcon.api import Run
from maskcon.config.resolution import resolve
from maskcon.data import Dataset
from maskcon.models import Axes, FeatureHead, FrozenEncoder, build_backbone
from maskcon.models.encoder_file import encoder_bytes
from maskcon.training.run_folder import CONFIG, ENCODER, RESULT, json_bytes
from maskcon.training.setup import encoder_facts, settle
from tests.miniature import TINY, miniature


def finished_run(
    folder: Path,
    data: Dataset | None = None,
    *,
    source: str = "miniature",
    seed: int = 0,
    frozen: bool = False,
    **settings: object,
) -> Run:
    """A run on the miniature or on the data given, as if it had been trained; frozen: a head on a MobileNetV2."""
    data = data or miniature()
    resolved = resolve(source, method="maskcon", preset="cpu", overrides={**TINY, "seed": seed, **settings})
    config = settle(resolved.config, data)
    facts = encoder_facts(config, data.train)
    if frozen:
        facts = replace(facts, backbone="mobilenet_v2", head_features=24, earlier_weight=0.5)
    torch.manual_seed(seed)
    backbone = build_backbone(
        facts.backbone,
        image_size=facts.image_size,
        in_channels=facts.in_channels,
        width=facts.width,
        stem=facts.stem,
    )
    if frozen:
        seen = backbone.level_features(facts.earlier_weight)
        axes = Axes(seen, 24, torch.randn(seen, 24))
        backbone = FrozenEncoder(backbone, FeatureHead(24), axes, earlier_weight=facts.earlier_weight)
    size = (8, facts.in_channels, facts.image_size, facts.image_size)
    for _ in range(3):
        backbone(torch.randn(size))  # moves the running statistics
    result = {
        "recall": {"1": 0.5, "2": 0.625, "5": 0.75, "10": 0.875},
        "raw_pixels": {"1": 0.25, "2": 0.375, "5": 0.5, "10": 0.75},
        "seconds": 12.0,
        "method": "maskcon",
        "w": config.w,
        "tau": config.tau,
        "labels": "coarse",
        "scored_by": "fine" if data.test.fine is not None else "coarse",
        "evaluated_on": "test",
        "train_images": len(data.train),
        "test_images": len(data.test),
        "data": data.fingerprint(),
    }
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(config.to_yaml(), encoding="utf-8")
    (folder / ENCODER).write_bytes(encoder_bytes(backbone, facts))
    (folder / RESULT).write_bytes(json_bytes(result))
    return Run.open(folder)


def write_photo(path: Path, seed: int, size: tuple[int, int] = (20, 14)) -> Path:
    """A picture of random colours, of (width, height) pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path
