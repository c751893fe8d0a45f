"""The numbers that the paper prints, as data; misprints are corrected here and listed."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

TABLES = {
    "table-1": "T1",
    "table-2": "T2",
    "table-3": "T3",
    "table-4": "S_mmd",
    "table-5": "S_svhn",
    "table-6": "S_cifar",
    "table-7": "S_wrn",
    "figure-4": "F_tsne_ablation",
    "figure-6": "F_tsne_fully",
    "figure-7": "F_tsne_improvement",
}
"""The paper's numbers that stand beside ours; of figures, those of their captions."""
DATA = {"SVHN": "svhn", "CIFAR-10": "cifar10"}
METHODS = {
    "No Consistency": "supervised",
    "Supervised-only": "supervised",
    "Pi-Model": "pi-model",
    "Mean Teacher": "mean-teacher",
    "MT": "mean-teacher",
    "VAT": "vat",
    "VAT+Ent": "vat+entropy",
}
OURS = {"T1": "vat+entropy", "T2": "mean-teacher"}
"""What the row AFDA is made of, by table."""

MISPRINTED_CELLS = {
    ("S_mmd", "svhn", "pi-model", 1000): "shows the error of the Pi-model with alignment; 6.12 +- 0.24 in table-5",
    ("S_mmd", "svhn", "mean-teacher", 500): "shows an error of the Pi-model with alignment; 7.07 +- 0.41 in table-5",
}
"""Errors of table-4 that contradict table-5. Whether their MMD^2 are of the right runs cannot be known."""


@dataclass(frozen=True)
class Number:
    """A mean of the paper with its standard deviation, if it gives one."""

    table: str
    data: str
    net: str
    method: str
    name: str
    aligned: bool
    labels: int
    metric: str
    mean: float
    std: float | None


@cache
def numbers() -> tuple[Number, ...]:
    """Every error and MMD^2 (times 1000) of the paper's tables and captions, the two misprinted errors put right."""
    rows = [row for name in ("errors", "mmd", "figures") for row in _rows(name)]
    right = {
        (r["dataset"], r["method"], r["labels"]): (r["mean"], r["std"])
        for r in rows
        if r["table"] == "S_svhn" and r["alignment"] == "no"
    }
    found = []
    for row in rows:
        data = DATA[row["dataset"]]
        ours = row["method"] == "AFDA (Ours)"
        method = OURS[row["table"]] if ours else METHODS.get(row["method"], "")
        mean, std = row["mean"], row["std"]
        misprinted = (row["table"], data, method, int(row["labels"])) in MISPRINTED_CELLS
        if misprinted and row["alignment"] == "no" and row["metric"] == "test_error_pct":
            mean, std = right[row["dataset"], row["method"], row["labels"]]
        found.append(
            Number(
                row["table"],
                data,
                row["arch"],
                method,
                row["method"],
                row["alignment"] == "yes",
                int(row["labels"]),
                row["metric"],
                float(mean),
                float(std) if std else None,
            )
        )
    return tuple(found)


def printed(data: str, method: str, aligned: bool, labels: int, metric: str, table: str) -> Number | None:
    """The paper's number for a cell of a table, if it has one."""
    for n in numbers():
        if (n.table, n.data, n.method, n.aligned, n.labels, n.metric) == (table, data, method, aligned, labels, metric):
            return n
    return None


def misprints(table: str = "") -> list[str]:
    """What the paper prints wrongly in this table, or anywhere, one sentence each."""
    name = {code: called for called, code in TABLES.items()}
    found = [
        f"{name[r['table']]}: the reduction of {r['method']} on {r['dataset']} at {r['labels']} labels is printed as "
        f"{r['printed']} and is {r['recomputed']}."
        for r in _rows("reductions")
        if r["status"] != "ok"
    ]
    for (code, data, method, labels), what in MISPRINTED_CELLS.items():
        found.append(f"{name[code]}: {method} on {data} at {labels} labels {what}.")
    return [words for words in found if words.startswith(table)]


def _rows(name: str) -> list[dict[str, str]]:
    text = files(__name__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
