"""What the documents say is true: names resolve, settings exist, code runs, commands parse."""

from __future__ import annotations

import importlib
import itertools
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import maskcon
from maskcon.cli import app
from maskcon.config.presets import DEFAULT_PRESET
from maskcon.config.resolution import resolve
from maskcon.config.settings import RunConfig
from maskcon.data import catalogue
from maskcon.methods.registry import method_named
from maskcon.report.tables import METHOD_NAMES
from tests.test_imports import RANK

ROOT = Path(__file__).parents[1]
PAPER_TO_CODE = ROOT / "docs" / "paper_to_code.md"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
DOCUMENTS = [path for path in PAGES if path.is_file()]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
WEBSITE = {"index.md", "reference.md"}  # pages for `make docs` only
NO_RUN = "<!-- no-run -->"
SEPARATORS = ("|", "||", "&&", ";", "&", ">", ">>", "<")


def blocks(text: str, *languages: str) -> Iterator[tuple[int, str]]:
    """Line number and content of each fenced block of these languages that is not marked to be skipped."""
    for match in FENCE.finditer(text):
        if match.group(1) in languages and not text[: match.start()].rstrip().endswith(NO_RUN):
            yield text.count("\n", 0, match.start(2)), match.group(2)


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or a chain of attributes or dataclass fields in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if part in getattr(found, "__dataclass_fields__", {}):
                return part == parts[-1]
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def table_below(heading: str) -> list[list[str]]:
    """Cells of the rows of the first table after a heading, without its two head lines."""
    section = PAPER_TO_CODE.read_text(encoding="utf-8").split(heading, 1)[1]
    rows = []
    for line in section.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def inline_code(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def table_rows(path: Path, first_cell: str) -> list[str]:
    """The lines of the table of a document whose head begins with that cell."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first_cell} |"))
    return list(itertools.takewhile(lambda line: line.startswith("|"), lines[start:]))


def cells_of(rows: list[str]) -> list[list[str]]:
    """Cells of the rows of a table, without its two head lines."""
    return [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_the_readme_shows_the_recalls_of_the_results():
    readme = cells_of(table_rows(ROOT / "README.md", "method"))
    results = cells_of(table_rows(ROOT / "docs" / "results.md", "Method"))
    assert len(readme) == 11  # raw pixels, nine methods, ours
    shown = [(METHOD_NAMES.get(row[0], row[0]), row[-2], row[-1]) for row in readme if row[0] != "teachcon"]
    assert shown == [(row[0], row[1], row[4]) for row in results]


@pytest.mark.parametrize(("page", "head"), [("README.md", "method"), ("docs/methods.md", "name")])
def test_a_page_lists_every_method_and_the_labels_it_sees(page, head):
    rows = [row for row in cells_of(table_rows(ROOT / page, head)) if row[0] != "Raw pixels"]
    listed = {row[0]: row[1] for row in rows}
    known = {name: method_named(name).labels for name in METHOD_NAMES}
    if page == "README.md":
        del known["bucsfr"]  # that table shows what was measured
    assert listed == known


@pytest.mark.parametrize("page", ["README.md", "docs/teachcon.md"])
def test_the_pages_state_what_the_default_preset_does(page):
    """The numbers of `fast` are those of performance.md, and no page calls its recipe the paper's."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert DEFAULT_PRESET == "fast"
    assert "72.71 ± 0.40" in text
    assert "72.71" in (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert re.search(r"ours?\b[^.]*\bnot the paper's|our recipe, not the paper's", text)


def test_what_the_page_says_of_teachcon_is_true():
    config = resolve("embedded", method="teachcon", preset=DEFAULT_PRESET, overrides={}).config.model_dump()
    for settings, values, _ in cells_of(table_rows(ROOT / "docs" / "teachcon.md", "setting")):
        for key, value in zip(re.split("[`, ]+", settings), re.split("[`, ]+", values), strict=True):
            actual = config[key]
            assert str(actual) == value or float(value) == actual, key


def test_every_command_is_in_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    group: Any = typer.main.get_command(app)
    assert [name for name in group.commands if f"`maskcon {name}" not in text] == []


def test_every_dataset_is_in_the_page_about_data():
    spans = inline_code((ROOT / "docs" / "your_data.md").read_text(encoding="utf-8"))
    assert {description.name for description in catalogue()} <= set(spans)


def test_every_shared_option_of_the_page_exists():
    group: Any = typer.main.get_command(app)
    known = {name for command in walk(group) for parameter in command.params for name in parameter.opts}
    rows = cells_of(table_rows(ROOT / "docs" / "options.md", "option"))
    named = {name for row in rows for name in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", row[0])} - {"--debug"}
    assert len(named) > 12
    assert named <= known


def test_the_architecture_page_has_every_package_in_the_order_of_the_layers():
    rows = cells_of(table_rows(ROOT / "docs" / "architecture.md", "package"))
    told = [name for row in rows for name in re.split("[`, ]+", row[0])]
    rooms = {path.stem for path in (ROOT / "src" / "maskcon").iterdir() if not path.name.startswith("__")}
    assert rooms - set(told) - {"py"} == set()
    assert [RANK[name] for name in told] == sorted(RANK[name] for name in told)


def walk(group: Any) -> Iterator[Any]:
    """Every command of a group, those of its groups included."""
    for command in group.commands.values():
        yield command
        if hasattr(command, "commands"):
            yield from walk(command)


def test_every_command_is_in_the_changelog():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    group: Any = typer.main.get_command(app)
    assert [name for name in group.commands if not re.search(rf"`(maskcon )?{name}\b", text)] == []


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def test_every_extra_for_users_is_in_the_readme():
    spans = inline_code((ROOT / "README.md").read_text(encoding="utf-8"))
    assert set(project()["optional-dependencies"]) - {"dev"} <= set(spans)


def test_the_version_is_the_same_everywhere():
    assert project()["version"] == maskcon.__version__
    assert f"## {maskcon.__version__} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_name_of_the_reference_resolves():
    names = re.findall(
        r"^::: (\S+)$", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {name for name in names if not resolves(name)} == set()
    assert {f"maskcon.{name}" for name in maskcon.__all__} <= set(names)


def test_the_website_has_every_page():
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [
        path.name for path in DOCUMENTS if path.parent.name == "docs" and f": {path.name}" not in settings
    ] == []


def test_the_citation_names_the_version():
    assert f"\nversion: {maskcon.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_every_package_name_in_paper_to_code_resolves():
    spans = inline_code(PAPER_TO_CODE.read_text(encoding="utf-8"))
    names = {name for span in spans for name in re.findall(r"(?<![/\w.])maskcon(?:\.\w+)+", span)}
    assert len(names) > 20
    assert {name for name in names if not resolves(name)} == set()


@pytest.mark.parametrize(
    "name",
    ["maskcon.relation", "maskcon.methods.relations.mask", "maskcon.methods.memory_bank.MemoryBank.pop"],
)
def test_a_name_that_does_not_exist_does_not_resolve(name):
    assert not resolves(name)


def test_every_disagreement_names_a_setting_and_its_true_value_in_both_presets():
    rows = table_below("## Where the paper and its authors' code disagree")
    assert len(rows) > 10
    presets = {
        name: resolve("embedded", method="maskcon", preset=name, overrides={}).config.model_dump()
        for name in ("paper", "reference")
    }
    for _point, _paper, _code, setting, *values in rows:
        (key,) = inline_code(setting)
        assert key in list(RunConfig.model_fields)
        for name, cell in zip(presets, values, strict=True):
            stated = inline_code(cell)[0]
            actual = presets[name][key]
            if isinstance(actual, float):
                assert float(stated) == actual, (key, name)
            else:
                assert stated == str(actual).lower(), (key, name)


def test_every_setting_in_which_the_presets_differ_is_in_the_table():
    told = {key for row in table_below("authors' code disagree") for key in inline_code(row[3])}
    paper, reference = (
        resolve("embedded", method="maskcon", preset=name, overrides={}).config.model_dump()
        for name in ("paper", "reference")
    )
    differing = {key for key in paper if paper[key] != reference[key] and key != "preset"}
    assert differing <= told


def test_every_deviation_tagged_in_the_source_is_told():
    text = PAPER_TO_CODE.read_text(encoding="utf-8")
    tagged = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "src").rglob("*.py"))
        for _ in range(path.read_text(encoding="utf-8").count("# DEVIATES:"))
    ]
    told = [inline_code(row[0])[0] for row in table_below("## Where our code differs from both")]
    assert sorted(told) == sorted(tagged)
    assert all(path in text for path in tagged)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_and_file_named_in_a_document_exists(document):
    for span in inline_code(document.read_text(encoding="utf-8")):
        match = re.fullmatch(r"((?:tests|src|examples|docs|benchmarks|scripts)/[\w./-]+)(?:::(\w+))?", span)
        if match is None:
            continue
        path = ROOT / match.group(1)
        assert path.exists(), span
        if match.group(2):
            assert f"def {match.group(2)}(" in path.read_text(encoding="utf-8"), span


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_script_that_a_document_runs_exists(document):
    scripts = re.findall(
        r"\bpython ((?:benchmarks|scripts|examples)/\S+\.py)", document.read_text(encoding="utf-8")
    )
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_make_target_in_a_document_exists(document):
    """Targets in code, inline or in a block; a target of this project has a line of help in the Makefile."""
    targets = set(
        re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    text = document.read_text(encoding="utf-8")
    named = re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)
    assert set(named) <= targets


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_file_leads_to_one(document):
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in target]
    assert [target for target in targets if not (document.parent / target).exists()] == []


def anchors(path: Path) -> set[str]:
    """Anchors of the headings of a document, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_heading_leads_to_one(document):
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)#\s:]*\.md)?#([^)\s]+)\)", text)
    assert [
        link for link in links if link[1] not in anchors(document.parent / (link[0] or document.name))
    ] == []


def test_every_page_is_reached_from_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [path for path in DOCUMENTS[1:] if path.name not in WEBSITE]
    assert [path.name for path in pages if f"{path.name})" not in text and f"{path.name}#" not in text] == []


@pytest.mark.parametrize(
    "document",
    [path for path in DOCUMENTS if any(blocks(path.read_text(encoding="utf-8"), "python"))],
    ids=lambda path: path.name,
)
def test_python_in_a_document_runs(document, tmp_path):
    """All blocks of a file as one script, each at its own line number, so that a traceback points into the file."""
    script = ""
    for line, code in blocks(document.read_text(encoding="utf-8"), "python"):
        script += "\n" * (line - script.count("\n")) + code
    path = tmp_path / f"{document.stem}.py"
    path.write_text(script, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def commands(text: str) -> Iterator[list[str]]:
    """Arguments of every `maskcon ...` in a shell block; prompts, comments, variables and pipes are understood."""
    for _, code in blocks(text, "sh", "bash"):
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            while words:
                cut = next((i for i, word in enumerate(words) if word in SEPARATORS), len(words))
                command, words = words[:cut], words[cut + 1 :]
                while command and re.fullmatch(r"\w+=.*", command[0]):
                    command = command[1:]
                if command[:3] == ["python", "-m", "maskcon"]:
                    command = command[2:]
                if command[:1] == ["maskcon"]:
                    yield command[1:]


def check_command(arguments: list[str]) -> None:
    """Parse without running; raises what the command line would complain about."""
    group: Any = typer.main.get_command(app)
    arguments = [argument for argument in arguments if argument != "--debug"]
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help", "--version"):
        return
    command, rest = group.commands[name], arguments[1:]
    while hasattr(command, "commands") and rest and rest[0] in command.commands:  # `reproduce table`
        command, rest = command.commands[rest[0]], rest[1:]
    if not {"-h", "--help"} & set(arguments):
        assert not getattr(command, "commands", None), f"{name} needs one of {list(command.commands)}"
        context = command.make_context(name, rest)
        for pair in context.params.get("settings") or []:
            assert pair.partition("=")[0] in list(RunConfig.model_fields), pair


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_in_a_document_parses(document):
    for arguments in commands(document.read_text(encoding="utf-8")):
        try:
            check_command(arguments)
        except Exception as error:
            pytest.fail(f"maskcon {shlex.join(arguments)}: {error!r}")


@pytest.mark.parametrize(
    "line",
    [
        "maskcon trian embedded",
        "maskcon train",
        "maskcon reproduce tabel cars196",
        "maskcon reproduce table",
        "maskcon train x --tua 1",
        "maskcon train x --set taau=1",
    ],
)
def test_a_wrong_command_is_noticed(line):
    (arguments,) = commands(f"```sh\n{line}\n```\n")
    with pytest.raises(Exception):  # noqa: B017 - each kind of mistake has its own
        check_command(arguments)


def test_shell_blocks_are_read_with_prompts_continued_lines_and_pipes():
    lines = [
        "```sh",
        "$ THREADS=1 maskcon train a \\",
        "  --w 1 | tee log # note",
        "pip install x && maskcon demo",
        "```",
    ]
    text = "\n".join(lines) + "\n"
    assert list(commands(text)) == [["train", "a", "--w", "1"], ["demo"]]
