"""Time of a step with `--compile` and with mixed precision.

    python benchmarks/step_options.py compile [--nets cpu,resnet18]
    python benchmarks/step_options.py precision [--nets cpu]

compile    seconds of compiling, a step without and with it in turns, and after how many steps it has paid for itself
precision  a step with precision=32-true over one with bf16-mixed, in turns

One thread, processor time, random or embedded images; ratios above 1 speak for the option.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from maskcon._utils.errors import unknown
from maskcon.bench import subjects
from maskcon.bench.measure import ON_ONE_THREAD, in_turns
from maskcon.training.compilation import compiled_passes
from method_table import answer

NETS: dict[str, Callable[..., subjects.Subject]] = {"cpu": subjects.cpu, "resnet18": subjects.resnet18}
TURNS = {"cpu": 25, "resnet18": 5}


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["compile", "precision"])
    parser.add_argument("--nets", default="cpu,resnet18", help="comma-separated")
    answer(parser, carry_out)


def carry_out(options: argparse.Namespace) -> None:
    """What was asked for."""
    names = options.nets.split(",")
    for name in names:
        if name not in NETS:
            raise unknown("net", name, NETS)
    {"precision": mixed_precision, "compile": compiling}[options.what](names)


if __name__ == "__main__":
    main()
