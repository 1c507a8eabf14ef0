from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import tracemalloc
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from maskcon._utils.errors import DataError, UsageError
from maskcon.data import image_plan, load
from maskcon.data.packing import ImagePlan, Progress
from maskcon.report.inspection import Inspection, inspect_source, lines, page
from maskcon.report.inspection.page import class_strips
from maskcon.report.inspection.scan import read_plan
from maskcon.training.automatic import is_known
from tests.miniature import miniature
from tests.report.inspection.test_twins import scene

NAMES = ("kämpfer & co", "猫 🐈", 'quo"te <b>')


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def photos(root: Path, counts: tuple[int, ...] = (14, 12, 11), size: tuple[int, int] = (160, 120)) -> Path:
    """Images that differ, one class a name."""
    folder = root / "photos"
    for label, (name, count) in enumerate(zip(NAMES, counts, strict=True)):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            scene(100 * label + number, size).save(folder / name / f"{number}.jpg", quality=92)
    return folder


def images_of(folder: Path, name: str) -> list[Path]:
    return sorted((folder / name).iterdir())


def inspected(folder: Path) -> Inspection:
    return inspect_source(str(folder))[0]


def test_counts_are_those_that_training_gets(tmp_path):
    folder = photos(tmp_path)
    found, data = inspected(folder), load(str(folder))
    assert (found.train, found.test) == (len(data.train), len(data.test))
    assert [count.name for count in found.coarse] == list(data.coarse_names)
    for part, labels in (("train", data.train.coarse), ("test", data.test.coarse)):
        counts = np.bincount(labels, minlength=3).tolist()
        assert [getattr(count, part) for count in found.coarse] == counts
    assert found.fine == ()
    assert (found.twins, found.near_twins, found.failures) == ((), (), {})
    assert (found.width.median, found.height.largest) == (160, 120)


def test_sizes_and_modes_are_those_of_the_files(tmp_path):
    folder = photos(tmp_path)
    first = folder / NAMES[0]
    scene(900).convert("CMYK").save(first / "cmyk.jpg")
    scene(901).convert("P").save(first / "palette.png")
    Image.fromarray(np.random.default_rng(0).integers(0, 65535, (40, 50)).astype(np.uint16)).save(
        first / "deep.png"
    )
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    scene(902, (300, 20)).save(first / "turned.jpg", exif=exif)
    found = inspected(folder)
    assert found.modes["RGB"] == 38
    assert {"CMYK", "P", "I;16"} <= set(found.modes)
    assert found.formats == {"JPEG": 39, "PNG": 2}
    assert (found.width.smallest, found.height.largest) == (20, 300)  # upright


def test_the_same_file_is_found_within_and_across_labels(tmp_path):
    folder = photos(tmp_path)
    original, other = images_of(folder, NAMES[0])[:2]
    shutil.copy(original, folder / NAMES[1] / "copy.jpg")
    shutil.copy(other, folder / NAMES[0] / "again.jpg")
    found = inspected(folder)
    assert [set(group.names) for group in found.twins] == [
        {f"{NAMES[0]}/0.jpg", f"{NAMES[1]}/copy.jpg"},  # the conflict first
        {f"{NAMES[0]}/1.jpg", f"{NAMES[0]}/again.jpg"},
    ]
    assert [group.across_labels for group in found.twins] == [True, False]
    assert found.near_twins == ()
    assert "the same file under DIFFERENT coarse labels" in found.warnings[0]
    assert any("DIFFERENT coarse labels" in line for line in lines(found))


def test_a_leak_from_train_to_test_is_reported(tmp_path):
    folder = tmp_path / "photos"
    shutil.copytree(photos(tmp_path / "made"), folder / "train")
    shutil.copytree(photos(tmp_path / "other", (3, 3, 3), (90, 70)), folder / "test")
    for name in NAMES:  # other images than in train
        for number, path in enumerate(images_of(folder / "test", name)):
            scene(5000 + number + 10 * NAMES.index(name), (90, 70)).save(path)
    assert inspected(folder).warnings == ()
    leaked = images_of(folder / "train", NAMES[0])[0]
    shutil.copy(leaked, folder / "test" / NAMES[0] / "leak.jpg")
    with Image.open(images_of(folder / "train", NAMES[1])[0]) as picture:
        picture.resize((80, 60)).save(folder / "test" / NAMES[1] / "smaller.jpg", quality=50)
    found = inspected(folder)
    assert [group.across_parts for group in (*found.twins, *found.near_twins)] == [True, True]
    assert not any(group.across_labels for group in (*found.twins, *found.near_twins))
    told = " ".join(found.warnings)
    assert "the same file in train AND test: 1 test image with" in told
    assert "nearly the same image in train AND test: 1 test image with" in told


def test_near_twins_bring_their_exact_copies_along(tmp_path):
    folder = photos(tmp_path)
    original = images_of(folder, NAMES[0])[0]
    shutil.copy(original, folder / NAMES[1] / "copy.jpg")
    with Image.open(original) as picture:
        picture.resize((100, 75)).save(folder / NAMES[0] / "small.jpg")
    found = inspected(folder)
    assert [len(group.rows) for group in found.near_twins] == [3]
    assert found.near_twins[0].across_labels


def test_files_that_cannot_be_read_come_with_reasons(tmp_path):
    folder = photos(tmp_path)
    first = images_of(folder, NAMES[0])[0]
    (folder / NAMES[0] / "half.jpg").write_bytes(first.read_bytes()[:700])
    (folder / NAMES[0] / "words.png").write_text("not an image")
    (folder / NAMES[0] / "empty.gif").write_bytes(b"")
    found = inspected(folder)
    assert set(found.failures) == {f"{NAMES[0]}/{name}" for name in ("half.jpg", "words.png", "empty.gif")}
    assert found.failures[f"{NAMES[0]}/words.png"] == "not an image of a known format"
    assert "truncated" in found.failures[f"{NAMES[0]}/half.jpg"]
    assert found.train + found.test == 37
    assert any("3 files cannot be read" in warning for warning in found.warnings)


def test_imbalance_small_classes_and_plain_images_are_warned_of(tmp_path):
    folder = photos(tmp_path, (60, 1, 12))
    Image.new("RGB", (50, 50), "white").save(folder / NAMES[2] / "white.png")
    found = inspected(folder)
    told = " ".join(found.warnings)
    assert found.imbalance > 30
    assert "times the images of the smallest" in told
    assert f"{NAMES[1]} (1)" in told
    assert found.plain == (f"{NAMES[2]}/white.png",)


def test_two_plain_images_are_no_near_twins(tmp_path):
    folder = photos(tmp_path)
    for name, colour in (("a", "white"), ("b", "#fefefe")):
        Image.new("RGB", (50, 50), colour).save(folder / NAMES[2] / f"{name}.png")
    found = inspected(folder)
    assert found.near_twins == ()
    assert len(found.plain) == 2


def test_what_training_would_choose_is_told_for_own_images_only(tmp_path):
    found = inspected(photos(tmp_path))
    assert [choice.name for choice in found.choices] == ["encoder", "image size", "batch", "bank", "epochs"]
    assert "maskcon train would choose:" in lines(found)
    assert is_known("embedded")
    assert not is_known(str(tmp_path / "photos"))


def test_arrays_are_inspected_too():
    data = miniature(size=24)
    found, read = inspect_source(data)
    assert (found.train, found.test, found.modes) == (72, 24, {"L": 96})
    assert len(found.fine) == 4
    assert [count.coarse for count in found.fine] == ["stripes", "stripes", "checks", "checks"]
    (picture,) = read.thumbnails([0], 96)
    assert picture is not None
    assert np.array_equal(picture[0], data.train.images[0, 0])


@pytest.mark.parametrize(("files", "message"), [(0, "no image found"), (1, "a single image")])
def test_a_folder_without_enough_is_refused_with_what_to_do(tmp_path, files, message):
    folder = tmp_path / "photos" / "cat"
    folder.mkdir(parents=True)
    for number in range(files):
        scene(number).save(folder / f"{number}.jpg")
    with pytest.raises(DataError, match=message):
        inspect_source(str(tmp_path / "photos"))


class Links(HTMLParser):
    """Everything that a page would fetch, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_is_whole_and_names_cannot_break_it(tmp_path):
    folder = photos(tmp_path)
    shutil.copy(images_of(folder, NAMES[2])[0], folder / NAMES[2] / "<script>alert(1)<.jpg")
    found, read = inspect_source(str(folder))
    text = page(found, read)
    links = Links()
    links.feed(text)
    assert text.count("<script") == 1  # the page's own
    assert "b" not in links.tags
    images = [link for link in links.fetched if link.startswith("data:image/jpeg;base64,")]
    assert len(images) == 4  # three classes and a pair of duplicates
    assert all(link.startswith("#") or link == "data:," for link in links.fetched if link not in images)
    assert "猫 🐈" in text


def test_each_class_has_a_strip_of_images(tmp_path):
    found, read = inspect_source(str(photos(tmp_path)))
    shown = {found.coarse[label].name: strip.size for label, strip in class_strips(read).items()}
    assert shown == {NAMES[0]: (1196, 96), NAMES[1]: (1196, 96), NAMES[2]: (1096, 96)}


def test_small_images_fill_their_tiles_and_lost_ones_are_grey(tmp_path):
    folder = photos(tmp_path, size=(32, 24))
    found, read = inspect_source(str(folder))
    strip = np.asarray(class_strips(read)[0])
    assert (strip[:12] == 255).all()  # 96 x 72 in a tile of 96 x 96
    assert (strip[12:84, :96] != 255).any(axis=(1, 2)).all()
    assert (strip[12:84, :96] != 255).any(axis=(0, 2)).all()
    shutil.rmtree(folder / NAMES[0])
    assert read.thumbnails([0], 96) == [None]
    assert {tuple(pixel) for pixel in np.asarray(class_strips(read)[0])[0, :96].tolist()} == {(200, 200, 200)}
    assert page(found, read)


def test_too_few_images_to_train_are_warned_of_first(tmp_path):
    found = inspected(photos(tmp_path, (1, 1, 2)))
    assert found.warnings[0].startswith("too few to train: at least 4 images")
    assert not any("too few" in warning for warning in inspected(photos(tmp_path / "more")).warnings)


def test_a_wrong_name_is_refused_before_images_are_read(tmp_path, monkeypatch):
    folder = photos(tmp_path)
    monkeypatch.setattr("maskcon.report.inspection.read_plan", None)
    for source in (str(folder), "embedded"):
        with pytest.raises(UsageError, match="did you mean 'maskcon'"):
            inspect_source(source, method="mascon")


def test_bytes_that_are_fetched_are_not_counted_as_images(tmp_path, monkeypatch):
    folder = photos(tmp_path)
    fetched: list[tuple[int, int]] = []
    seen: list[tuple[int, int]] = []

    def fetching_plan(source: str, *, progress: Progress, **changes: object) -> ImagePlan | None:
        progress(3_000_000, 5_000_000)
        return image_plan(source, **changes)

    monkeypatch.setattr("maskcon.report.inspection.image_plan", fetching_plan)
    inspect_source(str(folder), progress=lambda *at: seen.append(at), fetching=lambda *at: fetched.append(at))
    assert fetched == [(3_000_000, 5_000_000)]
    assert seen[-1] == (37, 37)
    assert {total for _, total in seen} == {37}


def test_the_page_runs_only_its_own_script_and_escapes_what_reorders_text(tmp_path):
    folder = photos(tmp_path)
    (folder / NAMES[0]).rename(folder / "cat\u202egod\x1b[2J")
    found, read = inspect_source(str(folder))
    text = page(found, read)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text
    )
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "cat\\u202egod\\x1b[2J" in text


def test_json_holds_everything_as_plain_values(tmp_path):
    folder = photos(tmp_path)
    shutil.copy(images_of(folder, NAMES[0])[0], folder / NAMES[1] / "copy.jpg")
    values = json.loads(json.dumps(inspected(folder).as_json()))
    assert values["twins"][0]["across_labels"] is True
    assert values["twins"][0]["labels"] == [NAMES[0], NAMES[1]]
    assert values["choices"][0]["name"] == "encoder"
    assert values["train"] == sum(count["train"] for count in values["coarse"])


def test_the_page_lists_unreadable_files_and_a_terminal_counts_them(tmp_path):
    found, read = inspect_source(str(photos(tmp_path)))
    broken = replace(found, failures={f"{number}.jpg": "not an image" for number in range(30)})
    (told,) = (line for line in lines(broken) if "not an image" in line)
    assert "30 files cannot be read" in told
    assert page(broken, read).count("jpg: not an image") == 30


def test_a_long_file_is_not_read_into_memory(tmp_path):
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        scene(len(name)).save(tmp_path / name)
    with (tmp_path / "a/1.png").open("r+b") as file:
        file.truncate(200 << 20)  # zeros after the image
    tracemalloc.start()
    read = read_plan(image_plan(str(tmp_path)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sorted(image.size_bytes for image in read.images)[-1] == 200 << 20
    assert len(read.images) == 4
    assert peak < 50 << 20
