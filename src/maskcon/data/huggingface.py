"""Read Hugging Face datasets: `hf:NAME`, or `hf:./folder` after `save_to_disk`.

hf:cifar100,image=img,coarse=coarse_label,fine=fine_label

Options follow the name, so that a run stores them: the columns (image, coarse, fine), the splits (train, test), and the
release (config, revision). Needs the extra `datasets`; nothing is fetched without `download`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskcon._utils.errors import DataError, MaskconError, UsageError, unknown
from maskcon._utils.paths import has_file
from maskcon.data.decoding import UndecodableError
from maskcon.data.folder_layout import TEST_NAMES, TRAIN_NAMES, FineLabels, Found, Layout, show, some
from maskcon.data.packing import Progress, map_files
from maskcon.data.photos import MANY

PREFIX = "hf:"
OPTIONS = ("image", "coarse", "fine", "train", "test", "config", "revision")
COARSE_NAMES = ("coarse", "coarse_label", "coarse_labels")
FINE_NAMES = ("fine", "fine_label", "fine_labels")
MARKS = ("dataset_dict.json", "state.json")  # files that save_to_disk writes
KEY_BYTES = 8


@dataclass(frozen=True)
class Address:
    """A dataset's name or folder, and the options given with it."""

    name: str
    options: Mapping[str, str]

    @classmethod
    def parse(cls, source: str) -> Address:
        """Split a source into the name and its options.

        >>> Address.parse("hf:cifar100,coarse=coarse_label")
        Address(name='cifar100', options={'coarse': 'coarse_label'})
        """
        parts = source.removeprefix(PREFIX).split(",")
        # the name of a folder may hold commas too
        length = next((count for count in range(len(parts), 1, -1) if _folder(",".join(parts[:count]))), 1)
        name, rest = ",".join(parts[:length]), parts[length:]
        options: dict[str, str] = {}
        for part in rest:
            key, equals, value = part.partition("=")
            if not equals:
                raise UsageError(
                    f"{show(source)}: {show(part)!r} is not an option; write {PREFIX}NAME,coarse=COLUMN"
                )
            if key not in OPTIONS:
                raise unknown(f"option of {PREFIX}", key, OPTIONS)
            options[key] = value
        if not name:
            raise UsageError(f"{show(source)} names no dataset; write {PREFIX}NAME or {PREFIX}./folder")
        return cls(name, options)

    @property
    def text(self) -> str:
        return PREFIX + ",".join([self.name, *(f"{key}={value}" for key, value in self.options.items())])

    @property
    def is_path(self) -> bool:
        """Tell whether this is a path; hub names have one slash at most."""
        return self.name[0] in "./~" or "\\" in self.name or self.name.count("/") > 1

    @property
    def folder(self) -> Path | None:
        """Return the folder on disk, if the name is an existing path."""
        return _folder(self.name)

    @property
    def short_name(self) -> str:
        folder = self.folder
        return folder.resolve().name if folder is not None else self.name.rstrip("/").rpartition("/")[2]


def _folder(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        return path if path.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        return None


def read_hub(source: str, *, download: bool = False, looking: Progress | None = None) -> Layout:
    """Open the dataset, choose its columns and read its labels.

    looking: progress while many rows are hashed
    """
    address = Address.parse(source)
    splits = _splits(address, download)
    train, test = _chosen_splits(address, splits)
    parts = {name: splits[name] for name in (train, test) if name is not None}
    image, coarse, fine = _columns(address, parts[train].features)
    contents = Rows.of(parts, image)
    cached = parts[train].cache_files
    layout = Layout(
        name=show(address.short_name),
        root=Path(cached[0]["filename"]).parent if cached else Path.cwd(),
        where=show(address.text),
        expected="rows with an image and a coarse label",
        test_part="test split",
        kind=f"hf-{hashlib.sha256(f'{image};{list(parts)}'.encode()).hexdigest()[:8]}",
        contents=contents,
        has_parts=test is not None,
    )
    fine_labels = FineLabels()
    for name, part in parts.items():
        where = f"{layout.where}, split {name!r}"
        labels = _labels(where, part, coarse)
        fines = [None] * len(labels) if fine is None else _labels(where, part, fine)
        keys = contents.keys(name, len(labels), looking) if test is None else [None] * len(labels)
        for row, (label, kind, key) in enumerate(zip(labels, fines, keys, strict=True)):
            place = f"{where}, row {row}"
            if kind is not None and (conflict := fine_labels.conflict(kind, label, place)):
                raise DataError(f"{place}: {conflict}")
            layout.files.append(Found(f"{name}/{row}", name == test, label, kind, key))
    spare = [name for name in splits if name not in parts]
    if spare:
        layout.notes.append(f"splits that are not used: {some(spare)}")
    return layout


def _splits(address: Address, download: bool) -> dict[str, Any]:
    """Load the splits by name; a dataset saved without splits becomes split train."""
    try:
        import datasets
    except ImportError:
        raise UsageError(f"{PREFIX} needs an extra: pip install 'maskcon[datasets]'") from None
    folder = address.folder
    if folder is None and address.is_path:
        raise UsageError(
            f"{show(address.name)} does not exist; give a folder that save_to_disk made, or a name"
        )
    options = {key: address.options[key] for key in ("revision",) if key in address.options}
    try:
        if folder is not None and any((folder / mark).is_file() for mark in MARKS):
            found = datasets.load_from_disk(str(folder))
        else:
            with _offline(datasets, download and folder is None):
                name = address.name if folder is None else str(folder)
                found = datasets.load_dataset(name, address.options.get("config"), **options)
    except MaskconError:
        raise
    except Exception as error:  # the package raises many types
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        if folder is None and not download:
            raise UsageError(
                f"{show(address.text)} is not on this machine yet ({reason}); give --download to fetch it"
            ) from error
        raise DataError(f"cannot read {show(address.text)}: {reason}") from error
    return dict(found) if isinstance(found, dict) else {"train": found}


@contextmanager
def _offline(datasets: Any, may_fetch: bool) -> Iterator[None]:
    """Restrict the package to its cache inside the block, unless `may_fetch`."""
    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = before or not may_fetch
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def _chosen_splits(address: Address, splits: Mapping[str, Any]) -> tuple[str, str | None]:
    """Choose the train and test splits; None: the test part is to be held out."""
    chosen: dict[str, str] = {}
    for role, usual in (("train", TRAIN_NAMES), ("test", TEST_NAMES)):
        wanted = address.options.get(role)
        if wanted is not None and wanted not in splits:
            raise unknown(f"split of {show(address.text)}", wanted, splits)
        found = wanted or next((name for name in usual if name in splits), None)
        if found is not None:
            chosen[role] = found
    if "train" not in chosen and len(splits) == 1:
        return next(iter(splits)), None
    if "train" not in chosen:
        raise UsageError(
            f"{show(address.text)} has no split called 'train'; it has {some(list(splits))}: "
            f"choose with {PREFIX}NAME,train=...,test=..."
        )
    test = chosen.get("test")
    return chosen["train"], None if test == chosen["train"] else test


def _columns(address: Address, features: Mapping[str, Any]) -> tuple[str, str, str | None]:
    """Choose the columns of images, coarse and fine labels.

    Given columns take precedence, then usual names, then the only column of the right type.
    """
    import datasets

    listed = some([f"{name} ({type(feature).__name__})" for name, feature in features.items()], limit=20)
    columns = f"the columns of {show(address.text)} are {listed}"
    given = {role: address.options.get(role) for role in ("image", "coarse", "fine")}
    for name in given.values():
        if name and name not in features:
            raise UsageError(f"{unknown('column', name, ())}; {columns}")

    def chosen(role: str, what: str, usual: Sequence[str], kind: type, other: str | None = None) -> str:
        """Choose the given column, else a usual name, else the only one of this type."""
        of_kind = [name for name in features if isinstance(features[name], kind) and name != other]
        named = given[role] or next((name for name in usual if name in features), None)
        if named is None and len(of_kind) != 1:
            raise UsageError(f"which column holds the {what}? Say {PREFIX}NAME,{role}=COLUMN; {columns}")
        return named or of_kind[0]

    image = chosen("image", "images", (), datasets.Image)
    if not isinstance(features[image], datasets.Image):
        raise UsageError(f"column {image!r} holds no images; {columns}")
    fine = given["fine"] or None
    if given["fine"] is None:
        fine = next((name for name in FINE_NAMES if name in features), None)
    return image, chosen("coarse", "coarse labels", COARSE_NAMES, datasets.ClassLabel, fine), fine


def _labels(where: str, part: Any, column: str) -> list[str]:
    """Read the labels of a column as text; numbers become class names."""
    if column not in part.features:
        raise DataError(f"{where} has no column {column!r}")
    names = getattr(part.features[column], "names", None)
    labels = []
    for row, value in enumerate(part[column]):
        if names is not None and isinstance(value, int):
            value = names[value] if 0 <= value < len(names) else None
        if not isinstance(value, str | int) or isinstance(value, bool) or not str(value).strip():
            raise DataError(
                f"{where}, row {row}: {column} is {value!r}, no label; choose other splits or columns, such as "
                "test=validation"
            )
        labels.append(str(value).strip())
    return labels


@dataclass(frozen=True)
class Rows:
    """Read images of the parts as file contents, by split/row."""

    parts: Mapping[str, Any]
    column: str
    key: str

    @classmethod
    def of(cls, parts: Mapping[str, Any], column: str) -> Rows:
        import datasets

        digest = hashlib.sha256(column.encode())
        for name, part in parts.items():
            digest.update(f"{name};{part._fingerprint};{len(part)};".encode())
            for file in part.cache_files:
                status = Path(file["filename"]).stat()
                digest.update(f"{status.st_size};{status.st_mtime_ns};".encode())
        stored = {
            name: part.select_columns([column]).cast_column(column, datasets.Image(decode=False))
            for name, part in parts.items()
        }
        return cls(stored, column, digest.hexdigest())

    def read(self, path: str) -> bytes:
        name, _, row = path.rpartition("/")
        value = self.parts[name][int(row)][self.column]
        if value is None:
            raise UndecodableError("the row holds no image")
        if value["bytes"] is not None:
            return bytes(value["bytes"])
        file = Path(str(value["path"]))
        if not has_file(file):  # URLs are not followed
            raise UndecodableError(f"no such file: {show(str(value['path']))[:80]}")
        try:
            return file.read_bytes()
        except OSError as error:
            raise UndecodableError(error.strerror or str(error)) from None

    def keys(self, name: str, count: int, progress: Progress | None = None) -> list[int]:
        """Hash each image's content, since rows have no lasting name."""

        def work(row: int) -> int:
            try:
                content = self.read(f"{name}/{row}")
            except UndecodableError:
                return 0
            return int.from_bytes(hashlib.sha256(content).digest()[:KEY_BYTES], "big") >> 1

        return map_files(work, count, progress if count >= MANY else None)
