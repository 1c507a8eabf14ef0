"""Which code makes the views of a run: tensor code, on any device, or loops compiled by numba, on the CPU.

Both make the same views but for rounding; the compiled loops take a fraction of the time. Importing this imports no
numba.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from maskcon._utils.errors import UsageError
from maskcon.transforms.autoaugment import AutoAugment
from maskcon.transforms.jitter import ColourJitter, GaussianBlur, Greyscale, RandomErasing, ToneJitter
from maskcon.transforms.operations import Affine, Perspective
from maskcon.transforms.policies import Policy, ViewPolicy, policy

if TYPE_CHECKING:
    from maskcon.transforms.compiled import CompiledPolicy

# The operations that `maskcon.transforms.programs` knows.
COMPILED_OPERATIONS = (
    Affine,
    AutoAugment,
    ColourJitter,
    GaussianBlur,
    Greyscale,
    Perspective,
    RandomErasing,
    ToneJitter,
)


def has_numba() -> bool:
    return find_spec("numba") is not None


def can_compile(view: Policy) -> bool:
    """Whether there are compiled loops for all that a policy does."""
    return isinstance(view, ViewPolicy) and all(type(o) in COMPILED_OPERATIONS for o in view.operations)


def settled_engine(
    wanted: Literal["auto", "tensor", "compiled"], *names: str
) -> Literal["tensor", "compiled"]:
    """What is to make views by policies of these names: "auto" takes compiled loops where they can be had."""
    without = [name for name in names if not can_compile(policy(name))]
    if wanted == "auto":
        return "tensor" if without or not has_numba() else "compiled"
    if wanted == "compiled" and without:
        raise UsageError(
            f"view policy {without[0]!r} does what no compiled loop can; leave view_engine out, or set it to tensor"
        )
    return wanted


def compiled_policy(
    name: str,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    *,
    channels_last: bool = False,
) -> CompiledPolicy:
    """The policy of this name by compiled loops, its views normalised if that is asked, and in this memory format.

    The first one on a machine is compiled, in ten to twenty seconds; the result is kept for later processes.
    """
    settled_engine("compiled", name)
    if not has_numba():
        raise UsageError(
            "view_engine=compiled needs numba, which is not installed: pip install 'maskcon[compiled]', "
            "or train in a new folder with --set view_engine=tensor"
        )
    from maskcon.transforms.compiled import CompiledPolicy

    view = policy(name)
    assert isinstance(view, ViewPolicy)  # or it could not be compiled
    return CompiledPolicy(view, mean, std, channels_last)
