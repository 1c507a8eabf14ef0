from __future__ import annotations

import math
import re

import pytest
import yaml

from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon.config.choices import epoch_settings
from maskcon.config.presets import METHOD_SETTINGS, PRESETS, SOURCE_SETTINGS, default_method
from maskcon.config.resolution import resolve
from maskcon.config.settings import GROUPS, RunConfig, parse_override
from maskcon.methods.registry import all_methods


def test_reference_differs_from_paper_exactly_where_the_code_differs_from_the_text():
    paper, reference = (
        resolve("cifar100", method="maskcon", preset=p, overrides={}).config for p in ("paper", "reference")
    )
    changed = {line.split(":")[0] for line in paper.differences(reference)}
    assert changed == {"preset", "projection_dim", "weights", "warmup_epochs", "protocol"}
    details = ("test_resize", "drop_last", "eval_when", "exclude_own_keys")
    assert [getattr(paper, key) for key in details] == ["shorter", False, "after", True]
    assert [getattr(reference, key) for key in details] == ["both", True, "before", False]


def test_paper_preset_has_the_values_of_the_text():
    config = resolve("cifar100", method="maskcon", preset="paper", overrides={}).config
    assert (config.epochs, config.batch_size, config.learning_rate) == (200, 128, 0.02)
    assert (config.weight_decay, config.bank_size, config.projector_hidden) == (5e-4, 8192, 512)
    assert (config.projection_dim, config.contrast_temperature, config.w, config.tau) == (128, 0.1, 1.0, 0.05)
    assert (config.backbone, config.relation_warmup_epochs) == ("resnet18", 0)


OPTIMISER = ("optimizer", "schedule", "warmup_epochs", "weight_decay")


def test_fast_gives_every_method_the_same_optimiser_schedule_and_sizes():
    sizes = ("epochs", "batch_size", "bank_size", "backbone", "width", "stem", "projection_dim", "image_size")

    def shared(method):
        config = resolve("embedded", method=method, preset="fast", overrides={}).config
        return [getattr(config, key) for key in (*OPTIMISER, *sizes)]

    assert shared("teachcon")[:3] == ["muon", "linear", 9.0]
    assert all(shared(method.name) == shared("teachcon") for method in all_methods())


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_changes_nothing_of_the_methods_of_the_paper(preset):
    for method in ("selfcon", "supcon", "grafit", "coins", "maskcon"):
        config = resolve("embedded", method=method, preset=preset, overrides={}).config
        assert (config.coarse_weight, config.relation_space) == (0, "projection")


def test_presets_of_the_paper_train_its_method_by_default():
    assert [default_method(preset) for preset in ("paper", "reference", "cpu")] == ["maskcon"] * 3
    assert default_method("fast") == "teachcon"


def test_teachcon_is_a_fixed_teacher_with_cross_entropy_under_every_preset():
    for preset in PRESETS:
        config = resolve("embedded", method="teachcon", preset=preset, overrides={}).config
        teacher = "hog" if config.weights is None else "features"
        assert (config.relation_space, config.coarse_weight) == (teacher, 1.0)


def test_a_frozen_run_is_the_same_from_either_preset():
    cpu, fast = (
        resolve("embedded", method="maskcon", preset=p, overrides={"freeze": True}).config
        for p in ("cpu", "fast")
    )
    assert cpu.differences(fast) == ["preset: cpu -> fast"]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_resolves_for_every_method_with_a_reason_for_each_value(preset):
    for method in all_methods():
        resolved = resolve("embedded", method=method.name, preset=preset, overrides={"epochs": 7})
        assert resolved.config.epochs == 7
        assert resolved.reasons["epochs"] == "given"
        assert set(RunConfig.model_fields) == set(resolved.reasons)
        assert all(
            re.match(r"paper|published code|ours|for |given|the |neighbours|pretrained|without", r)
            for r in resolved.reasons.values()
        )


def test_settings_of_methods_name_known_methods_and_settings():
    names = {method.name for method in all_methods()}
    for (preset, _, method), settings in METHOD_SETTINGS.items():
        assert preset in {*PRESETS, "frozen"}
        assert method in names
        assert set(settings) <= set(RunConfig.model_fields)


@pytest.mark.parametrize(
    ("source", "grafit", "coins", "maskcon"),
    [
        ("cifartoy-good", 0.5, 0.8, (1.0, 0.05)),
        ("cifartoy-bad", 0.8, 0.8, (1.0, 0.05)),
        ("cifar100", 0.8, 0.5, (1.0, 0.05)),
        ("imagenet32", 0.8, 0.8, (1.0, 0.1)),  # not in the paper: section 4.1's advice
        ("sop-split1", 0.8, 0.5, (0.8, 0.1)),
        ("sop-split2", 0.8, 0.2, (0.5, 0.05)),
        ("cars196", 1.0, 1.0, (1.0, 0.1)),
    ],
)
@pytest.mark.parametrize("preset", ["paper", "reference"])
def test_w_and_tau_are_the_papers_for_the_data_set(preset, source, grafit, coins, maskcon):
    settled = {
        method: resolve(source, method=method, preset=preset, overrides={})
        for method in ("grafit", "coins", "maskcon")
    }
    assert settled["grafit"].config.w == grafit
    assert settled["coins"].config.w == coins
    assert (settled["maskcon"].config.w, settled["maskcon"].config.tau) == maskcon
    assert all("paper" in resolved.reasons["w"] for resolved in settled.values())


def test_the_cpu_preset_keeps_what_validation_chose_on_every_data_set():
    for source in ("embedded", "cifar100", "sop-split2", "photos/of/mine"):
        config = resolve(source, method="maskcon", preset="cpu", overrides={}).config
        assert (config.w, config.tau, config.learning_rate, config.epochs) == (1.0, 0.05, 0.2, 30)


def test_the_warm_up_of_fast_follows_the_number_of_epochs_unless_given():
    def warmup(preset="fast", **overrides):
        return resolve("photos", method="maskcon", preset=preset, overrides=overrides).config.warmup_epochs

    assert [warmup(epochs=epochs) for epochs in (1, 3, 7, 30)] == [1.0, 1.0, 2.1, 9.0]
    assert warmup(epochs=30, warmup_epochs=2) == 2
    assert warmup(freeze=True) == warmup(optimizer="sgd") == warmup("cpu", epochs=30) == 1.0
    assert warmup("reference", epochs=30) == 5.0
    resolved = resolve("photos", method="maskcon", preset="fast", overrides={})
    assert "0.3 of the epochs" in resolved.reasons["warmup_epochs"]
    assert epoch_settings(50, {}, resolved.config)["warmup_epochs"] == 15.0


@pytest.mark.parametrize(("key", "value"), [("epochs", True), ("w", True), ("weights", False)])
def test_yes_and_no_are_refused_where_they_would_count_as_numbers(key, value):
    with pytest.raises(UsageError, match=f"{key}={'yes' if value else 'no'} cannot be used"):
        resolve("photos", method="maskcon", preset="cpu", overrides={key: value})


@pytest.mark.parametrize("value", [1, "yes"])
def test_freeze_takes_only_true_and_false(value):
    with pytest.raises(UsageError, match=re.escape(f"freeze={value!r} cannot be used")):
        resolve("photos", method="maskcon", preset="reference", overrides={"freeze": value})


def test_every_setting_is_in_a_group():
    groups = RunConfig.groups()
    assert list(groups) == list(GROUPS.values())
    assert [key for keys in groups.values() for key in keys] == list(RunConfig.model_fields)


def test_teachcon_finds_neighbours_by_hog_from_random_weights():
    def space(**overrides):
        return resolve("photos", method="teachcon", preset="fast", overrides=overrides).config.relation_space

    assert space() == space(weights=None) == "hog"
    assert space(weights="imagenet") == space(freeze=True) == "features"
    assert space(weights="imagenet", relation_space="hog") == "hog"
    assert (
        resolve("photos", method="grafit", preset="fast", overrides={}).config.relation_space == "projection"
    )


@pytest.mark.parametrize(
    ("preset", "bank", "weights"), [("paper", 8192, None), ("reference", 16384, "imagenet")]
)
def test_imagenet_has_its_own_epochs_batch_and_bank(preset, bank, weights):
    resolved = resolve("imagenet32", method="maskcon", preset=preset, overrides={})
    config = resolved.config
    assert (config.epochs, config.batch_size, config.bank_size, config.weights) == (100, 256, bank, weights)
    assert config.normalise == "imagenet"
    assert "ImageNet" in resolved.reasons["epochs"]


@pytest.mark.parametrize("preset", ["paper", "reference"])
def test_pictures_larger_than_cifars_are_normalised_as_imagenet(preset):
    normalise = {
        source: resolve(source, method="selfcon", preset=preset, overrides={}).config.normalise
        for source in ("cifar100", "cifartoy-bad", "imagenet32", "sop-split1", "sop-split2", "cars196")
    }
    assert [name for name, value in normalise.items() if value == "dataset"] == ["cifar100", "cifartoy-bad"]


def test_values_of_a_data_set_name_known_settings_and_give_way_to_the_user():
    for sources in SOURCE_SETTINGS.values():
        for settings in sources.values():
            assert set(settings) <= set(RunConfig.model_fields)
    given = resolve("imagenet32", method="maskcon", preset="paper", overrides={"epochs": 3, "w": 0.3})
    assert (given.config.epochs, given.config.w, given.reasons["w"]) == (3, 0.3, "given")


@pytest.mark.parametrize("key", ["source", "method", "preset"])
def test_what_has_an_argument_of_its_own_is_not_a_setting(key):
    with pytest.raises(UsageError, match=key):
        resolve("embedded", method="maskcon", preset="cpu", overrides={key: "paper"})


def test_a_config_survives_its_file_to_the_letter(tmp_path):
    config = resolve(
        "embedded", method="maskcon", preset="paper", overrides={"tau": math.inf, "seed": 3}
    ).config
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml(), encoding="utf-8")
    assert RunConfig.from_yaml(path) == config


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['touch executed']",
        "source: !!python/name:os.system",
        "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]",
        "- a\n- list",
        "just text",
        "\x00\x01",
        "a: [",
        "[" * 5000,
        "source: 2024-99-99",
    ],
)
def test_a_hostile_or_broken_config_file_is_refused_and_nothing_runs(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CorruptFileError, match=r"config\.yaml"):
        RunConfig.from_yaml(path)
    assert not (tmp_path / "executed").exists()


def test_an_unknown_key_in_a_config_file_names_the_nearest(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"source": "embedded", "epoch": 3}), encoding="utf-8")
    with pytest.raises(UsageError, match="did you mean 'epochs'"):
        RunConfig.from_yaml(path)
    path.write_text("source: embedded\n3: epochs\n", encoding="utf-8")
    with pytest.raises(UsageError, match="unknown setting '3'"):
        RunConfig.from_yaml(path)


@pytest.mark.parametrize(
    "key", ["warmup_epochs", "relation_warmup_epochs", "learning_rate", "contrast_temperature"]
)
def test_only_tau_may_be_infinite(key):
    resolve("embedded", method="maskcon", preset="cpu", overrides={"tau": math.inf})
    with pytest.raises(UsageError, match=f"{key}=inf.*finite"):
        resolve("embedded", method="maskcon", preset="cpu", overrides={key: math.inf})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tau=inf", ("tau", math.inf)),
        ("weights=none", ("weights", None)),
        ("freeze=yes", ("freeze", True)),
        ("epochs=3", ("epochs", 3)),
        ("learning_rate=1e-3", ("learning_rate", 0.001)),
        ("weights=a=b.pth", ("weights", "a=b.pth")),
        (" w = 0.5 ", ("w", 0.5)),
    ],
)
def test_overrides_are_read_as_people_write_them(text, expected):
    assert parse_override(text) == expected


@pytest.mark.parametrize("given", [{"epochs": 3}, {"epochs": 80, "freeze": True}])
def test_bucsfr_warms_up_for_a_tenth_of_the_epochs(given):
    config = resolve("embedded", method="bucsfr", preset="fast", overrides=given).config
    assert config.relation_warmup_epochs == pytest.approx(config.epochs / 10)
    held = resolve(
        "embedded", method="bucsfr", preset="fast", overrides=given | {"relation_warmup_epochs": 2.0}
    )
    assert held.config.relation_warmup_epochs == 2.0
