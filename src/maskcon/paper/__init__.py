"""The paper's tables and figures: which runs they need, at which scale, and how they are made.

    plans -> runs -> table, figures
    figures -> relations, heatmap, tsne, retrieval; dataset_figures needs no run

plans: which trials (method, w, tau, seed) a table needs, in full or small enough for two cores; runs: one folder
per trial, shared by all tables and figures; table: our results beside the paper's. figures: which trials a figure
needs; each figure is drawn by the module of its name.
"""
