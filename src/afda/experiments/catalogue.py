"""List everything that can be chosen by name, with one line each."""

import contextlib
from typing import Literal, get_args, get_origin

from afda.errors import UserError
from afda.experiments.cells import EXPERIMENTS
from afda.recipe import Recipe
from afda.recipes import list_recipes
from afda.registry import Plugin, Value, find_plugin, list_names

PLUGINS = {"methods": "methods", "nets": "nets", "alignments": "align", "data": "data"}
"""The kind of plug-in behind each list."""


def list_choices() -> dict[str, dict[str, str]]:
    """Return methods, nets, alignments, data sets, recipes, settings and tables by name, with one line each."""
    choices = {title: {name: summarise(kind, name) for name in list_names(kind)} for title, kind in PLUGINS.items()}
    choices["recipes"] = {
        name: f"{name.removesuffix('-cpu')}, narrow and short: {', '.join(one.changes)}."
        if one.short
        else one.named.summary
        for name, one in list_recipes().items()
    }
    choices["settings"] = list_settings()
    choices["tables"] = {name: f"{title}." for name, (title, _) in EXPERIMENTS.items()}
    return choices


def summarise(kind: str, name: str) -> str:
    """Return the line of a plug-in, or why the package that brings it fails."""
    try:
        return find_plugin(kind, name).summary()
    except UserError as error:
        return str(error)


def list_working(kind: str) -> list[tuple[str, type[Plugin]]]:
    """Return the plug-ins of a kind by name, without those whose package fails."""
    found = []
    for name in list_names(kind):
        with contextlib.suppress(UserError):
            found.append((name, find_plugin(kind, name)))
    return found


def list_settings() -> dict[str, str]:
    """Return the paths that `--set` accepts, with the meaning and default of each.

    A recipe has the fields of its own net, methods and alignment.
    """
    found = {path: [line] for path, line in describe_fields(Recipe).items()}
    for name, method in list_working("methods"):
        described = describe_fields(method, f"method.{name}.")
        found |= {path: [line] for path, line in described.items()}
    for kind, prefix in (("nets", "net."), ("align", "align.")):
        owners: dict[tuple[str, str], list[str]] = {}
        for name, plugin in list_working(kind):
            for field in describe_fields(plugin, prefix).items():
                owners.setdefault(field, []).append(name)
        for (path, line), names in owners.items():
            found.setdefault(path, []).append(f"{', '.join(names)}: {line}")
    return {path: "; ".join(lines) for path, lines in found.items()}


def describe_fields(kind: type[Value], prefix: str = "") -> dict[str, str]:
    """Return the dotted paths of a value's fields, with their meaning, possible values and default."""
    found: dict[str, str] = {}
    for name, field in kind.model_fields.items():
        within = field.annotation
        if isinstance(within, type) and issubclass(within, Value) and not issubclass(within, Plugin):
            found |= describe_fields(within, f"{prefix}{name}.")
            continue
        choices = " or ".join(map(str, get_args(within))) if get_origin(within) is Literal else ""
        default = field.default if not isinstance(field.default, float) else f"{field.default:g}"
        default = "" if field.is_required() or default is None else f"{default} if unset"
        more = "; ".join(filter(None, (choices, default)))
        found[prefix + name] = (field.description or name) + (f" ({more})" if more else "")
    return found
