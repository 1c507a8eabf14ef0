"""An export computes what the run does, loads without this package, and says what it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from maskcon.encoder import Axes, Backbone, FeatureHead, FrozenEncoder, ResNet
from maskcon.encoder.mobilenet import MobileNetV2
from maskcon.errors import MaskconError, UsageError
from maskcon.export import export_run
from maskcon.export import write as writing
from maskcon.export.card import card_text
from maskcon.export.embedder import Embedder, Preprocessing
from maskcon.export.onnx_file import PACKAGES, run_onnx, write_onnx
from maskcon.export.plain import model_source
from maskcon.export.sample import random_images
from maskcon.model_file import read_encoder
from maskcon.observer import Announcer
from maskcon.run import Run
from maskcon.run_folder import ENCODER
from maskcon.sources import Dataset, load_folder
from maskcon.sources.decode import UndecodableError
from tests.finished_run import finished_run, write_photo
from tests.miniature import miniature

has_onnx = all(find_spec(name) is not None for name in PACKAGES)
needs_onnx = pytest.mark.skipif(not has_onnx, reason="the extra onnx is not installed")
needs_transformers = pytest.mark.skipif(
    find_spec("transformers") is None, reason="the extra hf is not installed"
)

# Refuses our package wherever it may lie: an editable install adds a path, or a finder, of its own.
WITHOUT_MASKCON = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "maskcon":
            raise ImportError("maskcon is not here")

sys.meta_path.insert(0, Refuse())
"""


def photo_data(folder: Path) -> Dataset:
    for number in range(16):
        name = f"{'cat' if number % 2 else 'dog'}/{number:02}.png"
        write_photo(folder / name, number, (40 + 9 * number, 60))
    return load_folder(folder, image_size=24)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Dataset, Run]:
    """Colour pictures of many sizes, whose run has a canvas and sizes."""
    folder = tmp_path_factory.mktemp("export")
    data = photo_data(folder / "photos")
    return folder, data, finished_run(folder / "run", data, source=str(folder / "photos"))


@pytest.fixture(scope="module")
def exported(photos: tuple[Path, Dataset, Run]) -> Path:
    folder, data, run = photos
    return export_run(run, folder / "plain", data=data).folder


def python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "HF_HOME": str(cwd / ".hf"), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_MASKCON + code],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def snippets(card: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)


def card_embedding(folder: Path, snippet: str, picture: Path, cwd: Path) -> np.ndarray:
    """What a snippet of the card gives for a picture, without our package."""
    shutil.copytree(folder, cwd, dirs_exist_ok=True)
    shutil.copy(picture, cwd / "picture.jpg")  # Pillow looks at the bytes, not at the name
    done = python(f"{snippet}\nimport numpy\nnumpy.save('found.npy', numpy.asarray(embeddings))", cwd)
    assert done.returncode == 0, done.stderr
    found: np.ndarray = np.load(cwd / "found.npy")
    return found


def test_plain_pytorch_loads_in_three_lines_without_maskcon(photos, exported, tmp_path) -> None:
    folder, _, run = photos
    snippet = snippets((exported / "README.md").read_text(encoding="utf-8"))[0]
    assert len(snippet.strip().splitlines()) == 3
    picture = folder / "photos" / "cat" / "03.png"
    found = card_embedding(exported, snippet, picture, tmp_path)
    np.testing.assert_allclose(found, run.encode([picture]).numpy(), rtol=1e-4, atol=1e-5)


def test_the_refusal_of_maskcon_in_these_tests_refuses(tmp_path: Path) -> None:
    assert "maskcon is not here" in python("import maskcon", tmp_path).stderr


@needs_transformers
def test_hugging_face_loads_in_three_lines_without_maskcon(photos, exported, tmp_path) -> None:
    folder, _, run = photos
    snippet = snippets((exported / "README.md").read_text(encoding="utf-8"))[1]
    assert len(snippet.strip().splitlines()) == 3
    picture = folder / "photos" / "dog" / "10.png"
    found = card_embedding(exported, snippet, picture, tmp_path)
    np.testing.assert_allclose(found, run.encode([picture]).numpy(), rtol=1e-4, atol=1e-5)


@needs_onnx
def test_onnx_equals_torch_on_images_of_the_run_and_its_snippet_comes_close(photos, tmp_path) -> None:
    folder, data, run = photos
    exported = export_run(run, tmp_path / "out", onnx=True, data=data)
    assert [difference.what for difference in exported.differences] == [
        "PyTorch",
        "PyTorch, from pictures",
        "ONNX",
    ]
    assert all(difference.relative < 1e-5 for difference in exported.differences)
    assert all(difference.images == len(data.test) for difference in exported.differences)
    assert "model.onnx" in exported.files
    snippet = snippets((exported.folder / "README.md").read_text(encoding="utf-8"))[2]
    picture = folder / "photos" / "cat" / "01.png"
    found = card_embedding(exported.folder, snippet, picture, tmp_path / "onnx")[0]
    expected = run.encode([picture]).numpy()[0]
    assert found @ expected / np.linalg.norm(found) / np.linalg.norm(expected) > 0.99


@needs_onnx
def test_large_weights_lie_beside_the_graph_and_any_batch_is_taken(tmp_path: Path) -> None:
    torch.manual_seed(0)
    settings = Preprocessing(12, 12, 1, "shorter", (0.5,), (0.25,))
    embedder = Embedder(ResNet("resnet6", in_channels=1, width=8, stem="small"), settings).eval()
    files = write_onnx(embedder, tmp_path, {"a": 1}, largest_single_file=0)
    assert [path.name for path in files] == ["model.onnx", "model.onnx.data"]
    for batch in (1, 5):
        images = torch.rand(batch, 1, 12, 12)
        with torch.no_grad():
            torch.testing.assert_close(run_onnx(tmp_path, images), embedder(images), rtol=1e-4, atol=1e-5)


def test_without_the_extra_onnx_is_refused_in_one_line(photos, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("maskcon.export.onnx_file.find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"needs onnx, onnxscript, onnxruntime: pip install 'maskcon\[onnx\]'"
    ):
        export_run(photos[2], tmp_path / "out", onnx=True, data=photos[1])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "encoder",
    [
        ResNet("resnet6", width=8, stem="small"),
        ResNet("resnet50", width=4, norm="group", stem="imagenet"),
        ResNet("resnet10", width=8, in_channels=1, stem="stride2"),
        MobileNetV2(in_channels=1),
        FrozenEncoder(MobileNetV2(), FeatureHead(16)),
        FrozenEncoder(
            ResNet("resnet6", width=8, stem="small"), FeatureHead(16), Axes(16, 16, torch.randn(16, 16))
        ),
    ],
    ids=lambda encoder: f"{type(encoder).__name__}-{encoder.name}",
)
def test_the_one_file_builds_every_net_of_ours_with_the_same_weights(
    encoder: Backbone, tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text(model_source(encoder), encoding="utf-8")
    assert not re.search(r"(import|from) maskcon", (tmp_path / "model.py").read_text(encoding="utf-8"))
    module = writing._module(tmp_path / "model.py")
    net = module.build_encoder()
    net.load_state_dict(encoder.state_dict())
    images = torch.rand(2, encoder.in_channels, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(images), encoder.eval()(images))


def test_a_frozen_backbone_with_its_head_is_exported_as_one_model(photos, tmp_path) -> None:
    folder, data, _ = photos
    run = finished_run(tmp_path / "run", data, source=str(folder / "photos"), frozen=True)
    exported = export_run(run, tmp_path / "out", onnx=has_onnx, data=data)
    assert all(difference.relative < 1e-5 for difference in exported.differences)
    picture = folder / "photos" / "cat" / "05.png"
    card = (exported.folder / "README.md").read_text(encoding="utf-8")
    for number in (0, 1) if find_spec("transformers") else (0,):
        found = card_embedding(exported.folder, snippets(card)[number], picture, tmp_path / str(number))
        assert found.shape == (1, 24)
        np.testing.assert_allclose(found, run.encode([picture]).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_encoding_pictures_leaves_the_encoder_in_its_mode_and_does_not_train_it(training, tmp_path) -> None:
    picture = write_photo(tmp_path / "a.png", 0)
    encoder = ResNet("resnet6", width=8, stem="small").train(training)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    Embedder(encoder, Preprocessing(12, 12, 3, "both", (0.5,) * 3, (0.25,) * 3)).encode([picture])
    assert encoder.training is training
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())


def test_a_picture_that_cannot_be_read_leaves_the_encoder_in_its_mode(tmp_path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    encoder = ResNet("resnet6", width=8, stem="small").train()
    embedder = Embedder(encoder, Preprocessing(12, 12, 3, "both", (0.5,) * 3, (0.25,) * 3))
    with pytest.raises(UndecodableError, match=r"cannot read .*broken\.png: not an image"):
        embedder.encode([tmp_path / "broken.png"])
    assert encoder.training
    with pytest.raises(TypeError, match="as a list"):
        embedder.encode("broken.png")


def test_a_model_in_half_precision_takes_pictures_too(tmp_path) -> None:
    picture = write_photo(tmp_path / "a.png", 0)
    settings = Preprocessing(12, 12, 3, "both", (0.5,) * 3, (0.25,) * 3)
    embedder = Embedder(ResNet("resnet6", width=8, stem="small"), settings)
    whole = embedder.encode([picture])
    half = embedder.to(torch.bfloat16).encode([picture])
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, whole, rtol=0.1, atol=0.1)


def test_no_pictures_are_no_embeddings() -> None:
    encoder = ResNet("resnet6", width=8, stem="small")
    found = Embedder(encoder, Preprocessing(12, 12, 3, "both", (0.5,) * 3, (0.25,) * 3)).encode([])
    assert found.shape == (0, encoder.features)


def test_a_net_that_is_not_ours_is_refused() -> None:
    other = Backbone()
    other.name = "hf:some/net"
    with pytest.raises(UsageError, match="'hf:some/net' is no net of ours"):
        model_source(other)


def test_the_card_says_what_was_trained_on_what_and_how_good_it_is(photos, exported) -> None:
    folder, data, _ = photos
    card = (exported / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "# MaskCon encoder trained on photos" in card
    assert f"photos, {len(data.train)} pictures in 2 coarse classes: cat, dog" in card
    assert "|  | R@1 | R@2 | R@5 | R@10 |" in card
    assert "| Raw pixels | 25.00 | 37.50 | 50.00 | 75.00 |" in card
    assert "| This model | 50.00 | 62.50 | 75.00 | 87.50 |" in card
    assert f"{len(data.test)} test pictures with one of the same coarse label" in card
    assert "| `backbone` | resnet6 |" in card
    assert "| `epochs` | 2 |" in card
    assert re.search(r"PyTorch, from pictures: largest difference \S+ on \d+ test images", card)
    assert "## Licence\n\nNot chosen yet." in card
    assert "\nlicense:" not in card
    assert str(folder) not in card  # where the pictures lay is nobody else's business


def test_names_cannot_become_markup_in_the_card(tmp_path: Path) -> None:
    data = miniature()
    data = Dataset(**{**data.__dict__, "coarse_names": ("<script>alert(1)</script>", "a|b\n# title")})
    exported = export_run(finished_run(tmp_path / "run", data), tmp_path / "out", data=data)
    card = (exported.folder / "README.md").read_text(encoding="utf-8")
    assert "<script>" not in card
    assert "\\<script\\>" in card
    assert "\n# title" not in card


def test_the_folder_holds_what_it_needs_and_the_weights_have_plain_names(photos, exported) -> None:
    names = {path.name for path in exported.iterdir()}
    assert names - {"__pycache__"} == {
        "README.md",
        "config.json",
        "model.py",
        "model.safetensors",
        "modeling_maskcon.py",
    }
    config = json.loads((exported / "config.json").read_text(encoding="utf-8"))
    assert config["auto_map"]["AutoModel"] == "modeling_maskcon.MaskConModel"
    assert config["preprocessing"]["image_size"] == photos[2].config.image_size
    assert str(photos[0]) not in json.dumps(config)


def test_an_export_that_computes_something_else_is_refused_and_nothing_is_left(
    photos, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(
        writing, "model_source", lambda encoder: model_source(encoder).replace("/ 255", "/ 254")
    )
    with pytest.raises(
        MaskconError, match=r"does not compute what the run does: PyTorch, from pictures: largest"
    ):
        export_run(photos[2], tmp_path / "out", data=photos[1])
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_export_is_replaced_and_anything_else_is_not(photos, tmp_path) -> None:
    target = tmp_path / "out"
    for _ in range(2):
        export_run(photos[2], target, data=photos[1])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="no earlier export; choose another --out"):
        export_run(photos[2], other, data=photos[1])
    assert (other / "thesis.tex").read_text() == "years of work"


def test_an_export_that_somebody_went_on_working_on_is_not_replaced(photos, tmp_path) -> None:
    """The card asks for a licence to be written into it, and a folder to publish may be a clone."""
    folder = export_run(photos[2], tmp_path / "out", data=photos[1]).folder
    (folder / ".git").mkdir()
    with pytest.raises(UsageError, match=r"more than an earlier export \(\.git\); choose another --out"):
        export_run(photos[2], folder, data=photos[1])
    (folder / ".git").rmdir()
    card = (folder / "README.md").read_text(encoding="utf-8").replace("Not chosen yet.", "CC-BY-4.0.")
    (folder / "README.md").write_text(card, encoding="utf-8")
    with pytest.raises(UsageError, match=r"README\.md was edited .* move it away, or choose another --out"):
        export_run(photos[2], folder, data=photos[1])
    assert (folder / "README.md").read_text(encoding="utf-8") == card
    (folder / "README.md").unlink()
    export_run(photos[2], folder, data=photos[1])
    assert (folder / "README.md").is_file()


class Listener(Announcer):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_message(self, text: str) -> None:
        self.heard.append(text)


def test_pictures_that_changed_since_still_serve_to_check_the_export(photos, tmp_path) -> None:
    """Grey ones at that, for an encoder of colour pictures; but the card claims nothing from them."""
    listener = Listener()
    exported = export_run(photos[2], tmp_path / "out", data=miniature(), announce=listener)
    assert all(difference.relative < 1e-5 for difference in exported.differences)
    assert "not those that the run was trained on" in listener.heard[0]
    card = (exported.folder / "README.md").read_text(encoding="utf-8")
    assert f"- Data: photos, {len(photos[1].train)} pictures\n" in card
    assert "stripes" not in card


@pytest.fixture
def copied(tmp_path: Path) -> Run:
    """A run whose pictures stayed on another machine."""
    photo_data(tmp_path / "photos")
    data = load_folder(tmp_path / "photos", image_size=24)
    run = finished_run(tmp_path / "run", data, source=str(tmp_path / "photos"))
    shutil.rmtree(tmp_path / "photos")
    return run


def test_without_its_pictures_a_run_is_checked_on_random_images_and_says_so(copied, tmp_path) -> None:
    listener = Listener()
    exported = export_run(copied, tmp_path / "out", announce=listener)
    assert "not found from here" in listener.heard[0]
    assert "; until then the export is checked on random images" in listener.heard[0]
    assert all(difference.relative < 1e-5 for difference in exported.differences)
    assert all("on 32 random images" in str(difference) for difference in exported.differences)
    card = (exported.folder / "README.md").read_text(encoding="utf-8")
    assert re.search(r"PyTorch, from pictures: largest difference \S+ on 32 random images", card)
    assert re.search(r"- Data: photos, \d+ pictures\n", card)


def test_random_images_notice_an_export_that_computes_something_else(copied, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(
        writing, "model_source", lambda encoder: model_source(encoder).replace("/ 255", "/ 254")
    )
    with pytest.raises(MaskconError, match="does not compute what the run does: PyTorch, from pictures"):
        export_run(copied, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("channels", [1, 3])
def test_random_images_are_the_same_every_time_and_of_many_shapes(photos, channels: int) -> None:
    facts = replace(read_encoder(photos[2].folder / ENCODER)[1], in_channels=channels)
    images = random_images(facts, 32)
    np.testing.assert_array_equal(images.images, random_images(facts, 32).images)
    assert images.images.shape == (32, channels, facts.canvas, facts.canvas)
    assert images.sizes is not None
    assert len(np.unique(images.sizes, axis=0)) > 20


def test_the_card_of_a_frozen_run_says_so_and_shows_the_backbone_alone(photos) -> None:
    _, _, run = photos
    config = run.config.changed(freeze=True, backbone="mobilenet_v2", weights="imagenet")
    alone = {"1": 0.3, "2": 0.4, "5": 0.6, "10": 0.8}
    run = replace(run, config=config, result={**run.result, "frozen_backbone": alone})
    settings = Preprocessing(96, 110, 3, "shorter", (0.5,) * 3, (0.25,) * 3)
    card = card_text(run, ("cat", "dog"), settings, 1280, checks=[], onnx=False)
    assert "mobilenet\\_v2, from ImageNet weights, which stayed as they were: only the head" in card
    assert "| Backbone alone | 30.00 | 40.00 | 60.00 | 80.00 |" in card
    assert "| `freeze` | True |" in card
    assert "`width`" not in card  # the backbone has its own shape
    plain = card_text(photos[2], None, settings, 16, checks=[], onnx=False)
    assert "from random weights; 2 epochs" in plain
    assert "`freeze`" not in plain
    assert "Backbone alone" not in plain
