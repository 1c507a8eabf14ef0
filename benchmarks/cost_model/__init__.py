"""The cost model of docs/scaling.md: `python -m benchmarks.cost_model`."""
