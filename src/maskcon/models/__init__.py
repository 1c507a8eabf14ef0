"""Backbones, heads, momentum encoder, and published weights."""

from __future__ import annotations

from maskcon.models.backbones import (
    backbone_names,
    build_backbone,
    freeze_batchnorm,
    has_own_shape,
)
from maskcon.models.base import Backbone
from maskcon.models.efficientnet_lite import EfficientNetLite
from maskcon.models.heads import Axes, CoarseClassifier, FeatureHead, FrozenEncoder, Projector, unit_rows
from maskcon.models.inference import engine_of, for_inference
from maskcon.models.mobilenet import MobileNetV2
from maskcon.models.momentum import Model, MomentumPair, Output, build_model
from maskcon.models.resnet import ResNet
from maskcon.models.tail import Tail

__all__ = [
    "Axes",
    "Backbone",
    "CoarseClassifier",
    "EfficientNetLite",
    "FeatureHead",
    "FrozenEncoder",
    "MobileNetV2",
    "Model",
    "MomentumPair",
    "Output",
    "Projector",
    "ResNet",
    "Tail",
    "backbone_names",
    "build_backbone",
    "build_model",
    "engine_of",
    "for_inference",
    "freeze_batchnorm",
    "has_own_shape",
    "unit_rows",
]
