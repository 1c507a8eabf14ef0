"""Write src/maskcon/data/builtin/imagenet32.csv: ImageNet's 1000 classes in the paper's 12 coarse ones.

    python scripts/build_imagenet_groups.py --noun /usr/share/wordnet/data.noun --check

WordNet 3.0's data.noun comes with Debian's package wordnet-base; its offsets are the numbers in ImageNet's WNIDs.
The classes and the labels that the downsampled files give them are read from the existing table, or with --order
from a file whose lines begin with a WNID, in the order of those labels (map_clsloc.txt of ImageNet's devkit).
--check compares with the existing table and writes nothing.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src" / "maskcon" / "data" / "builtin" / "imagenet32.csv"

COARSE_NAMES = (
    "invertebrate",
    "domestic animal",
    "bird",
    "mammal",
    "reptile/aquatic vertebrate",
    "device",
    "vehicle",
    "container",
    "instrument",
    "artifact",
    "clothing",
    "others",
)
PUBLISHED_COUNTS = (61, 123, 59, 95, 60, 130, 70, 53, 105, 71, 93, 80)  # the paper's table of fine classes

# The rule: a class belongs to the first line of which it is a descendant in WordNet, at any depth by any path.
RULE: tuple[tuple[str, str, str], ...] = (
    ("n01905661", "invertebrate", "invertebrate"),
    ("n01317541", "domestic_animal", "domestic animal"),  # so dogs and house cats are not among the mammals
    ("n01503061", "bird", "bird"),
    ("n01861778", "mammal", "mammal"),
    ("n01661091", "reptile", "reptile/aquatic vertebrate"),
    ("n01473806", "aquatic_vertebrate", "reptile/aquatic vertebrate"),
    (
        "n01627424",
        "amphibian",
        "reptile/aquatic vertebrate",
    ),  # the animal; n02704792 is a vehicle of that name
    ("n03183080", "device", "device"),
    ("n03100490", "conveyance", "vehicle"),
    ("n03094503", "container", "container"),
    ("n03575240", "instrumentality", "instrument"),
    ("n03122748", "covering", "clothing"),
    ("n03051540", "clothing", "clothing"),
    ("n03309808", "fabric", "clothing"),
    # household appliances come here, as commodities; only the sewing machine is a machine, hence a device, as well
    ("n00021939", "artifact", "artifact"),
)
OTHERWISE = "others"

# Single classes that the published grouping puts elsewhere than the rule would.
EXCEPTIONS: dict[str, tuple[str, str]] = {
    "n02939185": ("caldron", "instrument"),
    "n03063689": ("coffeepot", "instrument"),
    "n04398044": ("teapot", "instrument"),
    "n04266014": ("space_shuttle", "instrument"),
    "n03938244": ("pillow", "clothing"),
}


@dataclass(frozen=True)
class Synset:
    """One line of data.noun: its words, and the WNIDs of what it is a kind (or an instance) of."""

    words: tuple[str, ...]
    parents: tuple[str, ...]


def read_nouns(path: Path) -> dict[str, Synset]:
    """Every synset by WNID."""
    nouns = {}
    with path.open(encoding="ascii") as lines:
        for line in lines:
            if line.startswith(" "):  # the licence
                continue
            fields = line.partition(" | ")[0].split()
            word_count = int(fields[3], 16)
            words = tuple(fields[4 : 4 + 2 * word_count : 2])
            pointers = fields[5 + 2 * word_count :]  # symbol, offset, part of speech, source and target
            parents = tuple(
                f"n{offset}"
                for symbol, offset in zip(pointers[::4], pointers[1::4], strict=False)
                if symbol in ("@", "@i")
            )
            nouns[f"n{fields[0]}"] = Synset(words, parents)
    return nouns


def ancestors(wnid: str, nouns: Mapping[str, Synset]) -> Iterator[str]:
    """The class itself and everything above it."""
    waiting, seen = [wnid], set()
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            yield current
            waiting.extend(nouns[current].parents)


def coarse_name(wnid: str, nouns: Mapping[str, Synset]) -> str:
    """The coarse class of one ImageNet class: by exception, else by the first line of the rule that holds."""
    if wnid in EXCEPTIONS:
        return EXCEPTIONS[wnid][1]
    above = set(ancestors(wnid, nouns))
    return next((coarse for ancestor, _, coarse in RULE if ancestor in above), OTHERWISE)


def short_names(wnids: Sequence[str], nouns: Mapping[str, Synset]) -> dict[str, str]:
    """WordNet's first word for each class; where two classes share it, with what it is a kind of."""
    first = {wnid: nouns[wnid].words[0] for wnid in wnids}
    uses = Counter(first.values())

    def name(wnid: str) -> str:
        if uses[first[wnid]] == 1:
            return first[wnid]
        return f"{first[wnid]}_({nouns[nouns[wnid].parents[0]].words[0]})"

    return {wnid: name(wnid) for wnid in wnids}


def check_wordnet(nouns: Mapping[str, Synset], wnids: Sequence[str]) -> None:
    """Is this the WordNet whose offsets ImageNet uses?"""
    expected = {ancestor: word for ancestor, word, _ in RULE}
    expected |= {wnid: word for wnid, (word, _) in EXCEPTIONS.items()}
    for wnid, word in expected.items():
        if wnid not in nouns or word not in nouns[wnid].words:
            raise SystemExit(f"{wnid} is not {word!r} in this data.noun; WordNet 3.0 is needed")
    unknown = [wnid for wnid in wnids if wnid not in nouns]
    if unknown or len(set(wnids)) != 1000:
        raise SystemExit(f"1000 different WNIDs are needed, got {len(set(wnids))}; unknown: {unknown[:3]}")


def read_order(path: Path) -> list[str]:
    """WNIDs in the order of the labels 1..1000."""
    return [line.split()[0] for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def current_order() -> list[str]:
    """As `read_order`, from the table in the package."""
    from maskcon.data.builtin.classes import read_table

    rows = sorted(read_table("imagenet32"), key=lambda row: int(row["file_label"]))
    return [row["wnid"] for row in rows]


def table_text(order: Sequence[str], nouns: Mapping[str, Synset]) -> str:
    """The table as CSV, one row per class, by WNID."""
    check_wordnet(nouns, order)
    names = short_names(order, nouns)
    coarse = {wnid: COARSE_NAMES.index(coarse_name(wnid, nouns)) for wnid in order}
    sizes = Counter(coarse.values())
    counts = tuple(sizes[number] for number in range(len(COARSE_NAMES)))
    if counts != PUBLISHED_COUNTS:
        raise SystemExit(f"the groups have {counts} classes instead of {PUBLISHED_COUNTS}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("fine_name", "coarse", "coarse_name", "wnid", "file_label"))
    for wnid, label in sorted((wnid, label) for label, wnid in enumerate(order, start=1)):
        number = coarse[wnid]
        writer.writerow((names[wnid].replace("_", " "), number, COARSE_NAMES[number], wnid, label))
    return text.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--noun", type=Path, required=True, help="data.noun of WordNet 3.0")
    parser.add_argument("--order", type=Path, help="file of WNIDs in the order of the downsampled labels")
    parser.add_argument("--check", action="store_true", help="compare with the table, write nothing")
    arguments = parser.parse_args()
    order = current_order() if arguments.order is None else read_order(arguments.order)
    text = table_text(order, read_nouns(arguments.noun))
    if not arguments.check:
        TARGET.write_text(text, encoding="utf-8")
    elif text != TARGET.read_text(encoding="utf-8"):
        changed = difflib.unified_diff(
            TARGET.read_text(encoding="utf-8").splitlines(), text.splitlines(), n=0, lineterm=""
        )
        raise SystemExit("the table differs: " + " ".join(list(changed)[:20]))
    print(
        f"{TARGET.name}: {', '.join(f'{n} {c}' for n, c in zip(COARSE_NAMES, PUBLISHED_COUNTS, strict=True))}"
    )


if __name__ == "__main__":
    main()
