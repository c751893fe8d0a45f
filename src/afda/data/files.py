"""A person's own image files, in a folder or named by a table: which there are, and what is known of each."""

import csv
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from afda.data.decode import is_image
from afda.errors import UserError, in_short

UNLABELLED_FOLDERS = frozenset(("unlabeled", "unlabelled", "_unlabeled", "_unlabelled"))
PARTS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
TABLES = (".csv", ".parquet")


class Entry(NamedTuple):
    """An image file, by its path within the data's folder; a label of None means that it has none."""

    path: str
    label: str | None
    part: str


@dataclass(frozen=True)
class Files:
    """All image files of a data set. The same files give the same list in the same order on any machine."""

    root: Path
    entries: tuple[Entry, ...]
    refused: tuple[tuple[str, str], ...] = ()
    """Files that are not even opened, with the reason."""
    empty_classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def listed(path: Path) -> Files:
    """The image files that a folder or a table stands for."""
    return from_folder(path) if path.is_dir() else from_table(path)


def from_folder(root: Path) -> Files:
    """`root/<class>/...`, `root/unlabeled/...`, or the same below `root/train`, `root/val` and `root/test`."""
    entries: list[Entry] = []
    refused: list[tuple[str, str]] = []
    empty: list[str] = []
    notes: list[str] = []

    def take(folder: Path, label: str | None, part: str) -> int:
        before = len(entries)
        for path in images_below(folder, root, refused):
            entries.append(Entry(path, label, part))
        return len(entries) - before

    def classes_of(folder: Path, part: str, besides: frozenset[str] = frozenset()) -> None:
        loose = 0
        for inside in sorted(folder.iterdir()):
            name = inside.name
            if inside.is_dir() and not hidden(name) and name not in besides:
                if name.lower() in UNLABELLED_FOLDERS:
                    take(inside, None, part)
                elif not take(inside, name, part) and part == "train":
                    empty.append(name)
            elif inside.is_file() and is_image(inside):
                found = within(inside, root, refused)
                if found is not None:
                    entries.append(Entry(found, None, part))
                    loose += 1
        if loose and part == "train":
            notes.append(f"{loose} images lie directly in {folder.name}, in no class's folder: taken as unlabelled.")

    with readable(root):
        split_folders = {p.name: PARTS[p.name.lower()] for p in sorted(root.iterdir()) if is_part(p)}
        if "train" in split_folders.values():
            for name, part in split_folders.items():
                classes_of(root / name, part)
            for inside in sorted(root.iterdir()):
                if inside.is_dir() and inside.name.lower() in UNLABELLED_FOLDERS:
                    take(inside, None, "train")
                elif inside.is_dir() and inside.name not in split_folders and not hidden(inside.name):
                    notes.append(f"The folder {inside.name} lies beside train and is not used.")
            if loose := sum(p.is_file() and is_image(p) for p in root.iterdir()):
                notes.append(f"{loose} images lie beside train and are not used.")
        else:
            classes_of(root, "train", besides=frozenset(split_folders))
            for name, part in split_folders.items():
                classes_of(root / name, part)
    return Files(root, tuple(sorted(entries, key=order)), tuple(refused), tuple(empty), tuple(notes))


def is_part(path: Path) -> bool:
    """Whether a folder is a split: it has the name of one, and classes within. Otherwise it is a class of that name."""
    return path.name.lower() in PARTS and path.is_dir() and any(p.is_dir() for p in path.iterdir())


def images_below(folder: Path, root: Path, refused: list[tuple[str, str]]) -> Iterator[str]:
    """The image files below a folder, by their paths within `root`. Links that lead out of `root` are refused."""
    if folder != root and within(folder, root, refused) is None:
        return

    def unlisted(error: OSError) -> None:
        refused.append((os.path.relpath(error.filename, root), error.strerror or "cannot be listed"))

    for place, folders, names in os.walk(folder, onerror=unlisted, followlinks=False):
        folders[:] = sorted(f for f in folders if not hidden(f))
        for name in folders:
            if (Path(place) / name).is_symlink():
                refused.append(
                    (str((Path(place) / name).relative_to(root)), "a link to a folder, which is not followed")
                )
        for name in sorted(names):
            path = Path(place) / name
            if is_image(path) and (found := within(path, root, refused)) is not None:
                yield found


def within(path: Path, root: Path, refused: list[tuple[str, str]]) -> str | None:
    """The path relative to `root`, unless a link leads out of it or it is no ordinary file or folder."""
    relative = path.relative_to(root).as_posix()
    try:
        inside = lies_below(path.parent, root) and (not path.is_symlink() or lies_below(path, root))
        odd = path.exists() and not (path.is_file() or path.is_dir())
    except (OSError, RuntimeError, ValueError) as error:
        refused.append((relative, getattr(error, "strerror", None) or str(error)))
        return None
    if odd or not inside:
        refused.append((relative, "not a file" if inside else "a link that leads out of the folder"))
        return None
    return relative


@lru_cache(maxsize=4096)
def lies_below(path: Path, root: Path) -> bool:
    """Whether a path, with all links followed, is in the folder."""
    return path.resolve().is_relative_to(root.resolve())


def hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def from_table(path: Path) -> Files:
    """Columns `path` (relative to the table), `label` (blank for none) and, optionally, `split`."""
    root = path.parent
    entries: dict[str, Entry] = {}
    refused: list[tuple[str, str]] = []
    for line, row in enumerate(rows_of(path, ("path", "label")), start=2):
        name = below(row["path"], path, line)
        part = row.get("split", "").strip().lower() or "train"
        if part not in PARTS:
            raise UserError(f"{path} has the split {part!r} in line {line}; use train, val or test.")
        entry = Entry(name, row["label"] if row["label"].strip() else None, PARTS[part])
        known = entries.get(name)
        if known is not None and known != entry:
            raise UserError(f"{path} names {name!r} twice, in line {line} with another label or split.")
        if known is None and within(root / name, root, refused) is not None:
            entries[name] = entry
    return Files(root, tuple(sorted(entries.values(), key=order)), tuple(refused))


def below(name: str, table: Path, line: int) -> str:
    """A path from a table, which must lie below the table's own folder."""
    if not name.strip():
        raise UserError(f"{table} has no path in line {line}; every row needs one.")
    pure = PurePosixPath(name.strip())
    if pure.is_absolute() or ".." in pure.parts:
        raise UserError(f"{table} names {name!r} in line {line}; paths must lie below the table's own folder.")
    return str(pure)


def order(entry: Entry) -> tuple[str, str]:
    return entry.path, entry.part


def rows_of(path: Path, needed: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """The rows of a .csv or .parquet file that has these columns, as texts, read as they are needed."""
    rows = parquet_rows(path) if path.suffix.lower() == ".parquet" else csv_rows(path)
    columns = next(rows)
    if missing := [name for name in needed if name not in columns]:
        separated = " Separate its columns by commas." if len(columns) == 1 and ";" in columns[0] else ""
        have = ", ".join(map(repr, columns)) or "none"
        raise UserError(f"{path} has no column {missing[0]!r}; it has {have}.{separated}")
    return ({name: as_text(value) for name, value in zip(columns, row, strict=False)} for row in rows)


def as_text(value: Any) -> str:
    """A cell of a table: blank if there is nothing in it, and whole numbers without a point."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def csv_rows(path: Path) -> Iterator[list[Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            columns = next(reader, [])
            yield columns
            yield from (row + [""] * (len(columns) - len(row)) for row in reader if row)
    except UnicodeDecodeError:
        raise UserError(f"{path} is not in UTF-8; save it so, or as .parquet.") from None
    except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or in_short(error)}.") from None
    except csv.Error as error:
        raise UserError(f"{path} is not a readable .csv file: {error}.") from None


def parquet_rows(path: Path) -> Iterator[list[Any]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UserError("Tables in .parquet need pyarrow; install it with: pip install 'afda[parquet]'.") from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
        columns = [name for name in file.schema_arrow.names if name in ("path", "label", "split", "row")]
        yield columns
        for batch in file.iter_batches(columns=columns):
            yield from map(list, zip(*(column.to_pylist() for column in batch.columns), strict=True))
    except (OSError, ArithmeticError, LookupError, TypeError, ValueError, MemoryError, pyarrow.ArrowException) as error:
        raise UserError(f"{path} is not a readable .parquet file ({in_short(error)}).") from None


@contextmanager
def readable(root: Path) -> Iterator[None]:
    """Within it, what cannot be listed is the user's to mend."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or root} cannot be read: {error.strerror}.") from None
