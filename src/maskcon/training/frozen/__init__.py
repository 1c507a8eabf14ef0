"""The frozen path: a pretrained backbone sees every image once, and only a head is trained on what it saw.

images -> views, a few each -> backbone -> cache on disk       (extract.py, cache.py; once)
cache -> one of the cached views, at random -> head -> ...     (features.py; the usual training loop)
"""
