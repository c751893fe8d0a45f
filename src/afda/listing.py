"""The catalogue: every method, net, alignment, data set, recipe, setting, table and figure, with one line each."""

from typing import Literal, get_args, get_origin

from afda.choices import Choice, Value, choice, names
from afda.recipe import Recipe
from afda.recipes import summaries
from afda.reproduce import EXPERIMENTS

SHELVES = {"methods": "methods", "nets": "nets", "alignments": "align", "data": "data.sets"}


def catalogue() -> dict[str, dict[str, str]]:
    found = {title: {name: choice(shelf, name).summary() for name in names(shelf)} for title, shelf in SHELVES.items()}
    found["recipes"] = {
        name: f"{name.removesuffix('-cpu')}, narrow and short: {', '.join(changes)}." if changes else line
        for name, line, changes in summaries()
    }
    found["settings"] = settings()
    found["tables"] = {name: f"{title}." for name, (title, _) in EXPERIMENTS.items()}
    return found


def settings() -> dict[str, str]:
    """What `--set` can change: every field of a recipe and of its parts, and what it is where a recipe does not say. A
    recipe has the fields of its own net, methods and alignment."""
    found = {path: [line] for path, line in fields(Recipe).items()}
    for name in names("methods"):
        found |= {path: [line] for path, line in fields(choice("methods", name), f"method.{name}.").items()}
    for shelf, prefix in (("nets", "net."), ("align", "align.")):
        owners: dict[tuple[str, str], list[str]] = {}
        for name in names(shelf):
            for field in fields(choice(shelf, name), prefix).items():
                owners.setdefault(field, []).append(name)
        for (path, line), of in owners.items():
            found.setdefault(path, []).append(f"{', '.join(of)}: {line}")
    return {path: "; ".join(lines) for path, lines in found.items()}


def fields(kind: type[Value], prefix: str = "") -> dict[str, str]:
    """The dotted paths of a value's fields, and what there is to say of each."""
    found: dict[str, str] = {}
    for name, field in kind.model_fields.items():
        within = field.annotation
        if isinstance(within, type) and issubclass(within, Value) and not issubclass(within, Choice):
            found |= fields(within, f"{prefix}{name}.")
            continue
        can_be = " or ".join(map(str, get_args(within))) if get_origin(within) is Literal else ""
        default = field.default if not isinstance(field.default, float) else f"{field.default:g}"
        default = "" if field.is_required() or default is None else f"{default} if unset"
        more = "; ".join(filter(None, (can_be, default)))
        found[prefix + name] = (field.description or name) + (f" ({more})" if more else "")
    return found
