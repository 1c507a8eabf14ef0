"""Run by tests in one process or two at once: some steps of training, and what each process holds after them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import maskcon.training.runner as training
from maskcon.config.resolution import resolve
from maskcon.config.settings import Machine
from maskcon.retrieval.recall import recall_at_k
from maskcon.training import evaluation, loop
from maskcon.training.callbacks import Callback
from maskcon.training.setup import settle
from tests.miniature import TINY, miniature, with_paths


def main(folder: Path, devices: int, steps: int, settings: dict[str, object]) -> None:
    torch.set_num_threads(1)
    captured: dict[str, torch.Tensor] = {}
    real = loop.train_step

    def stop_after(learner, data, config, place, rows):
        report = real(learner, data, config, place, rows)
        captured[f"loss.{place.step}"] = report.loss
        if place.step + 1 == steps:
            tensors, _ = learner.state()
            captured.update({name: value.clone() for name, value in tensors.items()})
            torch.save(captured, folder / f"state-{devices}-{learner.processes.rank}.pt")
        return report

    def keep_features(features, labels, ks):
        torch.save(features, folder / f"scored-{len(list(folder.glob('scored-*')))}.pt")
        return recall_at_k(features, labels, ks)

    evaluation.recall_at_k = keep_features
    loop.train_step = stop_after
    method = str(settings.pop("method", "maskcon"))
    config = resolve("miniature", method=method, preset="cpu", overrides={**TINY, **settings}).config
    data = with_paths(miniature(70, 21))
    config = settle(config, data)
    machine = Machine(device="cpu", devices=devices, threads=1, checkpoint_every_seconds=0)
    training.train(config, data, folder / f"run-{devices}", machine, Callback())
    assert not torch.distributed.is_initialized(), "the processes did not part"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
