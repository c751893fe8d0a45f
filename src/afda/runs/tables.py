"""Tables of predictions as .csv, .parquet or .jsonl files, written row by row."""

import contextlib
import csv
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from afda.errors import UserError
from afda.machine.files import check_writable, explain_os_errors

Row = dict[str, Any]
"""A row of a table by its columns, which depend on the classes."""
Write = Callable[[list[Row]], None]


@contextlib.contextmanager
def open_table(path: Path, overwrite: bool) -> Iterator[Write]:
    """Give a function that writes rows; the file appears under its name when it is complete."""
    kind = path.suffix.lower()
    if kind not in FORMATS:
        raise UserError(f"Predictions are written as {', '.join(FORMATS)}, not as {path.name}.")
    check_writable(path.parent)
    with explain_os_errors(path.parent):
        for existing in (path, skipped_path(path)):
            if existing.exists() and not overwrite:
                raise UserError(f"{existing} already exists; choose another -o, or add --overwrite.")
    temporary = path.with_name(f".{path.name}.part")
    stack = contextlib.ExitStack()
    try:
        with explain_os_errors(path.parent):
            write = FORMATS[kind](temporary, stack)

        def write_rows(rows: list[Row]) -> None:
            with explain_os_errors(path.parent):
                write(rows)

        yield write_rows
        with explain_os_errors(path.parent):
            stack.close()  # which may have something left to write
            os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            stack.close()
        temporary.unlink(missing_ok=True)


def skipped_path(path: Path) -> Path:
    """Return the path of the table of unreadable images, beside that of the predictions."""
    return path.with_name(f"{path.name}-skipped.csv")


def open_csv(path: Path, stack: contextlib.ExitStack) -> Write:
    file = stack.enter_context(path.open("w", newline="", encoding="utf-8", errors="surrogateescape"))
    writer = csv.writer(file)

    def write(rows: list[Row]) -> None:
        if not file.tell():
            writer.writerow(rows[0])
        writer.writerows([format_cell(value) for value in row.values()] for row in rows)

    return write


def format_cell(value: Any) -> Any:
    """Return a value as it stands in a CSV file: True as 1, numbers with six digits."""
    if isinstance(value, bool):
        return int(value)
    return f"{value:.6g}" if isinstance(value, float) else value


def open_jsonl(path: Path, stack: contextlib.ExitStack) -> Write:
    file = stack.enter_context(path.open("w", encoding="utf-8"))
    return lambda rows: file.writelines(json.dumps(row) + "\n" for row in rows)


def open_parquet(path: Path, stack: contextlib.ExitStack) -> Write:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError("Tables in .parquet need pyarrow; install it with: pip install 'afda[parquet]'.") from None
    writer: Any = None

    def write(rows: list[Row]) -> None:
        nonlocal writer
        rows = [{**row, "path": row["path"].encode(errors="replace").decode()} for row in rows]
        table = pyarrow.Table.from_pylist(rows, schema=writer.schema if writer is not None else None)
        if writer is None:
            writer = stack.enter_context(parquet.ParquetWriter(path, table.schema))
        writer.write_table(table)

    return write


FORMATS: dict[str, Callable[[Path, contextlib.ExitStack], Write]] = {
    ".csv": open_csv,
    ".parquet": open_parquet,
    ".jsonl": open_jsonl,
}
