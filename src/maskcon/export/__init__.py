"""A trained encoder for people without this package: a folder for plain PyTorch and Hugging Face, and ONNX.

embedder   pictures in, embeddings out: the few lines around an encoder
plain      those lines and the encoder's own code as one file, `model.py`, that needs torch, numpy, Pillow, safetensors
onnx_file  the same as an ONNX graph
card       README.md: what was trained on what, how good it is, how to load it
write      the folder: written aside, checked on the run's own images, renamed into place
"""

from __future__ import annotations

from maskcon.export.write import Exported, export_run

__all__ = ["Exported", "export_run"]
