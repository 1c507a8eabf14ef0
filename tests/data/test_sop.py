from __future__ import annotations

import hashlib
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskcon._utils.errors import CorruptFileError, DataError
from maskcon.data import packing
from maskcon.data.archive import extract
from maskcon.data.builtin import release, sop
from maskcon.data.builtin.sop import COARSE_NAMES, split1, split2
from tests.data.miniature_photos import (
    SIZES,
    colour_of,
    images_of,
    info_rows,
    load_sop,
    write_other_lists,
    write_sop,
    write_split_lists,
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "maskcon" / "packed"


@pytest.mark.parametrize("split", ["split1", "split2"])
def test_labels_names_ids_and_pixels_belong_together(tmp_path: Path, split: Any) -> None:
    write_sop(tmp_path, SIZES)
    data = load_sop(split, tmp_path, image_size=32)
    assert data.name == f"sop-{split}"
    assert data.family == "products"
    assert data.coarse_names == COARSE_NAMES
    assert data.fine_names is not None
    row_of = {int(row.split()[0]): row.split() for row in info_rows(SIZES)}
    for part in (data.train, data.test):
        assert part.fine is not None
        assert part.paths is not None
        for place, image_id in enumerate(part.index.tolist()):
            _, _, category, path = row_of[image_id]
            assert part.paths[place] == path
            assert part.coarse[place] == int(category) - 1
            offer = path.split("/")[1].split("_")[0]
            assert data.fine_names[part.fine[place]] == f"{COARSE_NAMES[int(category) - 1]}/{offer}"
            near = part.images[place, :, 5, 5].astype(int) - np.array(colour_of(path))
            assert abs(near).max() <= 4  # JPEG
    assert "by rule" in data.notes[0]
    assert "the paper has" in data.notes[1]


def test_parts_have_the_products_and_counts_of_the_split(tmp_path: Path) -> None:
    write_sop(tmp_path, SIZES)
    first, second = (load_sop(split, tmp_path, image_size=32) for split in ("split1", "split2"))
    assert (len(first.train), len(first.test)) == (20, 33)
    assert set(first.train.fine.tolist()) == {0, 1}  # type: ignore[union-attr]
    assert set(first.test.fine.tolist()) == {2, 3, 4}  # type: ignore[union-attr]
    assert (len(second.train), len(second.test)) == (30, 6)
    assert second.coarse_of_fine == (3, 0, 11)


def test_set_may_lie_in_the_root_itself(tmp_path: Path) -> None:
    folder = write_sop(tmp_path, SIZES)
    assert sop.RELEASE.missing(folder) == ()
    assert len(load_sop("split1", folder, image_size=32).train) == 20


@pytest.mark.parametrize("split", ["split1", "split2"])
@pytest.mark.parametrize("where", ["Stanford_Online_Products", "", "coarse_labels"])
def test_authors_lists_are_used_where_given(tmp_path: Path, split: Any, where: str) -> None:
    write_sop(tmp_path, SIZES)
    train, test = write_other_lists(split, tmp_path / where)
    data = load_sop(split, tmp_path, image_size=32)
    assert sorted(data.train.index.tolist()) == sorted(picture.image_id for picture in train)
    assert sorted(data.test.index.tolist()) == sorted(picture.image_id for picture in test)
    assert f"lists in sop_{split}/" in data.notes[0]


def test_lists_of_our_own_split_give_the_same_dataset(tmp_path: Path) -> None:
    write_sop(tmp_path, SIZES)
    by_rule = load_sop("split2", tmp_path, image_size=32).fingerprint()
    own = split2(images_of(SIZES))
    write_split_lists(tmp_path / "sop_split2", list(own.train)[::-1], list(own.test), shared=True)
    assert load_sop("split2", tmp_path, image_size=32).fingerprint() == by_rule


def test_windows_line_ends_are_read(tmp_path: Path) -> None:
    folder = write_sop(tmp_path, SIZES)
    path = folder / "Ebay_info.txt"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert len(load_sop("split1", tmp_path, image_size=32).train) == 20


def test_list_of_too_few_products_is_an_error(tmp_path: Path) -> None:
    write_sop(tmp_path, [(0, 3), (1, 2)])
    with pytest.raises(DataError, match=r"0 images to train on.*5 of 120053 rows"):
        load_sop("split2", tmp_path)


def test_nothing_at_all_says_where_to_get_it_and_where_to_put_it(tmp_path: Path) -> None:
    (line,) = sop.RELEASE.missing(tmp_path)
    assert sop.RELEASE.urls[0] in line
    assert str(tmp_path) in line
    with pytest.raises(DataError, match=r"not found in .*--download.*Stanford_Online_Products\.zip"):
        load_sop("split1", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_partial_set_names_what_is_lacking(tmp_path: Path) -> None:
    folder = write_sop(tmp_path, SIZES, pictures=False)
    shutil.rmtree(folder / "sofa_final")
    (folder / "Ebay_info.txt").unlink()
    assert sop.RELEASE.missing(tmp_path) == (f"Ebay_info.txt in {folder}", f"sofa_final in {folder}")
    with pytest.raises(
        DataError, match=r"not complete: Ebay_info\.txt, sofa_final not found; take them from"
    ):
        load_sop("split1", tmp_path)


def test_folder_in_the_way_of_unpacking_is_named_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / sop.FOLDER).mkdir()
    (tmp_path / sop.ARCHIVE).write_bytes(b"the archive")

    def no_fetch(*_: object, **__: object) -> None:
        raise AssertionError("fetched")

    monkeypatch.setattr(release, "fetch", no_fetch)
    assert sop.RELEASE.missing(tmp_path)[0] == f"Ebay_info.txt in {tmp_path / sop.FOLDER}"
    with pytest.raises(DataError, match=r"not complete: Ebay_info.*or delete the folder and try again"):
        load_sop("split1", tmp_path, download=True)


def test_unreadable_images_are_left_out_with_a_note(tmp_path: Path) -> None:
    folder = write_sop(tmp_path, SIZES)
    paths = [picture.path for picture in split1(images_of(SIZES)).train]
    (folder / paths[0]).unlink()
    (folder / paths[5]).write_bytes((folder / paths[5]).read_bytes()[:40])
    data = load_sop("split1", tmp_path, image_size=32)
    assert data.train.paths == tuple(path for place, path in enumerate(paths) if place not in (0, 5))
    assert len(data.test) == 33
    assert "2 images could not be read and were left out" in data.notes[-1]
    assert f"{paths[0]} (no such file)" in data.notes[-1]


def test_set_without_an_image_is_an_error(tmp_path: Path, own_cache: Path) -> None:
    write_sop(tmp_path, SIZES, pictures=False)
    with pytest.raises(DataError, match="no readable image of the train part; 53 of 53 are missing"):
        load_sop("split1", tmp_path)
    assert not own_cache.exists()


def zipped(folder: Path, target: Path) -> str:
    """Write the archive; its md5."""
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, f"{folder.name}/{path.relative_to(folder)}")
    return hashlib.md5(target.read_bytes()).hexdigest()


def test_archive_is_checked_and_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_sop(tmp_path / "made", SIZES)
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setattr(
        sop, "RELEASE", replace(sop.RELEASE, md5=zipped(folder, root / "Stanford_Online_Products.zip"))
    )
    assert sop.RELEASE.missing(root) == ()
    data = load_sop("split1", root, image_size=32)
    assert data.fingerprint() == load_sop("split1", tmp_path / "made", image_size=32).fingerprint()
    (root / "Stanford_Online_Products.zip").unlink()
    assert load_sop("split1", root, image_size=32).fingerprint() == data.fingerprint()


def test_archive_with_a_wrong_checksum_is_named_and_not_used(tmp_path: Path) -> None:
    folder = write_sop(tmp_path / "made", SIZES, pictures=False)
    root = tmp_path / "root"
    root.mkdir()
    zipped(folder, root / "Stanford_Online_Products.zip")
    with pytest.raises(
        CorruptFileError, match=rf"Stanford_Online_Products\.zip is not the file.*{sop.RELEASE.md5}"
    ):
        load_sop("split1", root)
    assert [path.name for path in root.iterdir()] == ["Stanford_Online_Products.zip"]


def test_download_fetches_the_archive_with_its_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_sop(tmp_path / "made", SIZES)
    md5 = zipped(folder, tmp_path / "made.zip")
    asked = []

    def fetch(url: str, target: Path, *, algorithm: str, digest: str, progress: object) -> Path:
        asked.append((url, algorithm, digest))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "made.zip", target)
        return target

    monkeypatch.setattr(release, "fetch", fetch)
    monkeypatch.setattr(sop, "RELEASE", replace(sop.RELEASE, md5=md5))
    data = load_sop("split2", tmp_path / "root", download=True, image_size=32)
    assert len(data.train) == 30
    assert asked == [(sop.RELEASE.urls[0], "md5", md5)]


def test_archive_cut_short_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_sop(tmp_path / "made", SIZES)
    root = tmp_path / "root"
    root.mkdir()
    target = root / "Stanford_Online_Products.zip"
    zipped(folder, target)
    target.write_bytes(target.read_bytes()[:2000])
    monkeypatch.setattr(
        sop, "RELEASE", replace(sop.RELEASE, md5=hashlib.md5(target.read_bytes()).hexdigest())
    )
    with pytest.raises(CorruptFileError, match="nothing was unpacked"):
        load_sop("split1", root)
    assert [path.name for path in root.iterdir()] == [target.name]


def test_large_set_is_packed_once_and_the_same(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_sop(tmp_path, SIZES)
    next((folder / "kettle_final").iterdir()).unlink()
    in_memory = load_sop("split1", tmp_path, image_size=32)
    monkeypatch.setattr(packing, "PACK_ABOVE_BYTES", 1000)
    packed = load_sop("split1", tmp_path, image_size=32)
    assert isinstance(packed.test.images, np.memmap)
    assert packed.fingerprint() == in_memory.fingerprint()
    assert len(list(own_cache.iterdir())) == 1


def test_a_folder_that_another_process_unpacks_meanwhile_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    write_sop(root, SIZES)
    archive = shutil.make_archive(str(root / "Stanford_Online_Products"), "zip", root, sop.FOLDER)
    shutil.rmtree(root / sop.FOLDER)
    monkeypatch.setattr(
        sop, "RELEASE", replace(sop.RELEASE, md5=hashlib.md5(Path(archive).read_bytes()).hexdigest())
    )

    def late(archive: Path, destination: Path, **options: Any) -> Path:
        extract(archive, destination, **options)  # the other process
        return extract(archive, destination, **options)

    monkeypatch.setattr(release, "extract", late)
    assert len(load_sop("split1", root, image_size=32).train) == 20


def test_a_link_to_itself_leaves_out_its_image_alone(tmp_path: Path) -> None:
    folder = write_sop(tmp_path, SIZES)
    whole = load_sop("split1", tmp_path, image_size=32)
    assert whole.train.paths is not None
    picture = folder / whole.train.paths[0]
    picture.unlink()
    picture.symlink_to(picture)
    data = load_sop("split1", tmp_path, image_size=32)
    assert len(data.train) == len(whole.train) - 1
    assert len(data.test) == len(whole.test)
