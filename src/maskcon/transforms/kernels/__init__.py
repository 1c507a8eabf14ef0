"""Compiled loops over the pixels of single samples: called by `maskcon.transforms.compiled`. They import numba.

Each module with an entry of its own (`crops`, `geometry`, `levels`, `photos`, `finish`) is compiled by itself and has
all that it calls in its one file: numba's cache on disk notices a change of that file alone.

Every loop treats a sample by itself and in a fixed order, so its bits depend on nothing but its image and its numbers.
Arithmetic is that of the tensor code, step by step in float32; nothing is reordered or fused ("fastmath" is off).
"""
