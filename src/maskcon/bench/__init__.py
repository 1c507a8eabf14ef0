"""`maskcon bench`: what a run costs, as ratios within one run on the machine at hand.

Reading order: figures (what a result is, and the bounds asked), measure (timing in turns, peak memory), fresh (work in
a process of its own), then a file a row:

    steps        step_overhead, step_vs_plain; with subjects (what is trained) and plain (the step it is compared with)
    views        views_per_core; with pil_views (the same policies with PIL, an image at a time)
    loss_memory  relation and loss against every matrix written out
    recall       recall@K against faiss and a full similarity matrix
    packing      pictures from a pack against JPEG files
    startup      help, import, first step
    scaling      one process and two

`rows` lists them. Nothing of the package but its command line imports this one.
"""
