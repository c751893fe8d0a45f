"""A reproduced table as Markdown, CSV or LaTeX: ours beside the paper's."""

import csv
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
    "paper",
    "paper aligned",
    "gain",
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
        spread(row["paper_plain"]),
        spread(row["paper_aligned"]),
        signed(row["paper_gain"]),
        {None: "", True: "yes", False: "no"}[row["signs_agree"]],
    ]


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [HEADER, ("---",) * len(HEADER), *(cells(row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


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
                line[key] = value
        flat.append(line)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def latex(rows: list[dict[str, Any]]) -> str:
    def line(texts: Any) -> str:
        return " & ".join("".join(LATEX.get(c, c) for c in text) for text in texts) + r" \\" + "\n"

    columns = "l" * 4 + "r" * (len(HEADER) - 4)
    body = "".join(line(cells(row)) for row in rows)
    return (
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{line(HEADER)}\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n"
    )
