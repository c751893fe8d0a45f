"""A user's own image files, in a folder or listed by a table, with their labels and parts."""

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
from afda.errors import UserError, describe

UNLABELLED_FOLDERS = frozenset(("unlabeled", "unlabelled", "_unlabeled", "_unlabelled"))
PARTS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
TABLES = (".csv", ".parquet")


class Entry(NamedTuple):
    """An image file, by its path within the data's folder; a label or group of None means that it has none."""

    path: str
    label: str | None
    part: str
    group: str | None = None


@dataclass(frozen=True)
class Files:
    """All image files of a data set, in the same order on any machine."""

    root: Path
    entries: tuple[Entry, ...]
    refused: tuple[tuple[str, str], ...] = ()
    """Files that are not opened, with the reason."""
    empty_classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def list_files(path: Path, group_by: str | None = None) -> Files:
    """Return the image files of a folder or a table; the images of a folder are grouped by "folder", or by nothing."""
    if path.is_dir():
        return list_folder(path, group_by)
    if group_by is not None:
        raise UserError(f"--group-by is for folders of images; give {path.name} a column 'group' instead.")
    return list_table(path)


def list_folder(root: Path, group_by: str | None = None) -> Files:
    """Return the image files of a folder.

    They lie in `root/<class>/...` and `root/unlabeled/...`, or in the same below `root/train`, `root/val`, `root/test`.
    Grouped by folder, images in sub-folders of the same name, below any of these folders, are of the same group.
    """
    entries: list[Entry] = []
    refused: list[tuple[str, str]] = []
    empty: list[str] = []
    notes: list[str] = []

    def take(folder: Path, label: str | None, part: str) -> int:
        before = len(entries)
        for path in find_images(folder, root, refused):
            inside = PurePosixPath(path).relative_to(folder.relative_to(root).as_posix()).parent
            group = str(inside) if group_by is not None and inside.parts else None
            entries.append(Entry(path, label, part, group))
        return len(entries) - before

    def classes_of(folder: Path, part: str, besides: frozenset[str] = frozenset()) -> None:
        loose = 0
        for inside in sorted(folder.iterdir()):
            name = inside.name
            if inside.is_dir() and not is_hidden(name) and name not in besides:
                if name.lower() in UNLABELLED_FOLDERS:
                    take(inside, None, part)
                elif not take(inside, name, part) and part == "train":
                    empty.append(name)
            elif inside.is_file() and is_image(inside):
                found = check_inside(inside, root, refused)
                if found is not None:
                    entries.append(Entry(found, None, part))
                    loose += 1
        if loose and part == "train":
            notes.append(
                f"{loose} images lie directly in {folder.name}, in no class's folder, and are used as unlabelled."
            )

    with report_unreadable(root):
        split_folders = {p.name: PARTS[p.name.lower()] for p in sorted(root.iterdir()) if is_part(p)}
        if "train" in split_folders.values():
            for name, part in split_folders.items():
                classes_of(root / name, part)
            for inside in sorted(root.iterdir()):
                if inside.is_dir() and inside.name.lower() in UNLABELLED_FOLDERS:
                    take(inside, None, "train")
                elif inside.is_dir() and inside.name not in split_folders and not is_hidden(inside.name):
                    notes.append(f"the folder {inside.name} lies beside train and is not used.")
            if loose := sum(p.is_file() and is_image(p) for p in root.iterdir()):
                notes.append(f"{loose} images lie beside train and are not used.")
        else:
            classes_of(root, "train", besides=frozenset(split_folders))
            for name, part in split_folders.items():
                classes_of(root / name, part)
    return Files(root, tuple(sorted(entries, key=sort_key)), tuple(refused), tuple(empty), tuple(notes))


def is_part(path: Path) -> bool:
    """Return True if a folder is a part: it has the name of one, and classes in it. Else it is a class of that name."""
    return path.name.lower() in PARTS and path.is_dir() and any(p.is_dir() for p in path.iterdir())


def find_images(folder: Path, root: Path, refused: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the image files below a folder, by their paths within `root`; links that lead out of `root` are refused."""
    if folder != root and check_inside(folder, root, refused) is None:
        return

    def refuse(error: OSError) -> None:
        refused.append((os.path.relpath(error.filename, root), error.strerror or "cannot be listed"))

    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=False):
        folders[:] = sorted(f for f in folders if not is_hidden(f))
        for name in folders:
            if (Path(place) / name).is_symlink():
                refused.append(
                    (str((Path(place) / name).relative_to(root)), "a link to a folder, which is not followed")
                )
        for name in sorted(names):
            path = Path(place) / name
            if is_image(path) and (found := check_inside(path, root, refused)) is not None:
                yield found


def check_inside(path: Path, root: Path, refused: list[tuple[str, str]]) -> str | None:
    """Return the path relative to `root`, or None if a link leads out of it or it is no ordinary file or folder."""
    relative = path.relative_to(root).as_posix()
    try:
        inside = is_below(path.parent, root) and (not path.is_symlink() or is_below(path, root))
        odd = path.exists() and not (path.is_file() or path.is_dir())
    except (OSError, RuntimeError, ValueError) as error:
        refused.append((relative, getattr(error, "strerror", None) or str(error)))
        return None
    if odd or not inside:
        refused.append((relative, "not a file" if inside else "a link that leads out of the folder"))
        return None
    return relative


@lru_cache(maxsize=4096)
def is_below(path: Path, root: Path) -> bool:
    """Return True if a path, with all links followed, is in the folder."""
    return path.resolve().is_relative_to(root.resolve())


def is_hidden(name: str) -> bool:
    """Return True for files and folders that systems add by themselves."""
    return name.startswith(".") or name == "__MACOSX"


def list_table(path: Path) -> Files:
    """Return the image files of a table with columns `path` (relative to it), `label`, maybe `split` and `group`."""
    root = path.parent
    entries: dict[str, Entry] = {}
    refused: list[tuple[str, str]] = []
    for line, row in enumerate(read_rows(path, ("path", "label")), start=2):
        name = check_relative(row["path"], path, line)
        part = row.get("split", "").strip().lower() or "train"
        if part not in PARTS:
            raise UserError(f"{path} has the split {part!r} in line {line}; use train, val or test.")
        label = row["label"] if row["label"].strip() else None
        entry = Entry(name, label, PARTS[part], row.get("group", "").strip() or None)
        known = entries.get(name)
        if known is not None and known != entry:
            raise UserError(f"{path} names {name!r} twice, in line {line} with another label, split or group.")
        if known is None and check_inside(root / name, root, refused) is not None:
            entries[name] = entry
    return Files(root, tuple(sorted(entries.values(), key=sort_key)), tuple(refused))


def check_relative(name: str, table: Path, line: int) -> str:
    """Return a path from a table, or raise a UserError unless it lies below the table's own folder."""
    if not name.strip():
        raise UserError(f"{table} has no path in line {line}; every row needs one.")
    pure = PurePosixPath(name.strip())
    if pure.is_absolute() or ".." in pure.parts:
        raise UserError(f"{table} names {name!r} in line {line}; paths must lie below the table's own folder.")
    return str(pure)


def sort_key(entry: Entry) -> tuple[str, str]:
    """Return what entries are sorted by."""
    return entry.path, entry.part


def read_rows(path: Path, needed: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Return an iterator over the rows of a .csv or .parquet file that has these columns; all cells are text."""
    rows = read_parquet(path) if path.suffix.lower() == ".parquet" else read_csv(path)
    columns = next(rows)
    if missing := [name for name in needed if name not in columns]:
        separated = " Separate its columns by commas." if len(columns) == 1 and ";" in columns[0] else ""
        have = ", ".join(map(repr, columns)) or "none"
        raise UserError(f"{path} has no column {missing[0]!r}; it has {have}.{separated}")
    return ({name: format_cell(value) for name, value in zip(columns, row, strict=False)} for row in rows)


def format_cell(value: Any) -> str:
    """Return a cell as text: blank if it is empty, and whole numbers without a decimal point."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def read_csv(path: Path) -> Iterator[list[Any]]:
    """Yield the names of the columns, then the rows."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            columns = next(reader, [])
            yield columns
            yield from (row + [""] * (len(columns) - len(row)) for row in reader if row)
    except UnicodeDecodeError:
        raise UserError(f"{path} is not in UTF-8; save it so, or as .parquet.") from None
    except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or describe(error)}.") from None
    except csv.Error as error:
        raise UserError(f"{path} is not a readable .csv file: {error}.") from None


def read_parquet(path: Path) -> Iterator[list[Any]]:
    """Yield the names of the columns that are used, then the rows."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise UserError("Tables in .parquet need pyarrow; install it with: pip install 'afda[parquet]'.") from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
        columns = [name for name in file.schema_arrow.names if name in ("path", "label", "split", "group", "row")]
        yield columns
        for batch in file.iter_batches(columns=columns):
            yield from map(list, zip(*(column.to_pylist() for column in batch.columns), strict=True))
    except (OSError, ArithmeticError, LookupError, TypeError, ValueError, MemoryError, pyarrow.ArrowException) as error:
        raise UserError(f"{path} is not a readable .parquet file ({describe(error)}).") from None


@contextmanager
def report_unreadable(root: Path) -> Iterator[None]:
    """Turn an OSError into a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or root} cannot be read: {error.strerror}.") from None
