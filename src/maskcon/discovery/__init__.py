"""The finer kinds inside coarse classes: found, judged, edited and kept. Needs no torch."""
