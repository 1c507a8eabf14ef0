"""Encoder: backbone, heads, and the momentum pair of query and key models."""

from __future__ import annotations

from maskcon.encoder.backbones import backbone_names, build_backbone, has_own_shape, shape_of
from maskcon.encoder.batchnorm import freeze_batchnorm, synchronize_batchnorm
from maskcon.encoder.contract import Backbone
from maskcon.encoder.frozen_head import Axes, FeatureHead, FrozenEncoder
from maskcon.encoder.fusion import for_inference
from maskcon.encoder.heads import CoarseClassifier, Projector, unit_rows
from maskcon.encoder.mobilenet import MobileNetV2
from maskcon.encoder.pair import Model, MomentumPair, Output, build_model
from maskcon.encoder.resnet import ResNet

__all__ = [
    "Axes",
    "Backbone",
    "CoarseClassifier",
    "FeatureHead",
    "FrozenEncoder",
    "MobileNetV2",
    "Model",
    "MomentumPair",
    "Output",
    "Projector",
    "ResNet",
    "backbone_names",
    "build_backbone",
    "build_model",
    "for_inference",
    "freeze_batchnorm",
    "has_own_shape",
    "shape_of",
    "synchronize_batchnorm",
    "unit_rows",
]
