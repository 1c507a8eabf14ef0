from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from maskcon._utils.errors import DataError, UsageError
from maskcon.data import absolute, image_plan, is_there, load, packing
from maskcon.data.decoding import UndecodableError
from maskcon.data.huggingface import Address, Rows
from maskcon.data.packing import make_pack


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever opens a connection fails the test; the user's cache of packs is left alone."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a test tried to reach the network")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def shade(row: int) -> Image.Image:
    return Image.new("RGB", (20, 14), (row * 3 % 256, 90, 5))


def table(count: int = 12, start: int = 0, **columns: Any) -> datasets.Dataset:
    rows = range(start, start + count)
    values: dict[str, Any] = {
        "img": [shade(row) for row in rows],
        "coarse_label": [row % 2 for row in rows],
        "fine_label": [f"k{row % 4}" for row in rows],
        **columns,
    }
    features = {"img": datasets.Image(), "coarse_label": datasets.ClassLabel(names=["cat", "dog"])}
    features |= {name: datasets.Value("string") for name in values if name not in features}
    values = {name: value for name, value in values.items() if value is not None}
    return datasets.Dataset.from_dict(values, datasets.Features({name: features[name] for name in values}))


def saved(folder: Path, data: Any) -> str:
    data.save_to_disk(str(folder))
    return f"hf:{folder}"


def test_saved_dataset_with_splits_is_read(tmp_path: Path) -> None:
    both = datasets.DatasetDict({"train": table(12), "test": table(8, start=50), "extra": table(2)})
    data = load(saved(tmp_path / "pets", both))
    assert (data.name, data.coarse_names, data.fine_names) == (
        "pets",
        ("cat", "dog"),
        ("k0", "k1", "k2", "k3"),
    )
    assert (len(data.train), len(data.test)) == (12, 8)
    assert data.test.paths == tuple(f"test/{row}" for row in range(8))
    assert data.train.coarse.tolist() == [0, 1] * 6
    assert data.train.fine is not None
    assert data.train.fine.tolist() == [0, 1, 2, 3] * 3
    for row in range(8):
        assert np.array_equal(data.test.images[row], np.asarray(shade(50 + row)).transpose(2, 0, 1))
    assert "splits that are not used: extra" in data.notes


def test_a_single_part_is_split_by_content(tmp_path: Path) -> None:
    data = load(saved(tmp_path / "one", table(60)))
    held = {image.tobytes() for image in data.test.images}
    assert 4 <= len(held) <= 25
    more = datasets.concatenate_datasets([table(20, start=60), table(60)])
    again = load(saved(tmp_path / "two", more))
    old = {shade(row).tobytes() for row in range(60)}
    kept = {np.ascontiguousarray(image.transpose(1, 2, 0)).tobytes() for image in again.test.images}
    assert {np.frombuffer(content, np.uint8).tobytes() for content in kept & old} == {
        np.ascontiguousarray(image.transpose(1, 2, 0)).tobytes() for image in data.test.images
    }


def test_columns_and_splits_can_be_chosen(tmp_path: Path) -> None:
    both = {
        name: table(8, start=start, second=["x", "y"] * 4, thumb=None)
        for name, start in (("a", 0), ("b", 30), ("c", 60))
    }
    source = saved(tmp_path / "s", datasets.DatasetDict(both))
    data = load(f"{source},image=img,coarse=second,fine=,train=b,test=c")
    assert (data.coarse_names, data.fine_names) == (("x", "y"), None)
    assert data.train.paths == tuple(f"b/{row}" for row in range(8))
    with pytest.raises(UsageError, match="no split called 'train'; it has a, b, c"):
        load(source)
    with pytest.raises(UsageError, match=r"unknown split .*'d'.*known: a, b, c"):
        load(f"{source},train=d")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ",coarse=labels",
            r"unknown column 'labels'.*columns of .* are img \(Image\), coarse_label \(ClassLabel\)",
        ),
        (",image=coarse_label", "'coarse_label' holds no images"),
        (",imag=img", "unknown option of hf: 'imag'; did you mean 'image'"),
        (",img", "'img' is not an option"),
    ],
)
def test_misspelt_options_are_clear_errors(tmp_path: Path, options: str, message: str) -> None:
    source = saved(tmp_path / "s", table(8))
    with pytest.raises(UsageError, match=message):
        load(source + options)


def test_columns_that_cannot_be_guessed_are_listed(tmp_path: Path) -> None:
    plain = table(8).rename_columns({"coarse_label": "a", "fine_label": "b"})
    assert load(saved(tmp_path / "one_class_column", plain)).coarse_names == ("cat", "dog")
    two = plain.cast_column("b", datasets.ClassLabel(names=["k0", "k1", "k2", "k3"]))
    with pytest.raises(UsageError, match=r"which column holds the coarse labels\?.*img .*a .*b "):
        load(saved(tmp_path / "two", two))
    with pytest.raises(UsageError, match=r"which column holds the images\?"):
        load(saved(tmp_path / "none", plain.remove_columns("img")))


def test_rows_without_a_label_or_at_odds_are_named(tmp_path: Path) -> None:
    both = datasets.DatasetDict({"train": table(8), "test": table(4, coarse_label=[0, 1, -1, 0])})
    with pytest.raises(DataError, match="split 'test', row 2: coarse_label is None, no label"):
        load(saved(tmp_path / "hidden", both))
    with pytest.raises(DataError, match="row 1: fine label 'k' lies in coarse class 'dog', but in 'cat'"):
        load(saved(tmp_path / "odds", table(8, fine_label=["k"] * 8)))


def test_unreadable_rows_are_left_out(tmp_path: Path) -> None:
    rows = [{"bytes": b"no image", "path": None}, None, *(shade(row) for row in range(10))]
    data = load(saved(tmp_path / "s", datasets.DatasetDict({"train": table(12, img=rows), "test": table(8)})))
    assert len(data.train) == 10
    note = next(note for note in data.notes if "left out" in note)
    assert "train/0 (not an image of a known format)" in note
    assert "train/1 (the row holds no image)" in note


def test_rows_that_name_a_file_are_read_from_disk_and_never_from_the_net(tmp_path: Path) -> None:
    shade(1).save(tmp_path / "a.png")
    places = [str(tmp_path / "a.png"), "https://example.org/a.png", str(tmp_path), None]
    rows = Rows({"train": [{"img": {"bytes": None, "path": place}} for place in places]}, "img", "")
    assert rows.read("train/0") == (tmp_path / "a.png").read_bytes()
    for row in (1, 2, 3):
        with pytest.raises(UndecodableError, match="no such file"):
            rows.read(f"train/{row}")


def test_large_sets_are_packed_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(tmp_path / "s", table(30))
    first = load(source)
    plan = image_plan(source)
    assert plan is not None
    make_pack(plan)

    def never(*_: object) -> None:
        pytest.fail("decoded although it is packed")

    monkeypatch.setattr(packing, "decode", never)
    assert load(source).fingerprint() == first.fingerprint()


def test_name_that_is_not_here_is_not_fetched_unasked() -> None:
    with pytest.raises(UsageError, match=r"hf:nobody/no-such-set is not on this machine yet .*--download"):
        load("hf:nobody/no-such-set")
    assert not datasets.config.HF_HUB_OFFLINE


@pytest.mark.parametrize("name", ["./absent", "/absent/folder", "~/absent"])
def test_folder_that_is_not_there_is_a_path_error(name: str) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        load(f"hf:{name}")


def test_damaged_folder_is_one_line(tmp_path: Path) -> None:
    source = saved(tmp_path / "s", table(8))
    for file in (tmp_path / "s").glob("*.arrow"):
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UsageError, match="cannot read hf:") as caught:
        load(source)
    assert "\n" not in str(caught.value)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"pip install 'maskcon\[datasets\]'"):
        load("hf:anything")


def test_folder_in_an_address_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "s", table(8))
    monkeypatch.chdir(tmp_path)
    assert absolute("hf:./s,fine=") == f"hf:{tmp_path / 's'},fine="
    assert absolute("hf:user/set,fine=x") == "hf:user/set,fine=x"
    assert Address.parse(f"hf:{tmp_path / 's'},fine=").short_name == "s"
    assert (is_there("hf:./s"), is_there("hf:./t"), is_there("hf:t")) == (True, False, True)


def test_folder_with_a_comma_in_its_path_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = saved(tmp_path / "my, own" / "s", table(8))
    assert Address.parse(f"{source},fine=") == Address(str(tmp_path / "my, own" / "s"), {"fine": ""})
    monkeypatch.chdir(tmp_path / "my, own")
    assert load(absolute("hf:./s,fine=")).fine_names is None
    with pytest.raises(UsageError, match="unknown option of hf: 'imag'"):
        load("hf:./s,imag=img")
