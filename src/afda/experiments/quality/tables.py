"""The results of the quality suite as texts: lines of a table, sentences, and a Markdown page."""

from collections.abc import Iterable, Sequence

from afda.experiments.quality.cells import Score
from afda.experiments.quality.competitors import COLUMNS
from afda.experiments.quality.summary import Interval, Row, Summary, build_rows, select_reporting, summarise
from afda.experiments.tables import render_markdown

HEADINGS = {
    "ours": "ours",
    "afda": "AFDA",
    "supervised": "supervised-only",
    "logistic": "logistic regression",
    "label_spreading": "LabelSpreading",
    "self_training": "SelfTraining",
}


def format_rows(rows: Sequence[Row]) -> list[list[str]]:
    """Return a header and a line per row: mean errors in percent, the best one with a star."""
    columns = [method for method in COLUMNS if any(method in row.errors for row in rows)]
    lines = [["set", "labels per class", "seeds", *(HEADINGS[method] for method in columns)]]
    for row in rows:
        errors = [
            "" if method not in row.errors else f"{row.errors[method]:.1f}{'*' if method == row.best else ''}"
            for method in columns
        ]
        lines.append([row.set, str(row.labels_per_class), str(row.seeds), *errors])
    return lines


def format_duels(summary: Summary) -> list[list[str]]:
    """Return a header and a line per method that ours is compared with."""
    lines = [["ours against", "wins", "ties", "losses", "lower mean error in", "mean difference, points"]]
    for method, duel in summary.duels.items():
        equal = f", {duel.equal} equal" if duel.equal else ""
        lower = f"{duel.lower} of {duel.wins + duel.ties + duel.losses}{equal}"
        counts = [str(count) for count in (duel.wins, duel.ties, duel.losses)]
        lines.append([HEADINGS[method], *counts, lower, format_interval(duel.difference)])
    return lines


def format_interval(value: Interval) -> str:
    """Return a difference with its 95 % interval."""
    return f"{value.mean:+.2f}" + ("" if value.low is None else f" ({value.low:+.2f} to {value.high:+.2f})")


def describe_summary(summary: Summary) -> list[str]:
    """Return the summary as sentences."""
    sentences = []
    if summary.relative_reduction is not None and summary.reduction_of_mean is not None:
        sentences.append(
            f"Error relative to supervised-only: {-summary.relative_reduction:+.1f} % on average over "
            f"{summary.cells} cell{'s' if summary.cells > 1 else ''}; {-summary.reduction_of_mean:+.1f} % for the mean "
            "error."
        )
    if summary.better_than_semi_supervised is not None:
        sentences.append(
            "Better than both LabelSpreading and SelfTraining in "
            f"{summary.better_than_semi_supervised:.0f} % of the cells, no worse in "
            f"{summary.no_worse_than_semi_supervised:.0f} %."
        )
    harms = [f"{harm.points:+.1f} ({harm.set}) with {few}" for few, harm in summary.worst_harm.items()]
    if harms:
        sentences.append(
            "Worst harm against the better of supervised-only and logistic regression, in points: "
            f"{', '.join(harms)} labels per class."
        )
    return sentences


def describe_rows(rows: Sequence[Row]) -> list[tuple[str, Summary]]:
    """Return a title and a summary for all sets and, if that is another choice, for the reporting sets alone."""
    summaries = [("All sets", summarise(rows))]
    reporting = select_reporting(rows)
    if reporting and len(reporting) < len(rows):
        summaries.append(("Sets on which no setting was chosen", summarise(reporting)))
    return [(title, summary) for title, summary in summaries if summary.cells]


def render_page(name: str, scores: Iterable[Score]) -> str:
    """Return the Markdown page of one file of results."""
    scores = list(scores)
    rows = build_rows(scores)
    seeds = sorted({score.seed for score in scores})
    versions = sorted({score.version for score in scores})
    parts = [
        f"# {name}\n",
        f"`afda bench quality`: mean test errors in percent over the seeds {', '.join(map(str, seeds))}; the star "
        f"marks the best column in hindsight. Version {', '.join(versions)}.\n",
        render_markdown(format_rows(rows)),
    ]
    for title, summary in describe_rows(rows):
        parts += [f"## {title}\n", *(f"{sentence}\n" for sentence in describe_summary(summary))]
        parts.append(render_markdown(format_duels(summary)))
    return "\n".join(parts)
