"""A reproduced table as Markdown, CSV or LaTeX, ours beside the paper's; and a table as a page with its picture."""

import base64
import csv
import html
import io
from typing import Any

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


def spread(value: dict[str, Any] | None) -> str:
    """mean ± std, and the number of runs where it is known; empty for a cell that was not run."""
    if value is None:
        return ""
    text = f"{value['mean']:.2f}"
    if value["std"] is not None:
        text += f" ± {value['std']:.2f}"
    return text + (f" ({value['n']})" if "n" in value else "")


def signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}"


def lower(row: dict[str, Any]) -> str:
    """In how many pairs of runs the aligned one is lower."""
    equal = f", {row['pairs_equal']} equal" if row["pairs_equal"] else ""
    return f"{row['pairs_lower']} of {row['pairs']}{equal}" if row["pairs"] else ""


def cells(row: dict[str, Any]) -> list[str]:
    """The texts of one row, in the order of HEADER."""
    return [
        row["data"],
        str(row["labels"]),
        row["method"],
        MEASURES[row["measure"]],
        spread(row["plain"]),
        spread(row["aligned"]),
        signed(row["gain"]),
        lower(row),
        spread(row["paper_plain"]),
        spread(row["paper_aligned"]),
        signed(row["paper_gain"]),
        {None: "", True: "yes", False: "no"}[row["signs_agree"]],
    ]


def lines(rows: list[dict[str, Any]]) -> list[list[str]]:
    """The header and a line per row, without the columns that are empty in all of them."""
    texts = [cells(row) for row in rows]
    filled = [i for i in range(len(HEADER)) if any(text[i] for text in texts)]
    return [[line[i] for i in filled] for line in (HEADER, *texts)]


def markdown(rows: list[dict[str, Any]]) -> str:
    header, *body = lines(rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, ["---"] * len(header), *body))


def as_csv(rows: list[dict[str, Any]]) -> str:
    """One column per number, so that nothing has to be parsed out of text."""
    flat = []
    for row in rows:
        line: dict[str, Any] = {}
        for key, value in row.items():
            if key in ("plain", "aligned", "paper_plain", "paper_aligned"):
                names = ("mean", "std") if key.startswith("paper") else ("mean", "std", "n")
                line |= {f"{key}_{name}": (value or {}).get(name) for name in names}
            else:
                line[key] = " ".join(value) if isinstance(value, list) else value
        flat.append(line)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def latex(rows: list[dict[str, Any]]) -> str:
    def line(texts: Any) -> str:
        return " & ".join("".join(LATEX.get(c, c) for c in text) for text in texts) + r" \\" + "\n"

    header, *body = (line(texts) for texts in lines(rows))
    columns = "l" * 4 + "r" * (header.count("&") - 3)
    begin, end = f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n", "\\bottomrule\n\\end{tabular}\n"
    return f"{begin}{header}\\midrule\n{''.join(body)}{end}"


def image(png: bytes, title: str) -> str:
    """A PNG file as an element of a page."""
    return f'<img alt="{html.escape(title)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def page(title: str, about: str, texts: list[list[str]], picture: str = "", words: int = 4) -> str:
    """One HTML file that fetches nothing: a table, whose first line is its header and whose first columns are words,
    and above it a picture, which is an element."""

    def line(texts: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"

    header, *body = texts
    return PAGE.format(
        title=html.escape(title),
        about=html.escape(about),
        picture=picture,
        words=words,
        head=line(header, "th"),
        body="".join(line(texts, "td") for texts in body),
    )


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
