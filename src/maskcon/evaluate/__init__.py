"""How good an embedding is: recall@K, neighbours, spread; and how good relations are: the bound's d_z."""

from maskcon.evaluate.bound import bound_distance, optimal_relation, relation_distance
from maskcon.evaluate.embed import embed, raw_pixels
from maskcon.evaluate.neighbours import nearest
from maskcon.evaluate.recall import rank_of_first_match, recall_at_k
from maskcon.evaluate.spread import effective_rank

__all__ = [
    "bound_distance",
    "effective_rank",
    "embed",
    "nearest",
    "optimal_relation",
    "rank_of_first_match",
    "raw_pixels",
    "recall_at_k",
    "relation_distance",
]
