"""What the terminal shows: a live bar or plain lines while training, tables afterwards."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from afda import recipes
from afda.baseline import follows, wanted
from afda.data.images import DataSet
from afda.errors import printable
from afda.recipe import Recipe
from afda.report import tables
from afda.report.chance import interval
from afda.sweep import Job, seconds_left

if TYPE_CHECKING:
    from afda.bench import Row, Task
    from afda.runtime import Runtime


# Paths and names of classes may look like markup; they are shown as they are.
# A file or a pipe has no width to keep to, and a table must not lose digits to one.
class Screen(Console):
    """Nor may they move the cursor or colour what follows."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text), **how)


def shown(text: str) -> Text:
    """For a place that would read a plain text as markup."""
    return Text(printable(text))


out = Screen(soft_wrap=True, markup=False, emoji=False, width=None if sys.stdout.isatty() else 160)
err = Screen(stderr=True, soft_wrap=True, markup=False, emoji=False)


BAR = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


SILENCE = 300.0
"""Seconds after which a sweep that is not on a terminal says how far it is."""
NEXT = 5
"""Waiting runs of a sweep that are shown."""
PLAIN_EVERY = 10.0
"""Seconds between two lines where there is no terminal."""


def news(line: dict[str, Any], recipe: Recipe) -> str:
    """A line of the log in words: loss terms, discriminator, error and speed."""
    parts = [
        f"{name} {line[name]:.3f}"
        for name in ("supervised", "consistency", "entropy", "logit_distance", "alignment")
        if name in line
    ]
    if "discriminator_accuracy" in line:
        parts.append(f"d {line['discriminator_accuracy']:.0%}")
    for name in ("labelled_error", "val_error"):
        if line.get(name) is not None:
            parts.append(f"{name.replace('_', ' ')} {line[name]:.1f} %")
    if line.get("mmd2") is not None:
        parts.append(f"MMD² {1000 * line['mmd2']:.1f}e-3")
    parts.append(f"{recipe.images_per_step * line['step'] / max(line['seconds'], 1e-9):.0f} img/s")
    return " · ".join(parts)


@contextmanager
def decoding(quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar for image files being decoded; it appears when there is something to decode."""
    if quiet or not err.is_terminal:
        yield None
        return
    with Progress(*BAR, console=err, transient=True) as bar:
        task = bar.add_task("decoding images", total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


@contextmanager
def counting(what: str, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A number that grows, where one cannot know how far it will go."""
    if quiet or not err.is_terminal:
        yield lambda done: None
        return
    with err.status(what) as status:
        yield lambda done: status.update(f"{done:,} {what}")


def introduce(recipe: Recipe, data: DataSet, chosen: str | None, runtime: "Runtime") -> None:
    """What the user should know before a training begins."""
    remarks = [f"Note: {note}" for note in data.notes]
    if chosen is not None:
        remarks.insert(0, f"Recipe {chosen} (see `afda list recipes`; choose with --recipe).")
        if chosen in ("own-images", "own-vectors") and recipe.net == recipes.recipe(chosen, data).net:
            shape = data.train.shape
            kind = "vectors" if len(shape) == 1 else f"images of {shape[2]}x{shape[1]} pixels"
            remarks.insert(1, f"Net {recipe.net.name()}, because it suits {kind}; --net decides otherwise.")
    if recipe.preparation.normalise == "zca":
        remarks.append("Fitting the whitening of the images; this takes a minute or two.")
    if runtime.emulates:
        remarks.append("This CPU has no bfloat16, so it is emulated; float32 would be faster.")
    elif runtime.precision == "bfloat16" and runtime.free:
        remarks.append("In bfloat16, which suits this net and machine; --precision float32 decides otherwise.")
    if wanted(recipe, data) and not follows(recipe, data):
        remarks.append(
            "Nothing is held out, so nothing will tell whether the unlabelled images help; see --validation."
        )
    for remark in remarks:
        err.print(remark, highlight=False)


def follow(lines: Iterator[dict[str, Any]], recipe: Recipe, begun: int, quiet: bool) -> None:
    """Show a training while it goes on: a bar on a terminal, else a line now and then."""
    if begun and not quiet:
        err.print(f"Continuing after {begun} of {recipe.steps} updates.", highlight=False)
    if quiet:
        for _ in lines:
            pass
    elif err.is_terminal:
        bar = Progress(*BAR, console=err)
        task = bar.add_task(recipe.title, total=recipe.steps, completed=begun)
        known: dict[str, Any] = {}
        with Live(bar, console=err, refresh_per_second=4, transient=True) as live:
            for line in lines:
                known |= line  # errors are measured more rarely than losses
                bar.update(task, completed=line["step"])
                warn(line)
                live.update(Group(bar, Text(news(known, recipe))))
    else:
        shown = 0.0
        for line in lines:
            warn(line)
            if line["step"] == recipe.steps or time.monotonic() - shown > PLAIN_EVERY:
                shown = time.monotonic()
                left = (recipe.steps - line["step"]) * line["seconds"] / line["step"]
                err.print(
                    f"step {line['step']}/{recipe.steps} · {news(line, recipe)} · {left:.0f} s left", highlight=False
                )


def warn(line: dict[str, Any]) -> None:
    """Say what a line of the log warns of; above the bar, if there is one."""
    if "warning" in line:
        err.print(f"Warning, after {line['step']} updates: {line['warning']}", highlight=False)


def follow_jobs(states: Iterable[list[Job]], title: str) -> list[Job]:
    """Show a sweep while it goes on, and return its jobs."""
    todo: list[Job] = []
    try:
        for latest in shown_jobs(states, title) if err.is_terminal else told_jobs(states):
            todo = latest
    except KeyboardInterrupt:
        done = sum(job.state == "done" for job in todo)
        complain(f"stopped with {done} of {len(todo)} runs done; the same command continues.")
        sys.exit(130)
    return todo


def shown_jobs(states: Iterable[list[Job]], title: str) -> Iterator[list[Job]]:
    """On a terminal: a table that changes."""
    with Live(console=err, refresh_per_second=4, transient=True) as live:
        for todo in states:
            live.update(progress_table(todo, title))
            yield todo


def told_jobs(states: Iterable[list[Job]]) -> Iterator[list[Job]]:
    """Elsewhere: a line for each run that ends, and from time to time how far the others are."""
    told: set[int] = set()
    finished_before: int | None = None
    spoke = time.monotonic()
    for todo in states:
        if finished_before != (now := sum(job.found_finished for job in todo)):
            finished_before = now
            err.print(f"{len(todo)} runs, {now} of them finished before.", highlight=False)
        for job in todo:
            if job.state in ("done", "failed") and not job.found_finished and id(job) not in told:
                told.add(id(job))
                detail = job.problem if job.state == "failed" else f"{job.run.result()['seconds']:.0f} s"
                err.print(f"{job.run.path.name}: {job.state} ({detail}); {so_far(todo)}", highlight=False)
        if time.monotonic() - spoke > SILENCE:
            spoke = time.monotonic()
            running = [job for job in todo if job.state == "running"]
            steps = [f"{job.run.path.name} {job.latest['step']}/{job.recipe.steps}" for job in running]
            err.print("; ".join([*steps, so_far(todo)]), highlight=False)
        yield todo


def so_far(todo: list[Job]) -> str:
    done, left = sum(job.state == "done" for job in todo), seconds_left(todo)
    return f"{done} of {len(todo)} runs done" + (f", about {duration(left)} left" if left else "")


def progress_table(todo: list[Job], title: str) -> Table:
    """What runs, what failed and what is next: a sweep may have more runs than the screen has lines."""
    table = Table(title=f"{title}: {so_far(todo)}", title_justify="left")
    for column in ("run", "state", "step", "now"):
        table.add_column(column)
    waiting = [job for job in todo if job.state == "waiting"]
    shown = [job for job in todo if job.state in ("running", "failed")] + waiting[:NEXT]
    if len(waiting) > NEXT:
        table.caption = f"and {len(waiting) - NEXT} more waiting"
    for job in shown:
        line = job.latest if job.state == "running" else {"step": 0}
        now = news(line, job.recipe) if line["step"] else job.problem if job.state == "failed" else ""
        step = f"{line['step']}/{job.recipe.steps}" if job.state == "running" else ""
        table.add_row(job.run.path.name, job.state, step, now)
    return table


def duration(seconds: float) -> str:
    """Roughly, in the unit that fits."""
    return (
        f"{seconds / 3600:.1f} h"
        if seconds > 5400
        else f"{seconds / 60:.0f} min"
        if seconds > 90
        else f"{seconds:.0f} s"
    )


def percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f} %"


def result_table(result: dict[str, Any], title: str) -> Table:
    """The result of one run."""
    table = Table(title=title, title_justify="left", show_header=False)
    rows = {
        "test error": with_chance(result["test_error"], result.get("test")),
        "validation error": with_chance(result["val_error"], result.get("validation")),
        "MMD² of the features": "none" if result["mmd2"] is None else f"{1000 * result['mmd2']:.2f} × 10⁻³",
        **({"risk gap, bound": bound_words(result["bound"])} if result["bound"] else {}),
        "labels, unlabelled": f"{result['labels']}, {result['unlabelled']}",
        "time": f"{result['seconds']:.0f} s, {result['images_per_second']:.0f} images/s",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def with_chance(error: float | None, scores: dict[str, Any] | None) -> str:
    """An error, of how many images it is, and what chance may have done to it."""
    if error is None or not scores:
        return percent(error)
    images = sum(map(sum, scores["confusion"]))
    wrong = images - sum(row[k] for k, row in enumerate(scores["confusion"]))
    low, high = interval(wrong, images) or (0.0, 100.0)
    return f"{percent(error)}: {wrong} of {images} (95 % interval {low:.1f} to {high:.1f} %)"


def trained(result: dict[str, Any], title: str, before: bool = False) -> None:
    """What `afda train` has to say at its end."""
    out.print(result_table(result, title))
    if "verdict" in result:
        out.print(result["verdict"], highlight=False)
    out.print(f"The run {'was finished already, ' if before else 'is '}in {result['run']}.", highlight=False)


def evaluation_table(result: dict[str, Any]) -> Table:
    """Errors of a model on labelled images, overall and per class."""
    table = Table(title=f"{result['run']} on {result['images']} images of {result['data']}", title_justify="left")
    table.add_column("class")
    table.add_column("images", justify="right")
    table.add_column("error", justify="right")
    for (name, error), row in zip(result["class_errors"].items(), result["confusion"], strict=True):
        table.add_row(name, str(sum(row)), percent(error) if any(row) else "")
    table.add_section()
    table.add_row("all", str(result["images"]), percent(result["error"]))
    return table


def catalogue_tables(catalogue: dict[str, dict[str, str]]) -> Iterator[Table]:
    for title, rows in catalogue.items():
        table = Table(title=title, title_justify="left", show_header=False)
        table.add_column(no_wrap=True)
        table.add_column()
        for name, line in rows.items():
            table.add_row(name, line)
        yield table


def reproduction_table(name: str, rows: list[dict[str, Any]], about: str) -> Table:
    """Ours beside the paper's; cells that were not run are empty."""
    table = Table(title=name, title_justify="left", caption=about, caption_justify="left")
    header, *lines = tables.lines(rows)
    for column in header:
        table.add_column(column, overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table


def planned_table(jobs: list[Job]) -> Table:
    """The runs of a sweep before it begins."""
    table = Table(
        title=f"Runs: {len(jobs)}, finished: {sum(job.state == 'done' for job in jobs)}", title_justify="left"
    )
    table.add_column("run", overflow="fold")
    table.add_column("updates", justify="right")
    table.add_column("")
    for job in jobs:
        table.add_row(str(job.run.path), f"{job.recipe.steps:,}", "finished" if job.state == "done" else "")
    return table


def trials_table(points: list[tuple[dict[str, float], float]], caution: str) -> Table:
    """The ten best points of a search, and how far to trust their order."""
    title = f"The best by validation error, points tried: {len(points)}"
    table = Table(title=title, title_justify="left", caption=caution, caption_justify="left")
    for path in (*points[0][0], "validation error"):
        table.add_column(path, justify="right")
    for point, error in points[:10]:
        table.add_row(*(f"{value:g}" for value in point.values()), percent(error))
    return table


def bound_words(bound: dict[str, float]) -> str:
    return f"{bound['gap']:.3f} ≤ {bound['total']:.3f} + {bound['remainder']:.3f}"


def complain(message: str) -> None:
    """One sentence on stderr."""
    print(f"afda: {printable(message)}", file=sys.stderr)


def check_files(files: dict[str, Any]) -> None:
    """What lies in a folder or table, readable or not."""
    sizes, modes = files.get("sizes"), ", ".join(f"{n} {mode}" for mode, n in files["modes"].items())
    text = f"{files['files']} image files" + (f" ({modes})" if modes else "")
    if sizes:
        text += f", sides from {sizes['shortest_side']} to {sizes['longest_side']} pixels"
    out.print(f"{text}; {len(files['unreadable'])} cannot be read.", highlight=False)


def check_result(found: dict[str, Any]) -> None:
    """What `afda check` has to say."""
    if found["files"]:
        check_files(found["files"])
    kinds = ", ".join(f"{count} {kind}" for kind, count in found["images"].items())
    table = Table(title=f"{found['name']}: {kinds}", title_justify="left")
    for column in ("class", "labelled", "validation", "test"):
        table.add_column(column, justify="left" if column == "class" else "right")
    names = list(found["classes"]["labelled"])
    for name in names[:MOST_CLASSES]:
        table.add_row(name, *(str(found["classes"][kind][name]) for kind in ("labelled", "validation", "test")))
    if len(names) > MOST_CLASSES:
        table.add_row(f"and {len(names) - MOST_CLASSES} more")
    out.print(table)
    for note in found["notes"]:
        out.print(f"Note: {note}", highlight=False)
    for warning in found["warnings"]:
        out.print(f"Look: {warning}", highlight=False)
    if not (found["warnings"] or found["problem"] or found["skipped"]):
        out.print("Nothing wrong was found.", highlight=False)
    if found["expected"]:
        e = found["expected"]
        pace = f"On this machine 1,000 updates of {e['net']} take {e['seconds_per_1000_steps']:.0f} s"
        baseline = ", with a baseline" if e["seconds_per_1000_steps_supervised"] else ""
        minutes = max(1, round(e["minutes"]))
        whole = f"by default it trains {e['steps']}{baseline}, about {minutes} minute{'s' if minutes > 1 else ''}"
        out.print(f"{pace}; {whole}. --minutes fits it to the time you have.", highlight=False)


MOST_CLASSES = 30
"""Classes listed on the screen; all of them are in the JSON."""


def predictions(result: dict[str, Any]) -> None:
    """What `afda predict` has done."""
    common = ", ".join(f"{name}: {count}" for name, count in list(result["classes"].items())[:10])
    out.print(f"Predictions in {result['file']}: {result['images']} ({common}).", highlight=False)
    if result["unlike"]:
        out.print(f"Unlike the training images: {result['unlike']}; do not trust their labels.", highlight=False)
    if result["skipped"]:
        out.print(f"{result['skipped']} could not be read, see {result['skipped_file']}.", highlight=False)
    if not result["calibrated"]:
        out.print("The confidences are not calibrated: the run had too few validation images.", highlight=False)


def follow_bench(tasks: "dict[str, Task]") -> "Iterator[Row]":
    """Measure one thing after the other, under a bar."""
    with Progress(*BAR, console=err, transient=True) as bar:
        task = bar.add_task("measuring", total=len(tasks))
        for name, measure in tasks.items():
            bar.update(task, description=name)
            rows = list(measure())
            if not rows:
                err.print(f"{name} cannot be measured on this machine.", highlight=False)
            yield from rows
            bar.advance(task)


def bench_table(rows: "list[Row]", machine: dict[str, Any]) -> Table:
    from afda.bench import MEANINGS
    from afda.bench.steps import NETS

    of = machine["precision"]
    apart = {net: f" (VAT in {of[f'{net}/vat']})" for net in NETS if of[f"{net}/vat"] != of[net]}
    precisions = ", ".join(f"{net} in {of[net]}{apart.get(net, '')}" for net in NETS)
    threads = f"{machine['threads']} thread{'s' if machine['threads'] > 1 else ''}"
    about = f"{machine['device_name']}, {threads}, {precisions}, torch {machine['torch']}"
    table = Table(title=about, title_justify="left", title_style="")
    for heading in ("", "median", "range"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(row.name, f"{row.value:.3g}", f"{row.spread:.2g}", MEANINGS[row.name.partition("/")[0]])
    return table
