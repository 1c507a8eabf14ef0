"""Encode images, find nearest neighbours, score recall@K, store embeddings."""
