"""What is shipped: the wheel is complete, and works without the checkout and its development tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LARGEST_WHEEL = 10_000_000  # bytes; the embedded images are most of it
TINY = ["--epochs", "1", "--set", "train_limit=200", "--set", "test_limit=100", "--device", "cpu"]

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command without this checkout's paths; fail with its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build source archive and wheel from a copy, as `make dist` does, so that the checkout stays clean."""
    folder = tmp_path_factory.mktemp("dist")
    copy = folder / "copy"
    copy.mkdir()
    for name in ("src", "pyproject.toml", "README.md", "LICENSE"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, copy / name)
    python = fresh_environment(folder / "tools")
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", "build", cwd=folder)
    run(python, "-m", "build", "--outdir", folder / "out", copy, cwd=folder)
    assert len(list((folder / "out").glob("*.tar.gz"))) == 1
    (made,) = (folder / "out").glob("*.whl")
    return made


def fresh_environment(folder: Path) -> Path:
    """Create a virtual environment; returns its Python."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    return folder / "bin" / "python"


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "maskcon").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == package
    assert wheel.stat().st_size < LARGEST_WHEEL


def test_the_wheel_trains_and_reports_in_a_fresh_environment(wheel, tmp_path):
    python = fresh_environment(tmp_path / "environment")
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    maskcon = python.with_name("maskcon")
    place = run(python, "-c", "import maskcon; print(maskcon.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(tmp_path)
    packages = run(python, "-m", "pip", "list", "--format", "freeze", cwd=tmp_path)
    assert not {"pytest", "mypy", "ruff", "mkdocs"} & {line.split("==")[0] for line in packages.splitlines()}
    run(maskcon, "demo", "--help", cwd=tmp_path)
    run(maskcon, "train", "embedded", *TINY, "--out", tmp_path / "run", cwd=tmp_path)
    run(maskcon, "report", tmp_path / "run", cwd=tmp_path)
    assert (tmp_path / "run" / "report.html").is_file()
