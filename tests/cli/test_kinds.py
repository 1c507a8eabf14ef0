"""`maskcon kinds` from first kinds to edited ones."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from maskcon.cli import app
from maskcon.data.kinds_file import read_kinds
from tests.cli.commands import maskcon
from tests.cli.in_process import refused


def draw(path: Path, dark: bool, seed: int) -> None:
    """A bright or a dark image with a little noise: two kinds for any encoder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 30, (16, 16, 3))
    stripes = (np.arange(16) % 2 * 200)[:, None, None] * dark
    Image.fromarray((noise + stripes).astype(np.uint8)).save(path)


@pytest.fixture
def fruit(tmp_path) -> Path:
    for number in range(40):
        draw(tmp_path / "fruit" / "apple" / f"{number:02}.png", number % 2 == 0, number)
    for number in range(3):
        draw(tmp_path / "fruit" / "pear" / f"{number}.png", False, 100 + number)
    return tmp_path / "fruit"


def kinds(*arguments: object) -> str:
    result = CliRunner().invoke(
        app, ["kinds", *map(str, arguments), "--device", "cpu"], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def kind_of(folder: Path) -> dict[str, str]:
    return {row.path: row.kind for row in read_kinds(folder / "kinds.csv")}


def edit(file: Path, change) -> None:
    with file.open(encoding="utf-8-sig", newline="") as handle:
        rows = list(csv.DictReader(handle))
    with file.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, rows[0].keys(), lineterminator="\r\n")
        writer.writeheader()
        writer.writerows(change(row) for row in rows)


def test_kinds_are_found_named_extended_and_found_anew(run, fruit, tmp_path):
    out = tmp_path / "out"
    text = kinds(run, fruit, "-o", out)
    assert "kind" in text.splitlines()[-1]
    found = kind_of(out)
    assert len({found[f"apple/{i:02}.png"] for i in range(0, 40, 2)}) == 1
    assert found["apple/00.png"] != found["apple/01.png"]
    assert {found[f"pear/{i}.png"] for i in range(3)} == {"kind 1"}
    assert "too few images" in text
    assert sorted(path.name for path in (out / "sheets").iterdir()) == ["apple.png", "pear.png"]
    assert "nothing changed" in kinds(run, "-o", out)  # the source is remembered
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.suffix in (".csv", ".json")}

    # an edit in place, added and removed images
    def name(row):
        return row | {"kind": "Gala" if row["kind"] == found["apple/00.png"] else row["kind"]}

    edit(out / "kinds.csv", lambda row: name(row) if row["coarse"] == "apple" else row)
    draw(fruit / "apple" / "new.png", True, 300)
    (fruit / "apple" / "01.png").unlink()
    text = kinds(run, fruit, "-o", out)
    assert f"apple: renamed {found['apple/00.png']} to Gala (20 images)" in text
    assert "apple: added 1 image to Gala" in text
    assert "apple: removed 1 image" in text
    assert kind_of(out)["apple/new.png"] == "Gala"
    other = found["apple/03.png"].removeprefix("kind ")  # as --split takes it
    assert text.splitlines()[1].endswith(f"  Gala (21), {other} (19)")
    assert "apple/01.png" not in kind_of(out)

    # found anew: names stay
    assert "nothing changed" in kinds(run, "-o", out, "--refresh")
    text = kinds(run, "-o", out, "--kinds", "apple=4")
    assert "apple: 2 kinds before, 4 now" in text
    assert "Gala" in set(kind_of(out).values())
    assert (out / "kinds.before.csv").is_file()
    assert kind_of(out)["pear/0.png"] == "kind 1"
    assert before["kinds.csv"] != (out / "kinds.csv").read_bytes()


def test_an_edited_copy_is_checked_and_taken_over(run, fruit, tmp_path):
    out, file = tmp_path / "out", tmp_path / "edited.csv"
    kinds(run, fruit, "-o", out, "--kinds", 2)
    shutil.copy(out / "kinds.csv", file)
    edit(file, lambda row: row | {"kind": "One"} if row["coarse"] == "apple" else row | {"role": "junk"})
    record = json.loads(kinds(run, "-o", out, "--names", file, "--json"))
    assert {(change["coarse"], change["change"]) for change in record["changes"]} == {
        ("apple", "merged"),
        ("pear", "junk"),
    }
    assert set(kind_of(out).values()) >= {"One"}
    assert {row.role for row in read_kinds(out / "kinds.csv") if row.coarse == "pear"} == {"junk"}
    assert (out / "kinds.before.csv").is_file()  # edits that were there are not lost
    after = (out / "kinds.csv").read_bytes()
    edit(file, lambda row: row | {"path": "gone.png"} if row["path"] == "apple/05.png" else row)
    again = ["kinds", str(run), "-o", str(out)]
    assert "line 7: gone.png is not among the images" in refused(*again, "--names", str(file))
    edit(out / "kinds.csv", lambda row: row | {"coarse": "plum"} if row["path"] == "apple/00.png" else row)
    assert "line 2: apple/00.png has the coarse label 'apple', not 'plum'" in refused(
        "kinds", str(run), "-o", str(out)
    )
    (out / "kinds.csv").write_bytes(after)
    kinds(run, "-o", out, "--split", "apple/One=3")
    assert len({kind for path, kind in kind_of(out).items() if path.startswith("apple")}) == 3


def test_flat_folders_are_one_class(run, fruit, tmp_path):
    record = json.loads(kinds(run, fruit / "apple", "-o", tmp_path / "out", "--json", "--coarser"))
    assert [group["coarse"] for group in record["classes"]] == ["unlabelled"]
    assert record["images"] == 40


def test_what_cannot_be_used_is_refused_in_one_line(run, fruit, tmp_path):
    out = ["-o", str(tmp_path / "out")]
    first = ["kinds", str(run), str(fruit), *out]
    assert "there are no kinds in" in refused(*first, "--names", "x.csv")
    assert "exclude each other" in refused(*first, "--coarser", "--finer")
    assert "'three'" in refused(*first, "--kinds", "three")
    assert "number from 1" in refused(*first, "--kinds", "apple=0")
    assert "did you mean 'apple'" in refused(*first, "--kinds", "aple=2")
    assert "at most 3" in refused(*first, "--kinds", "apple=2,pear=4")
    kinds(run, fruit, *out)
    assert "second command" in refused(*first, "--names", "x.csv", "--refresh")
    assert "cannot be read" in refused(*first, "--names", str(tmp_path / "x.csv"))
    assert "unknown kind 'apple/7'" in refused(*first, "--split", "apple/7")
    other = tmp_path / "other"
    draw(other / "apple" / "x.png", True, 1)
    assert "kinds of other images" in refused("kinds", str(run), str(other), *out)


def test_fewer_kinds_than_asked_for_are_told(run, fruit, tmp_path):
    text = kinds(run, fruit, "-o", tmp_path / "out", "--kinds", 500)
    assert "pear: 3 kinds, not 500: it has 3 images" in text
    assert [line.split()[4] for line in text.splitlines()[1:3]] == ["-", "-"]  # of kinds of one image


def test_kinds_of_another_model_need_a_refresh(run, fruit, tmp_path):
    from tests.finished_run import finished_run

    out = tmp_path / "out"
    kinds(run, fruit, "-o", out)
    another = finished_run(tmp_path / "another", seed=1).folder
    assert "found with another model; give --refresh" in refused("kinds", str(another), "-o", str(out))
    kinds(another, "-o", out, "--refresh")


def test_a_kill_between_the_files_loses_no_edit(run, fruit, tmp_path):
    out = tmp_path / "out"
    kinds(run, fruit, "-o", out, "--kinds", 2)
    edit(out / "kinds.csv", lambda row: row | {"kind": "Gala"} if row["path"] == "apple/00.png" else row)
    (fruit / "apple" / "01.png").unlink()
    command = ["kinds", str(run), "-o", str(out), "--device", "cpu"]
    killed = maskcon(*command, cwd=tmp_path, MASKCON_FAILPOINT="kinds-after-state")
    assert killed.returncode == 99, killed.stderr
    assert "nothing changed" in kinds(run, "-o", out)
    assert kind_of(out)["apple/00.png"] == "Gala"
    assert "apple/01.png" not in kind_of(out)


def test_kinds_are_exported_after_their_edits(run, fruit, tmp_path):
    out, target = tmp_path / "out", tmp_path / "sorted"
    kinds(run, fruit, "-o", out, "--kinds", 1)
    edit(out / "kinds.csv", lambda row: row | {"kind": "Gala" if row["coarse"] == "apple" else row["kind"]})
    record = json.loads(kinds(run, "-o", out, "--export", target, "--links", "--json"))
    assert record["export"]["images"] == record["export"]["written"] == 43
    assert (target / "apple" / "Gala" / "00.png").readlink() == fruit / "apple" / "00.png"
    assert f"exported: {target}, 43 images (0 written, 0 removed)" in kinds(
        run, "-o", out, "--export", target, "--links"
    )
    assert "add --export" in refused("kinds", str(run), "-o", str(out), "--links")


@pytest.mark.parametrize("parts", [(), ("train", "test")])
def test_images_of_the_run_are_exported_as_the_files_they_came_from(tmp_path, parts):
    from maskcon.data import load
    from tests.finished_run import finished_run

    photos, target = tmp_path / "photos", tmp_path / "sorted"
    for number in range(40):
        name = f"{'apple' if number % 4 < 2 else 'pear'}/{number:03}.jpg"
        write = photos / (parts[number % 2] if parts else "") / name
        draw(write, number % 2 == 0, number)
        with Image.open(write) as small:
            small.resize((320, 240)).save(write)
    run = finished_run(tmp_path / "run", load(str(photos), image_size=64), source=str(photos), image_size=64)
    assert "40 images (40 written" in kinds(run.folder, "--export", target)
    for line in (target / "metadata.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert Path(row["file_name"]).name == Path(row["path"]).name
        assert (target / row["file_name"]).read_bytes() == (photos / row["path"]).read_bytes()
    assert "40 images (40 written" in kinds(run.folder, "--export", target, "--links")
    assert (target / row["file_name"]).readlink() == photos / row["path"]


def test_answers_to_questions_name_the_images_around_them(run, fruit, tmp_path):
    out = tmp_path / "out"
    kinds(run, fruit, "-o", out, "--kinds", "apple=4")
    command = ["ask", str(run), "--kinds", str(out), "-n", "18", "--device", "cpu"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert f"18 images of 2 coarse classes; sheet: {out / 'questions.png'}" in result.stdout
    assert f"maskcon kinds {run} --names {out / 'questions.csv'}" in result.stdout
    with Image.open(out / "questions.png") as sheet:
        assert sheet.height > 18 * 100
    names = {True: "striped", False: "plain"}

    def fill(row):
        if row["coarse"] == "pear":
            return row
        return row | {"kind": names[int(row["path"].removeprefix("apple/")[:2]) % 2 == 0]}

    edit(out / "questions.csv", fill)
    assert "not taken over yet" in refused(*command)
    kinds(run, "-o", out, "--names", out / "questions.csv")
    found = kind_of(out)
    assert {found[f"apple/{i:02}.png"] for i in range(0, 40, 2)} == {"striped"}
    assert {found[f"apple/{i:02}.png"] for i in range(1, 40, 2)} == {"plain"}
    assert found["pear/0.png"] == "kind 1"
    answered = {row.path for row in read_kinds(out / "questions.csv") if row.kind}
    record = json.loads(CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False).stdout)
    assert len(record["questions"]) == 18
    assert not {asked["path"] for asked in record["questions"]} & answered
    assert "no kinds in" in refused("ask", str(run), "--kinds", str(tmp_path / "none"))
