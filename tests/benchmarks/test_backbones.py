from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests.benchmarks.test_method_table import ROOT, refused


def test_cifartoy_needs_images(tmp_path: Path) -> None:
    line = refused("--images", "nowhere", cwd=tmp_path, script="backbones.py")
    assert "has 0 images; 500 are needed" in line


def test_the_table_has_a_row_per_net_and_size_and_a_dash_for_what_was_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    backbones = pytest.importorskip("backbones")
    cells = {"CIFAR-100 resnet18 96": 0.25}
    cells |= {"maskcon resnet18 96": 120.4, "onnxruntime resnet18 96": 1200.0}
    options = argparse.Namespace(backbones=["resnet18"], sizes=[96, 160])
    lines = backbones.table(cells, options, ["CIFAR-100"]).splitlines()
    assert lines[2:] == [
        "| resnet18 | 96 | 25.0 | 120 | - | 1,200 |",
        "| resnet18 | 160 | - | - | - | - |",
    ]
    assert len({line.count("|") for line in lines}) == 1
