"""Writing the report: one HTML page, and beside it the table of images to label next."""

from collections.abc import Callable, Sequence
from pathlib import Path

from afda.data.files import read_rows
from afda.errors import UserError
from afda.machine.files import check_writable, write_atomically
from afda.machine.runtime import Runtime
from afda.report.collect import collect_report
from afda.report.labelling import make_label_table
from afda.report.page import render_page
from afda.runs.directory import format_csv


def write_report(
    paths: Sequence[Path],
    runtime: Runtime,
    out: Path | None = None,
    *,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write the page about these runs and the table of images to label next; return the files written.

    By default the page is `report.html` in the directory of a single run, or in the working directory. `progress` is
    called with what is being done.
    """
    path = out or (paths[0] if len(paths) == 1 else Path()) / "report.html"
    table = path.with_name(f"{path.stem}-label-next.csv")
    check_targets(path, table, overwrite=overwrite)
    if out is not None:  # else it is the directory of a run, if there is one
        check_writable(path.parent)
    report = collect_report(paths, runtime, progress, table.name)
    written = [path]
    if report.label_next is not None:
        write_atomically(table, format_csv(*make_label_table(report.label_next)).encode(errors="replace"))
        written.append(table)
    write_atomically(path, render_page(report).encode(errors="replace"))
    return written


def check_targets(path: Path, table: Path, *, overwrite: bool) -> None:
    """Refuse to replace files, unless asked, and never a table with labels filled in."""
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file with -o, such as {path / 'report.html'}.")
    for existing in (path, table):
        if existing.exists() and not overwrite:
            raise UserError(f"{existing} already exists; add --overwrite to replace it, or name another file with -o.")
    if table.exists() and any(row.get("label") for row in read_rows(table, ("label",))):
        raise UserError(f"{table} has labels filled in; move it, or name another page with -o.")
