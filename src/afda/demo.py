"""The demonstration: supervised-only beside AFDA at the same few labels of the embedded digits."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from afda.data import load
from afda.disk import check_writable
from afda.display import follow_jobs, out
from afda.errors import RunFailed, UserError
from afda.findings import report
from afda.recipes import AFDA, recipe
from afda.runtime import runtime
from afda.sweep import jobs, sweep

WAYS = {"supervised-only": ("supervised", "none"), "AFDA": (AFDA, "adversarial")}


def demonstrate(folder: Path, seeds: int, labels: int, steps: int | None) -> dict[str, Any]:
    """Train both ways with every seed, as many at a time as there are cores, and compare them."""
    data = load("digits")
    if labels >= len(data.train):
        raise UserError(f"Ask for fewer than {len(data.train)} --labels, so that some digits are left without one.")
    settings = [f"labels={labels}"] + ([f"steps={steps}"] if steps else [])
    todo = []
    for seed in range(seeds):
        for method, align in WAYS.values():
            todo.append(recipe("digits-demo", data, method, align).with_settings([*settings, f"seed={seed}"]))
    check_writable(folder)
    # The long ones first: no core idles while the last of them finishes.
    todo.sort(key=lambda r: not r.uses_unlabelled)
    done = follow_jobs(sweep(jobs(todo, folder, "digits")), f"{labels} labels of {len(data.train)} digits")
    failed = [job for job in done if job.state == "failed"]
    if failed:
        raise RunFailed(f"{failed[0].run.path.name} failed: {failed[0].problem}")
    rows = {}
    for way, (method, align) in WAYS.items():
        results = [
            job.run.result()
            for job in done
            if "+".join(m.name() for m in job.recipe.method) == method
            and (job.recipe.align is None) == (align == "none")
        ]
        rows[way] = summary(results)
    page = folder / "report.html"
    newest = max((job.run.path / "result.json").stat().st_mtime_ns for job in done)
    if not page.exists() or page.stat().st_mtime_ns < newest:
        report([job.run.path for job in done], runtime("cpu"), page, overwrite=True)
    return {
        "data": "digits",
        "labels": labels,
        "seeds": seeds,
        "folder": str(folder),
        "report": str(page),
        "ways": rows,
    }


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    errors, discrepancies = [r["test_error"] for r in results], [r["mmd2"] for r in results]
    return {
        "test_error": mean(errors),
        "test_error_std": stdev(errors) if len(errors) > 1 else None,
        "test_errors": errors,
        "mmd2": mean(discrepancies),
        "seconds": mean(r["seconds"] for r in results),
    }


def show(result: dict[str, Any]) -> None:
    title = f"Digits, {result['labels']} labels, {result['seeds']} seeds: error on 500 test images"
    table = Table(title=title, title_justify="left")
    for column in ("", "error %", "each seed", "MMD² × 10³", "seconds"):
        table.add_column(column, no_wrap=True)
    for way, row in result["ways"].items():
        spread = "" if row["test_error_std"] is None else f" ± {row['test_error_std']:.2f}"
        each = ", ".join(f"{e:.1f}" for e in row["test_errors"])
        table.add_row(
            way, f"{row['test_error']:.2f}{spread}", each, f"{1000 * row['mmd2']:.2f}", f"{row['seconds']:.0f}"
        )
    out.print(table)
    out.print(f"The runs are in {result['folder']}; {result['report']} shows them.", highlight=False)
