"""Compare rules for the automatic choice on tuning seeds: `python results/selection_rules.py`.

`selection-rules.jsonl` has the cross-validated mistakes of each candidate and its test error, for eight tuning sets of
`afda bench quality` and the seeds 103 and 104. A rule sees the mistakes only. Harm is the test error of what it takes
minus that of the better of supervised-only and logistic regression, in mean over the seeds of a cell.
"""

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

FILE = Path(__file__).with_name("selection-rules.jsonl")


def compare(first: dict, second: dict) -> tuple[float, float]:
    """Return by how much the first's cross-validated error exceeds the second's, and the standard error of that."""
    both = sorted(first["mistakes"].keys() & second["mistakes"].keys())
    differences = [first["mistakes"][row] - second["mistakes"][row] for row in both]
    return mean(differences), stdev(differences) / len(differences) ** 0.5


def find_best(candidates: list[dict], margin: float) -> dict:
    """Return the first candidate, or a later one that is better by more than `margin` standard errors."""
    most = max(len(one["mistakes"]) for one in candidates)
    best = None
    for one in (one for one in candidates if len(one["mistakes"]) == most):
        if best is None or (found := compare(best, one))[0] > margin * found[1]:
            best = one
    assert best is not None
    return best


def choose(cell: dict, rule: str) -> dict:
    """Return the candidate that a rule takes."""
    alone, pool = ([one for one in cell["candidates"] if one["uses_unlabelled"] == kind] for kind in (False, True))
    few = max(len(one["mistakes"]) for one in cell["candidates"]) < 50
    simple, strong = find_best(alone, 0), find_best(pool, 1 if few or rule == "simpler" else 0)
    excess, noise = compare(simple, strong)
    threshold = {"simpler": noise, "lower": 0, "afda": -noise, "adopted": -noise if few else 0}[rule]
    return strong if excess > threshold or (rule != "simpler" and few and excess == threshold) else simple


def main() -> None:
    cells = defaultdict(list)
    for line in FILE.read_text(encoding="utf-8").splitlines():
        cell = json.loads(line)
        cells[cell["set"], cell["labels_per_class"]].append(cell)
    for rule in ("simpler", "lower", "afda", "adopted"):
        harms, ratios = {}, []
        for key, seeds in cells.items():
            ours = mean(choose(cell, rule)["test_error"] for cell in seeds)
            supervised = mean(
                next(c for c in cell["candidates"] if c["name"] == "supervised")["test_error"] for cell in seeds
            )
            harms[key] = ours - min(supervised, mean(cell["logistic"] for cell in seeds))
            ratios.append(ours / supervised - 1)
        worst = max(harms, key=lambda key: harms[key])
        print(
            f"| {rule} | {mean(harms.values()):+.1f} | {harms[worst]:+.1f} ({worst[0]}, {worst[1]} labels) | "
            f"{100 * mean(ratios):+.0f} % |"
        )


if __name__ == "__main__":
    main()
