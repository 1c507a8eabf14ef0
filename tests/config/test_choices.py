from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskcon._utils.errors import UsageError
from maskcon._utils.text import duration
from maskcon.config.choices import (
    BUDGET_SHARE,
    FROZEN_LIMIT,
    LONGEST_RUN,
    USUAL_LIMIT,
    Choice,
    Facts,
    bank_choice,
    batch_choice,
    budget_choice,
    encoder_choice,
    epoch_settings,
    epochs_choice,
    parse_budget,
    size_choice,
)
from maskcon.config.resolution import resolve
from maskcon.training.budget import Pace, run_seconds

BASE = resolve("photos", method="maskcon", preset="cpu", overrides={}).config
BOTH = frozenset({"mobilenet_v2", "resnet18"})
trains = st.integers(2, 2_000_000)


def facts(train: int = 2000, **changes) -> Facts:
    return Facts(**{"train": train, "side": 300.0, **changes})


def batch_of(known: Facts, *, usual: int = 128, learning_rate: float = 0.1, **given) -> Choice:
    return batch_choice(known, given, usual=usual, learning_rate=learning_rate)


@pytest.mark.parametrize(
    ("accelerator", "weights", "settings_made"),
    [
        ("cpu", frozenset(), {}),
        ("cpu", BOTH, {"freeze": True}),
        ("mps", frozenset({"mobilenet_v2"}), {"freeze": True}),
        ("cpu", frozenset({"resnet18"}), {}),
        ("cuda", BOTH, {"backbone": "resnet18", "weights": "imagenet", "normalise": "imagenet"}),
        ("cuda", frozenset({"mobilenet_v2"}), {"backbone": "resnet18", "width": 64}),
    ],
)
def test_the_encoder_is_pretrained_exactly_where_weights_can_be_had(accelerator, weights, settings_made):
    choice = encoder_choice(facts(accelerator=accelerator, weights=weights), {})
    assert choice is not None
    assert settings_made.items() <= choice.settings.items()
    pretrained = choice.settings.get("freeze") is True or choice.settings.get("weights") == "imagenet"
    assert pretrained == ("ImageNet weights" in choice.shown)
    assert ("--download" in choice.reason) == (not pretrained)


@pytest.mark.parametrize(
    ("weights", "backbone"),
    [
        ({"efficientnet_lite0", "efficientnet_lite2", "mobilenet_v2"}, "mobilenet_v2"),
        ({"efficientnet_lite0", "efficientnet_lite2"}, "efficientnet_lite0"),
        ({"efficientnet_lite2", "resnet18"}, "efficientnet_lite2"),
    ],
)
@pytest.mark.parametrize("unfetched", ["", "no network"])
def test_the_best_backbone_that_is_here_is_frozen_and_its_reason_names_a_better_one(
    weights, backbone, unfetched
):
    choice = encoder_choice(facts(weights=frozenset(weights), unfetched=unfetched), {})
    assert choice is not None
    assert choice.shown.startswith(f"{backbone} with ImageNet weights, frozen")
    config = resolve("photos", method="maskcon", preset="fast", overrides=dict(choice.settings)).config
    assert (config.backbone, config.freeze, config.weights) == (backbone, True, "imagenet")
    assert config.normalise == ("imagenet" if backbone == "mobilenet_v2" else "backbone")
    if backbone == "mobilenet_v2":
        assert "first choice" not in choice.reason
    else:
        way_out = "could not be fetched: no network" if unfetched else "--download fetches 9 MB"
        assert way_out in choice.reason.partition("mobilenet_v2 is the first choice, but ")[2]


@pytest.mark.parametrize("accelerator", ["cpu", "cuda"])
def test_an_encoder_from_scratch_says_why_the_weights_could_not_be_fetched(accelerator):
    choice = encoder_choice(facts(accelerator=accelerator, unfetched="no network"), {})
    assert choice is not None
    assert "from scratch" in choice.shown
    assert choice.reason.endswith("the pretrained weights could not be fetched: no network")


@pytest.mark.parametrize("accelerator", ["cpu", "cuda"])
@pytest.mark.parametrize("given", [{"freeze": True}, {"freeze": True, "thaw": 2}])
def test_freezing_takes_the_best_backbone_that_is_here(accelerator, given):
    choice = encoder_choice(facts(accelerator=accelerator, weights=frozenset({"efficientnet_lite0"})), given)
    assert choice is not None
    assert choice.settings["backbone"] == "efficientnet_lite0"
    assert "mobilenet_v2 is the first choice, but no weights" in choice.reason
    assert encoder_choice(facts(accelerator=accelerator), given) is None  # refused later
    assert encoder_choice(facts(weights=BOTH), given | {"backbone": "resnet18"}) is None


@pytest.mark.parametrize(
    "named", [{"backbone": "resnet6"}, {"weights": None}, {"freeze": False}, {"width": 8}, {"stem": "auto"}]
)
def test_an_encoder_that_the_user_names_in_part_is_left_alone(named):
    assert encoder_choice(facts(weights=BOTH), named) is None


@pytest.mark.parametrize(
    ("side", "accelerator", "frozen", "pretrained", "size"),
    [
        (32, "cpu", False, False, 32),
        (28, "cuda", False, True, 28),
        (5, "cpu", False, False, 16),
        (300, "cpu", False, False, 64),
        (300, "cpu", False, True, 224),
        (300, "cuda", False, True, 224),
        (300, "cuda", False, False, 128),
        (100, "cuda", False, True, 96),
        (70, "cuda", False, True, 64),
        (32, "cpu", True, True, 128),
        (300, "cpu", True, True, 224),
    ],
)
def test_a_view_is_no_larger_than_pictures_and_machine_allow(side, accelerator, frozen, pretrained, size):
    choice = size_choice(facts(side=side, accelerator=accelerator), frozen=frozen, pretrained=pretrained)
    assert choice.settings == {"image_size": size}


@settings(max_examples=200, deadline=None)
@given(trains, st.sampled_from([64, 2048, 8192]))
def test_the_bank_is_never_above_half_of_the_pictures_but_for_one_batch(train, usual):
    known = facts(train)
    batch = batch_of(known).settings["batch_size"]
    bank = bank_choice(known, batch_size=batch, usual=usual).settings["bank_size"]
    assert bank >= batch
    assert bank <= max(batch, train / 2)
    assert bank <= max(batch, usual)
    assert 16 <= batch <= 128


@pytest.mark.parametrize(
    ("train", "batch", "bank"),
    [(4, 16, 16), (100, 16, 32), (300, 32, 128), (1600, 128, 512), (5000, 128, 2048), (10**6, 128, 2048)],
)
def test_batch_and_bank_by_the_number_of_pictures(train, batch, bank):
    chosen = batch_of(facts(train))
    assert chosen.settings["batch_size"] == batch
    assert chosen.settings.get("learning_rate", 0.1) == pytest.approx(0.1 * batch / 128)
    assert bank_choice(facts(train), batch_size=batch, usual=2048).settings == {"bank_size": bank}


def test_the_batch_of_the_preset_is_the_largest_and_its_rate_the_one_that_shrinks():
    assert batch_of(facts(10**6), usual=64).settings == {"batch_size": 64}
    assert batch_of(facts(10**6), usual=8).settings == {"batch_size": 8}
    fewer = batch_of(facts(300), usual=256, learning_rate=0.8)
    assert fewer.settings == {"batch_size": 32, "learning_rate": 0.1}
    assert "learning rate" in fewer.reason


def test_what_is_given_bounds_what_is_chosen():
    assert batch_of(facts(), bank_size=40).settings["batch_size"] == 40
    own_rate = batch_choice(facts(50), {"learning_rate": 1.0}, usual=128, learning_rate=1.0)
    assert own_rate.settings == {"batch_size": 16}
    assert "learning rate" not in own_rate.reason
    assert bank_choice(facts(100), batch_size=256, usual=2048).settings == {"bank_size": 256}
    assert set(epoch_settings(5, {"eval_every_epochs": 2, "warmup_epochs": 0}, BASE)) == {
        "epochs",
        "relation_warmup_epochs",
    }


@pytest.mark.parametrize(("train", "epochs"), [(5000, 30), (100_000, 30), (1600, 93), (50, USUAL_LIMIT)])
def test_few_pictures_get_more_epochs(train, epochs):
    batch = batch_of(facts(train)).settings["batch_size"]
    choice = epochs_choice(facts(train), {}, batch_size=batch, base=BASE)
    assert choice.settings["epochs"] == epochs
    assert choice.settings["relation_warmup_epochs"] == 4.0


@pytest.mark.parametrize(("usual", "epochs"), [(30, FROZEN_LIMIT), (120, 120)])
def test_a_head_on_a_frozen_backbone_gets_fewer_of_them(usual, epochs):
    choice = epochs_choice(facts(50), {}, batch_size=16, base=BASE.changed(freeze=True, epochs=usual))
    assert choice.settings["epochs"] == epochs


def test_every_choice_is_one_line_with_its_reason():
    known = facts(weights=BOTH)
    choices = [
        encoder_choice(known, {}),
        size_choice(known, frozen=True, pretrained=True),
        batch_of(known),
        bank_choice(known, batch_size=128, usual=2048),
        epochs_choice(known, {}, batch_size=128, base=BASE),
    ]
    for choice in choices:
        assert choice is not None
        assert "\n" not in choice.line
        assert choice.line.endswith(f"({choice.reason})")
        assert len(choice.reason) > 10


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1800),
        ("2h", 7200),
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (" 2 H ", 7200),
        ("1h1m1s", 3661),
    ],
)
def test_a_budget_is_read_with_its_unit(text, seconds):
    assert parse_budget(text) == seconds


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("30", "say the unit"),
        ("", "not a duration"),
        ("soon", "not a duration"),
        ("-5m", "not a duration"),
        ("30m2h", "not a duration"),
        ("nans", "not a duration"),
        ("0s", "must be positive"),
        ("800h", "at most 30 days"),
        ("1e400s", "not a duration"),
        ("9" * 400 + "s", "at most 30 days"),
    ],
)
def test_a_budget_that_cannot_be_read_is_refused_with_how_to_write_it(text, hint):
    with pytest.raises(UsageError, match=hint):
        parse_budget(text)


@given(st.integers(1, 30 * 86_400))
def test_a_spoken_budget_reads_back(seconds):
    assert parse_budget(duration(seconds)) == seconds


def planned(budget: float, image: float, images: int, *, spent: float = 0.0, scoring: float = 1.0):
    """The choice for a budget by a pace, and how long it takes where the true pace is `slower` times that."""
    pace = Pace(key=image / 3, step=image, evaluation=scoring)

    def seconds_of(epochs: int, slower: float = 1.0) -> float:
        config = BASE.changed(**epoch_settings(epochs, {}, BASE))
        return slower * run_seconds(pace, config, images)

    choice = budget_choice(budget, budget - spent, seconds_of, {}, BASE)
    return choice, seconds_of


@settings(max_examples=60, deadline=None)
@given(st.floats(60, 7200), st.floats(1e-4, 5e-3), st.integers(100, 20_000), st.floats(0.0, 0.3))
def test_the_plan_keeps_the_budget_while_the_machine_is_up_to_17_percent_slower(budget, image, images, share):
    spent = budget * share
    try:
        choice, seconds_of = planned(budget, image, images, spent=spent)
    except UsageError:
        assert planned_one_epoch(image, images) > BUDGET_SHARE * (budget - spent)
        return
    epochs = choice.settings["epochs"]
    assert spent + seconds_of(epochs, slower=1.17) <= budget
    if epochs < LONGEST_RUN:  # and no time is thrown away: one more epoch, and its scorings, would not fit
        assert seconds_of(epochs + 1) > BUDGET_SHARE * (budget - spent)


def planned_one_epoch(image: float, images: int) -> float:
    pace = Pace(key=image / 3, step=image, evaluation=1.0)
    return run_seconds(pace, BASE.changed(**epoch_settings(1, {}, BASE)), images)


def test_a_long_run_fills_its_budget_to_at_least_three_quarters():
    choice, seconds_of = planned(1800, 0.002, 1600)
    assert 0.75 * 1800 < seconds_of(choice.settings["epochs"]) <= 0.85 * 1800


def test_a_budget_below_one_epoch_is_refused_with_one_that_would_do():
    with pytest.raises(UsageError, match=r"--budget 10s is too short") as refusal:
        planned(10, 0.01, 20_000)
    enough = parse_budget(str(refusal.value).split("give --budget ")[1].split()[0])
    assert planned(enough, 0.01, 20_000)[0].settings["epochs"] >= 1


def test_counts_in_reasons_are_words_that_fit():
    known = facts(4)
    assert "4 training images make 1 step per epoch" in batch_of(known).reason
    assert "there are only 4 training images" in bank_choice(known, batch_size=16, usual=2048).reason


def test_the_most_epochs_are_found_where_fewer_would_take_longer():
    """14 epochs are scored after each, 15 after every other one: where scoring is slow, 15 take less time."""

    def seconds_of(epochs: int) -> float:
        settings_made = epoch_settings(epochs, {}, BASE)
        return epochs + 10.0 * (epochs // settings_made["eval_every_epochs"])

    longest = max(count for count in range(1, LONGEST_RUN + 1) if seconds_of(count) <= 85)
    assert any(seconds_of(count) > 85 for count in range(1, longest))
    assert budget_choice(100, 100, seconds_of, {}, BASE).settings["epochs"] == longest


def test_more_time_than_is_useful_is_not_used():
    choice, _ = planned(30 * 86_400, 1e-4, 100)
    assert choice.settings["epochs"] == LONGEST_RUN
    assert choice.reason.endswith("; the maximum")
    assert choice.settings["eval_every_epochs"] == math.ceil(LONGEST_RUN / 10)


def test_more_epochs_of_fast_warm_up_longer():
    fast = resolve("photos", method="maskcon", preset="fast", overrides={}).config
    assert epoch_settings(100, {}, fast)["warmup_epochs"] == 30.0
    assert epoch_settings(100, {}, fast.changed(optimizer="sgd"))["warmup_epochs"] == 9.0
    assert "warmup_epochs" not in epoch_settings(100, {"warmup_epochs": 2.0}, fast)
