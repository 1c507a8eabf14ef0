"""Which runs a figure needs, and what is drawn from them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from maskcon._utils.errors import DataError, UsageError
from maskcon.config.settings import Machine
from maskcon.paper.figures import DRAWN_BY, paper_grid, queries_from
from maskcon.paper.ground import ground_for
from maskcon.paper.plans import FIGURES, TABLES, Trial, figure_named, trials_of
from maskcon.paper.relations import as_square, small_batch
from maskcon.paper.runs import Setup, runs_for
from tests.paper.test_table import finish


@pytest.fixture(autouse=True)
def no_data(tmp_path, monkeypatch):
    monkeypatch.setenv("MASKCON_DATA", str(tmp_path / "nothing"))


def test_a_misspelt_figure_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'heatmap'"):
        figure_named("heat-map")


def test_the_heatmap_trains_w_0_once_and_grafit_for_tau_inf():
    trials = trials_of(figure_named("heatmap"), "cifar100")
    assert len(trials) == len(set(trials)) == 25
    assert trials.count(Trial("selfcon")) == 1
    assert {trial.w for trial in trials if trial.method == "grafit"} == {0.2, 0.5, 0.8, 1.0}
    assert {trial.tau for trial in trials if trial.method == "maskcon"} == {0.0, 0.01, 0.05, 0.1, 0.5}
    assert len(trials_of(figure_named("heatmap"), "cifar100", seeds=3)) == 75


def test_figures_of_images_need_no_run_that_the_main_table_does_not():
    for name, table in (("tsne", "cifartoy"), ("relations", "cifartoy"), ("retrieval", "cars196")):
        figure = figure_named(name)
        (source,) = figure.sources
        assert set(trials_of(figure, source)) <= set(trials_of(TABLES[table], source))


def test_seeds_are_refused_where_single_runs_are_shown():
    assert figure_named("heatmap", seeds=3).takes_seeds
    for name in FIGURES.keys() - {"heatmap"}:
        assert figure_named(name, seeds=1)
        with pytest.raises(UsageError, match=f"--seeds 3 .*heatmap.*{name} .*images of single runs"):
            figure_named(name, seeds=3)


def test_every_figure_can_be_drawn():
    assert FIGURES.keys() == DRAWN_BY.keys()


def test_the_papers_grid_holds_its_appendix_and_nothing_else():
    grid = paper_grid("cifar100")
    assert grid[0].tolist() == [40.50] * 6  # w = 0 is SelfCon at every tau
    assert grid[2, 1:].tolist() == [54.22, 58.89, 60.18, 57.46, 57.78]
    assert np.isnan(grid[1, :5]).all()
    assert grid[1, 5] == 47.80


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_heatmap_shows_the_mean_of_each_setting(tmp_path, seeds):
    figure = figure_named("heatmap")
    ground = ground_for("cifar100")
    runs = runs_for(trials_of(figure, ground.asked, seeds), ground, out=tmp_path)
    for trial, run in runs.items():
        finish(run, 0.3 + 0.2 * float(trial.w or 0) + 0.02 * trial.seed + 0.1 * (trial.tau == 0.05))
    files, said = DRAWN_BY[figure.name](Setup(figure, ground, runs, seeds, tmp_path / "figures", Machine()))
    assert [path.name for path in files] == ["heatmap.png", "heatmap.svg", "heatmap.json"]
    numbers = json.loads(files[2].read_text())
    cells = {(cell["w"], cell["tau"]): cell for cell in numbers["cells"]}
    assert len(cells) == 30
    extra = 1.0 * (seeds - 1)
    assert cells[1, "0.05"]["recall_at_1"] == pytest.approx(60 + extra)
    assert cells[0.5, "inf"]["recall_at_1"] == pytest.approx(40 + extra)  # the run of Grafit
    assert {cell["recall_at_1"] for (w, _), cell in cells.items() if w == 0} == {30 + extra}
    assert cells[1, "0.05"]["sd"] == (None if seeds == 1 else 1.41)
    assert cells[1, "0.05"]["paper_recall_at_1"] == 65.52
    assert cells[0.2, "0.1"]["paper_recall_at_1"] is None
    assert numbers["data"] == "cifar100 (STAND-IN: embedded)"
    assert "w = 1, tau = 0.05" in said
    assert "oracle" in said


def test_settings_are_the_papers():
    retrieval = figure_named("retrieval")
    told = Setup(retrieval, ground_for("cars196"), {}, 1, Path(), Machine()).settings()
    assert told == ("Settings of the paper's table: Grafit w = 1; CoIns w = 1; MaskCon w = 1, τ = 0.1.")


def test_runs_on_other_data_than_the_rest_are_refused(tmp_path):
    figure = figure_named("tsne")
    ground = ground_for(*figure.sources)
    runs = runs_for(trials_of(figure, ground.asked), ground, out=tmp_path)
    for number, run in enumerate(runs.values()):
        finish(run, 0.5)
        file = run.folder / "result.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "data": f"print {number}"}))
    with pytest.raises(DataError, match="was trained on other data than"):
        DRAWN_BY[figure.name](Setup(figure, ground, runs, 1, tmp_path / "figures", Machine()))
    assert not (tmp_path / "figures").exists()


def test_a_small_batch_has_two_coarse_classes_three_kinds_and_three_images_of_each():
    fine = np.tile(np.arange(12), 20)
    coarse = np.array([0, 1, 1, 1, 2, 2, 2, 2, 0, 3, 3, 1])[fine]  # 2, 4, 4 and 2 kinds
    index = np.arange(240) % 120 * 7  # every image is there twice
    rows = small_batch(coarse, fine, index)
    assert len(rows) == 18
    assert len(set(index[rows].tolist())) == 18
    assert set(coarse[rows].tolist()) == {1, 2}
    assert np.bincount(fine[rows])[np.unique(fine[rows])].tolist() == [3] * 6
    assert small_batch(coarse[:3], fine[:3], index[:3]).size <= 3  # less is no error


def test_the_own_key_goes_to_the_diagonal():
    relation = torch.tensor([[0.5, 0.0, 0.3, 0.2], [0.6, 0.4, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    expected = [[0.5, 0.3, 0.2], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]]
    assert np.allclose(as_square(relation), expected)


def test_queries_come_from_different_coarse_classes_and_can_be_answered():
    coarse = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    fine = np.array([0, 0, 1, 2, 2, 3, 4, 5])  # kinds 1, 3, 4 and 5 have one image each
    for seed in range(20):
        rows = queries_from(coarse, fine, 3, seed)
        assert sorted(coarse[rows].tolist()) == [0, 1]  # nobody of class 2 has a match
        assert set(fine[rows].tolist()) == {0, 2}
    assert len({tuple(queries_from(coarse, fine, 3, seed).tolist()) for seed in range(20)}) > 1
