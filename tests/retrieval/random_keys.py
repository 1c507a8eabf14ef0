"""Random keys with labels, to compute d_z of."""

from __future__ import annotations

import torch


def case(seed: int, rows: int = 9, bank: int = 23, fine_classes: int = 6, per_coarse: int = 3):
    """Random unit keys with two levels of labels and sample numbers that sometimes meet."""
    draw = torch.Generator().manual_seed(seed)
    keys = torch.nn.functional.normalize(torch.randn(rows, 4, generator=draw), dim=1)
    bank_keys = torch.nn.functional.normalize(torch.randn(bank, 4, generator=draw), dim=1)
    fine = torch.randint(fine_classes, (rows,), generator=draw)
    bank_fine = torch.randint(fine_classes, (bank,), generator=draw)
    index = torch.randint(40, (rows,), generator=draw)
    bank_index = torch.randint(40, (bank,), generator=draw)
    labels = (fine // per_coarse, bank_fine // per_coarse, fine, bank_fine)
    return (keys, bank_keys, *labels), {"index": index, "bank_index": bank_index}
