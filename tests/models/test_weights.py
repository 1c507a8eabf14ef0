from __future__ import annotations

import hashlib
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from maskcon._utils import download
from maskcon._utils.errors import CorruptFileError, UsageError
from maskcon.models import weights
from maskcon.models.momentum import MomentumPair, build_model
from maskcon.models.published import PUBLISHED, Published, published_file, weights_folder
from maskcon.models.resnet import ResNet
from maskcon.models.weights import load_weights


def net(seed: int, **settings: Any) -> ResNet:
    torch.manual_seed(seed)
    built = ResNet(**{"name": "resnet8", "width": 4, "stem": "imagenet", **settings})
    for layer in built.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.running_mean)
            nn.init.uniform_(layer.running_var, 0.5, 2.0)
    return built


def equal(first: ResNet, second: ResNet, *, but: tuple[str, ...] = ()) -> bool:
    other = second.state_dict()
    return all(
        torch.equal(value, other[name]) for name, value in first.state_dict().items() if name not in but
    )


@pytest.mark.parametrize("file_name", ["w.safetensors", "w.pth", "w.pt"])
def test_saved_weights_load_back(tmp_path: Path, file_name: str) -> None:
    source, target = net(0), net(1)
    save = save_file if file_name.endswith("safetensors") else torch.save
    save(source.state_dict(), tmp_path / file_name)
    assert load_weights(target, tmp_path / file_name) == [f"weights from {file_name}"]
    assert equal(source, target)


@pytest.mark.parametrize("container", [None, "state_dict", "model_state_dict", "model"])
@pytest.mark.parametrize(
    "prefix", ["", "module.", "backbone.", "encoder.", "base_encoder.", "module.encoder_q."]
)
def test_wrappers_are_stripped_and_heads_ignored(tmp_path: Path, container: str | None, prefix: str) -> None:
    source, target = net(0), net(1)
    state = {prefix + name: value for name, value in source.state_dict().items()}
    state |= {prefix + "fc.weight": torch.zeros(10, 16), prefix + "projector.0.bias": torch.zeros(3)}
    content = state if container is None else {container: state, "epoch": 3}
    torch.save(content, tmp_path / "w.pth")
    assert "ignored 2 tensors" in load_weights(target, tmp_path / "w.pth")[0]
    assert equal(source, target)


def test_own_momentum_pair_gives_its_query_backbone(tmp_path: Path) -> None:
    pair = MomentumPair(build_model(net(0), hidden=8, projection=4, coarse_classes=3))
    with torch.no_grad():
        for value in pair.key.parameters():
            value.add_(1.0)
    save_file(pair.state_dict(), tmp_path / "w.safetensors")
    target = net(1)
    load_weights(target, tmp_path / "w.safetensors")
    assert isinstance(pair.query.backbone, ResNet)
    assert equal(pair.query.backbone, target)


@pytest.mark.parametrize("stem", ["small", "stride2"])
def test_small_stem_stays_fresh_with_a_note(tmp_path: Path, stem: str) -> None:
    source, target = net(0), net(1, stem=stem)
    fresh = target.conv1.weight.clone()
    torch.save(source.state_dict(), tmp_path / "w.pth")
    notes = load_weights(target, tmp_path / "w.pth")
    assert notes[0] == "conv1 stays fresh: 3x3 in the backbone, 7x7 in the file"
    assert torch.equal(target.conv1.weight, fresh)
    assert equal(target, source, but=("conv1.weight",))


def test_grey_net_sees_grey_as_the_colour_net_does(tmp_path: Path) -> None:
    source, target = net(0).eval(), net(1, in_channels=1).eval()
    torch.save(source.state_dict(), tmp_path / "w.pth")
    assert "summed" in load_weights(target, tmp_path / "w.pth")[0]
    grey = torch.randn(2, 1, 32, 32)
    torch.testing.assert_close(target(grey), source(grey.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-5)


def test_half_precision_file_fills_float32(tmp_path: Path) -> None:
    source, target = net(0).half(), net(1)
    torch.save(source.state_dict(), tmp_path / "w.pth")
    load_weights(target, tmp_path / "w.pth")
    assert target.conv1.weight.dtype == torch.float32
    assert equal(source.float(), target)


def test_file_without_batch_counters_loads(tmp_path: Path) -> None:
    source, target = net(0), net(1)
    state = {name: v for name, v in source.state_dict().items() if not name.endswith("num_batches_tracked")}
    torch.save(state, tmp_path / "w.pth")
    load_weights(target, tmp_path / "w.pth")
    assert equal(source, target)


def test_a_stem_of_another_kernel_is_refused_where_nothing_may_stay_fresh(tmp_path: Path) -> None:
    torch.save(net(0).state_dict(), tmp_path / "w.pth")
    target, twin = net(1, stem="small"), net(1, stem="small")
    with pytest.raises(UsageError, match=r"its conv1 is 7x7, the backbone's 3x3, which would stay random"):
        load_weights(target, tmp_path / "w.pth", whole=True)
    assert equal(target, twin)


def damaged(change: Callable[[dict[str, Tensor]], object]) -> dict[str, Tensor]:
    state = dict(net(0).state_dict())
    change(state)
    return state


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("layer2.0.conv1.weight"), r"1 missing \(layer2.0.conv1.weight\)"),
        (lambda state: state.pop("conv1.weight"), r"1 missing \(conv1.weight\)"),
        (lambda state: state.update(extra=torch.zeros(1)), r"1 unexpected \(extra\)"),
        (
            lambda state: state.update({"bn1.weight": torch.zeros(7)}),
            r"1 of another shape \(bn1.weight \(7,\) instead of \(4,\)\)",
        ),
        (lambda state: state.update({"bn1.bias": torch.full((4,), torch.nan)}), r"1 not finite \(bn1.bias\)"),
        (lambda state: [state.pop(name) for name in list(state)[:9]], r"missing \(.*, \.\.\.\)"),
        (lambda state: state.update({"module.bn1.bias": torch.zeros(4)}), "bn1.bias twice"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_leave_the_net_untouched(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], object], message: str
) -> None:
    torch.save(damaged(change), tmp_path / "w.pth")
    target, twin = net(1), net(1)
    with pytest.raises(UsageError, match=message):
        load_weights(target, tmp_path / "w.pth")
    assert equal(target, twin)


@pytest.mark.parametrize("settings", [{"width": 8}, {"name": "resnet10"}])
def test_weights_of_another_architecture_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    torch.save(net(0).state_dict(), tmp_path / "w.pth")
    with pytest.raises(UsageError, match=r"does not fit this backbone.*architecture and width"):
        load_weights(net(1, **settings), tmp_path / "w.pth")


class Payload:
    """Pickles into a call; unpickling it anywhere would leave a file."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def payloads(mark: Path) -> dict[str, object]:
    import builtins
    import os
    import subprocess

    script = f"open({str(mark)!r}, 'w').close()"
    return {
        "os.system": Payload(os.system, f"touch '{mark}'"),
        "exec": Payload(builtins.exec, script),
        "eval": Payload(builtins.eval, script),
        "open": Payload(builtins.open, str(mark), "w"),
        "subprocess": Payload(subprocess.call, ["touch", str(mark)]),
        "mkdir": Payload(os.mkdir, str(mark)),
        "pathlib": Payload(Path.touch, mark),
        "torch.save": Payload(torch.save, {}, str(mark)),
        "getattr": Payload(builtins.getattr, Path, "touch"),
        "import": Payload(builtins.__import__, "antigravity"),
    }


# torch remarks on the pickle protocol before it refuses the file.
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("kind", list(payloads(Path("mark"))))
@pytest.mark.parametrize("form", ["zip", "legacy", "bare", "nested"])
def test_malicious_pickle_is_refused_and_nothing_runs(tmp_path: Path, kind: str, form: str) -> None:
    mark, path = tmp_path / "mark", tmp_path / "w.pth"
    state: dict[str, object] = {**net(0).state_dict(), "extra": payloads(mark)[kind]}
    if form == "bare":
        path.write_bytes(pickle.dumps(payloads(mark)[kind]))
    elif form == "nested":
        torch.save({"state_dict": net(0).state_dict(), "optimizer": [state["extra"]]}, path)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=form == "zip")
    assert not mark.exists()
    target, twin = net(1), net(1)
    with pytest.raises(CorruptFileError, match="nothing in it was executed"):
        load_weights(target, path)
    assert not mark.exists()
    assert "antigravity" not in sys.modules
    assert equal(target, twin)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"\x00" * 64, b"<html>404</html>", b"PK\x03\x04" + b"\xff" * 99])
def test_file_that_is_not_weights_is_called_corrupt(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match=path.name):
        load_weights(net(1), path)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_truncated_file_is_called_corrupt(tmp_path: Path, suffix: str, share: float) -> None:
    path = tmp_path / f"w{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(net(0).state_dict(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CorruptFileError):
        load_weights(net(1), path)


@pytest.mark.parametrize("content", [[1, 2], {"a": 1}, {}, torch.zeros(3), {1: torch.zeros(2)}])
def test_file_without_tensors_by_name_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(CorruptFileError, match="tensors by name"):
        load_weights(net(1), tmp_path / "w.pth")


def test_missing_files_and_misspelt_names_say_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'imagenet'"):
        load_weights(net(1), "imagnet")
    with pytest.raises(UsageError, match="no weights file at"):
        load_weights(net(1), tmp_path / "absent.pth")
    (tmp_path / "w.bin").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"must end in \.safetensors"):
        load_weights(net(1), tmp_path / "w.bin")
    with pytest.raises(UsageError, match="no weights file at"):
        load_weights(net(1), tmp_path)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Named weights "imagenet" for resnet8, served without a network from this file."""
    path = tmp_path / "served.pth"
    torch.save(net(0).state_dict(), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    entry = Published(f"https://example.invalid/resnet8-{digest[:8]}.pth", digest)
    monkeypatch.setitem(PUBLISHED, "imagenet", {"resnet8": entry})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def attempt(transfer: download._Transfer, _offset: int) -> None:
        assert transfer.url == entry.url
        transfer.part.write_bytes(path.read_bytes())

    monkeypatch.setattr(download._Transfer, "_attempt", attempt)
    return path


def test_named_weights_are_fetched_only_when_allowed_and_then_kept(published: Path) -> None:
    with pytest.raises(UsageError, match=r"--download.*put https://example\.invalid.*start from scratch"):
        load_weights(net(1), "imagenet")
    target = net(1)
    load_weights(target, "imagenet", download=True)
    assert equal(target, net(0))
    published.unlink()  # from here on nothing can be fetched
    target = net(2)
    load_weights(target, "imagenet")
    assert equal(target, net(0))
    assert [path.suffix for path in weights_folder().iterdir()] == [".pth"]


def test_wrong_download_is_discarded_before_it_is_read(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published.write_bytes(published.read_bytes() + b"!")
    monkeypatch.setattr(weights, "read_state", lambda path: pytest.fail(f"{path} was read"))
    with pytest.raises(CorruptFileError, match="sha256"):
        load_weights(net(1), "imagenet", download=True)
    assert list(weights_folder().iterdir()) == []


def test_damaged_cached_weights_are_refused(published: Path) -> None:
    load_weights(net(1), "imagenet", download=True)
    (cached,) = weights_folder().iterdir()
    cached.write_bytes(cached.read_bytes()[:-1])
    with pytest.raises(CorruptFileError, match="delete it and try again"):
        load_weights(net(1), "imagenet")


def test_architecture_without_published_weights_is_told_so() -> None:
    with pytest.raises(
        UsageError, match="no 'imagenet' weights for resnet8; use resnet18, resnet34, resnet50"
    ):
        load_weights(net(1), "imagenet")


def test_bare_hugging_face_name_is_told_its_prefix() -> None:
    with pytest.raises(
        UsageError, match="use hf:facebook/dinov2-small for that model of Hugging Face, resnet18"
    ):
        published_file("facebook/dinov2-small", "imagenet", download=False)


def test_published_names_carry_their_checksum() -> None:
    for entry in PUBLISHED["imagenet"].values():
        checksum = entry.sha256[:8]
        assert len(bytes.fromhex(entry.sha256)) == 32  # whole, not the prefix in the name
        assert Path(entry.file_name).stem.endswith(f"-{checksum}")


def test_refusal_does_not_pass_on_how_to_load_unsafely(tmp_path: Path) -> None:
    torch.save({"conv1.weight": torch.nn.Linear(1, 1)}, tmp_path / "net.pth")
    with pytest.raises(CorruptFileError, match="nothing in it was executed") as refused:
        load_weights(net(1), tmp_path / "net.pth")
    assert not {"weights_only", "add_safe_globals", "trust"} & set(re.findall(r"\w+", str(refused.value)))


def test_weights_are_kept_in_the_same_cache_as_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert weights_folder() == tmp_path / "maskcon" / "weights"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert weights_folder() == Path.home() / ".cache" / "maskcon" / "weights"
