"""config.yaml as earlier versions wrote it: opened, and not resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from maskcon._utils.errors import UsageError
from maskcon.config.earlier import GONE, SHAPING, refuse_to_resume
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


@pytest.mark.parametrize("key", sorted(GONE - SHAPING.keys() - {"source_variant"}))
def test_any_other_setting_that_is_gone_is_read_and_not_resumed(tmp_path, key):
    path = tmp_path / "config.yaml"
    path.write_text(RunConfig(source="embedded").to_yaml())
    refuse_to_resume(read_values(path), path)
    path.write_text(path.read_text() + f"{key}: other\n")
    assert RunConfig.from_yaml(path) == RunConfig(source="embedded")
    with pytest.raises(UsageError, match=f"earlier version, which had the setting {key}; .*another --out"):
        refuse_to_resume(read_values(path), path)


@pytest.mark.parametrize("protocol", ["paper", "reference"])
def test_details_of_text_or_code_are_read_as_their_protocol(tmp_path, protocol):
    assert RunConfig.from_yaml(written(tmp_path, source_variant=protocol)).protocol == protocol


def test_a_share_of_the_run_is_read_as_its_epochs(tmp_path):
    read = RunConfig.from_yaml(written(tmp_path, epochs=40, warmup_epochs=1.0, warmup_share=0.3))
    assert (read.warmup_epochs, read.relation_warmup_epochs) == (12.0, 0.0)


@pytest.mark.parametrize("key", sorted(GONE))
def test_a_removed_setting_cannot_be_given(key):
    with pytest.raises(UsageError, match=f"unknown setting '{key}'"):
        resolve("embedded", method="maskcon", preset="paper", overrides={key: "any"})
