"""What options of a step bring: `--compile`, mixed precision, looking at a row's own class alone.

    python benchmarks/step_options.py compile [--nets cpu,resnet18]
    python benchmarks/step_options.py precision [--nets cpu]
    python benchmarks/step_options.py columns

compile    seconds of compiling, a step without and with it in turns, and after how many steps it has paid for itself
precision  a step with precision=32-true over one with bf16-mixed, in turns
columns    relation and loss, forward and backward: the whole bank over the columns of a row's class, in turns

One thread, processor time, random or embedded images; ratios above 1 speak for the option.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from maskcon._utils.errors import unknown
from maskcon.bench import subjects
from maskcon.bench.measure import ON_ONE_THREAD, in_turns
from maskcon.methods import registry
from maskcon.methods.losses import relation_loss_by_rows
from maskcon.methods.registry import RelationInputs, method_named
from maskcon.training.compilation import compiled_passes
from method_table import answer

NETS: dict[str, Callable[..., subjects.Subject]] = {"cpu": subjects.cpu, "resnet18": subjects.resnet18}
TURNS = {"cpu": 25, "resnet18": 5}
SHAPES = [
    (batch, bank, classes)
    for batch, bank in ((128, 16384), (128, 65536), (1024, 65536))
    for classes in (2, 20)
]


def compiling(names: list[str]) -> None:
    """A step of each net, as it is and compiled."""
    print(
        "| net | compiling, s | step, s | compiled step, s | ratio | has paid after |\n|---|---:|---:|---:|---:|---:|"
    )
    for name in names:
        plain, compiled = NETS[name](), NETS[name]()
        with compiled_passes(
            compiled.learner, compiled.data, compiled.config, tell=lambda _: None
        ) as seconds:
            turns = in_turns(
                {"plain": plain.step, "compiled": compiled.step}, TURNS[name], clock=ON_ONE_THREAD, warm_up=2
            )
        before, after = turns.median("plain"), turns.median("compiled")
        paid = f"{seconds / (before - after):,.0f} steps" if after < before else "never"
        ratio = turns.ratio("plain", "compiled")
        print(f"| {name} | {seconds:.0f} | {before:.3f} | {after:.3f} | {ratio:.2f} | {paid} |")


def mixed_precision(names: list[str]) -> None:
    """A step of each net, in single precision and in bfloat16 where autocast takes it."""
    print("| net | step, s | bf16-mixed, s | ratio |\n|---|---:|---:|---:|")
    for name in names:
        work = {precision: NETS[name](precision=precision).step for precision in ("32-true", "bf16-mixed")}
        turns = in_turns(work, TURNS[name], clock=ON_ONE_THREAD, warm_up=2)
        ratio = turns.ratio("32-true", "bf16-mixed")
        print(f"| {name} | {turns.median('32-true'):.3f} | {turns.median('bf16-mixed'):.3f} | {ratio:.2f} |")


def columns() -> None:
    """MaskCon's relation and loss by either way, for several sizes."""
    torch.set_num_threads(1)
    print("| B | K | classes | whole bank, s | own class alone, s | ratio |\n|---:|---:|---:|---:|---:|---:|")
    for batch, bank, classes in SHAPES:
        work = {
            "whole": partial(loss_and_gradient, *random_inputs(batch, bank, classes), 1 << 62),
            "class": partial(loss_and_gradient, *random_inputs(batch, bank, classes), 0),
        }
        turns = in_turns(work, 7, clock=ON_ONE_THREAD, warm_up=1)
        seconds = f"{turns.median('whole'):.3f} | {turns.median('class'):.3f}"
        print(f"| {batch} | {bank} | {classes} | {seconds} | {turns.ratio('whole', 'class'):.2f} |")


def random_inputs(batch: int, bank: int, classes: int, dim: int = 128) -> tuple[Tensor, RelationInputs]:
    """Queries that want a gradient, and what their relation is made of."""
    generator = torch.Generator().manual_seed(0)

    def unit(count: int) -> Tensor:
        return torch.nn.functional.normalize(torch.randn(count, dim, generator=generator), dim=1)

    inputs = RelationInputs(
        keys=unit(batch),
        coarse=torch.randint(classes, (batch,), generator=generator),
        index=torch.arange(batch),
        bank_keys=unit(bank),
        bank_coarse=torch.randint(classes, (bank,), generator=generator),
        bank_index=torch.arange(bank),
        w=1.0,
        tau=0.05,
    )
    return unit(batch).requires_grad_(), inputs


def loss_and_gradient(queries: Tensor, inputs: RelationInputs, large: int) -> None:
    """Once; large: entries from which a bank is looked at by class."""
    registry.LARGE_BANK, registry.MANY_CLASSES = large, 0
    relation_of = method_named("maskcon").relation_of(inputs)
    queries.grad = None
    relation_loss_by_rows(queries, inputs.keys, inputs.bank_keys, relation_of, 0.1).mean().backward()  # type: ignore[no-untyped-call]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["compile", "precision", "columns"])
    parser.add_argument("--nets", default="cpu,resnet18", help="of all but columns, comma-separated")
    answer(parser, carry_out)


def carry_out(options: argparse.Namespace) -> None:
    """What was asked for."""
    if options.what == "columns":
        columns()
        return
    names = options.nets.split(",")
    for name in names:
        if name not in NETS:
            raise unknown("net", name, NETS)
    {"precision": mixed_precision, "compile": compiling}[options.what](names)


if __name__ == "__main__":
    main()
