"""An export computes what the run does, and loads without this package."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from maskcon._utils.errors import UsageError
from maskcon.data.decoding import UndecodableError
from maskcon.export import export_run
from maskcon.export import write as writing
from maskcon.export.embedder import Embedder, Preprocessing
from maskcon.export.onnx_file import PACKAGES, run_onnx, write_onnx
from maskcon.export.plain import model_source
from maskcon.models import Axes, Backbone, EfficientNetLite, FeatureHead, FrozenEncoder, MobileNetV2, ResNet
from tests.finished_run import finished_run, write_photo

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
        "PyTorch, from images",
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
def test_padding_of_an_uneven_map_is_the_same_in_the_graph(tmp_path: Path) -> None:
    torch.manual_seed(0)
    settings = Preprocessing(37, 37, 3, "shorter", (0.5,) * 3, (0.5,) * 3)
    embedder = Embedder(EfficientNetLite("efficientnet_lite0"), settings).eval()
    write_onnx(embedder, tmp_path, {})
    images = torch.rand(3, 3, 37, 37)
    with torch.no_grad():
        torch.testing.assert_close(run_onnx(tmp_path, images), embedder(images), rtol=1e-3, atol=1e-5)


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
        ResNet("resnet50", width=4, stem="imagenet"),
        ResNet("resnet10", width=8, in_channels=1, stem="stride2"),
        MobileNetV2(in_channels=1),
        EfficientNetLite("efficientnet_lite0"),
        FrozenEncoder(
            EfficientNetLite("efficientnet_lite2", in_channels=1), FeatureHead(16), earlier_weight=0.5
        ),
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
    names = [node.name for node in ast.parse(model_source(encoder)).body if hasattr(node, "name")]
    assert len(set(names)) == len(names)  # the files that were joined define no name twice
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


def test_a_net_of_another_package_is_refused() -> None:
    other = Backbone()
    other.name = "hf:some/net"
    with pytest.raises(UsageError, match="'hf:some/net' is not one of maskcon's"):
        model_source(other)
