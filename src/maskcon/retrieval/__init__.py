"""Encode images, find nearest neighbours, score recall@K, and keep embeddings and indexes on disk."""
