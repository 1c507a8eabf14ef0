from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import safetensors.torch
import torch

from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon.models import Backbone, build_backbone
from maskcon.models.encoder_file import EncoderFacts, encoder_bytes, read_encoder

FACTS = EncoderFacts(
    backbone="resnet6",
    width=4,
    stem="small",
    norm="batch",
    in_channels=1,
    image_size=16,
    test_resize="shorter",
    mean=(0.3,),
    std=(0.2,),
)


def trained() -> Backbone:
    torch.manual_seed(0)
    backbone = build_backbone("resnet6", image_size=16, in_channels=1, width=4)
    backbone(torch.randn(8, 1, 16, 16))  # moves the running statistics
    return backbone


def with_header(path: Path, header: dict[str, str] | None, backbone: Backbone | None = None) -> Path:
    path.write_bytes(safetensors.torch.save((backbone or trained()).state_dict(), metadata=header))
    return path


def test_a_saved_encoder_comes_back_with_its_facts_and_the_same_features(tmp_path: Path) -> None:
    backbone, path = trained(), tmp_path / "encoder.safetensors"
    path.write_bytes(encoder_bytes(backbone, FACTS))
    restored, facts = read_encoder(path)
    assert facts == FACTS
    assert not restored.training
    images = torch.randn(3, 1, 16, 16)
    torch.testing.assert_close(restored(images), backbone.eval()(images))


def test_the_same_weights_give_the_same_bytes_in_any_memory_format() -> None:
    turned = trained().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert encoder_bytes(turned, FACTS) == encoder_bytes(trained(), FACTS)


def test_the_file_is_plain_weights_for_other_programs(tmp_path: Path) -> None:
    path = tmp_path / "encoder.safetensors"
    path.write_bytes(encoder_bytes(trained(), FACTS))
    assert set(safetensors.torch.load_file(path)) == set(trained().state_dict())


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "not written by maskcon"),
        ({"maskcon": "{not json"}, "header of .* is damaged"),
        ({"maskcon": "[]"}, "another version"),
        ({"maskcon": "{}"}, "another version"),
        ({"maskcon": json.dumps({**asdict(FACTS), "colour": 1})}, "another version"),
        ({"maskcon": json.dumps({**asdict(FACTS), "width": 8})}, "does not fit its own description"),
        (
            {"maskcon": json.dumps({**asdict(FACTS), "head_features": 8})},
            "does not fit its own description",
        ),
        ({"maskcon": json.dumps({**asdict(FACTS), "width": "4"})}, "another version"),
        (
            {"maskcon": json.dumps({**asdict(FACTS), "head_features": 2.5})},
            "another version",
        ),
        ({"maskcon": json.dumps({**asdict(FACTS), "mean": "0.3"})}, "another version"),
    ],
)
def test_a_header_that_does_not_describe_the_encoder_is_refused(
    tmp_path: Path, header: dict[str, str] | None, message: str
) -> None:
    path = with_header(tmp_path / "encoder.safetensors", header)
    with pytest.raises(CorruptFileError, match=message):
        read_encoder(path)


def test_a_damaged_or_absent_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "encoder.safetensors"
    with pytest.raises(UsageError, match="no encoder at"):
        read_encoder(path)
    path.write_bytes(encoder_bytes(trained(), FACTS)[:-100])
    with pytest.raises(CorruptFileError, match="not a readable safetensors file"):
        read_encoder(path)


def test_reading_an_encoder_draws_none_of_the_callers_random_numbers(tmp_path):
    path = tmp_path / "encoder.safetensors"
    net = build_backbone("resnet6", image_size=16, in_channels=1, width=4, stem="small")
    path.write_bytes(encoder_bytes(net, FACTS))
    before = torch.get_rng_state()
    read_encoder(path)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_encoder_with_group_norm_is_refused_with_the_way_out(tmp_path: Path) -> None:
    header = {"maskcon": json.dumps({**asdict(FACTS), "norm": "group"})}
    safetensors.torch.save_file({"x": torch.zeros(1)}, tmp_path / "encoder.safetensors", header)
    with pytest.raises(UsageError, match=r"norm=group, .*train again"):
        read_encoder(tmp_path / "encoder.safetensors")
