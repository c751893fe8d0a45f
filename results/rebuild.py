"""Rebuild every table in this folder from runs.jsonl and quality/*.jsonl.

    python results/rebuild.py                       # write the tables again
    python results/rebuild.py --add FOLDER PREFIX   # first add the finished runs below FOLDER, as PREFIX/...

Each line of runs.jsonl is a run; a run of the same path replaces an earlier one.
"""

import argparse
import math
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

from afda.experiments.cells import make_file_name, select_cells
from afda.experiments.comparison import RunStore, build_rows, describe_precisions, describe_rows
from afda.experiments.demo import WAYS, summarise_results
from afda.experiments.evidence import RunRecord, collect_runs, read_evidence, records_below, write_evidence
from afda.experiments.quality.cells import read_scores
from afda.experiments.quality.tables import render_page
from afda.experiments.tables import format_gain, format_pairs, render_markdown, write_table
from afda.machine.files import write_atomically

RESULTS = Path(__file__).parent
VARIED = (
    "align.form=inverted",
    "order=literal",
    "batchnorm=together",
    "statistics=labelled",
    "statistics=unlabelled",
    "method.vat.xi=0.000001",
)
"""The readings of the paper that were varied on the digits, one at a time."""
DIGITS_50 = "afda reproduce digits --only method={method},align=adversarial,labels=50 --seeds 3 --set {setting}"
COMMANDS = (
    "afda reproduce digits --seeds 5",
    "afda reproduce figure-2 --on-digits --seeds 5",
    "afda reproduce figure-5 --on-digits --labels 50 --seeds 1",
    "afda reproduce figure-7 --on-digits --labels 20 --seeds 5",
    "afda reproduce figure-7 --labels 250 --seeds 3",
    "afda reproduce table-5 --profile cpu --only labels=250 --seeds 3",
    "afda reproduce table-6 --profile cpu --only labels=1000,method=supervised,method=vat --seeds 2",
    *(f"{DIGITS_50.format(method='vat', setting=setting)} --out results/effects" for setting in VARIED),
    *(f"{DIGITS_50.format(method='supervised', setting=setting)} --out results/effects" for setting in VARIED[:-1]),
    "afda reproduce digits --only method=vat,align=none,labels=20 --seeds 5 --set method.vat.xi=0.000001 "
    "--out results/effects",
)
"""The commands that made the tables, given with version 0.1.0, which wrote to `results` by default."""
METHODS = {"supervised": "supervised", "pi-model": "Pi-model", "mean-teacher": "Mean Teacher", "vat": "VAT"}
PRECISIONS = {
    "digits, 50 labels, AFDA": "digits-afda-50",
    "SVHN, 1,000 labels, AFDA, 4,000 updates": "svhn-afda-1000-quarter",
    "SVHN, 250 labels, AFDA, 4,000 updates": "svhn-afda-250-quarter",
    "digits, 50 labels, Mean Teacher, aligned": "digits-mean-teacher-aligned-50",
    "SVHN, 250 labels, Mean Teacher, aligned, 2,000 updates": "svhn-mean-teacher-aligned-250-quarter",
    "digits, 50 labels, Pi-model, aligned": "digits-pi-model-aligned-50",
    "SVHN, 250 labels, Pi-model, aligned, 2,000 updates": "svhn-pi-model-aligned-250-quarter",
    "digits, 50 labels, supervised-only": "digits-supervised-50",
    "SVHN, 250 labels, supervised-only, 3,000 updates": "svhn-supervised-250-quarter",
}
"""Trainings that were run in float32 and in bfloat16, by the beginning of their runs' names."""
FLOAT32_ELSEWHERE = {"digits-supervised-50": "demo/supervised-50"}
"""Runs in float32 that belong to another table too."""
Runs = Mapping[str, RunRecord]


def parse_command(command: str) -> argparse.Namespace:
    """Return the arguments of an `afda reproduce` command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--profile", default="cpu")
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, required=True)
    parser.add_argument("--labels", type=int)
    parser.add_argument("--on-digits", action="store_true")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--out", default="results")
    return parser.parse_args(shlex.split(command)[2:])


def rebuild_reproduction(command: str, runs: Runs, out: Path) -> list[Path]:
    """Write the files of one `afda reproduce` command from its runs."""
    given = parse_command(command)
    below = [*Path(given.out).parts[1:], *([",".join(sorted(given.settings))] if given.settings else [])]
    chosen = select_cells(given.name, given.only, given.labels, given.on_digits)
    store = RunStore(None, records_below(runs.values(), "".join(f"{part}/" for part in below)))
    rows = build_rows(given.name, chosen, store, given.profile, given.seeds)
    found = [store.find(cell, given.profile, seed) for cell in chosen for seed in range(given.seeds)]
    if missing := found.count(None):
        raise ValueError(f"runs.jsonl lacks {missing} of {len(found)} runs of: {command}")
    precision = describe_precisions(record.precision for record in found if record)
    about = describe_rows(given.name, rows, given.profile, given.settings, [precision] if precision else [])
    title = make_file_name(given.name, given.only, given.labels, given.on_digits)
    figure = RESULTS.joinpath(*below, given.profile, "figures", f"{title}.png")
    return write_table(rows, out.joinpath(*below, given.profile, "tables"), title, about, command, figure)


def find_seeds(runs: Runs, beginning: str) -> dict[int, RunRecord]:
    """Return the runs whose path goes on with `-seed` and a number, by that number."""
    paths = [path for path in runs if path.rpartition("-seed")[0] == beginning]
    return {int(path.rpartition("-seed")[2]): runs[path] for path in sorted(paths)}


def read_errors(records: Mapping[int, RunRecord]) -> dict[int, float]:
    """Return the test errors in percent by seed."""
    return {seed: r.result.test_error for seed, r in sorted(records.items()) if r.result.test_error is not None}


def read_mmd2(records: Mapping[int, RunRecord]) -> dict[int, float]:
    """Return MMD^2 times 1000 by seed."""
    return {seed: 1000 * r.result.mmd2 for seed, r in sorted(records.items()) if r.result.mmd2 is not None}


def format_seeds(values: Iterable[float], digits: int = 2, each: int = 2, signed: bool = False) -> str:
    """Return the mean of some runs and, in brackets, each of them."""
    values, sign = list(values), "+" if signed else ""
    texts = [f"{value:{sign}.{each}f}" for value in values]
    return f"{mean(values):{sign}.{digits}f} ({', '.join(texts)})"


def build_demo(runs: Runs) -> list[list[str]]:
    """Return the table of `afda demo`."""
    lines = [["", "error %", "each seed", "MMD² × 10³"]]
    for way, (method, align) in WAYS.items():
        title = method if align == "none" else f"{method}-{align}"
        row = summarise_results([record.result for record in find_seeds(runs, f"demo/{title}-50").values()])
        each = ", ".join(f"{error:.1f}" for error in row.test_errors)
        lines.append([way, f"{row.test_error:.2f} ± {row.test_error_std:.2f}", each, f"{1000 * row.mmd2:.2f}"])
    return lines


def build_digits(runs: Runs) -> list[list[str]]:
    """Return the test errors of `afda reproduce digits`, without and with alignment."""
    lines = [["labels", "method", "plain", "aligned", "gain", "lower in"]]
    for row in build_rows("digits", select_cells("digits"), RunStore(None, runs), "cpu", 5):
        if row.measure == "test_error_pct" and row.plain and row.aligned:
            values = [f"{value.mean:.2f} ± {value.std:.2f}" for value in (row.plain, row.aligned)]
            lines.append([str(row.labels), METHODS[row.method], *values, format_gain(row.gain), format_pairs(row)])
    return lines


def build_pairs(runs: Runs, name: str, only: str, seeds: int) -> list[list[str]]:
    """Return error and MMD^2 of each seed, without and with alignment, and the paper's errors."""
    header = ["method", "plain", "aligned", "gain", "MMD² × 10³ plain", "aligned", "the paper's plain", "aligned"]
    lines, store = [header], RunStore(None, runs)
    chosen = select_cells(name, only)
    rows = build_rows(name, chosen, store, "cpu", seeds)
    for row in (row for row in rows if row.measure == "test_error_pct"):
        pair = [cell for cell in chosen if cell.method == row.method]
        found = [{seed: record for seed in range(seeds) if (record := store.find(c, "cpu", seed))} for c in pair]
        plain, aligned = map(read_errors, found)
        line = [METHODS[row.method], format_seeds(plain.values()), format_seeds(aligned.values())]
        line.append(format_seeds((plain[seed] - aligned[seed] for seed in plain), signed=True))
        line += [format_seeds(read_mmd2(records).values(), 1, 1) for records in found]
        lines.append(line + [f"{value.mean:.2f}" if value else "" for value in (row.paper_plain, row.paper_aligned)])
    return lines


def build_readings(runs: Runs) -> list[list[str]]:
    """Return what the varied readings of the paper do to aligned training on the digits with 50 labels."""
    lines = [["", "supervised, aligned", "MMD² × 10³", "VAT, aligned", "MMD² × 10³"]]
    for setting in ("", *VARIED):
        line = [f"`{setting}`" if setting else "as it is"]
        for method in ("supervised", "vat"):
            place = f"effects/{setting}/cpu" if setting else "cpu"
            records = find_seeds(runs, f"{place}/digits-demo/{method}-adversarial-50")
            three = {seed: records[seed] for seed in range(3) if seed in records}
            errors, discrepancies = read_errors(three).values(), read_mmd2(three).values()
            line += [format_seeds(errors, 2, 1), f"{mean(discrepancies):.1f}"] if three else ["", ""]
        lines.append(line)
    return lines


def build_second_views(runs: Runs) -> list[list[str]]:
    """Return test errors before and after view n of a step came to depend on the seed, the step and n alone."""
    lines = [["method, aligned", "version 0.1", "version 0.2"]]
    for method in ("pi-model", "mean-teacher"):
        found = [find_seeds(runs, f"second-views/{method}-{version}") for version in ("0.1", "0.2")]
        lines.append([METHODS[method], *(format_seeds(read_errors(records).values(), 2, 1) for records in found)])
    return lines


def build_precisions(runs: Runs) -> list[list[str]]:
    """Return test errors in both precisions, and their difference with its standard error over the pairs."""
    lines = [["", "float32", "bfloat16", "difference"]]
    for about, name in PRECISIONS.items():
        full = read_errors(find_seeds(runs, FLOAT32_ELSEWHERE.get(name, f"bfloat16/{name}-float32")))
        half = read_errors(find_seeds(runs, f"bfloat16/{name}-bfloat16"))
        seeds = sorted(full.keys() & half.keys())
        differences = [half[seed] - full[seed] for seed in seeds]
        numbers = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
        few = 1 < len(seeds) < 10
        values = [[errors[seed] for seed in seeds] for errors in (full, half)]
        error = f" ± {stdev(differences) / math.sqrt(len(seeds)):.2f}" if len(seeds) > 1 else ""
        texts = [format_seeds(of, 2, 1) if few else f"{mean(of):.2f}" for of in values]
        lines.append([f"{about}, {numbers}", *texts, f"{mean(differences):.2f}{error}"])
    return lines


def build_repetitions(runs: Runs) -> list[list[str]]:
    """Return the test errors of runs in float32 that were repeated with a learning rate larger by a millionth."""
    lines = [["", "float32", "repeated"]]
    afda = "bfloat16/svhn-afda-250-quarter-float32"
    first = read_errors(find_seeds(runs, afda))
    for seed, error in read_errors(find_seeds(runs, f"{afda}-again")).items():
        lines.append([f"SVHN, 250 labels, AFDA, 4,000 updates, seed {seed}", f"{first[seed]:.1f}", f"{error:.1f}"])
    before = read_errors(find_seeds(runs, "cpu/svhn-ablation/supervised-250"))[0]
    again = [runs[f"bfloat16/svhn-supervised-250-seed0-again{n}-float32"].result.test_error for n in (1, 2)]
    about = "SVHN, 250 labels, an eighth of the width, supervised-only, 20,000 updates, seed 0"
    return [*lines, [about, f"{before:.1f}", ", ".join(f"{error:.1f}" for error in again if error is not None)]]


SUMMARIES: dict[str, tuple[str, tuple[Callable[[Runs], list[list[str]]], ...]]] = {
    "demo": ("`afda demo`: test error on 500 digits with 50 labels.", (build_demo,)),
    "digits": (
        "`afda reproduce digits --seeds 5`: test error in percent, mean ± sample standard deviation.",
        (build_digits,),
    ),
    "svhn-250-labels": (
        "`afda reproduce table-5 --only labels=250 --seeds 3`: test error in percent, mean and each seed.",
        (lambda runs: build_pairs(runs, "table-5", "labels=250", 3),),
    ),
    "cifar10-1000-labels": (
        "`afda reproduce table-6 --only labels=1000,method=supervised,method=vat --seeds 2`: test error in percent, "
        "mean and each seed.",
        (lambda runs: build_pairs(runs, "table-6", "labels=1000,method=supervised,method=vat", 2),),
    ),
    "readings": (
        "Aligned training on the digits with 50 labels, seeds 0 to 2, one reading of the paper changed at a time: test "
        "error in percent, mean and each seed, and the mean of MMD².",
        (build_readings,),
    ),
    "second-views": (
        "Test error in percent on the digits with 50 labels, mean and each of three seeds. Version 0.2 seeds the "
        "second view of an image otherwise, so these two methods see other views; all other runs are the same bits.",
        (build_second_views,),
    ),
    "precision": (
        "Test error in percent in float32 and bfloat16, mean and, where they are few, each seed; the difference with "
        "its standard error over the pairs. The second table has runs in float32 that were repeated with the learning "
        "rate larger by a millionth (in the last row by one and two millionths).",
        (build_precisions, build_repetitions),
    ),
}
"""The tables that the documentation shows: a sentence and its functions."""


def write_summary(name: str, runs: Runs, out: Path) -> Path:
    """Write one table of the documentation as Markdown."""
    about, builders = SUMMARIES[name]
    tables = [render_markdown(build(runs)) for build in builders]
    path = out / "tables" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "\n".join([f"# {name}\n", f"{about}\n", *tables]).encode())
    return path


def rebuild_quality(out: Path, results: Path = RESULTS) -> list[Path]:
    """Write a page for each file of results of `afda bench quality`, and return the pages."""
    pages = []
    for file in sorted((results / "quality").glob("*.jsonl")):
        path = out / "quality" / "tables" / f"{file.stem}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, render_page(file.stem, read_scores(file)).encode())
        pages.append(path)
    return pages


def rebuild_tables(records: Iterable[RunRecord], out: Path = RESULTS) -> list[Path]:
    """Write every table from the records and from the files of the quality suite, and return the files."""
    runs = {record.path: record for record in records}
    files = [path for command in COMMANDS for path in rebuild_reproduction(command, runs, out)]
    return [*files, *(write_summary(name, runs, out) for name in SUMMARIES), *rebuild_quality(out)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuild every table in this folder from runs.jsonl.")
    parser.add_argument("--add", nargs=2, metavar=("FOLDER", "PREFIX"), help="first add the finished runs below FOLDER")
    given = parser.parse_args()
    if given.add:
        folder, prefix = given.add
        new = [replace(record, path=f"{prefix}/{record.path}") for record in collect_runs(Path(folder))]
        write_evidence(RESULTS / "runs.jsonl", new)
    print(*rebuild_tables(read_evidence(RESULTS / "runs.jsonl")), sep="\n")


if __name__ == "__main__":
    main()
