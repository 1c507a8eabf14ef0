"""The paper's tables and figures as plans of runs, carried out at a stated scale.

    plans -> scales -> runs -> timing -> table
    figures -^                        -> pictures (relations, bound); facts

plans: which trials (method, w, tau, seed) a table needs; scales: full, or a small one for two cores; runs: a folder a
trial, shared between all tables and figures; timing: how long this machine will take; table: ours beside the paper's.
figures: which trials a figure needs; pictures: drawn from runs; facts: those that need none.
"""
