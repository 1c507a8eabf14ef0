"""How good an embedding is: recall@K, neighbours, spread."""

from maskcon.evaluate.embed import embed, raw_pixels
from maskcon.evaluate.neighbours import nearest
from maskcon.evaluate.recall import rank_of_first_match, recall_at_k
from maskcon.evaluate.spread import effective_rank

__all__ = ["effective_rank", "embed", "nearest", "rank_of_first_match", "raw_pixels", "recall_at_k"]
