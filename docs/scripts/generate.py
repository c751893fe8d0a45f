"""Write the generated parts of the reference pages: options, plug-ins and metrics.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; the text around it is written by hand.
`make docs` runs this script, and `tests/test_docs.py` fails if a page is out of date.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer.main

from afda.cli import app
from afda.experiments.catalogue import describe_fields
from afda.recipe import Recipe
from afda.recipes import list_recipes
from afda.registry import KINDS, Metric, Plugin, find_plugin, list_built_in
from afda.training.metrics import LOGGED

REFERENCE = Path(__file__).parents[1] / "reference"
PART = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
UNITS = {"": "", "%": "percent", "share": "percent", "1e-3": "thousandths"}
DIRECTIONS = {"lower": "lower is better", "higher": "higher is better", "none": ""}
HEADINGS = {"methods": "Methods", "align": "Alignments", "nets": "Networks", "data": "Data sets"}


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    for row in (columns, ("---",) * len(columns), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def list_commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its name, those of a group after it."""
    group: Any = typer.main.get_command(app)
    for name, command in sorted(group.commands.items()):
        yield name, command
        for word, inner in sorted(getattr(command, "commands", {}).items()):
            yield f"{name} {word}", inner


def describe_options() -> Iterator[str]:
    """Yield a section with all arguments and options of every command."""
    for name, command in list_commands():
        arguments = [part for part in command.params if part.param_type_name == "argument"]
        options = [part for part in command.params if part.param_type_name != "argument" and not part.hidden]
        yield from ("", f"## afda {name}", "", " ".join((command.help or "").split()), "")
        rows = [(f"`{part.metavar or part.name.upper()}`", part.help or "") for part in arguments]
        for part in options:
            names = ", ".join(f"`{text}`" for text in (*part.opts, *part.secondary_opts))
            known = part.show_default and part.default not in (None, False, (), [], "") and not callable(part.default)
            rows.append((names, (part.help or "") + (f" Default: {part.default}." if known else "")))
        yield from table(("option", "meaning"), rows)


def describe_plugins() -> Iterator[str]:
    """Yield a section for each kind of plug-in, with summary, settings and metrics of each."""
    for kind, heading in HEADINGS.items():
        yield from ("", f"## {heading}")
        for name in sorted(list_built_in(kind)):
            plugin: type[Plugin] = find_plugin(kind, name)
            yield from ("", f"### {name}", "", plugin.summary(), "")
            yield f"File: `src/{plugin.__module__.replace('.', '/')}.py`."
            prefix = {"methods": f"method.{name}.", "nets": "net.", "align": "align."}.get(kind, "")
            if settings := describe_fields(plugin, prefix):
                rows = [(f"`{path}`", text) for path, text in settings.items()]
                yield from ("", *table(("setting", "meaning"), rows))
            if plugin.metrics:
                yield from ("", f"Reports: {', '.join(f'`{metric.name}`' for metric in plugin.metrics)}.")


def describe_recipes() -> Iterator[str]:
    """Yield a table of the named recipes, and one of a recipe's own settings."""
    rows = [
        (
            f"`{name}`",
            f"`{name.removesuffix('-cpu')}` with " + ", ".join(f"`{c}`" for c in one.changes)
            if one.short
            else one.named.summary,
        )
        for name, one in list_recipes().items()
    ]
    yield from ("", *table(("recipe", "contents"), rows), "", "### Settings of every recipe", "")
    yield from table(("setting", "meaning"), [(f"`{path}`", text) for path, text in describe_fields(Recipe).items()])


def list_metrics() -> dict[str, tuple[Metric, list[str]]]:
    """Return every declared metric by name, with the plug-ins that report it."""
    found: dict[str, tuple[Metric, list[str]]] = {metric.name: (metric, []) for metric in LOGGED}
    for kind in KINDS:
        for name in sorted(list_built_in(kind)):
            for metric in find_plugin(kind, name).metrics:
                found.setdefault(metric.name, (metric, []))[1].append(name)
    return found


def describe_metrics() -> Iterator[str]:
    """Yield the table of all declared metrics."""
    yield ""
    yield from table(
        ("name in the log", "label", "meaning", "unit", "direction", "reported by"),
        [
            (
                f"`{metric.name}`",
                metric.label,
                metric.description,
                UNITS[metric.unit],
                DIRECTIONS[metric.direction],
                ", ".join(sorted(set(owners))) or "any training",
            )
            for metric, owners in list_metrics().values()
        ],
    )


PARTS = {
    "options": describe_options,
    "plug-ins": describe_plugins,
    "recipes": describe_recipes,
    "metrics": describe_metrics,
}


def render(page: Path) -> str:
    """Return the text of a page with its generated parts written anew."""
    text = page.read_text(encoding="utf-8")
    return PART.sub(lambda part: part[1] + "\n" + "\n".join(PARTS[part[2]]()).strip("\n") + "\n\n" + part[3], text)


def list_pages() -> list[Path]:
    """Return the pages that have a generated part."""
    return [page for page in sorted(REFERENCE.rglob("*.md")) if PART.search(page.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    for path in list_pages():
        path.write_text(render(path), encoding="utf-8")
