"""Settings of a run, presets, and how they are put together."""
