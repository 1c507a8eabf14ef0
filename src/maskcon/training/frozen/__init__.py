"""Frozen runs: a pretrained backbone embeds every image once, then a head learns.

images -> views, a few each -> backbone -> cache on disk       (extract.py, cache.py; once)
cache -> one of the cached views, at random -> head -> ...     (features.py; the usual training loop)
"""
