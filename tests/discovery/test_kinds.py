"""Kinds of a dataset: found, extended by added images, split, found anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from maskcon._utils.errors import DataError, UsageError
from maskcon.discovery.kinds import Embedded, Wanted, find_kinds
from maskcon.discovery.revision import add_images, refind_kinds, split_kind
from maskcon.discovery.summary import summarise
from tests.discovery.generated import cloud, clustered, joined, some


def labels(kinds, coarse="apple"):
    return [row.kind for row in kinds.rows if row.coarse == coarse]


def three_classes():
    """Three kinds of apple, two of pear, one cloud; of much the same spread."""
    apple, truth = clustered((90, 60, 40), seed=1, distance=0.6)
    pear, _ = clustered((70, 70), seed=2, distance=0.6, coarse="pear")
    base, _ = clustered((80,), seed=3, noise=0.6, coarse="cloud")
    return joined(apple, pear, base), truth


def test_kinds_are_found_within_classes_and_numbered_by_size():
    embedded, truth = three_classes()
    kinds = find_kinds(embedded)
    assert {name: len(group.kinds) for name, group in kinds.classes.items()} == {
        "apple": 3,
        "cloud": 1,
        "pear": 2,
    }
    assert adjusted_rand_score(truth, labels(kinds)) == 1
    assert Counter(labels(kinds)) == {"kind 1": 90, "kind 2": 60, "kind 3": 40}
    assert [row.path for row in kinds.rows] == list(embedded.paths)


def test_order_of_images_does_not_matter():
    embedded, _ = three_classes()
    order = np.random.default_rng(0).permutation(len(embedded.paths))
    one, other = find_kinds(embedded), find_kinds(some(embedded, order))
    assert {row.path: row.kind for row in one.rows} == {row.path: row.kind for row in other.rows}
    again = find_kinds(embedded)
    assert again.rows == one.rows
    for name, group in one.classes.items():
        assert group.centres.tobytes() == again.classes[name].centres.tobytes()


def test_large_classes_are_assigned_from_a_sample():
    embedded, truth = clustered((900, 700, 400))
    kinds = find_kinds(embedded)
    assert adjusted_rand_score(truth, labels(kinds)) == 1


def test_nested_kinds_follow_the_price():
    outer, _ = clustered((1,) * 3, seed=4, distance=1.0, noise=0)
    random = np.random.default_rng(0)
    truth = np.arange(480) % 6
    offsets = 0.25 * random.standard_normal((6, outer.vectors.shape[1]))
    vectors = outer.vectors[truth // 2] + offsets[truth] + 0.03 * random.standard_normal((480, 32))
    embedded = Embedded([f"{i}" for i in range(480)], ["apple"] * 480, vectors)
    coarse = find_kinds(embedded, Wanted(scale=2.0))
    fine = find_kinds(embedded, Wanted(scale=0.2))
    assert adjusted_rand_score(truth // 2, labels(coarse)) == 1
    assert adjusted_rand_score(truth, labels(fine)) == 1


def test_numbers_can_be_given():
    embedded, _ = three_classes()
    kinds = find_kinds(embedded, Wanted(every=2, by_class={"apple": 5}))
    assert {name: len(group.kinds) for name, group in kinds.classes.items()} == {
        "apple": 5,
        "cloud": 2,
        "pear": 2,
    }
    assert kinds.classes["apple"].suggestion.kinds == 3


def test_given_numbers_beyond_the_class_are_capped_or_refused():
    few = joined(clustered((40, 40))[0], clustered((1, 1, 1), coarse="few")[0])
    assert len(find_kinds(few, Wanted(every=10)).classes["few"].kinds) == 3
    with pytest.raises(UsageError, match="few has only 3 different images; give at most 3"):
        find_kinds(few, Wanted(by_class={"few": 4}))
    with pytest.raises(UsageError, match="did you mean 'apple'"):
        find_kinds(few, Wanted(by_class={"aple": 4}))
    with pytest.raises(UsageError, match="at least 1"):
        find_kinds(few, Wanted(every=0))


@pytest.mark.parametrize(
    "vectors",
    [
        np.ones((30, 8), np.float32),
        np.zeros((30, 8), np.float32),
        np.ones((30, 8), np.float32)
        + 1e-5 * np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32),
        np.ones((1, 8), np.float32),
        np.eye(3, 8, dtype=np.float32),
        np.eye(12, dtype=np.float32),
        np.random.default_rng(0).standard_normal((30, 1)).astype(np.float32),
    ],
)
def test_degenerate_embeddings_give_one_kind(vectors):
    kinds = find_kinds(Embedded([str(i) for i in range(len(vectors))], ["all"] * len(vectors), vectors))
    assert set(labels(kinds, "all")) == {"kind 1"} or vectors.shape[1] == 1
    assert all(0 <= row.confidence <= 1 for row in kinds.rows)
    assert "outlier" not in {row.role for row in kinds.rows} or vectors.shape[1] == 1
    summarise(kinds)


def test_identical_images_in_two_places_are_two_kinds():
    vectors = np.repeat(np.eye(2, 8, dtype=np.float32), 40, axis=0)
    kinds = find_kinds(Embedded([str(i) for i in range(80)], ["all"] * 80, vectors))
    assert Counter(labels(kinds, "all")) == {"kind 1": 40, "kind 2": 40}
    assert {row.confidence for row in kinds.rows} == {1.0}


def test_a_collapsed_class_does_not_shatter_the_others():
    apple, _ = clustered((80, 80), distance=0.6)
    flat = [
        Embedded([f"{n}/{i}" for i in range(30)], [f"flat {n}"] * 30, np.ones((30, 32), np.float32))
        for n in range(9)
    ]
    kinds = find_kinds(joined(apple, *flat))
    assert {name: len(group.kinds) for name, group in kinds.classes.items()}["apple"] == 2
    assert all(len(group.kinds) == 1 for name, group in kinds.classes.items() if name != "apple")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_refused(value):
    vectors = np.ones((4, 3), np.float32)
    vectors[2, 1] = value
    with pytest.raises(DataError, match="NaN or Inf"):
        Embedded(list("abcd"), ["x"] * 4, vectors)
    with pytest.raises(DataError, match="no image"):
        Embedded([], [], np.zeros((0, 3), np.float32))


def test_added_images_join_existing_kinds_and_removed_ones_go():
    embedded, truth = clustered((120, 90, 60), seed=5)
    random = np.random.default_rng(0)
    first = np.sort(random.permutation(270)[:200])
    before = find_kinds(some(embedded, first))
    now = np.arange(20, 270)
    after = add_images(before, some(embedded, now))
    old = {row.path: row.kind for row in before.rows}
    assert [row.path for row in after.rows] == [embedded.paths[i] for i in now]
    assert all(row.kind == old[row.path] for row in after.rows if row.path in old)
    assert adjusted_rand_score(truth[now], labels(after)) == 1
    for name, group in before.classes.items():
        np.testing.assert_array_equal(group.centres, after.classes[name].centres)


def test_an_added_class_gets_kinds_of_its_own():
    embedded, _ = three_classes()
    apples = [i for i, name in enumerate(embedded.coarse) if name == "apple"]
    before = find_kinds(some(embedded, apples))
    after = add_images(before, embedded)
    assert len(after.classes["pear"].kinds) == 2
    assert labels(after) == labels(before)
    assert set(add_images(after, some(embedded, apples)).classes) == {"apple"}


def test_an_image_whose_coarse_label_changed_is_assigned_anew():
    embedded, _ = three_classes()
    before = find_kinds(embedded)
    coarse = ["pear", *embedded.coarse[1:]]
    after = add_images(before, Embedded(embedded.paths, coarse, embedded.vectors))
    assert after.rows[0].coarse == "pear"
    assert after.rows[0].kind in before.classes["pear"].kinds


def test_refinding_the_same_images_keeps_names():
    embedded, _ = three_classes()
    before = find_kinds(embedded)
    named = {"kind 1": "Gala", "kind 2": "Boskoop", "kind 3": "kind 3"}
    rows = tuple(replace(row, kind=named[row.kind]) if row.coarse == "apple" else row for row in before.rows)
    group = before.classes["apple"]
    classes = {**before.classes, "apple": replace(group, kinds=tuple(named[kind] for kind in group.kinds))}
    after = refind_kinds(replace(before, rows=rows, classes=classes), embedded)
    assert [row.kind for row in after.rows] == [row.kind for row in rows]
    more = refind_kinds(replace(before, rows=rows, classes=classes), embedded, Wanted(by_class={"apple": 5}))
    assert {"Gala", "Boskoop", "kind 3"} < set(more.classes["apple"].kinds)
    assert len(more.classes["apple"].kinds) == 5
    assert [row for row in more.rows if row.coarse != "apple"] == [
        row for row in after.rows if row.coarse != "apple"
    ]
    every = refind_kinds(after, embedded, Wanted(every=4, by_class={"apple": 5}))
    assert {name: len(group.kinds) for name, group in every.classes.items()} == {
        name: 5 if name == "apple" else 4 for name in after.classes
    }


def test_refinding_leaves_junk_out():
    embedded, _ = clustered((80, 80))
    odd = Embedded([f"odd{i}" for i in range(40)], ["apple"] * 40, -embedded.vectors[:40])
    both = joined(embedded, odd)
    before = find_kinds(both)
    assert len(before.classes["apple"].kinds) > 1
    rows = tuple(replace(row, role="junk") if row.path.startswith("odd") else row for row in before.rows)
    after = refind_kinds(replace(before, rows=rows), both)
    assert {row.role for row in after.rows if row.path.startswith("odd")} == {"junk"}
    assert len(after.classes["apple"].kinds) == 2
    all_junk = replace(before, rows=tuple(replace(row, role="junk") for row in before.rows))
    assert {row.role for row in refind_kinds(all_junk, both).rows} == {"junk"}


def test_split_divides_one_kind_and_leaves_the_others():
    embedded, truth = clustered((90, 60, 50), seed=1)
    before = find_kinds(embedded, Wanted(every=2))
    found = labels(before)
    wide = found[0] if len({*truth[[kind == found[0] for kind in found]]}) == 2 else "kind 2"
    after, coarse, parts = split_kind(before, embedded, f"apple/{wide.removeprefix('kind ')}")
    assert (coarse, parts) == ("apple", [wide, "kind 3"])
    assert adjusted_rand_score(truth, labels(after)) == 1
    other = {"kind 1": "kind 2", "kind 2": "kind 1"}[wide]
    assert [k == other for k in labels(before)] == [k == other for k in labels(after)]
    four, _, parts = split_kind(before, embedded, f"apple/{wide}=4")
    assert len(parts) == 4
    assert len(set(labels(four))) == 5


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("apple/9", "unknown kind 'apple/9'"),
        ("aple/1", "did you mean 'apple/kind 1'"),
        ("apple", "unknown kind"),
        ("apple/1=900", "cannot be split in 900"),
        ("one/1", "1 different image: it cannot be split in 2"),
    ],
)
def test_split_that_cannot_be_is_refused(which, message):
    embedded = joined(clustered((40, 40))[0], clustered((1,), coarse="one")[0])
    with pytest.raises(UsageError, match=message):
        split_kind(find_kinds(embedded), embedded, which)


def test_summary_names_sizes_neighbours_and_images_to_show():
    embedded, _ = three_classes()
    apple, cloudy, _ = summarise(find_kinds(embedded))
    assert [kind.size for kind in apple.kinds] == [90, 60, 40]
    assert apple.images == 190
    assert all(kind.confused_with not in (None, kind.name) for kind in apple.kinds)
    assert len(apple.kinds[0].typical) == 8
    assert apple.stability == 1
    assert cloudy.kinds[0].confused_with is None
    assert cloudy.stability is None
    assert cloudy.reason
    assert apple.as_json()["curve"][0]["kinds"] == 2
    assert cloud(3).coarse[0] == cloudy.coarse
