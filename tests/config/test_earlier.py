"""config.yaml as earlier versions wrote it: opened, and resumed where nothing differs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from maskcon._utils.errors import UsageError
from maskcon.config.earlier import FIXED, PROTOCOLS, SHAPING, refuse_to_resume
from maskcon.config.resolution import resolve
from maskcon.config.settings import RunConfig, read_values

SAVED = Path(__file__).with_name("earlier")


@pytest.mark.parametrize(
    ("name", "preset", "method", "overrides"),
    [
        ("teachcon", "fast", "teachcon", {}),
        ("reference", "reference", "maskcon", {"weights": None, "width": 8, "bank_size": 256}),
        ("frozen", "cpu", "maskcon", {"freeze": True, "weights": "net.safetensors"}),
    ],
)
def test_a_config_of_an_earlier_version_is_that_of_the_same_command_now(name, preset, method, overrides):
    saved = RunConfig.from_yaml(SAVED / f"{name}.yaml")
    given = {"epochs": 1, "train_limit": 512, "test_limit": 256, **overrides}
    by_data = {key: getattr(saved, key) for key in ("image_size", "stem", "query_view", "key_view")}
    now = resolve("embedded", method=method, preset=preset, overrides={**given, **by_data}).config
    assert saved.differences(now) == []


@pytest.mark.parametrize("name", ["reference", "frozen"])
def test_a_run_whose_settings_are_all_fixed_to_the_same_may_be_resumed(name):
    refuse_to_resume(read_values(SAVED / f"{name}.yaml"), Path("config.yaml"))


def test_a_run_with_statistics_measured_at_its_end_is_not_resumed():
    with pytest.raises(
        UsageError, match=r"config\.yaml was begun with final_statistics=2560, .*another --out"
    ):
        refuse_to_resume(read_values(SAVED / "teachcon.yaml"), Path("config.yaml"))


def written(folder: Path, **changes) -> Path:
    values = {**read_values(SAVED / "reference.yaml"), **changes}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


@pytest.mark.parametrize(("key", "fixed"), SHAPING.items())
def test_a_setting_that_makes_another_network_is_refused(tmp_path, key, fixed):
    RunConfig.from_yaml(written(tmp_path, **{key: fixed}))
    with pytest.raises(UsageError, match=rf"config\.yaml sets {key}, which is always {fixed} now"):
        RunConfig.from_yaml(written(tmp_path, **{key: 7}))


@pytest.mark.parametrize(
    "key", [*FIXED, "keys", "weak_queries", "test_resize", "drop_last", "eval_when", "exclude_own_keys"]
)
def test_a_setting_that_trains_otherwise_is_read_and_not_resumed(tmp_path, key):
    expected = RunConfig.from_yaml(SAVED / "reference.yaml")
    path = written(tmp_path, **{key: "other"})
    assert RunConfig.from_yaml(path) == expected
    with pytest.raises(UsageError, match=f"begun with {key}=other"):
        refuse_to_resume(read_values(path), path)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_details_of_text_or_code_are_read_as_their_protocol(tmp_path, protocol):
    path = written(tmp_path, **PROTOCOLS[protocol])
    assert RunConfig.from_yaml(path).protocol == protocol
    refuse_to_resume(read_values(path), path)


def test_a_share_of_the_run_is_read_as_its_epochs(tmp_path):
    read = RunConfig.from_yaml(written(tmp_path, epochs=40, warmup_epochs=1.0, warmup_share=0.3))
    assert (read.warmup_epochs, read.relation_warmup_epochs) == (12.0, 0.0)


@pytest.mark.parametrize("key", [*SHAPING, *FIXED, "keys", "view_engine", "track_bound", *PROTOCOLS["paper"]])
def test_a_removed_setting_cannot_be_given(key):
    with pytest.raises(UsageError, match=f"unknown setting '{key}'"):
        resolve("embedded", method="maskcon", preset="paper", overrides={key: "any"})
