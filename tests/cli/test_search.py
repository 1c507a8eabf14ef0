"""`maskcon search` as a user meets it: what is found, shown, and refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from maskcon._utils.errors import DataError, UsageError
from maskcon.api import Run
from maskcon.cli import app
from tests.cli.searching import NAMES, answers, call, picture, refused
from tests.retrieval.servers import postgres


@pytest.mark.parametrize("command", ["index", "search"])
def test_both_commands_explain_themselves(command):
    assert "Example: " in call(command, "--help")


def test_index_then_search_finds_every_picture_by_itself_as_run_encode_orders_them(run, photos, tmp_path):
    where = tmp_path / "index"
    told = call("index", run, photos, "--out", where)
    assert "5 images" in told
    assert "5 added" in told
    queries = [photos / name for name in NAMES]
    found = answers(run, *queries, "-k", "100", "--index", where)
    features = Run.open(run).encode(queries).double().numpy()
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    for query, hits, cosines in zip(queries, found, features @ features.T, strict=True):
        assert hits[0] == (str(query), pytest.approx(1.0, abs=1e-5))
        assert len(hits) == 5
        by_path = dict(hits)
        for other, cosine in zip(queries, cosines, strict=True):
            assert by_path[str(other)] == pytest.approx(cosine, abs=1e-5)


def test_plain_output_is_a_score_and_a_path_a_line_and_a_grid_is_drawn(run, photos, tmp_path):
    call("index", run, photos, "--out", tmp_path / "index")
    line = "line\nbreak.png"
    picture(photos / line, 9)
    assert "1 added" in call("index", run, photos, "--out", tmp_path / "index")
    grid = tmp_path / "new" / "found.png"
    shown = call("search", run, photos / line, "-k", "3", "--index", tmp_path / "index", "--grid", grid)
    lines = shown.splitlines()
    assert len(lines) == 3
    assert lines[0] == f"1.0000  {photos}/line\\nbreak.png"
    with Image.open(grid) as drawn:
        assert drawn.width > drawn.height > 72
        assert len(drawn.convert("RGB").getcolors(1 << 20) or []) > 50
    several = call(
        "search", run, photos / "a.png", photos / "🐈.jpg", "-k", "1", "--index", tmp_path / "index"
    )
    assert several.splitlines()[0] == f"{photos}/a.png:"
    assert len(several.splitlines()) == 4


def test_a_found_picture_that_is_gone_is_a_grey_tile_and_told(run, photos, tmp_path):
    call("index", run, photos, "--out", tmp_path / "index")
    query = shutil.copy(photos / "a.png", tmp_path / "query.png")
    (photos / "a.png").unlink()
    arguments = [
        "search",
        run,
        query,
        "-k",
        "2",
        "--index",
        tmp_path / "index",
        "--grid",
        tmp_path / "grid.jpg",
    ]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0
    assert "note: 1 result missing or unreadable now, drawn in grey" in result.stderr
    assert "give a name that ends in .png or .jpg" in refused(
        UsageError, *arguments[:-1], tmp_path / "grid.unknown"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "absent.png", "cannot read .*absent.png: No such file"),
        (lambda folder: folder, "cannot read"),
        (lambda folder: Path(shutil.copy(__file__, folder / "text.jpg")), "not an image of a known format"),
    ],
)
def test_a_query_that_is_no_image_is_named(run, photos, tmp_path, make, message):
    call("index", run, photos, "--out", tmp_path / "index")
    result = CliRunner().invoke(
        app, ["search", str(run), str(make(tmp_path)), "--index", str(tmp_path / "index")]
    )
    assert isinstance(result.exception, DataError)
    with pytest.raises(DataError, match=message):
        raise result.exception


def test_what_is_missing_is_said(run, photos, tmp_path):
    assert "there is no index in" in refused(UsageError, "search", run, photos / "a.png", "--index", tmp_path)
    assert "is not a run folder" in refused(UsageError, "search", tmp_path, photos / "a.png")
    (tmp_path / "nothing").mkdir()
    assert "no image found in" in refused(
        DataError, "index", run, tmp_path / "nothing", "--out", tmp_path / "index"
    )
    refused(UsageError, "index", run, tmp_path / "absent", "--out", tmp_path / "index")
    assert CliRunner().invoke(app, ["search", str(run), "x.png", "-k", "0"]).exit_code == 2


def test_the_same_commands_with_a_store(run, photos, tmp_path):
    pytest.importorskip("psycopg", reason="the extra `pgvector` is not installed")
    call("index", run, photos, "--out", tmp_path / "index")
    with postgres() as address:
        store = ("--store", address)
        assert "has no index yet" in refused(UsageError, "search", run, photos / "a.png", *store)
        assert "5 added" in call("index", run, photos, *store)
        assert "5 unchanged; 0 embedded" in call("index", run, photos, *store)
        second = call("index", run, photos, *store, "--out", "second")
        assert "5 images in the store, named 'second': 5 added" in second
        here = answers(run, photos / "a.png", "--index", tmp_path / "index")
        there = answers(run, photos / "a.png", *store, "--grid", tmp_path / "grid.png")
        assert [path for path, _ in here[0]] == [path for path, _ in there[0]]
        np.testing.assert_allclose([s for _, s in here[0]], [s for _, s in there[0]], atol=1e-5)
        assert (tmp_path / "grid.png").exists()
