"""Methods of the paper: relation, weight of the cross-entropy, labels used.

    loss_i = contrast_weight * relation_loss(relation_i) + cross_entropy_weight * CE(logits_i, label_i)

    method    relation                                       cross-entropy   labels
    SelfCon   self                                           0               none
    NNCLR     own key + nearest entry                        0               none
    ASCL      soft, weighted by its entropy, + self         0               none
    SupCE     (no contrast)                                  1               coarse
    SupCon    coarse                                         0               coarse
    Grafit    w * coarse + (1-w) * self                      0               coarse
    CoIns     (1-w) * self                                   w               coarse
    MaskCon   w * masked(tau) + (1-w) * self                 0               coarse
    SupFINE   (no contrast)                                  1               fine (upper bound)
    BuCSFR    (1-w) * positives drawn by clusters            w               coarse (ICCV 2025)
    TeachCon  masked(tau), neighbours by a teacher           1               coarse (ours, not the paper's)

To add a method, write a function from `RelationInputs` to a relation and `register` a `Method`
(docs/extending.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal

from torch import Tensor

from maskcon._utils.errors import UsageError, unknown
from maskcon.methods.bucsfr import ClusterDraws, left_out, positives
from maskcon.methods.neighbour_lists import Neighbourhood
from maskcon.methods.relations import (
    LARGEST_TEMPERATURE,
    OWN_KEY,
    adaptive_relation,
    coarse_relation,
    masked_relation,
    nearest_relation,
    same_class,
    self_relation,
    similarities,
)


@dataclass(frozen=True)
class RelationInputs:
    """Inputs of a relation for one batch."""

    keys: Tensor  # [B, D] own keys
    coarse: Tensor  # [B] labels (the fine ones for a method that sees those)
    index: Tensor | None  # [B] sample numbers; None, as `bank_index`, to keep older own keys
    bank_keys: Tensor  # [K, D]
    bank_coarse: Tensor  # [K]
    bank_index: Tensor | None  # [K]
    w: float  # weight, after any relation warm-up
    tau: float  # relation temperature
    neighbours: Neighbourhood | None = None  # similarities that replace the cosine of keys
    names: Tensor | None = None  # [B] known kinds, negative: none
    bank_names: Tensor | None = None  # [K]
    clusters: ClusterDraws | None = None  # for a method with `uses_clusters`, after its warm-up

    def rows(self, part: slice) -> RelationInputs:
        """Return the inputs of some rows of the batch, with the whole bank."""
        return replace(
            self,
            keys=self.keys[part],
            coarse=self.coarse[part],
            index=None if self.index is None else self.index[part],
            names=None if self.names is None else self.names[part],
            neighbours=None if self.neighbours is None else self.neighbours.rows(part),
            clusters=None if self.clusters is None else self.clusters.rows(part),
        )

    def similarities(self) -> Tensor:
        """Return d, float32 ``[B, K]``: cosines of keys, or the table of `neighbours`."""
        if self.neighbours is not None:
            return self.neighbours.table()
        return similarities(self.keys, self.bank_keys)

    def self_relation(self) -> Tensor:
        return self_relation(len(self.keys), len(self.bank_keys), device=self.keys.device)

    def coarse_relation(self) -> Tensor:
        return coarse_relation(
            self.coarse,
            self.bank_coarse,
            index=self.index,
            bank_index=self.bank_index,
            names=self.names,
            bank_names=self.bank_names,
        )

    def masked_relation(self) -> Tensor:
        tensors = self.keys, self.bank_keys, self.coarse, self.bank_coarse
        named = {"names": self.names, "bank_names": self.bank_names}
        return masked_relation(*tensors, self.tau, **self._common_options() | named)

    def nearest_relation(self) -> Tensor:
        return nearest_relation(self.keys, self.bank_keys, **self._common_options())

    def adaptive_relation(self) -> Tensor:
        return adaptive_relation(self.keys, self.bank_keys, self.tau, **self._common_options())

    def cluster_relation(self) -> Tensor:
        """Return BuCSFR's relation: MaskCon's among the entries drawn as positives."""
        if self.clusters is None:
            return self.self_relation()
        drawn = positives(self.clusters, self.candidates())
        return masked_relation(
            self.keys,
            self.bank_keys,
            self.coarse,
            self.bank_coarse,
            min(self.tau, LARGEST_TEMPERATURE),  # inf would also weigh entries of similarity -inf
            similarity=self.similarities().masked_fill_(~drawn, -math.inf),
        )

    def left_out(self) -> Tensor | None:
        """Return BuCSFR's likely false negatives, bool ``[B, K]``; None before clusters."""
        return None if self.clusters is None else left_out(self.clusters, self.candidates())

    def candidates(self) -> Tensor:
        """Mark entries of the same class but another image, bool ``[B, K]``."""
        return same_class(self.coarse, self.bank_coarse, self.index, self.bank_index)

    def _common_options(self) -> dict[str, Any]:
        similarity = None if self.neighbours is None else self.neighbours.table()
        return {"index": self.index, "bank_index": self.bank_index, "similarity": similarity}

    def with_self(self, relation: Tensor) -> Tensor:
        """Return ``w * relation + (1-w) * self_relation``."""
        if self.w == 1:
            return relation
        mixed = relation * self.w
        mixed[:, OWN_KEY] += 1 - self.w
        return mixed


@dataclass(frozen=True)
class Method:
    """A training method.

    contrast_weight, cross_entropy_weight: map w to the weight of each term of the loss.
    row_by_row: each row of the relation depends only on its row of the batch and on the bank, so that large batches
        can be processed in blocks of rows. Keep False for a relation of the whole batch.
    """

    name: str
    title: str
    summary: str
    relation: Callable[[RelationInputs], Tensor] | None  # None: no contrast, no keys, no bank
    labels: Literal["none", "coarse", "fine"]
    contrast_weight: Callable[[float], float] = lambda _w: 1
    cross_entropy_weight: Callable[[float], float] = lambda _w: 0
    uses_w: bool = False
    uses_tau: bool = False
    ramps_w: bool = False  # w weights a learnt relation, which is unreliable at the start
    row_by_row: bool = False
    uses_names: bool = False  # known names of finer kinds change the relation
    uses_clusters: bool = False  # keys are clustered within coarse classes before every epoch
    # bank entries [B, K] that the softmax omits
    left_out: Callable[[RelationInputs], Tensor | None] | None = None

    @property
    def contrasts(self) -> bool:
        return self.relation is not None

    def classifies(self, w: float) -> bool:
        return self.cross_entropy_weight(w) > 0

    def relation_of(self, inputs: RelationInputs) -> Callable[[slice], Tensor]:
        """Return a function from a slice of the batch to its relation ``[b, 1+K]``."""
        recipe = self.relation
        if recipe is None:
            raise UsageError(f"{self.title} does not contrast, so it has no relation")
        if not self.row_by_row:
            return recipe(inputs).__getitem__
        return lambda part: recipe(inputs.rows(part))

    def left_out_of(self, inputs: RelationInputs) -> Callable[[slice], Tensor | None] | None:
        """Return a function from a slice to the entries ``[b, K]`` its softmax omits."""
        recipe = self.left_out
        return None if recipe is None else lambda part: recipe(inputs.rows(part))


_METHODS: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Register a method under its name in this process.

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
    """Import the methods of installed packages; importing registers them."""
    for entry in entry_points(group="maskcon.methods"):
        try:
            entry.load()
        except Exception as error:  # third-party modules may raise anything
            raise UsageError(
                f"the installed method {entry.name!r} ({entry.value}) cannot be loaded: "
                f"{type(error).__name__}: {error}; fix or uninstall the package"
            ) from error


def method_named(name: str) -> Method:
    """Return the method of a name, in any case; the error suggests the nearest name."""
    _load_plugins()
    try:
        return _METHODS[name.lower()]
    except KeyError:
        raise unknown("method", name, _METHODS) from None


def all_methods() -> list[Method]:
    """List all methods in the order of the table above; those of other packages last."""
    _load_plugins()
    return list(_METHODS.values())


_MASKCON = Method(
    name="maskcon",
    title="MaskCon",
    summary="w * soft relation masked by the coarse label + (1-w) * SelfCon",
    relation=lambda inputs: inputs.with_self(inputs.masked_relation()),
    labels="coarse",
    uses_w=True,
    uses_tau=True,
    ramps_w=True,
    row_by_row=True,
    uses_names=True,
)
for _method in (
    Method(
        name="selfcon",
        title="SelfCon",
        summary="instance discrimination: the other view of an image is its only positive",
        relation=lambda inputs: inputs.self_relation(),
        labels="none",
        row_by_row=True,
    ),
    Method(
        name="nnclr",
        title="NNCLR",
        summary="own key and nearest entry of the bank, labels ignored",
        relation=lambda inputs: inputs.nearest_relation(),
        labels="none",
        row_by_row=True,
    ),
    Method(
        name="ascl",
        title="ASCL",
        summary="soft neighbours, labels ignored, weighted by their normalised entropy",
        relation=lambda inputs: inputs.adaptive_relation(),
        labels="none",
        uses_tau=True,
        row_by_row=True,
    ),
    Method(
        name="supce",
        title="SupCE",
        summary="cross-entropy on the coarse labels",
        relation=None,
        cross_entropy_weight=lambda _w: 1,
        labels="coarse",
    ),
    Method(
        name="supcon",
        title="SupCon",
        summary="supervised contrast: every entry of the same coarse class is a positive",
        relation=lambda inputs: inputs.coarse_relation(),
        labels="coarse",
        row_by_row=True,
        uses_names=True,
    ),
    Method(
        name="grafit",
        title="Grafit",
        summary="w * SupCon + (1-w) * SelfCon",
        relation=lambda inputs: inputs.with_self(inputs.coarse_relation()),
        labels="coarse",
        uses_w=True,
        ramps_w=True,
        row_by_row=True,
        uses_names=True,
    ),
    Method(
        name="coins",
        title="CoIns",
        summary="w * SupCE + (1-w) * SelfCon",
        relation=lambda inputs: inputs.self_relation(),
        contrast_weight=lambda w: 1 - w,
        cross_entropy_weight=lambda w: w,
        labels="coarse",
        uses_w=True,
        row_by_row=True,
    ),
    _MASKCON,
    Method(
        name="supfine",
        title="SupFINE",
        summary="cross-entropy on the fine labels: the upper bound of the others",
        relation=None,
        cross_entropy_weight=lambda _w: 1,
        labels="fine",
    ),
    Method(
        name="bucsfr",
        title="BuCSFR",
        summary="w * SupCE + (1-w) * contrast, positives and negatives drawn by clusters inside the coarse class",
        relation=lambda inputs: inputs.cluster_relation(),
        left_out=lambda inputs: inputs.left_out(),
        contrast_weight=lambda w: 1 - w,
        cross_entropy_weight=lambda w: w,
        labels="coarse",
        uses_w=True,
        uses_tau=True,
        uses_clusters=True,
        row_by_row=True,
    ),
    # The teacher (relation_space) and the cross-entropy beside it (coarse_weight) are settings: config/presets.py.
    replace(
        _MASKCON,
        name="teachcon",
        title="TeachCon",
        summary="ours: MaskCon with neighbours by HOG or pretrained features, and cross-entropy",
    ),
):
    register(_method)
