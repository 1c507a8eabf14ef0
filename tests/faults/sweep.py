"""Fail every operation of a scenario, one per run, then run it again undisturbed: how does it end?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.faults.disk import DENIED, FILLING, Fault
from tests.faults.forked import Outcome, Tree, digest_of, in_child
from tests.faults.scenarios import SCENARIOS, Laboratory, are_close, comparable

# How a run with a fault may end; whatever it is, the same command ends undisturbed as if nothing had happened.
UNHARMED = "same result"
REFUSED = "clear error"
TOLD = "told, images left out"
KILLED = "killed"
OTHER_DATA = "holds a run on other data; choose another --out"


@dataclass(frozen=True)
class Trial:
    """A fault and what came of it; `wrong` says what must not be."""

    kind: str
    fault: Fault
    outcome: str
    wrong: str = ""
    output: str = ""


def faults_of(kind: str, number: int) -> Iterator[Fault]:
    """Every way in which the operation of this number can fail."""
    hows = ["EIO", "dead", "kill"]
    hows += ["EACCES"] * (kind in DENIED) + ["ENOSPC", "full"] * (kind in FILLING)
    hows += ["short"] * (kind in ("read", "write")) + ["torn"] * (kind == "write")
    yield from (Fault(number, how) for how in hows)


class Sweep:
    """Trials of one scenario; a state of the disk that was met before is not run again."""

    def __init__(self, laboratory: Laboratory, name: str) -> None:
        self.laboratory, self.name = laboratory, name
        self.undisturbed = laboratory.undisturbed(name)
        self.expected = comparable(name, laboratory.end(name))
        self._reruns: dict[str, str] = {}

    def faults(self) -> list[Fault]:
        """Every fault at every operation."""
        operations = enumerate(self.undisturbed.operations, start=1)
        return [fault for number, operation in operations for fault in faults_of(operation.kind, number)]

    def trial(self, fault: Fault) -> Trial:
        """Run with a fault, then again without."""
        kind = self.undisturbed.operations[fault.at - 1].kind
        self.laboratory.put_back(self.laboratory.start(self.name))
        done = in_child(SCENARIOS[self.name].work, self.laboratory.root, fault)
        tree = self.laboratory.tree()
        outcome, wrong = self._judge(fault, done, tree)
        wrong = wrong or self._rerun(tree, left_out=outcome == TOLD)
        if outcome == TOLD and OTHER_DATA in wrong:
            wrong = ""  # the run that was trained without an image is kept from being taken for one with it
        return Trial(kind, fault, outcome, wrong, done.output)

    def _judge(self, fault: Fault, done: Outcome, tree: Tree) -> tuple[str, str]:
        if done.code == 99:
            return KILLED, ""
        if done.code == 0:
            if SCENARIOS[self.name].prints and done.output != self.undisturbed.output:
                return TOLD, f"silent, another result: {done.output[-600:]}"
            if _without_hidden(comparable(self.name, tree)) == _without_hidden(self.expected):
                return UNHARMED, ""  # the next command removes what could not be removed
            told = any(words in done.output for words in ("left out", "leaves out", "have changed"))
            told |= SCENARIOS[self.name].shows_gaps and fault.how == "EACCES"
            return TOLD, "" if told else f"silent, another result: {self._difference(tree)}"
        return REFUSED, "" if done.is_clear else f"unclear error, exit code {done.code}"

    def _rerun(self, tree: Tree, *, left_out: bool) -> str:
        state = digest_of(tree)
        if state not in self._reruns:
            self.laboratory.put_back(tree)
            done = in_child(SCENARIOS[self.name].work, self.laboratory.root)
            after = self.laboratory.tree()
            wrong = "" if done.code == 0 else f"the same command again fails: {done.output[-600:]}"
            found = comparable(self.name, after)
            if not wrong and found != self.expected and not (left_out and are_close(found, self.expected)):
                wrong = (
                    f"the same command again ends otherwise: {self._difference(after)}: {done.output[-600:]}"
                )
            self._reruns[state] = wrong
        return self._reruns[state]

    def _difference(self, tree: Tree) -> str:
        found = comparable(self.name, tree)
        names = sorted(found.keys() | self.expected.keys())
        return ", ".join(name for name in names if found.get(name) != self.expected.get(name))


def _without_hidden(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in tree.items() if not any(p[0] == "." for p in path.split("/"))}
