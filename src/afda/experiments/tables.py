"""A reproduced table as Markdown, CSV, LaTeX and HTML, with our numbers beside the paper's."""

import base64
import csv
import html
import io
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from afda.experiments.comparison import PaperValue, Row, Statistic
from afda.machine.files import check_writable, write_atomically

HEADER = (
    "data",
    "labels",
    "method",
    "measure",
    "ours",
    "ours aligned",
    "gain",
    "lower in",
    "paper",
    "paper aligned",
    "paper's gain",
    "same sign",
)
MEASURES = {"test_error_pct": "error %", "mmd2_x1e3": "MMD² × 10³"}
LATEX = {"%": r"\%", "²": r"$^2$", "×": r"$\times$", "³": r"$^3$", "±": r"$\pm$", "_": r"\_", "&": r"\&"}


def format_value(value: Statistic | PaperValue | None) -> str:
    """Return mean ± std, with the number of runs if they are ours; empty for a cell that was not run."""
    if value is None:
        return ""
    text = f"{value.mean:.2f}"
    if value.std is not None:
        text += f" ± {value.std:.2f}"
    return text + (f" ({value.n})" if isinstance(value, Statistic) else "")


def format_gain(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}"


def format_pairs(row: Row) -> str:
    """Return in how many pairs of runs the aligned one is lower."""
    equal = f", {row.pairs_equal} equal" if row.pairs_equal else ""
    return f"{row.pairs_lower} of {row.pairs}{equal}" if row.pairs else ""


def format_row(row: Row) -> list[str]:
    """Return the texts of one row, in the order of HEADER."""
    return [
        row.data,
        str(row.labels),
        row.method,
        MEASURES[row.measure],
        format_value(row.plain),
        format_value(row.aligned),
        format_gain(row.gain),
        format_pairs(row),
        format_value(row.paper_plain),
        format_value(row.paper_aligned),
        format_gain(row.paper_gain),
        {None: "", True: "yes", False: "no"}[row.signs_agree],
    ]


def format_rows(rows: Sequence[Row]) -> list[list[str]]:
    """Return the header and a line per row, without the columns that are empty in all rows."""
    texts = [format_row(row) for row in rows]
    filled = [i for i in range(len(HEADER)) if any(text[i] for text in texts)]
    return [[line[i] for i in filled] for line in (HEADER, *texts)]


def render_markdown(texts: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table of lines of texts, the first of which is its header."""
    header, *body = texts
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, ["---"] * len(header), *body))


def render_csv(rows: Sequence[Row]) -> str:
    """Return the rows as CSV with one column per number."""
    header: list[str] = []
    lines: list[list[object]] = []
    for row in rows:
        line: dict[str, object] = {}
        for column in fields(row):
            value = getattr(row, column.name)
            if column.name in ("plain", "aligned", "paper_plain", "paper_aligned"):
                names = ("mean", "std") if column.name.startswith("paper") else ("mean", "std", "n")
                line |= {f"{column.name}_{name}": getattr(value, name, None) for name in names}
            else:
                line[column.name] = " ".join(value) if isinstance(value, list) else value
        header = list(line)
        lines.append(list(line.values()))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *lines])
    return text.getvalue()


def render_latex(rows: Sequence[Row]) -> str:
    """Return the rows as a LaTeX tabular for the booktabs package."""

    def join(texts: list[str]) -> str:
        return " & ".join("".join(LATEX.get(c, c) for c in text) for text in texts) + r" \\" + "\n"

    header, *body = (join(texts) for texts in format_rows(rows))
    columns = "l" * 4 + "r" * (header.count("&") - 3)
    begin, end = f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n", "\\bottomrule\n\\end{tabular}\n"
    return f"{begin}{header}\\midrule\n{''.join(body)}{end}"


def embed_image(png: bytes, title: str) -> str:
    """Return a PNG file as an HTML element."""
    return f'<img alt="{html.escape(title)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def render_page(title: str, about: str, texts: list[list[str]], picture: str = "", words: int = 4) -> str:
    """Return one HTML page that loads nothing from elsewhere: a picture, which is an HTML element, and a table.

    The first line of `texts` is the table's header; the first `words` columns are aligned to the left.
    """

    def join(texts: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"

    header, *body = texts
    return PAGE.format(
        title=html.escape(title),
        about=html.escape(about),
        picture=picture,
        words=words,
        head=join(header, "th"),
        body="".join(join(texts, "td") for texts in body),
    )


def write_table(
    rows: Sequence[Row], folder: Path, title: str, about: str, command: str, figure: Path | None = None
) -> list[Path]:
    """Write the table as Markdown, CSV, LaTeX and HTML with the command that made it; the page shows the figure too."""
    picture = embed_image(figure.read_bytes(), title) if figure is not None and figure.exists() else ""
    texts = {
        "md": f"# {title}\n\n{about} Made by `{command}`.\n\n{render_markdown(format_rows(rows))}",
        "csv": render_csv(rows),
        "tex": f"% {about} Made by: {command}\n{render_latex(rows)}",
        "html": render_page(title, f"{about} Made by: {command}", format_rows(rows), picture),
    }
    check_writable(folder)
    for ending, text in texts.items():
        write_atomically(folder / f"{title}.{ending}", text.encode())
    return [folder / f"{title}.{ending}" for ending in texts]


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }}
div {{ overflow-x: auto; }} table {{ border-collapse: collapse; font-size: .9rem; }}
th, td {{ padding: .3rem .7rem; border-bottom: 1px solid #8884; text-align: right; white-space: nowrap; }}
th:nth-child(-n+{words}), td:nth-child(-n+{words}) {{ text-align: left; }}
img, svg {{ display: block; margin: 1rem 0; max-width: 100%; height: auto; background: white; }}
</style></head>
<body><h1>{title}</h1><p>{about}</p>{picture}
<div><table><thead>{head}</thead><tbody>{body}</tbody></table></div></body></html>
"""
