"""The two files that `transformers` loads: config.json, and a model class around `model.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MODEL_TYPE = "maskcon"
CODE_NAME = "modeling_maskcon.py"

CODE = '''"""The encoder of model.py as a model of Hugging Face transformers.

from transformers import AutoModel
model = AutoModel.from_pretrained("FOLDER", trust_remote_code=True)
embeddings = model.encode(["picture.jpg"])
"""

from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from .model import Embedder, Preprocessing, build_encoder


class MaskConConfig(PretrainedConfig):
    model_type = "maskcon"

    def __init__(self, preprocessing=None, **values):
        self.preprocessing = preprocessing or {}
        super().__init__(**values)


class MaskConModel(PreTrainedModel):
    """pixel_values [B, C, S, S] in 0..1 -> pooler_output [B, F]; `encode` takes paths or Pillow images."""

    config_class = MaskConConfig
    main_input_name = "pixel_values"

    def __init__(self, config):
        super().__init__(config)
        self.encoder = build_encoder()
        self.post_init()

    def _init_weights(self, module):
        """Keep PyTorch's initialisation; trained weights come from the file."""

    @property
    def preprocessing(self):
        return Preprocessing(**self.config.preprocessing)

    def forward(self, pixel_values, return_dict=True):
        features = self.encoder(self.preprocessing.normalise(pixel_values))
        return BaseModelOutputWithPooling(pooler_output=features) if return_dict else (features,)

    def encode(self, images):
        return Embedder(self.encoder, self.preprocessing).encode(images)
'''


def config_text(preprocessing: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Return config.json, read by `transformers` and by `model.py`."""
    values = {
        "model_type": MODEL_TYPE,
        "architectures": ["MaskConModel"],
        "auto_map": {
            "AutoConfig": "modeling_maskcon.MaskConConfig",
            "AutoModel": "modeling_maskcon.MaskConModel",
        },
        "torch_dtype": "float32",
        "preprocessing": dict(preprocessing),
        **facts,
    }
    return json.dumps(values, indent=2) + "\n"
