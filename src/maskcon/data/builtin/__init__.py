"""Datasets known by name, one file per family."""
