"""The paper's methods as recipes: which relation pulls, how much cross-entropy joins, which labels are seen.

    loss_i = contrast_weight * relation_loss(relation_i) + cross_entropy_weight * CE(logits_i, label_i)

    method    relation                                       cross-entropy   labels
    SelfCon   self                                           0               none
    NNCLR     own key + nearest entry                        0               none
    ASCL      soft, weighed by its entropy, + self           0               none
    SupCE     (no contrast)                                  1               coarse
    SupCon    coarse                                         0               coarse
    Grafit    w * coarse + (1-w) * self                      0               coarse
    CoIns     (1-w) * self                                   w               coarse
    MaskCon   w * masked(tau) + (1-w) * self                 0               coarse
    SupFINE   (no contrast)                                  1               fine: the upper bound

To add one, write a function from `RelationInputs` to a relation and `register` a `Method` (docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Literal

from torch import Tensor

from maskcon._utils.errors import UsageError, unknown
from maskcon.methods.neighbour_lists import Neighbourhood
from maskcon.methods.relations import (
    OWN_KEY,
    BankByClass,
    adaptive_relation,
    coarse_relation,
    masked_relation,
    nearest_relation,
    self_relation,
    similarities,
)

# Entries and classes from which looking at a row's own class alone is sooner done than at the whole bank.
LARGE_BANK, MANY_CLASSES = 1 << 14, 8


@dataclass(frozen=True)
class RelationInputs:
    """What a recipe may look at, for one batch. `index` and `bank_index` are None where own stale keys count."""

    keys: Tensor  # [B, D] own keys
    coarse: Tensor  # [B] labels (the fine ones for a method that sees those)
    index: Tensor | None  # [B] sample numbers
    bank_keys: Tensor  # [K, D]
    bank_coarse: Tensor  # [K]
    bank_index: Tensor | None  # [K]
    w: float  # weight, after any relation warm-up
    tau: float  # relation temperature
    neighbours: Neighbourhood | None = None  # what there is to go by instead of the cosine of keys
    by_class: BankByClass | None = None  # the bank sorted, where that is worth it; see `Method.relation_of`

    def rows(self, part: slice) -> RelationInputs:
        """The same for some rows of the batch only; the bank stays whole."""
        return replace(
            self,
            keys=self.keys[part],
            coarse=self.coarse[part],
            index=None if self.index is None else self.index[part],
            neighbours=None if self.neighbours is None else self.neighbours.rows(part),
        )

    @property
    def _known(self) -> Tensor | None:
        return None if self.neighbours is None else self.neighbours.table()

    def similarities(self) -> Tensor:
        """Cosines of keys and bank, float32 ``[B, K]``; by `neighbours`, -inf for entries that are none."""
        known = self._known
        return similarities(self.keys, self.bank_keys) if known is None else known

    def self_relation(self) -> Tensor:
        return self_relation(len(self.keys), len(self.bank_keys), device=self.keys.device)

    def coarse_relation(self) -> Tensor:
        return coarse_relation(self.coarse, self.bank_coarse, index=self.index, bank_index=self.bank_index)

    def masked_relation(self) -> Tensor:
        return masked_relation(
            self.keys,
            self.bank_keys,
            self.coarse,
            self.bank_coarse,
            self.tau,
            index=self.index,
            bank_index=self.bank_index,
            similarity=self._known,
            by_class=self.by_class,
        )

    def nearest_relation(self) -> Tensor:
        return nearest_relation(
            self.keys,
            self.bank_keys,
            index=self.index,
            bank_index=self.bank_index,
            similarity=self._known,
        )

    def adaptive_relation(self) -> Tensor:
        return adaptive_relation(
            self.keys,
            self.bank_keys,
            self.tau,
            index=self.index,
            bank_index=self.bank_index,
            similarity=self._known,
        )

    def with_self(self, relation: Tensor) -> Tensor:
        """``w * relation + (1-w) * self_relation``: the mixture of the two losses, as one relation."""
        if self.w == 1:
            return relation
        mixed = relation * self.w
        mixed[:, OWN_KEY] += 1 - self.w
        return mixed


@dataclass(frozen=True)
class Method:
    """A recipe. `contrast_weight` and `cross_entropy_weight` map w to the weight of each term.

    row_by_row: a row of the relation depends on that row of the batch and on the bank alone. Then a large batch is
        worked on in parts that need little memory. Leave it False for a relation that looks at the whole batch.
    """

    name: str
    title: str
    summary: str
    relation: Callable[[RelationInputs], Tensor] | None  # None: no contrast, no keys, no bank
    labels: Literal["none", "coarse", "fine"]
    contrast_weight: Callable[[float], float] = lambda w: 1  # noqa: ARG005
    cross_entropy_weight: Callable[[float], float] = lambda w: 0  # noqa: ARG005
    uses_w: bool = False
    uses_tau: bool = False
    ramps_w: bool = False  # w weighs a learnt relation, which is worth little at the start
    row_by_row: bool = False

    @property
    def contrasts(self) -> bool:
        return self.relation is not None

    def classifies(self, w: float) -> bool:
        return self.cross_entropy_weight(w) > 0

    def relation_of(self, inputs: RelationInputs) -> Callable[[slice], Tensor]:
        """The relation of these inputs, to be asked for by rows: ``[b, 1+K]`` of a slice of the batch."""
        recipe = self.relation
        if recipe is None:
            raise UsageError(f"{self.title} does not contrast, so it has no relation")
        if not self.row_by_row:
            return recipe(inputs).__getitem__
        if _by_class_is_sooner(inputs):
            inputs = replace(inputs, by_class=BankByClass(inputs.bank_keys, inputs.bank_coarse))
        return lambda part: recipe(inputs.rows(part))


def _by_class_is_sooner(inputs: RelationInputs) -> bool:
    """Whether to sort the bank by class.

    Not on other devices than a CPU: to go class by class, the host would have to wait for the labels in every step.
    """
    if inputs.keys.device.type != "cpu":
        return False
    if inputs.neighbours is not None or len(inputs.bank_keys) < LARGE_BANK:
        return False
    labels = inputs.bank_coarse
    return int(labels.amax() - labels.amin()) + 1 >= MANY_CLASSES  # they are numbered without gaps


_METHODS: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Make a method known by its name in this process.

    A package that lists the registering module in its entry points, group `maskcon.methods`, makes the method
    available to every process and to the command line.
    """
    if method.name != method.name.lower():
        raise UsageError(
            f"the name of a method is in lower case, {method.name!r} is not; its title may be anything"
        )
    if method.name in _METHODS:
        raise UsageError(f"a method named {method.name!r} is registered already")
    _METHODS[method.name] = method
    return method


@cache
def _load_plugins() -> None:
    """Import what installed packages offer; importing registers."""
    for entry in entry_points(group="maskcon.methods"):
        try:
            entry.load()
        except Exception as error:  # somebody else's module may fail in any way
            raise UsageError(
                f"the installed method {entry.name!r} ({entry.value}) cannot be loaded: "
                f"{type(error).__name__}: {error}; mend or uninstall its package"
            ) from error


def method_named(name: str) -> Method:
    """The method of that name, in any case; a misspelt one is an error that names the nearest."""
    _load_plugins()
    try:
        return _METHODS[name.lower()]
    except KeyError:
        raise unknown("method", name, _METHODS) from None


def all_methods() -> list[Method]:
    """Every method, in the order of the table above; those of other packages last."""
    _load_plugins()
    return list(_METHODS.values())


register(
    Method(
        name="selfcon",
        title="SelfCon",
        summary="instance discrimination: the other view of an image is its only positive",
        relation=lambda inputs: inputs.self_relation(),
        row_by_row=True,
        labels="none",
    )
)
register(
    Method(
        name="nnclr",
        title="NNCLR",
        summary="own key and nearest entry of the bank, labels ignored",
        relation=lambda inputs: inputs.nearest_relation(),
        row_by_row=True,
        labels="none",
    )
)
register(
    Method(
        name="ascl",
        title="ASCL",
        summary="soft neighbours, labels ignored, weighed by their normalised entropy",
        relation=lambda inputs: inputs.adaptive_relation(),
        row_by_row=True,
        labels="none",
        uses_tau=True,
    )
)
register(
    Method(
        name="supce",
        title="SupCE",
        summary="cross-entropy on the coarse labels",
        relation=None,
        cross_entropy_weight=lambda w: 1,  # noqa: ARG005
        labels="coarse",
    )
)
register(
    Method(
        name="supcon",
        title="SupCon",
        summary="supervised contrast: every entry of the same coarse class is a positive",
        relation=lambda inputs: inputs.coarse_relation(),
        row_by_row=True,
        labels="coarse",
    )
)
register(
    Method(
        name="grafit",
        title="Grafit",
        summary="w * SupCon + (1-w) * SelfCon",
        relation=lambda inputs: inputs.with_self(inputs.coarse_relation()),
        row_by_row=True,
        labels="coarse",
        uses_w=True,
        ramps_w=True,
    )
)
register(
    Method(
        name="coins",
        title="CoIns",
        summary="w * SupCE + (1-w) * SelfCon",
        relation=lambda inputs: inputs.self_relation(),
        row_by_row=True,
        contrast_weight=lambda w: 1 - w,
        cross_entropy_weight=lambda w: w,
        labels="coarse",
        uses_w=True,
    )
)
register(
    Method(
        name="maskcon",
        title="MaskCon",
        summary="w * soft relation masked by the coarse label + (1-w) * SelfCon",
        relation=lambda inputs: inputs.with_self(inputs.masked_relation()),
        row_by_row=True,
        labels="coarse",
        uses_w=True,
        uses_tau=True,
        ramps_w=True,
    )
)
register(
    Method(
        name="supfine",
        title="SupFINE",
        summary="cross-entropy on the fine labels: what the others try to reach without them",
        relation=None,
        cross_entropy_weight=lambda w: 1,  # noqa: ARG005
        labels="fine",
    )
)
