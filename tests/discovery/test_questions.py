"""Questions to a person, and what the answers tell of other images."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from maskcon._utils.errors import DataError, UsageError
from maskcon.data.kinds_file import KindRow, read_kinds, write_kinds
from maskcon.discovery.clusters import fit_space
from maskcon.discovery.edits import apply_edits, check_edits, list_changes
from maskcon.discovery.kinds import Embedded, Kinds, Wanted, find_kinds
from maskcon.discovery.kinds_export import plan_places
from maskcon.discovery.kinds_folder import Origin, read_folder, write_folder
from maskcon.discovery.questions import (
    KNOWN_WEIGHT,
    PER_KIND,
    ROUNDS,
    apply_answers,
    check_replaced,
    choose_questions,
    question_rows,
)
from maskcon.discovery.revision import add_images, refind_kinds
from tests.discovery.generated import cloud, clustered, joined


def answers(kinds: Kinds, names: dict[str, str]) -> list[KindRow]:
    known = kinds.known()
    return [replace(known[path], kind=name, question="1: ?") for path, name in names.items()]


def kind_of(kinds: Kinds) -> dict[str, str]:
    return {row.path: row.kind for row in kinds.rows}


def spread_oracle(kinds: Kinds, embedded: Embedded, names: dict[str, str]) -> dict[str, str]:
    """The rule of `questions`, image by image, for one class without junk and without hand-given names."""
    points = kinds.classes["apple"].space.project(embedded.vectors).astype(np.float64)
    point = dict(zip(embedded.paths, points, strict=True))
    before = kind_of(kinds)
    now = dict(before) | names
    for path in embedded.paths:
        candidates = sorted({name for other, name in names.items() if before[other] == before[path]})
        if path not in names and candidates:
            means = [
                np.mean([point[p] for p, n in names.items() if n == name], axis=0) for name in candidates
            ]
            now[path] = candidates[int(np.argmin([((point[path] - mean) ** 2).sum() for mean in means]))]
    for _ in range(ROUNDS):
        kinds_now = sorted(set(now.values()))
        means = []
        for name in kinds_now:
            own = [path for path in embedded.paths if now[path] == name]
            weights = [KNOWN_WEIGHT if path in names else 1 for path in own]
            means.append(np.average([point[path] for path in own], axis=0, weights=weights))
        for path in embedded.paths:
            if path not in names:
                now[path] = kinds_now[int(np.argmin([((point[path] - mean) ** 2).sum() for mean in means]))]
    return now


@pytest.mark.parametrize("seed", range(5))
def test_answers_reach_the_images_that_the_oracle_says(seed):
    embedded, truth = clustered((30, 20, 25), noise=0.6, seed=seed)
    kinds = find_kinds(embedded, Wanted(every=2 + seed % 2))
    chosen = np.random.default_rng(seed).permutation(75)[:6]
    names = {embedded.paths[row]: f"name {truth[row]}" for row in chosen}
    after = apply_answers(kinds, answers(kinds, names), embedded)
    assert kind_of(after) == spread_oracle(kinds, embedded, names)
    assert after.answered == set(names)


def test_kinds_of_one_name_merge_and_a_kind_of_two_names_is_split():
    embedded, truth = clustered((40, 40, 40), distance=1.5)
    over = find_kinds(embedded, Wanted(every=6))
    medoids = [asked.path for asked in choose_questions(over, embedded, 12)]
    name_of = {path: f"name {truth[embedded.paths.index(path)]}" for path in embedded.paths}
    merged = apply_answers(over, answers(over, {path: name_of[path] for path in medoids}), embedded)
    assert kind_of(merged) == name_of
    whole = find_kinds(embedded, Wanted(every=1))
    asked = [question.path for question in choose_questions(whole, embedded, 6)]
    split = apply_answers(whole, answers(whole, {path: name_of[path] for path in asked}), embedded)
    assert kind_of(split) == name_of
    assert set(split.classes["apple"].kinds) == set(name_of.values())


def test_first_questions_are_in_the_middle_of_each_kind_and_later_ones_elsewhere():
    embedded, truth = clustered((60, 30, 10), distance=2)
    kinds = find_kinds(embedded, Wanted(every=3))
    questions = choose_questions(kinds, embedded, 100)
    first = questions[:3]
    assert {truth[embedded.paths.index(asked.path)] for asked in first} == {0, 1, 2}
    assert first[0].reason == "no image of kind 1 is known yet (60 images)"
    assert all(asked.choices[0] == asked.kind for asked in questions)
    own = embedded.vectors[truth == 0]
    middle = np.linalg.norm(own - own.mean(0), axis=1)
    assert middle[embedded.paths.index(first[0].path)] < np.median(middle)
    assert len({asked.path for asked in questions}) == len(questions) == 100


def test_questions_come_class_by_class_and_uniform_classes_last():
    varied, _ = clustered((40, 40), distance=2, coarse="apple")
    kinds = find_kinds(joined(varied, cloud(40, coarse="pear")), Wanted(by_class={"apple": 2, "pear": 1}))
    embedded = joined(varied, cloud(40, coarse="pear"))
    questions = choose_questions(kinds, embedded, 3 * PER_KIND)
    assert [asked.coarse for asked in questions] == ["apple"] * 2 * PER_KIND + ["pear"] * PER_KIND


def test_answered_images_and_junk_are_not_asked_about_again_and_not_moved():
    embedded, truth = clustered((20, 20), distance=2)
    kinds = find_kinds(embedded, Wanted(every=2))
    odd = embedded.paths[1]
    told = {embedded.paths[0]: "Gala", odd: "Mystery", embedded.paths[30]: "Fuji"}
    marked = [*answers(kinds, told), replace(kinds.rows[5], kind="", role="junk", question="?")]
    after = apply_answers(kinds, [*marked, replace(kinds.rows[9], kind="", question="?")], embedded)
    assert kind_of(after)[odd] == "Mystery"
    assert after.rows[5].role == "junk"
    assert after.answered == set(told)
    for again in (add_images(after, embedded), refind_kinds(after, embedded)):
        assert again.answered == set(told)
        assert kind_of(again)[odd] == "Mystery"
    asked = {question.path for question in choose_questions(after, embedded, 100)}
    assert asked == set(embedded.paths) - set(told) - {embedded.paths[5]}
    assert len(truth) == 40


def test_class_marked_as_junk_as_a_whole_is_taken_over_and_not_asked_about():
    embedded, _ = clustered((10, 10))
    kinds = find_kinds(embedded)
    after = apply_answers(kinds, [replace(row, role="junk") for row in kinds.rows], embedded)
    assert {row.role for row in after.rows} == {"junk"}
    assert choose_questions(after, embedded, 10) == []


@pytest.mark.filterwarnings("error")
def test_answered_image_that_became_junk_counts_no_more():
    embedded, truth = clustered((40, 40), distance=2)
    whole = find_kinds(embedded, Wanted(every=1))
    gala, fuji = embedded.paths[0], embedded.paths[50]
    named = apply_answers(whole, answers(whole, {gala: "Gala"}), embedded)
    marked = apply_edits(named, [replace(named.known()[gala], role="junk")], embedded)
    assert marked.answered == {gala}
    after = apply_answers(marked, answers(marked, {fuji: "Fuji"}), embedded)
    assert kind_of(after) == {
        path: "Gala" if kind == 0 else "Fuji" for path, kind in zip(embedded.paths, truth, strict=True)
    }


@pytest.mark.filterwarnings("error")
def test_answer_restores_an_image_from_junk_and_counts():
    embedded, _ = clustered((20, 20), distance=2)
    kinds = find_kinds(embedded, Wanted(every=2))
    odd = embedded.paths[3]
    marked = apply_edits(kinds, [replace(kinds.known()[odd], role="junk")], embedded)
    restored = [replace(row, role="") for row in answers(marked, {odd: "Gala"})]
    after = apply_answers(marked, restored, embedded)
    assert after.known()[odd].role != "junk"
    assert Counter(row.kind for row in after.rows)["Gala"] == 20


def test_kinds_that_a_person_named_as_a_whole_keep_their_images():
    embedded, _ = clustered((20, 20, 20), distance=0.5, noise=0.3)
    kinds = find_kinds(embedded, Wanted(every=3))
    by_hand = replace(
        kinds,
        rows=tuple(replace(row, kind={"kind 1": "Gala"}.get(row.kind, row.kind)) for row in kinds.rows),
    )
    other = next(row.path for row in by_hand.rows if row.kind == "kind 2")
    after = apply_answers(by_hand, answers(by_hand, {other: "Fuji"}), embedded)
    assert [row.path for row in after.rows if row.kind == "Gala"] == [
        row.path for row in by_hand.rows if row.kind == "Gala"
    ]
    assert Counter(row.kind for row in after.rows)["Fuji"] > 5
    one = next(row.path for row in by_hand.rows if row.kind == "Gala")
    split = apply_answers(by_hand, answers(by_hand, {one: "Elstar"}), embedded)
    kept = Counter(row.kind for row in split.rows)
    assert kept["Gala"] >= 1  # one answer does not take over a kind that has a name


def test_answers_are_kept_in_the_folder(tmp_path):
    embedded, _ = clustered((20, 20))
    kinds = find_kinds(embedded)
    after = apply_answers(kinds, answers(kinds, {embedded.paths[3]: "Gala"}), embedded)
    write_folder(tmp_path, after, Origin("e", None))
    found = read_folder(tmp_path)
    assert found is not None
    assert found[0].answered == {embedded.paths[3]}
    assert list_changes(after.rows, found[0].rows) == []


def test_file_of_questions_is_read_back_and_not_overwritten_once_it_holds_answers(tmp_path):
    embedded, _ = clustered((21, 20))
    kinds, file = find_kinds(embedded), tmp_path / "questions.csv"
    questions = choose_questions(kinds, embedded, 5)
    write_kinds(file, question_rows(questions, kinds), questions=True)
    check_replaced(file, kinds)
    rows = read_kinds(file)
    assert [(row.path, row.kind) for row in rows] == [(asked.path, "") for asked in questions]
    assert rows[0].question == "1: no image of kind 1 is known yet (21 images); now kind 1"
    filled = [replace(rows[0], kind="Gala"), *rows[1:]]
    write_kinds(file, filled, questions=True)
    with pytest.raises(UsageError, match="1 answer not taken over yet"):
        check_replaced(file, kinds)
    check_replaced(file, apply_answers(kinds, read_kinds(file), embedded))


def test_equal_images_and_a_class_of_one_image_can_be_asked_about():
    same = Embedded(["a/1", "a/2", "a/3", "b/1"], ["a", "a", "a", "b"], np.ones((4, 8), np.float32))
    kinds = find_kinds(same)
    questions = choose_questions(kinds, same, 10)
    assert {asked.path for asked in questions} == {"a/1", "a/2", "a/3", "b/1"}
    after = apply_answers(kinds, answers(kinds, {"a/1": "x", "a/2": "y", "b/1": "z"}), same)
    assert kind_of(after)["b/1"] == "z"
    assert kind_of(after)["a/3"] in ("x", "y")
    assert fit_space(same.vectors).axes.shape[1] == 1


def test_kinds_of_one_image_each_are_asked_about_named_and_exported(tmp_path):
    embedded, _ = clustered((6,), noise=1.0)
    kinds = find_kinds(embedded, Wanted(every=6))
    assert sorted(Counter(row.kind for row in kinds.rows).values()) == [1] * 6
    questions = choose_questions(kinds, embedded, 50)
    assert len(questions) == 6
    named = ("Gala, red", 'the "big" one', "=1+1", "苹果", "\u0645\u0648\u0632", "kind 9")
    told = dict(zip((asked.path for asked in questions), named, strict=True))
    file = tmp_path / "questions.csv"
    write_kinds(file, answers(kinds, told), questions=True)
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    after = apply_answers(kinds, read_kinds(file), embedded)
    assert kind_of(after) == told
    assert len(set(plan_places(after.rows).values())) == 6


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("gone.jpg,apple,Gala,,,1: ?", "line 2: gone.jpg is not among the images"),
        ("apple/00000.jpg,pear,Gala,,,1: ?", "line 2: apple/00000.jpg has the coarse label 'apple'"),
        ('apple/00000.jpg,apple,"two\nlines",,,1: ?', "line 3: the kind 'two\\nlines' has a line break"),
        (
            "apple/00000.jpg,apple,A,,,1: ?\napple/00000.jpg,apple,B,,,2: ?",
            "line 3: apple/00000.jpg is in line 2",
        ),
    ],
)
def test_answers_that_cannot_be_used_are_refused_with_their_line(tmp_path, row, message):
    embedded, _ = clustered((5, 5))
    kinds, file = find_kinds(embedded), tmp_path / "questions.csv"
    file.write_text(f"path,coarse,kind,confidence,role,question\n{row}\n", encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(message)):
        check_edits(kinds, read_kinds(file), file)
