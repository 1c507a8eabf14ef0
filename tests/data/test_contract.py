from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon._utils.errors import DataError, UsageError
from maskcon.data import Dataset, ImageSet
from maskcon.data import dataset as contract_module


def image_set(fine: list[int], first_id: int = 0, with_fine: bool = True) -> ImageSet:
    labels = np.array(fine, dtype=np.int64)
    images = np.arange(len(fine) * 12, dtype=np.uint8).reshape(-1, 3, 2, 2)
    return ImageSet(images, labels // 2, labels if with_fine else None, np.arange(len(fine)) + first_id)


def dataset(fine: list[int], with_fine: bool = True) -> Dataset:
    return Dataset(
        name="tiny",
        train=image_set(fine, with_fine=with_fine),
        test=image_set([0, 1, 2, 3], first_id=1000, with_fine=with_fine),
        coarse_names=("a", "b"),
        fine_names=("a0", "a1", "b0", "b1") if with_fine else None,
        family="cifar",
        coarse_of_fine=(0, 0, 1, 1) if with_fine else None,
    )


def test_subset_keeps_ids_sizes_and_paths() -> None:
    whole = image_set([0, 1, 2, 3])
    sized = ImageSet(
        whole.images,
        whole.coarse,
        whole.fine,
        whole.index,
        sizes=np.array([[1, 1], [2, 1], [1, 2], [2, 2]], dtype=np.int32),
        paths=("a", "b", "c", "d"),
    )
    part = sized.subset([3, 1])
    assert part.index.tolist() == [3, 1]
    assert part.paths == ("d", "b")
    assert part.sizes is not None
    assert part.sizes.tolist() == [[2, 2], [2, 1]]
    assert np.array_equal(part.images, whole.images[[3, 1]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((4, 3, 2, 2), np.float32)}, "uint8"),
        ({"images": np.zeros((4, 2, 2, 2), np.uint8)}, "C 1 or 3"),
        ({"images": np.zeros((4, 2, 2), np.uint8)}, "C 1 or 3"),
        ({"coarse": np.zeros(3, np.int64)}, "coarse"),
        ({"coarse": np.zeros(4, np.int32)}, "coarse"),
        ({"fine": np.zeros((4, 1), np.int64)}, "fine"),
        ({"index": np.array([0, 1, 1, 2])}, "unique"),
        ({"sizes": np.full((4, 2), 3, np.int32)}, "canvas"),
        ({"sizes": np.zeros((4, 2), np.int32)}, "canvas"),
        ({"sizes": np.ones((4, 2), np.int64)}, "int32"),
        ({"paths": ("a",)}, "paths"),
    ],
)
def test_malformed_image_set_is_refused(change: dict[str, object], message: str) -> None:
    good = image_set([0, 1, 2, 3])
    fields = {"images": good.images, "coarse": good.coarse, "fine": good.fine, "index": good.index} | change
    with pytest.raises(DataError, match=message):
        ImageSet(**fields)  # type: ignore[arg-type]


def test_dataset_refuses_labels_without_a_name() -> None:
    with pytest.raises(DataError, match=r"0\.\.1"):
        Dataset("x", image_set([0, 5]), image_set([0]), ("a", "b"), tuple("abcdef"), "cifar", None)


def test_dataset_refuses_a_coarse_label_that_contradicts_the_fine_one() -> None:
    with pytest.raises(DataError, match="belongs to 1"):
        Dataset("x", image_set([0, 1]), image_set([0]), ("a", "b"), ("f", "g"), "cifar", (0, 1))


def test_dataset_refuses_parts_of_different_canvas() -> None:
    small = ImageSet(np.zeros((1, 3, 1, 1), np.uint8), np.array([0]), None, np.array([0]))
    with pytest.raises(DataError, match="canvas"):
        Dataset("x", image_set([0, 1], with_fine=False), small, ("a", "b"), None, "cifar", None)


def _sized(data: Dataset) -> Dataset:
    """The same with valid sizes of 1 x 2."""
    train, test = (
        replace(part, sizes=np.tile(np.array([1, 2], dtype=np.int32), (len(part), 1)))
        for part in (data.train, data.test)
    )
    return replace(data, train=train, test=test)


def test_fingerprint_sees_every_pixel_label_id_and_size_but_not_names() -> None:
    base, same = _sized(dataset([0, 1, 2, 3] * 3)), _sized(dataset([0, 1, 2, 3] * 3))
    assert base.fingerprint() == same.fingerprint()
    for part in (base.train, base.test):
        for array in (part.images, part.coarse, part.fine, part.index, part.sizes):
            assert array is not None
            array.flat[-1] ^= 1
            changed = Dataset("tiny", base.train, base.test, ("a", "b"), base.fine_names, "cifar", None)
            assert changed.fingerprint() != base.fingerprint()
            array.flat[-1] ^= 1
    renamed = Dataset("other", same.train, same.test, ("p", "q"), same.fine_names, "photos", None)
    assert renamed.fingerprint() == base.fingerprint()


def test_fingerprint_does_not_depend_on_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = dataset([0, 1, 2, 3] * 5).fingerprint()
    monkeypatch.setattr(contract_module, "HASH_CHUNK_BYTES", 13)
    assert dataset([0, 1, 2, 3] * 5).fingerprint() == whole


def test_hold_out_is_stratified_disjoint_and_never_touches_test() -> None:
    data = dataset([0] * 10 + [1] * 20 + [2] * 30 + [3] * 1)
    held = data.hold_out(0.2, seed=3)
    assert held.test.fine is not None
    assert np.bincount(held.test.fine, minlength=4).tolist() == [2, 4, 6, 0]
    together = np.concatenate([held.train.index, held.test.index])
    assert sorted(together.tolist()) == data.train.index.tolist()
    assert "held out" in held.notes[-1]
    again = data.hold_out(0.2, seed=3)
    assert held.test.index.tolist() == again.test.index.tolist()
    assert held.test.index.tolist() != data.hold_out(0.2, seed=4).test.index.tolist()


def test_hold_out_goes_by_coarse_labels_where_fine_ones_are_unknown() -> None:
    held = dataset([0, 1] * 10 + [2, 3] * 5, with_fine=False).hold_out(0.5)
    assert np.bincount(held.test.coarse).tolist() == [10, 5]


def test_hold_out_takes_at_least_one_of_each_class_that_can_spare_it() -> None:
    held = dataset([0, 0, 1, 1, 2, 2, 3]).hold_out(0.01)
    assert held.test.fine is not None
    assert sorted(held.test.fine.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 2.0])
def test_hold_out_refuses_a_fraction_outside_0_1(fraction: float) -> None:
    with pytest.raises(UsageError, match="fraction"):
        dataset([0, 1, 2, 3]).hold_out(fraction)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=80),
    st.integers(1, 100),
    st.integers(0, 2**32),
)
def test_limited_is_as_balanced_as_the_classes_allow(fine: list[int], count: int, seed: int) -> None:
    limited = dataset(fine).limited(count, None, seed)
    assert len(limited.train) == min(count, len(fine))
    assert len(limited.test) == 4
    assert limited.train.fine is not None
    kept = np.bincount(limited.train.fine, minlength=4)
    available = np.bincount(fine, minlength=4)
    for kind in range(4):  # a class has fewer than another by more than one only if it has no more to give
        assert kept[kind] == available[kind] or kept[kind] >= kept.max() - 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=8, max_size=40),
    st.booleans(),
    st.sampled_from([None, 1, 3, 7, 100]),
    st.sampled_from([None, 1, 3, 100]),
    st.integers(0, 3),
)
def test_hold_out_with_limits_is_hold_out_and_then_limits(
    fine: list[int], with_fine: bool, train: int | None, test: int | None, seed: int
) -> None:
    data = dataset(fine, with_fine)
    at_once = data.hold_out(0.3, seed, train=train, test=test)
    after = data.hold_out(0.3, seed).limited(train, test, seed)
    assert at_once.fingerprint() == after.fingerprint()
    assert at_once.notes == after.notes


def test_hold_out_with_limits_copies_only_what_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    subset = ImageSet.subset

    def counted(part: ImageSet, rows: Any) -> ImageSet:
        copied.append(len(rows))
        return subset(part, rows)

    monkeypatch.setattr(ImageSet, "subset", counted)
    dataset([0, 1, 2, 3] * 25).hold_out(0.2, train=8, test=4)
    assert copied == [8, 4]


def test_limited_refuses_zero() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        dataset([0, 1, 2, 3]).limited(0, None)
    with pytest.raises(UsageError, match="at least 1"):
        dataset([0, 1, 2, 3] * 5).hold_out(0.5, test=0)
