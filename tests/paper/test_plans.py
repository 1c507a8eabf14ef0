from __future__ import annotations

import math
from pathlib import Path

import pytest

from maskcon._utils.errors import DataError, UsageError
from maskcon.config.resolution import resolve
from maskcon.config.settings import parse_override
from maskcon.paper.ground import ground_for
from maskcon.paper.plans import TABLES, Trial, candidates, table_named, trials_of
from maskcon.paper.runs import runs_for


@pytest.fixture(autouse=True)
def no_data(tmp_path, monkeypatch):
    """Nothing but the embedded set is here."""
    monkeypatch.setenv("MASKCON_DATA", str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    ("trial", "same"),
    [
        (Trial("supcon"), Trial("grafit", 1.0)),
        (Trial("grafit", 0.0), Trial("selfcon")),
        (Trial("coins", 0.0), Trial("selfcon")),
        (Trial("coins", 1.0), Trial("supce")),
        (Trial("maskcon", 0.0, 0.1), Trial("selfcon")),
        (Trial("maskcon", 0.5, math.inf), Trial("grafit", 0.5)),
        (Trial("maskcon", 1.0, math.inf, seed=2), Trial("supcon", seed=2)),
        (Trial("supcon", evaluate_on="validation"), Trial("grafit", 1.0, evaluate_on="validation")),
    ],
)
def test_trials_that_are_the_same_by_the_papers_identities_share_a_run(trial, same):
    assert trial.canonical() == same.canonical()
    assert trial.canonical().canonical() == trial.canonical()


def test_trials_that_differ_do_not_share_a_folder():
    trials = [
        Trial(method, w, tau, seed, part)
        for method in ("grafit", "maskcon")
        for w in (0.1, 1.0)
        for tau in (0.01, 0.1)
        for seed in (0, 1)
        for part in ("test", "validation")
    ]
    assert len({trial.name for trial in trials}) == len(trials)


@pytest.mark.parametrize(
    ("name", "source", "runs"),
    [
        # SelfCon and SupFINE, 4 Grafit, 4 CoIns, MaskCon's grid; and all sweeps once more on validation
        ("cifartoy", "cifartoy-good", 2 + 8 + 8 + 16),
        ("cifar100", "cifar100", 2 + 8 + 8 + 16),
        ("imagenet32", "imagenet32", 2 + 8 + 4 + 12),
        ("sop1", "sop-split1", 2 + 8 + 5 + 13),
        ("sop2", "sop-split2", 2 + 8 + 4 + 12),
        ("cars196", "cars196", 2 + 8 + 4 + 12),
        ("appendix-cifar100", "cifar100", 18),
        ("appendix-sop1", "sop-split1", 15),
        ("appendix-cars196", "cars196", 14),
    ],
)
def test_a_table_needs_every_setting_once_and_the_choice_on_validation(name, source, runs):
    trials = trials_of(table_named(name), source)
    assert len(trials) == len(set(trials)) == runs
    with_three = trials_of(table_named(name), source, seeds=3)
    validation = [trial for trial in trials if trial.evaluate_on == "validation"]
    assert len(with_three) == 3 * (runs - len(validation)) + len(validation)
    assert not any(t.evaluate_on == "validation" for t in trials if table_named(name).kind == "appendix")


def test_what_has_nothing_to_choose_is_not_validated():
    trials = trials_of(table_named("cifar100"), "cifar100")
    validated = {trial.method for trial in trials if trial.evaluate_on == "validation"}
    assert validated == {"grafit", "coins", "supce", "maskcon"}  # supce: CoIns with w = 1


def test_an_appendix_table_is_served_by_the_runs_of_its_main_table():
    for name in ("cifartoy", "cifar100", "sop1", "sop2", "cars196"):
        for source in TABLES[name].sources:
            main = set(trials_of(TABLES[name], source, seeds=2))
            assert set(trials_of(TABLES[f"appendix-{name}"], source, seeds=2)) <= main


def test_the_sweep_is_the_papers():
    assert [trial.w for trial in candidates("cars196", "coins")] == [0.2, 0.5, 0.8, 1.0]
    assert {(trial.w, trial.tau) for trial in candidates("sop-split1", "maskcon")} == {
        (0.2, 0.1),
        (0.5, 0.05),
        (0.5, 0.1),
        (0.8, 0.05),
        (0.8, 0.1),
    }
    assert len(candidates("imagenet32", "maskcon")) == 4


def test_a_misspelt_table_or_scale_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'cars196'"):
        table_named("car196")
    with pytest.raises(UsageError, match="did you mean 'full'"):
        ground_for("cifar100", scale="fulll")
    with pytest.raises(UsageError, match="did you mean 'paper'"):
        ground_for("cifar100", scale="full", preset="papr")
    with pytest.raises(UsageError, match="--scale full"):
        ground_for("cifar100", scale="cpu", preset="reference")


@pytest.mark.parametrize("key", ["w", "tau", "seed", "evaluate_on"])
def test_what_a_plan_sets_cannot_be_changed_for_all_its_runs(key):
    with pytest.raises(UsageError, match=f"--set {key} "):
        ground_for("cifar100", changes={key: 1})


def test_full_scale_refuses_missing_data_with_the_way_out(tmp_path):
    with pytest.raises(DataError) as refusal:
        ground_for("cifar100", scale="full", data_root=str(tmp_path / "here"))
    text = str(refusal.value)
    assert refusal.value.exit_code == 2
    assert "\n" not in text
    for part in (str(tmp_path / "here"), "cifar-100-python.tar.gz", "https://", "CIFAR-100"):
        assert part in text


def test_at_cpu_scale_the_embedded_set_stands_in_loudly():
    ground = ground_for("cifar100", scale="cpu")
    assert (ground.asked, ground.source, ground.preset) == ("cifar100", "embedded", "cpu")
    assert ground.warning is not None
    assert ground.warning.startswith("STAND-IN")
    own = ground_for("embedded", scale="cpu")
    assert own.warning is None
    toy, sop = ground_for("cifartoy-good"), ground_for("sop-split1")
    assert toy.settings == sop.settings == own.settings  # so that all tables share the stand-in's runs
    assert toy.folder == sop.folder == own.folder == Path("cpu/embedded")


def test_full_scale_is_the_presets_own_and_has_a_folder_for_each_preset():
    paper = ground_for("cifar100", scale="full", download=True)
    reference = ground_for("cifar100", scale="full", preset="reference", download=True)
    assert (paper.preset, dict(paper.settings)) == ("paper", {})
    assert paper.folder == Path("full-paper/cifar100")
    assert reference.folder == Path("full-reference/cifar100")


def test_a_run_asks_train_for_what_it_plans():
    from maskcon.config.settings import Machine

    ground = ground_for("embedded", changes={"epochs": 2})
    trial = Trial("maskcon", 0.5, 0.05, seed=1, evaluate_on="validation")
    (run,) = runs_for([trial], ground, out=Path("out")).values()
    assert run.folder == Path("out/cpu/embedded/maskcon-w0.5-tau0.05-validation-seed1")
    arguments = list(run.job(Machine(device="cpu", data_root="d")).arguments)
    pairs = [arguments[i + 1] for i, word in enumerate(arguments) if word == "--set"]
    overrides = dict(parse_override(pair) for pair in pairs)
    told = resolve(arguments[0], method="maskcon", preset="cpu", overrides=overrides).config
    assert told == run.config
    assert (told.w, told.tau, told.seed, told.evaluate_on, told.epochs) == (0.5, 0.05, 1, "validation", 2)
    assert arguments[arguments.index("--data-root") + 1] == "d"


def test_one_learning_rate_serves_all_methods_of_a_scale():
    trials = trials_of(table_named("cifar100"), "cifar100")
    runs = runs_for(trials, ground_for("cifar100"), out=Path("out"))
    shared = ("learning_rate", "weight_decay", "epochs", "batch_size", "bank_size", "backbone", "train_limit")
    assert len({tuple(getattr(run.config, key) for key in shared) for run in runs.values()}) == 1


def test_runs_with_a_dot_in_their_name_have_logs_of_their_own():
    from maskcon.config.settings import Machine

    trials = [Trial("grafit", w) for w in (0.2, 0.5, 0.8)]
    runs = runs_for(trials, ground_for("embedded"), out=Path("out"))
    logs = [run.job(Machine()).log_path for run in runs.values()]
    assert len(set(logs)) == 3
    assert logs[1] == Path("out/cpu/embedded/grafit-w0.5-seed0.log")
