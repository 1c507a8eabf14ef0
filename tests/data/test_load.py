from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from maskcon._utils.errors import DataError, UsageError
from maskcon.cli import app
from maskcon.data import catalogue, data_root, describe, load
from tests.data.miniatures import write_cifar10, write_picture


def test_misspelt_name_gets_the_nearest_and_the_hint_about_folders() -> None:
    with pytest.raises(
        UsageError, match=r"did you mean 'cifar100'.*folder of images, of a manifest .*may be given"
    ):
        load("cifar-100")


def test_path_that_does_not_exist_is_reported_as_a_path(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        load(str(tmp_path / "absent"))


def test_name_goes_before_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        for number in range(4):
            write_picture(tmp_path / "embedded" / name / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    assert load("embedded").family == "embedded"
    assert load("./embedded").coarse_names == ("a", "b")


def test_image_size_of_a_named_set_cannot_be_changed() -> None:
    with pytest.raises(UsageError, match="for folders"):
        load("embedded", image_size=64)


def test_data_root_is_argument_then_variable_then_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASKCON_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root(tmp_path / "given") == tmp_path / "given"
    assert data_root() == tmp_path / "variable"
    monkeypatch.delenv("MASKCON_DATA")
    assert data_root() == tmp_path / "cache" / "maskcon" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert data_root() == Path.home() / ".cache" / "maskcon" / "data"


def test_catalogue_lists_what_is_available(tmp_path: Path) -> None:
    before = {info.name: info for info in catalogue(tmp_path)}
    assert before["embedded"].available
    assert not before["cifar10"].available
    write_cifar10(tmp_path / "cifar-10-batches-py")
    after = {info.name: info.available for info in catalogue(tmp_path)}
    assert after["cifar10"]
    assert after["cifartoy-good"]
    assert not after["cifar100"]


def test_catalogue_matches_what_loads() -> None:
    info = next(info for info in catalogue() if info.name == "embedded")
    data = load("embedded")
    assert info.counts == (len(data.train), len(data.test))
    assert info.classes == (len(data.coarse_names), len(data.fine_names or ()))


def test_sources_do_not_import_torch() -> None:
    code = "import sys, maskcon.data, maskcon._utils.download; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_empty_name_is_not_the_current_folder() -> None:
    with pytest.raises(UsageError, match="unknown dataset ''"):
        load("")


@pytest.mark.parametrize(
    "name", ["x" * 300, "./" + "x" * 300, "~nobody-of-this-name/photos", "~nobody-of-this-name"]
)
def test_path_that_cannot_be_looked_up_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match=r"cannot read|unknown dataset|does not exist"):
        load(name)


def test_data_folder_that_cannot_be_looked_up_holds_nothing() -> None:
    root = Path("/" + "x" * 300)
    elsewhere = ("embedded", "fashion-mnist")  # in the package, or in Debian's
    assert [info.name for info in catalogue(root) if info.available and info.name not in elsewhere] == []
    for name in ("cifar10", "imagenet32", "sop-split1", "cars196"):
        with pytest.raises(DataError, match=r"was not found|is not complete"):
            load(name, root=root)
        assert describe(name, root).missing


def test_data_folder_of_an_unknown_user_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no such user"):
        data_root(Path("~nobody-of-this-name/data"))
    monkeypatch.setenv("MASKCON_DATA", "~nobody-of-this-name/data")
    with pytest.raises(UsageError, match="no such user"):
        data_root()


def test_without_a_home_only_what_needs_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("MASKCON_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(UsageError, match="set MASKCON_DATA"):
        data_root()
    for name in ("a", "b"):
        for number in range(3):
            write_picture(tmp_path / name / f"{number}.png")
    assert len(load(str(tmp_path)).coarse_names) == 2


def test_list_of_datasets_shows_the_data_folder_whole(tmp_path: Path) -> None:
    root = tmp_path / ("long" * 30) / "[/bold] [old]"
    shown = CliRunner().invoke(app, ["datasets", "--data-root", str(root)])
    assert shown.exit_code == 0
    assert f"Data folder: {root}." in shown.output
