"""`maskcon reproduce figure` from the command line, with runs of a second each."""

from __future__ import annotations

import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from maskcon._utils.errors import MaskconError
from maskcon.cli import app
from maskcon.report.style import WRONG
from tests.cli.commands import maskcon as command
from tests.cli.test_reproduce import QUICK, here  # noqa: F401 - the fixture


def reproduce(*arguments: str):
    return CliRunner().invoke(app, ["reproduce", "figure", *arguments])


def _has_colour(picture: Image.Image, colour: str) -> bool:
    """Whether the lower eighth of an image, where captions stand, has letters of this colour."""
    width, height = picture.size
    caption = picture.convert("RGB").crop((0, height - height // 8, width, height))
    wanted = tuple(bytes.fromhex(colour.removeprefix("#")))
    return wanted in {shade for _, shade in caption.getcolors(maxcolors=1 << 24) or ()}


def test_figures_share_runs_are_written_and_say_what_stands_in(here, tmp_path):  # noqa: F811
    folder = tmp_path / "runs" / "reproduce" / "cpu" / "figures"
    for name, trained in (("relations", 1), ("tsne", 6), ("retrieval", 8)):
        done = reproduce(name, *QUICK, "--device", "cpu")
        assert done.exit_code == 0, done.output
        assert len(here) == len(set(here)) == trained  # those of the figures before are not trained again
        assert "STAND-IN" in done.stderr
        assert done.stderr.index("expected:") < done.stderr.index("took") < done.stderr.index("drawing")
        with Image.open(folder / f"{name}.png") as picture:
            assert picture.width >= 3.4 * 200 - 1  # a column at 200 dots an inch
            assert sum(count > 0 for count in picture.convert("L").histogram()) > 5  # shades in use
            assert _has_colour(picture, WRONG)  # the caption warns of the stand-in
        assert (folder / f"{name}.svg").read_text().startswith("<?xml")
    distances = json.loads((folder / "relations.json").read_text())["d_z"]
    assert set(distances) == {"SelfCon", "NNCLR", "ASCL", "SupCon", "Grafit", "MaskCon"}
    assert 0 < distances["SupCon"] < distances["SelfCon"] < 1.5
    points = json.loads((folder / "tsne.json").read_text())["points"]
    assert [len(of) for of in points.values()] == [40] * 6
    for query in json.loads((folder / "retrieval.json").read_text())["queries"]:
        assert len(query["neighbours"]["MaskCon"]) == 10
        assert query["sample"] not in query["neighbours"]["MaskCon"]
    again = reproduce("relations", *QUICK, "--device", "cpu")
    assert again.exit_code == 0, again.output
    assert "expected:" not in again.stderr


@pytest.mark.parametrize(
    ("arguments", "named", "way_out"),
    [
        (["tsn"], "'tsn'", "did you mean 'tsne'"),
        (["heatmap", "--scale", "fulll"], "'fulll'", "did you mean 'full'"),
        (["heatmap", "--scale", "full"], "CIFAR-100", "cifar-100-python.tar.gz"),
        (["tsne", "--seeds", "3"], "--seeds 3", "heatmap"),
        (["heatmap", "--set", "epoch=3"], "'epoch'", "did you mean 'epochs'"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(here, tmp_path, arguments, named, way_out):  # noqa: F811
    refused = reproduce(*arguments)
    assert isinstance(refused.exception, MaskconError), refused.output
    assert refused.exception.exit_code == 2
    text = str(refused.exception)
    assert "\n" not in text
    assert named in text
    assert way_out in text
    assert here == []
    assert not (tmp_path / "runs").exists()


def test_dry_runs_start_nothing(here, tmp_path):  # noqa: F811
    shown = reproduce("heatmap", "--dry-run", "--jobs", "2")
    assert shown.exit_code == 0, shown.output
    assert "25 runs, 0 of them finished" in shown.stderr
    assert "maskcon-w0.2-tau0.05-seed0" in shown.stdout
    assert here == []
    assert not (tmp_path / "runs").exists()


def test_a_bad_name_exits_with_2(tmp_path):
    refused = command("reproduce", "figure", "relation", cwd=tmp_path)
    assert refused.returncode == 2
    assert (
        refused.stderr.strip().splitlines()[0].startswith("maskcon: unknown figure 'relation'; did you mean")
    )
