"""The catalogue: every method, net, alignment, data set, recipe, table and figure, with one line each."""

from afda.choices import choice, names
from afda.recipes import summaries
from afda.reproduce import EXPERIMENTS


def catalogue() -> dict[str, dict[str, str]]:
    shelves = {"methods": "methods", "nets": "nets", "alignments": "align", "data": "data.sets"}
    found = {title: {name: choice(shelf, name).summary() for name in names(shelf)} for title, shelf in shelves.items()}
    found["recipes"] = {
        name: f"{name.removesuffix('-cpu')}, narrow and short: {', '.join(changes)}." if changes else line
        for name, line, changes in summaries()
    }
    found["tables"] = {name: f"{title}." for name, (title, _) in EXPERIMENTS.items()}
    return found
