"""The results of the quality suite on standard output."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from afda.cli import console

if TYPE_CHECKING:
    from afda.experiments.quality.cells import Score
    from afda.experiments.quality.summary import Row, Summary


def build_table(title: str, lines: Sequence[Sequence[str]], words: int) -> Table:
    """Return lines of texts as a table; the first line is the header, the first `words` columns are text."""
    header, *body = lines
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(header):
        table.add_column(column, justify="left" if place < words else "right", overflow="fold")
    for line in body:
        table.add_row(*line)
    return table


def print_quality(scores: "Sequence[Score]") -> None:
    """Print the mean errors and what they say about ours."""
    from afda.experiments.quality.summary import build_rows
    from afda.experiments.quality.tables import describe_rows, describe_summary, format_duels, format_rows

    rows = build_rows(scores)
    if not rows:
        return
    console.out.print(build_table("Mean test error in percent; * best in hindsight", format_rows(rows), 1))
    for title, summary in describe_rows(rows):
        wins = f"{title}: wins and losses where the 95 % interval over the seeds excludes 0"
        if summary.duels:
            console.out.print(build_table(wins, format_duels(summary), 1))
        for sentence in describe_summary(summary):
            console.print_result(sentence)


def list_quality(scores: "Sequence[Score]") -> dict[str, Any]:
    """Return what `afda bench quality --json` prints."""
    from afda.experiments.quality.summary import build_rows, select_reporting, summarise

    rows: list[Row] = build_rows(scores)

    def convert(summary: "Summary") -> dict[str, Any]:
        return {**asdict(summary), "worst_harm": {str(few): asdict(one) for few, one in summary.worst_harm.items()}}

    summary = {**convert(summarise(rows)), "reporting_sets": convert(summarise(select_reporting(rows)))}
    return {"rows": [row.to_dict() for row in rows], "summary": summary}
