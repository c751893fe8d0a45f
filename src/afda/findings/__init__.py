"""What a report tells of finished runs: their errors, how they came about, what to look at and what to label next."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from afda import __version__
from afda.data.files import rows_of
from afda.data.images import DataSet
from afda.disk import check_writable, write_whole
from afda.errors import UserError
from afda.findings.course import discriminator, warnings
from afda.findings.finished import Finished, complete, finished_runs, unique
from afda.findings.labelling import label_next, label_table
from afda.findings.looks import Pictures, honesty, mistakes, seen, the_map
from afda.findings.verdict import about, grouped, versus
from afda.inference import outputs
from afda.report.page import page
from afda.runs import as_csv
from afda.runtime import Runtime


def report(
    paths: Sequence[Path],
    machine: Runtime,
    out: Path | None = None,
    *,
    overwrite: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write the page about these runs and, beside it, the table of images to label next. Returns the files written."""
    path = out or (paths[0] if len(paths) == 1 else Path()) / "report.html"
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file with -o, such as {path / 'report.html'}.")
    table = path.with_name(f"{path.stem}-label-next.csv")
    for existing in (path, table):
        if existing.exists() and not overwrite:
            raise UserError(f"{existing} already exists; add --overwrite to replace it, or name another file with -o.")
    if table.exists() and any(row.get("label") for row in rows_of(table, ("label",))):
        raise UserError(f"{table} has labels filled in; move it, or name another page with -o.")
    if out is not None:  # else it is the directory of a run, if there is one
        check_writable(path.parent)
    values = findings(paths, machine, tell)
    written = []
    if values["next"]:
        values["next"]["file"] = table.name
        write_whole(table, as_csv(*label_table(values["next"])).encode(errors="replace"))
        written.append(table)
    write_whole(path, page(values).encode(errors="replace"))
    return [path, *written]


def with_answers(
    paths: Sequence[Path], machine: Runtime, tell: Callable[[str], None] = lambda _: None
) -> list[Finished]:
    """The runs with what their models say of the images that their errors are of."""
    runs = finished_runs(paths)
    loaded: dict[str, DataSet | str] = {}
    for one in runs:
        tell(f"reading {one.name}")
        complete(one, loaded)
        if one.model is not None and one.scored is not None:
            tell(f"predicting with {one.name}")
            machine.place(one.model)
            one.logits = outputs(one.model, one.scored.x, machine).logits
    return runs


def verdict_in_words(path: Path, machine: Runtime) -> str:
    """Whether the unlabelled images helped a run, by the supervised-only run inside its directory."""
    runs = with_answers([path], machine)
    found = versus(runs[0], runs)
    if not found:
        return "There are no test or validation images to tell whether the unlabelled images helped."
    return " ".join(found["words"][:2])


def findings(paths: Sequence[Path], machine: Runtime, tell: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """All that the page shows of these runs, as plain values. Supervised-only runs inside their directories come along.

    What is missing, such as data that have changed, is left out of the page and named on it.
    """
    runs = with_answers(paths, machine, tell)
    pictures = Pictures()
    lead = next((i for i, one in enumerate(runs) if not one.supervised_only), 0)
    groups = grouped(runs)
    firsts = {group["runs"][0] for group in groups} | {lead}
    told = []
    to_label = None
    for i, one in enumerate(runs):
        features = seen(one, machine) if i in firsts else None
        if features is not None:
            tell(f"drawing the map of {one.name}")
        told.append(
            {
                **about(one),
                "versus": versus(one, runs),
                "discriminator": discriminator(one),
                "warnings": warnings(one.run.log()),
                "map": the_map(features, one, pictures) if features else None,
                "mistakes": mistakes(one, pictures),
                "reliability": honesty(one),
                "missing": one.missing,
            }
        )
        if i == lead and features is not None:
            to_label = label_next(features, one, pictures)
    names = unique([one.name for one in runs])
    for name, values in zip(names, told, strict=True):
        values["name"] = name
    words = [group["words"] for group in groups]
    for group in groups:
        if words.count(group["words"]) > 1:  # the same method with other settings
            group["words"] = f"{group['words']}, {names[group['runs'][0]]}"
    tell("writing pictures")
    return {
        "title": f"{runs[lead].recipe.data}: " + (names[0] if len(runs) == 1 else f"{len(runs)} runs"),
        "summary": [*told[lead]["verdict"], *(told[lead]["versus"] or {}).get("words", [])],
        "version": __version__,
        "lead": lead,
        "runs": told,
        "groups": groups,
        "next": to_label,
        "sheets": pictures.sheets(),
    }
