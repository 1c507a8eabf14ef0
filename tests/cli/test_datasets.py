from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from maskcon import transforms
from maskcon._utils.errors import MaskconError
from maskcon.cli import app
from maskcon.data import load
from tests.cli.commands import environment, maskcon
from tests.data.miniature_photos import SIZES, write_sop
from tests.data.miniatures import write_cifar10

NAMES = [
    *("embedded", "fashion-mnist", "cifartoy-good", "cifartoy-bad", "cifar10", "cifar100", "imagenet32"),
    *("sop-split1", "sop-split2", "cars196"),
]
COUNTS = {
    "cifartoy-good": ([40_000, 8_000], [2, 8]),
    "cifartoy-bad": ([40_000, 8_000], [2, 8]),
    "cifar100": ([50_000, 10_000], [20, 100]),
    "imagenet32": ([1_281_167, 50_000], [12, 1000]),
    "sop-split1": ([25_368, 25_278], [12, 5_035]),
    "sop-split2": ([14_980, 2_996], [12, 1_498]),
    "cars196": ([8_144, 8_041], [8, 196]),
}


def output(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def shown(name: str, *arguments: str) -> dict[str, Any]:
    found = json.loads(output("datasets", "show", name, "--json", *arguments))
    assert isinstance(found, dict)
    return found


def refusal(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, MaskconError), result.output
    assert result.exception.exit_code == 2
    return str(result.exception)


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASKCON_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data"


def test_the_list_has_every_data_set_with_its_counts() -> None:
    listed = {entry["name"]: entry for entry in json.loads(output("datasets", "--json"))}
    assert list(listed) == NAMES
    for name, (counts, classes) in COUNTS.items():
        assert (listed[name]["counts"], listed[name]["classes"]) == (counts, classes)
    keys = "name title summary classes counts image licence origin_url how_to_get available"
    assert all(" ".join(entry) == keys for entry in listed.values())
    table = {line.split()[0]: line for line in output("datasets").splitlines() if line.strip()}
    for name, (counts, classes) in COUNTS.items():
        assert table[name].split()[1:5] == [f"{number:,}" for number in (*counts, *classes)]
    assert table["sop-split1"].rstrip().endswith("no (--download)")
    assert table["cars196"].rstrip().endswith("no (by hand)")


def test_the_list_looks_into_the_data_folder_that_is_given(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "other" / "cifar-10-batches-py")
    for root, here in ((tmp_path / "other", True), (tmp_path / "data", False)):
        listed = json.loads(output("datasets", "--json", "--data-root", str(root)))
        assert next(entry for entry in listed if entry["name"] == "cifartoy-bad")["available"] is here


@pytest.mark.parametrize("name", NAMES)
def test_show_tells_all_as_text_and_as_json(name: str, data_folder: Path) -> None:
    found = shown(name)
    text = output("datasets", "show", name)
    for key in ("title", "summary", "licence", "origin_url", "how_to_get", "citation", "class_order"):
        assert found[key]
        assert found[key] in text
    assert f"{found['counts'][0]:,} to train on" in text
    assert found["data_root"] == str(data_folder)
    assert found["available"] is (not found["missing"])
    assert all(line in text for line in found["missing"])
    assert all(any(coarse in line for line in text.splitlines()) for coarse in found["coarse_names"])
    assert len(found["coarse_names"]) == found["classes"][0]
    for file in found["files"]:
        assert file["name"] in text
        assert all(len(md5) == 32 and md5 in text for md5 in file["md5"])
    weak, strong = transforms.pair(found["family"])
    assert found["views"] == {"query": strong.name, "key": weak.name}


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("sop")])
def test_coarse_of_covers_every_fine_class(name: str) -> None:
    found = shown(name)
    coarse, fine = found["classes"]
    assert len(found["coarse_of"]) == len(found["fine_names"]) == len(set(found["fine_names"])) == fine
    assert set(found["coarse_of"]) == set(range(coarse))
    assert found["fine_per_coarse"] == [found["coarse_of"].count(place) for place in range(coarse)]
    assert found["coarse_of_reason"] is None


@pytest.mark.parametrize(
    ("name", "variant", "sizes"),
    [
        ("imagenet32", "paper", [61, 123, 59, 95, 60, 130, 70, 53, 105, 71, 93, 80]),
        ("imagenet32", "reference", [61, 123, 59, 95, 60, 130, 70, 53, 105, 71, 93, 80]),
        ("cars196", "paper", [18, 50, 36, 30, 29, 14, 7, 12]),
        ("cars196", "reference", [18, 50, 36, 30, 29, 14, 6, 13]),
        ("cifar100", "paper", [5] * 20),
        ("cifartoy-good", "paper", [4, 4]),
    ],
)
def test_coarse_classes_have_the_published_sizes(name: str, variant: str, sizes: list[int]) -> None:
    assert shown(name, "--variant", variant)["fine_per_coarse"] == sizes


def test_coarse_of_follows_the_usual_order_of_classes() -> None:
    imagenet = shown("imagenet32")  # by WNID: tench first, toilet tissue last
    assert (imagenet["fine_names"][0], imagenet["fine_names"][999]) == ("tench", "toilet tissue")
    assert imagenet["coarse_of"][0] == 4
    cars = shown("cars196")  # class numbers: AM General Hummer SUV is 1, smart fortwo 196
    assert cars["fine_names"][0] == "AM General Hummer SUV 2000"
    assert cars["coarse_names"][cars["coarse_of"][0]] == "SUV"
    assert cars["coarse_names"][cars["coarse_of"][195]] == "Convertible"
    cifar = shown("cifar100")
    assert cifar["fine_names"][:2] == ["apple", "aquarium_fish"]
    assert cifar["coarse_of"][:6] == [4, 1, 14, 8, 0, 6]  # the first labels of CIFAR-100's own meta file


def test_the_toy_set_names_its_eight_classes_and_differs_by_variant() -> None:
    paper, reference = (shown("cifartoy-bad", "--variant", variant) for variant in ("paper", "reference"))
    assert " ".join(paper["fine_names"]) == "airplane automobile bird cat dog horse ship truck"
    assert paper["coarse_of"] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert reference["coarse_of"] == [0, 0, 1, 0, 0, 1, 1, 1]
    assert "class B: bird, horse, ship, truck" in output(
        "datasets", "show", "cifartoy-bad", "--variant", "reference"
    )


@pytest.mark.parametrize("name", ["embedded", "cifar10", "cifartoy-good", "cifartoy-bad"])
def test_what_is_shown_is_true_of_what_loads(name: str, data_folder: Path) -> None:
    write_cifar10(data_folder / "cifar-10-batches-py")
    found, data = shown(name), load(name)
    assert tuple(found["coarse_of"]) == data.coarse_of_fine
    assert tuple(found["fine_names"]) == data.fine_names
    assert tuple(found["coarse_names"]) == data.coarse_names
    assert found["family"] == data.family


@pytest.mark.parametrize("split", ["split1", "split2"])
def test_products_are_known_once_their_list_is_here(split: str, data_folder: Path) -> None:
    before = shown(f"sop-{split}")
    assert before["coarse_of"] is None
    assert before["fine_names"] is None
    assert "Ebay_info.txt" in before["coarse_of_reason"]
    assert before["coarse_of_reason"] in output("datasets", "show", f"sop-{split}")
    write_sop(data_folder, SIZES)
    after, data = shown(f"sop-{split}"), load(f"sop-{split}", image_size=32)
    assert tuple(after["coarse_of"]) == data.coarse_of_fine
    assert after["coarse_of_reason"] is None
    assert after["missing"] == []


def test_a_damaged_list_of_products_does_not_hide_the_rest(data_folder: Path) -> None:
    folder = write_sop(data_folder, SIZES)
    (folder / "Ebay_info.txt").write_text("something else\n")
    found = shown("sop-split1")
    assert found["coarse_of"] is None
    assert "Ebay_info.txt" in found["coarse_of_reason"]


def test_a_list_that_is_here_is_not_called_absent_where_pictures_are(data_folder: Path) -> None:
    folder = write_sop(data_folder, SIZES, pictures=False)
    (folder / "sofa_final").rmdir()
    found = shown("sop-split1")
    assert found["missing"] == [f"sofa_final in {folder}"]
    assert "once the dataset is complete" in found["coarse_of_reason"]


@pytest.mark.parametrize(
    ("name", "file", "line"),
    [
        ("cifar10", "cifar-10-batches-py/data_batch_2", "data_batch_1 in "),
        ("cifar100", "cifar-100-python/train", "test in "),
        ("imagenet32", "train_data_batch_1", "train_data_batch_2, train_data_batch_3"),
        ("sop-split1", "Stanford_Online_Products/Ebay_info.txt", "bicycle_final in "),
        ("cars196", "cars196/train/AM General Hummer SUV 2000/1.jpg", "test in "),
    ],
)
def test_missing_names_what_a_partial_set_lacks(name: str, file: str, line: str, data_folder: Path) -> None:
    assert shown(name)["missing"]
    (data_folder / file).parent.mkdir(parents=True)
    (data_folder / file).touch()
    missing = shown(name)["missing"]
    assert any(found.startswith(line) for found in missing), missing
    assert not shown(name)["available"]


def test_options_before_show_hold_for_it(tmp_path: Path) -> None:
    text = output("datasets", "--json", "--data-root", str(tmp_path / "x"), "show", "cifar10")
    assert json.loads(text)["data_root"] == str(tmp_path / "x")


def test_show_refuses_what_it_does_not_know() -> None:
    assert "did you mean 'cifar100'" in refusal("datasets", "show", "cifar-100")
    assert "did you mean 'paper'" in refusal("datasets", "show", "cifar10", "--variant", "papr")
    assert "name the dataset" in refusal("datasets", "show")
    assert CliRunner().invoke(app, ["datasets", "list"]).exit_code == 2


def test_a_refusal_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    done = maskcon("datasets", "show", "sop", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("maskcon: unknown dataset 'sop'")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="names are not bytes there")
@pytest.mark.parametrize("arguments", [["datasets"], ["datasets", "show", "cars196"]])
def test_a_data_folder_whose_name_is_no_text_is_shown(tmp_path: Path, arguments: list[str]) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9")
    done = maskcon(*arguments, "--data-root", str(root), cwd=tmp_path, PYTHONIOENCODING="utf-8:strict")
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/caf\\udce9" in done.stdout


@pytest.mark.skipif(os.name != "posix", reason="there are no such terminals")
def test_a_terminal_gets_lines_that_fit_it_and_a_pipe_whole_ones(tmp_path: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "maskcon", "datasets", "show", "cifar100"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment() | {"COLUMNS": "80"}, stdout=theirs)
    os.close(theirs)
    text = ""
    with contextlib.suppress(OSError):  # how Linux says that the other end is closed
        while block := os.read(ours, 1 << 16):
            text += block.decode()
    os.close(ours)
    assert process.wait() == 0
    assert "tractor" in text
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
    assert max(len(line) for line in output("datasets", "show", "cifar100").splitlines()) > 80
