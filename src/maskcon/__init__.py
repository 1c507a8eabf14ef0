"""Fine-grained image embeddings from coarse labels: masked contrastive learning (MaskCon).

    data -> transforms -> models -> methods -> training -> retrieval -> report

Use the parts alone (`maskcon.methods`, `maskcon.retrieval`), or together:

    import maskcon
    run = maskcon.fit("embedded", epochs=5)
    run.recall[1], run.encode(images)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskcon.api import Run, fit
    from maskcon.methods.losses import relation_loss
    from maskcon.methods.memory_bank import MemoryBank
    from maskcon.methods.relations import coarse_relation, masked_relation, self_relation
    from maskcon.retrieval.recall import recall_at_k
    from maskcon.sklearn import MaskConEmbedder

__version__ = "0.1.0"

# Resolved on first use, so that `import maskcon` costs next to nothing and `maskcon --help` needs no torch.
_HOMES = {
    "MaskConEmbedder": "maskcon.sklearn",
    "MemoryBank": "maskcon.methods.memory_bank",
    "Run": "maskcon.api",
    "coarse_relation": "maskcon.methods.relations",
    "fit": "maskcon.api",
    "masked_relation": "maskcon.methods.relations",
    "recall_at_k": "maskcon.retrieval.recall",
    "relation_loss": "maskcon.methods.losses",
    "self_relation": "maskcon.methods.relations",
}

__all__ = [
    "MaskConEmbedder",
    "MemoryBank",
    "Run",
    "coarse_relation",
    "fit",
    "masked_relation",
    "recall_at_k",
    "relation_loss",
    "self_relation",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'maskcon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
