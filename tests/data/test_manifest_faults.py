"""Manifests with something wrong: each fault named with its line, in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maskcon._utils.errors import DataError
from maskcon.data import load
from maskcon.data.manifest import read_manifest, read_rows
from tests.data.manifests import Rows, pictures, usual_rows, write_csv


def refused(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_manifest(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; the first line must name the columns: path,coarse"),
        ("path,coarse\n", "lists no image"),
        ("cat/0.png,cat\ncat/1.png,cat\n", "no column 'path' and no column 'coarse'.*first line must name"),
        ("path,Coarse_label\na.png,b\n", r"no column 'coarse' \(is it 'Coarse_label'\?\).*it has path, Coarse_label"),
        ("path,coarse,coarse\na.png,b,c\n", "'coarse' is there 2 times"),
        ("path,coarse\ncat/0.png,cat\ncat/1.png\n", "line 3: 1 fields.*names 2 columns"),
        ("path,coarse\ncat/0.png,cat,3\n", "line 2: 3 fields"),
        ("path,coarse\ncat/0.png,cat\n\ncat/1.png,  \n", "line 4: 'cat/1.png' has no coarse label"),
        ("path,coarse\n,cat\n", "line 2: path is empty"),
        ('path,coarse\n"cat/0.png\n,cat\n', "line 2: unexpected end of data; is a quote never closed"),
        ('path,coarse\n"cat"/0.png,cat\n', "line 2: .*not doubled inside a quoted name"),
        ("path,coarse\ncat/0.png,cat\ncat/absent.png,cat\n", "line 3: no such file: 'cat/absent.png', looked for from"),
        ("path,coarse\ncat,cat\n", "line 2: no such file: 'cat'"),
        ("path,coarse\ncat\\0.png,cat\n", r"write paths with /"),
        ("path,coarse\n../x/cat/0.png,cat\n", r"line 2: '../x/cat/0.png' leads out of the folder"),
        ("path,coarse\ncat/0.png,cat\ncat/1.png,cat\n./cat//0.png,cat\n", "line 4: 'cat/0.png' is listed on line 2"),
        ("path,coarse\ncat/0.png,cat\ncat/0.png/,cat\n", "line 3: 'cat/0.png' is listed on line 2"),
        ("path,coarse,split\ncat/0.png,cat,trian\n", "line 2: unknown split 'trian'; did you mean 'train'"),
        ("path,coarse,split\ncat/0.png,cat,train\ncat/1.png,cat,\n", "line 3: has no split, and line 2 has one"),
        ("path,coarse,split\ncat/0.png,cat,\ncat/1.png,cat,test\n", "line 3: has a split, and line 2 has none"),
        ("path,coarse,split\ncat/0.png,cat,test\n", "no row of .* has the split 'train'"),
        (
            "path,coarse,fine\ncat/0.png,cat,x\ncat/1.png,dog,x\n",
            "line 3: fine label 'x' lies in coarse class 'dog', but in 'cat' at line 2",
        ),
        (
            "path,coarse,fine\ncat/0.png,cat,x\ncat/1.png,cat,\n",
            "line 3: 'cat/1.png' has no fine label, and 'cat/0.png' on line 2",
        ),
        ("path,coarse\n" + "x" * 200_000 + ",cat\n", "line 2: .*field larger than"),
        ("path,coarse\n" + "x" * 2_000_000 + "\n", "line 2: longer than"),
        ("path,coarse\ncat/0\0.png,cat\n", "line 2: no such file"),
    ],
)  # fmt: skip
def test_each_fault_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    pictures(tmp_path, "cat/0.png", "cat/1.png")
    path = tmp_path / "photos.csv"
    path.write_text(text, encoding="utf-8", newline="")
    with pytest.raises(DataError, match=message) as caught:
        read_manifest(path)
    assert "photos.csv" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_number_of_a_line_counts_the_lines_inside_quotes(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text('path,coarse\n"a\nb\nc.png",x\n,y\n')
    assert "line 5: path is empty" in refused(path)


def test_missing_files_are_counted(tmp_path: Path) -> None:
    pictures(tmp_path, "cat/0.png")
    rows: Rows = [("cat/0.png", "cat"), ("cat/1.png", "cat"), ("dog/0.png", "dog")]
    assert "2 of 3 files are missing" in refused(write_csv(tmp_path / "m.csv", rows))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("path,coarse\ncaf\u00e9.png,caf\u00e9\n".encode("latin-1"), "line 2: not valid UTF-8; save"),
        ("path,coarse\n".encode("utf-16"), "line 1: the file is UTF-16; save it as CSV UTF-8"),
    ],
)
def test_other_encodings_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "m.csv").write_bytes(content)
    assert message in refused(tmp_path / "m.csv")


def test_parquet_faults_are_named_with_their_row(tmp_path: Path) -> None:
    pictures(tmp_path, "cat/0.png", "cat/1.png")
    path = tmp_path / "m.parquet"
    pq.write_table(pa.table({"path": ["cat/0.png", "cat/1.png"], "coarse": ["a", None]}), path)
    assert "row 2: 'cat/1.png' has no coarse label" in refused(path)
    pq.write_table(pa.table({"path": ["cat/0.png", "cat/1.png"], "coarse": [1.0, 2.0]}), path)
    assert "row 1: coarse is '1.0' (float)" in refused(path)
    pq.write_table(pa.table({"file": ["cat/0.png"], "coarse": ["a"]}), path)
    assert "no column 'path'" in refused(path)
    whole = path.read_bytes()
    for damaged in (whole[:-20], b"", b"PAR1" * 9, whole[:40] + bytes(20) + whole[60:]):
        path.write_bytes(damaged)
        assert "m.parquet" in refused(path)


def test_missing_manifest_and_a_folder_of_that_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*absent\.csv: No such file"):
        load(str(tmp_path / "absent.csv"))
    pictures(tmp_path / "photos.csv", *(row[0] for row in usual_rows(2)))
    assert load(str(tmp_path / "photos.csv")).coarse_names == ("cat", "dog")


def test_manifest_that_is_a_link_to_itself_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "circle.csv").symlink_to(tmp_path / "circle.csv")
    with pytest.raises(DataError, match=r"cannot read .*circle\.csv: Too many levels"):
        load(str(tmp_path / "circle.csv"))


def test_text_that_is_no_utf8_in_parquet_is_one_line(tmp_path: Path) -> None:
    broken = pa.array([b"caf\xe9.png"]).view(pa.string())
    pq.write_table(pa.table({"path": broken, "coarse": ["a"]}), tmp_path / "m.parquet")
    assert "m.parquet cannot be read as Parquet: 'utf-8' codec" in refused(tmp_path / "m.parquet")


def test_mutated_parquet_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.parquet"
    generator = np.random.default_rng(0)
    read, told = 0, []
    for compression in ("snappy", "none"):
        table = pa.table({"path": [f"caf\u00e9{row}.png" for row in range(200)], "coarse": ["a", "b"] * 100})
        pq.write_table(table, path, compression=compression)
        original = path.read_bytes()
        for _ in range(200):
            content = bytearray(original)
            for place in generator.integers(0, len(content), 3):
                content[place] = generator.integers(0, 256)
            path.write_bytes(content)
            try:
                read += bool(list(read_rows(path, ("path", "coarse"))))
            except DataError as error:
                told.append(str(error))
    assert read > 0
    assert len(told) > 100
    assert not any("\n" in line for line in told)


MEASURE = """
import sys
from pathlib import Path
from maskcon._utils.errors import DataError
from maskcon.data.manifest import read_manifest
try:
    read_manifest(Path(sys.argv[1]))
except DataError as error:
    print(error)
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(status["VmHWM"].split()[0])  # getrusage would tell the size of the parent where that is larger
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units there")
def test_last_line_of_five_million_is_named_within_some_memory(tmp_path: Path) -> None:
    count = 5_000_000
    path = tmp_path / "m.csv"
    with path.open("w", encoding="utf-8") as file:
        file.write("path,coarse,fine\n")
        file.writelines(f"{row % 1000}/{row:09d}.jpg,c{row % 10},f{row % 100}\n" for row in range(count))
        file.write("last.jpg,,f0\n")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True
    )
    told, peak = done.stdout.splitlines()
    assert told.endswith("line 5,000,002: 'last.jpg' has no coarse label")
    assert int(peak) / 1e6 < 2  # GB; measured: 1.76, some 350 bytes an image with its names
