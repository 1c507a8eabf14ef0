"""What a run costs, as ratios within one process on this machine: `make bench` or `python -m benchmarks.bench`.

Files: `figures` (results and the bounds asked of them), `measure` (timing in turns, peak memory, work in a process of
its own), `subjects` and `plain` (what the step rows train, and the plain PyTorch step they are compared with), and the
rows themselves: `steps`, `loss_memory`, `recall`, `packing`, `runs`. `__main__` lists the rows and is the command line.
"""
