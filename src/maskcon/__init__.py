"""Fine-grained image embeddings from coarse labels: masked contrastive learning (MaskCon).

    sources -> views -> encoder -> bank -> relations -> losses -> engine -> evaluate -> report

The parts can be used alone (`maskcon.relations`, `maskcon.losses`, `maskcon.bank`, `maskcon.evaluate`), or together:

    import maskcon
    run = maskcon.fit("embedded", epochs=5)
    run.recall[1], run.encode(images)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskcon.bank import MemoryBank
    from maskcon.estimator import MaskConEmbedder
    from maskcon.evaluate import recall_at_k
    from maskcon.losses import relation_loss
    from maskcon.relations import coarse_relation, masked_relation, self_relation
    from maskcon.run import Run, fit

__version__ = "0.1.0"

# Resolved on first use, so that `import maskcon` costs next to nothing and `maskcon --help` needs no torch.
_HOMES = {
    "MaskConEmbedder": "maskcon.estimator",
    "MemoryBank": "maskcon.bank",
    "Run": "maskcon.run",
    "coarse_relation": "maskcon.relations",
    "fit": "maskcon.run",
    "masked_relation": "maskcon.relations",
    "recall_at_k": "maskcon.evaluate",
    "relation_loss": "maskcon.losses",
    "self_relation": "maskcon.relations",
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
