"""The paper's tables and figures: which runs each needs, and how it is drawn.

plans      which trials (method, w, tau, seed) a table or figure needs, in full or small enough for two cores
runs       one folder per trial, shared by all tables and figures
table      our results beside the paper's
figures    figures 2 to 4; relations: figure 1
"""
