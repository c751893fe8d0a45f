"""The catalogue: every method, net, alignment, data set and recipe, with one line each."""

from afda.choices import choice, names
from afda.recipes import summaries


def catalogue() -> dict[str, dict[str, str]]:
    shelves = {"methods": "methods", "nets": "nets", "alignments": "align", "data": "data.sets"}
    found = {title: {name: choice(shelf, name).summary() for name in names(shelf)} for title, shelf in shelves.items()}
    found["recipes"] = {
        name: f"{name.removesuffix('-cpu')}, narrow and short: {', '.join(changes)}." if changes else line
        for name, line, changes in summaries()
    }
    return found
