"""Shared helpers: errors, files, locks, paths, downloads, threads."""
