"""From a folder of images to embeddings, search, report and model, with the commands of a new user: times and scores.

    python benchmarks/own_images.py --images PATH      # PATH/{train,test}/<class>/*.jpg: CIFAR-10

4,000 photographs of CIFARtoy-good are linked in two folders, "machines" and "animals", under names that do not reveal
their fine class; 2,000 new ones are never trained on. The fine classes are written to truth.json, which only the final
scores read: recall@1 among the 2,000 new images. If the weights are missing, give --download once.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from maskcon._utils.errors import MaskconError
from maskcon.data.builtin.cifar import TOY_GROUPS
from maskcon.retrieval.recall import recall_at_k
from maskcon.training.run_folder import make_writable, read_result
from method_table import answer, chosen_images, name_hash

TRAIN, NEW = 500, 250  # images per class, 8 classes
FOLDERS = ("machines", "animals")


def lay_out(images: Path, out: Path) -> dict[str, str]:
    """Link photos/<coarse>/<name>.jpg and new/<name>.jpg; return name -> fine class."""
    truth: dict[str, str] = {}
    for coarse, classes in zip(FOLDERS, TOY_GROUPS["paper", "good"], strict=True):
        for fine in classes:
            for part, count, folder in (
                ("train", TRAIN, out / "photos" / coarse),
                ("test", NEW, out / "new"),
            ):
                folder.mkdir(parents=True, exist_ok=True)
                for file in chosen_images(images / part / fine, 0, count):
                    name = f"{name_hash(part + fine + file.name)[:12]}{file.suffix}"
                    truth[name] = fine
                    if not (folder / name).is_symlink():
                        (folder / name).symlink_to(file.resolve())
    return truth


def run(arguments: Sequence[str], out: Path) -> tuple[float, float, str]:
    """Return seconds until the first line, seconds until the end, and the output."""
    begun = time.perf_counter()
    first: float | None = None
    said: list[str] = []
    command = [sys.executable, "-m", "maskcon", *arguments]
    with subprocess.Popen(
        command, cwd=out, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            first = time.perf_counter() - begun if first is None else first
            said.append(line)
    seconds = time.perf_counter() - begun
    if process.returncode:
        raise MaskconError(f"maskcon {shlex.join(arguments)} failed:\n{''.join(said)}")
    return first or seconds, seconds, "".join(said)


def fine_recall(table: Path, truth: dict[str, str]) -> dict[int, float]:
    """Return recall@1 and @10 of the vectors in a file of `maskcon embed`."""
    import pyarrow.parquet as pq

    rows = pq.read_table(table).to_pydict()
    names = sorted(set(truth.values()))
    labels = torch.tensor([names.index(truth[Path(path).name]) for path in rows["path"]])
    return recall_at_k(torch.from_numpy(np.array(rows["vector"], dtype=np.float32)), labels, (1, 10))


def carry_out(options: argparse.Namespace) -> None:
    out: Path = options.out
    make_writable(out)
    truth = lay_out(options.images, out)
    (out / "truth.json").write_text(json.dumps(truth, indent=0) + "\n", encoding="utf-8")
    fetch = ["--download"] if options.download else []
    query = sorted(name for name in truth if (out / "new" / name).is_symlink())[0]
    steps = [
        ["inspect", "photos", "--out", "look"],
        ["train", "photos", "--budget", options.budget, *fetch, "--out", "runs/budget"],
        ["train", "photos", "--freeze", *fetch, "--out", "runs/frozen"],
        ["embed", "runs/budget", "new", "-o", "budget.parquet", "--replace"],
        ["embed", "runs/frozen", "new", "-o", "frozen.parquet", "--replace"],
        ["index", "runs/frozen", "photos", "--replace"],
        ["search", "runs/frozen", f"new/{query}", "-k", "10", "--grid", "found.png"],
        ["report", "runs/frozen"],
        ["export", "runs/frozen", "--onnx"],
    ]
    rows: list[str] = []
    for arguments in steps:
        print(f"maskcon {shlex.join(arguments)}", flush=True)
        first, seconds, said = run(arguments, out)
        (out / f"{len(rows)}-{arguments[0]}.txt").write_text(said, encoding="utf-8")
        rows.append(f"| `maskcon {shlex.join(arguments)}` | {first:.1f} | {seconds:.0f} |")
    print("\n| command | first line after, s | done after, s |\n|---|---:|---:|")
    print("\n".join(rows))
    print("\n| run | R@1 | R@10 |\n|---|---:|---:|")
    for name in ("budget", "frozen"):
        recall = fine_recall(out / f"{name}.parquet", truth)
        result = read_result(out / "runs" / name)
        print(f"| {name}, {result['epochs']} epochs | {100 * recall[1]:.2f} | {100 * recall[10]:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, required=True, help="CIFAR-10 with a folder per class")
    parser.add_argument("--out", type=Path, default=Path("runs/own-images"))
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--download", action="store_true", help="download the weights if they are missing")
    answer(parser, carry_out)


if __name__ == "__main__":
    main()
