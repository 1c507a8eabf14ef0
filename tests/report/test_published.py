from __future__ import annotations

import pytest

from maskcon.report.published import appendix_rows, main_rows, published_notes, published_recall

SOURCES = ("cifartoy-good", "cifartoy-bad", "cifar100", "imagenet32", "sop-split1", "sop-split2", "cars196")
ROWS = {"cifartoy-good": 18, "cifartoy-bad": 18, "cifar100": 18, "imagenet32": 0} | {
    "sop-split1": 15,
    "sop-split2": 14,
    "cars196": 14,
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_row_is_a_recall_that_rises_with_k(source: str) -> None:
    assert len(main_rows(source)) == 7
    assert len(appendix_rows(source)) == ROWS[source]
    for row in (*main_rows(source), *appendix_rows(source)):
        assert 0 < row.percent[0] < row.percent[1] < row.percent[2] < row.percent[3] < 100, row


@pytest.mark.parametrize("source", [source for source in SOURCES if source != "imagenet32"])
def test_the_settings_of_the_main_table_are_the_best_of_the_appendix(source: str) -> None:
    for row in main_rows(source):
        if row.w is None:
            continue
        tried = [other for other in appendix_rows(source) if other.method == row.method]
        best = max(tried, key=lambda other: other.percent[0])
        assert (best.w, best.tau) == (row.w, row.tau)
        assert best.percent[0] == row.percent[0]


@pytest.mark.parametrize("source", [source for source in SOURCES if source != "imagenet32"])
def test_the_appendix_sweeps_the_same_weights_for_both_rivals(source: str) -> None:
    for method in ("grafit", "coins"):
        assert [row.w for row in appendix_rows(source) if row.method == method] == [0.2, 0.5, 0.8, 1.0]


@pytest.mark.parametrize(
    ("source", "method", "w", "tau", "percent"),
    [
        ("cifar100", "maskcon", 0.5, 0.5, (57.46, 68.27, 79.86, 87.05)),
        ("cifar100", "coins", 0.8, None, (59.35, 70.40, 83.19, 89.82)),
        ("cifartoy-bad", "maskcon", 1.0, 0.1, (88.44, 93.65, 97.10, 98.34)),
        ("sop-split1", "maskcon", 0.8, 0.05, (68.53, 73.72, 79.86, 84.22)),
        ("sop-split2", "grafit", 0.2, None, (36.85, 42.52, 50.23, 57.04)),
        ("cars196", "coins", 0.8, None, (38.71, 49.04, 67.28, 79.23)),
        ("cars196", "selfcon", None, None, (20.97, 28.75, 41.44, 52.61)),
    ],
)
def test_rows_of_the_appendix_read_off_the_paper(source, method, w, tau, percent) -> None:
    rows = {(row.method, row.w, row.tau): row.percent for row in appendix_rows(source)}
    assert rows[method, w, tau] == percent


def test_misprints_are_corrected_and_told() -> None:
    toy = {(row.method, row.w): row.percent for row in appendix_rows("cifartoy-good")}
    assert toy["coins", 1.0] == (76.30, 85.26, 94.65, 97.46)
    (note,) = (line for line in published_notes("cifartoy-good", "appendix") if line.startswith("Corrected"))
    assert "printed 8.26, should be 85.26" in note
    for source in ("cifar100", "imagenet32"):  # a gain is MaskCon's recall@1 minus SupCE's
        recall = published_recall(source)
        assert recall is not None
        gain = 100 * (recall["maskcon"]["1"] - recall["supce"]["1"])
        assert f"should be {gain:.2f}" in published_notes(source, "main")[0]
        assert not any("gain" in line for line in published_notes(source, "appendix"))


def test_where_main_text_and_appendix_differ_both_are_kept_and_told() -> None:
    same = {"supcon": ("grafit", 1.0, None), "supce": ("coins", 1.0, None)}  # in the appendix
    for source in SOURCES:
        appendix = {(row.method, row.w, row.tau): row.percent for row in appendix_rows(source)}
        expected = []
        for row in main_rows(source):
            twin = appendix.get(same.get(row.method, (row.method, row.w, row.tau)), row.percent)
            if twin != row.percent:
                ours, theirs = (", ".join(f"{value:.2f}" for value in of) for of in (row.percent, twin))
                told = f"{row.method}: {ours} in the main text, {theirs} in the appendix."
                expected.append(f"The paper differs from itself on {source}, {told}")
        for table in ("main", "appendix"):
            assert [line for line in published_notes(source, table) if "differs" in line] == expected
