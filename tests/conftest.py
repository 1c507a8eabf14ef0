from __future__ import annotations

import os

import pytest
import torch

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors gain nothing from threads, and parallel test workers would fight over the cores."""
    torch.set_num_threads(1)
