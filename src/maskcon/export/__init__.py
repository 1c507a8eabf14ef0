"""Export a trained encoder as a folder that works without this package.

write        writes the folder, checks it on the run's images and renames it into place; modeling_maskcon.txt becomes
             the model class of Hugging Face transformers
plain        model.py, from model.txt: the encoder's source files in one; needs torch, numpy, Pillow and safetensors
embedder     the encoder with its preprocessing, part of model.py
onnx_file    the same model as an ONNX graph
card         README.md, from card.txt
"""

from __future__ import annotations

from maskcon.export.write import Exported, export_run

__all__ = ["Exported", "export_run"]
