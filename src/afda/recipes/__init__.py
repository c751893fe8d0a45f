"""Recipes by name: those that data sets bring, and those for a user's own data.

A data set's recipes are in its own file (`NamedRecipe` in `afda.data.source`). Here they are found by name, with the
values and functions that several of them share.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from afda.data.images import DataSet
from afda.data.source import NamedRecipe, Source
from afda.errors import UserError, unknown
from afda.recipe import Recipe, list_paths
from afda.registry import find_plugin, list_names

AFDA = "vat+entropy"
"""The paper's method on SVHN: virtual adversarial training with entropy, to which alignment is added."""
OWN = "own"
"""The prefix of the recipes for a user's own data."""
CPU = "-cpu"
"""The suffix of short profiles."""

SHORT = (
    "net.momentum=0.05",
    "steps=20000",
    "labelled_batch=16",
    "unlabelled_batch=16",
    "optimisation.learning_rate=0.01",
    "with vat: optimisation.learning_rate=0.003",
    'optimisation.schedule="linear-tail"',
    "optimisation.tail=0.3333333333333333",
    "align.learning_rate=0.001",
    'method.vat.on="unlabelled"',
    "method.pi-model.weight=10",
    "method.pi-model.ramp=0.3",
    "method.mean-teacher.weight=10",
    "method.mean-teacher.ramp=0.3",
    "method.mean-teacher.decay=0.99",
)
"""What the cpu profiles of the paper's ablation change besides the width: a shorter schedule for all methods alike,
small batches, a large learning rate and a smaller one for d. They were chosen on validation images of SVHN
(docs/experiments.md), except the number of unlabelled images, which is for speed."""

CONSISTENCY = {"weight": 50.0, "ramp": 0.3}
TEACHER = {**CONSISTENCY, "decay": 0.99}
"""Settings of the Pi-model and Mean Teacher in short trainings, where averaging over 1,000 updates is too long."""
STRONG = {"window": 0.1}
"""FixMatch's: its average covers the last tenth of the updates so far, so that it suits a training of any length."""


@dataclass(frozen=True)
class Listed:
    """A recipe that was found, and whether its short profile is meant."""

    named: NamedRecipe
    short: bool = False

    @property
    def changes(self) -> tuple[str, ...]:
        """The settings that the short profile changes."""
        return drop_overridden(self.named.cpu) if self.short else ()


def list_recipes() -> dict[str, Listed]:
    """Return all recipes by name."""
    found: dict[str, Listed] = {}
    for name in (*list_names("data"), OWN):
        with contextlib.suppress(UserError):  # of a package that fails
            found |= dict(list_recipes_of(name))
    return {name: found[name] for name in sorted(found)}


def list_recipes_of(data: str) -> Iterator[tuple[str, Listed]]:
    """Yield the recipes of a data set with their names."""
    from afda.recipes import own

    for named in own.RECIPES if data == OWN else find_source(data).recipes:
        name = f"{data}-{named.name}"
        yield name, Listed(named)
        if named.cpu:
            yield name + CPU, Listed(named, short=True)


def find_source(name: str) -> type[Source]:
    """Return the class of a data set."""
    found = find_plugin("data", name)
    assert issubclass(found, Source)
    return found


def recipe(
    name: str, data: DataSet, method: str | None = None, align: str = "adversarial", labels: int | None = None
) -> Recipe:
    """Return the named recipe with a method (`a+b` adds up two), an alignment (or `none`) and a number of labels.

    `afda` stands for the methods that the paper's AFDA adds alignment to.
    """
    # Only data sets that can have this recipe are imported, so that a broken package does not harm the others.
    fitting = (one for one in (*list_names("data"), OWN) if name.startswith(f"{one}-"))
    found = {key: listed for one in fitting for key, listed in list_recipes_of(one)}.get(name)
    if found is None:
        raise unknown("recipe", name, list_recipes())
    method = AFDA if method == "afda" else method
    made = found.named.build(data, method or found.named.method or AFDA, align, labels)
    return made.with_settings(select_applicable(made, found.named.cpu)) if found.short else made


def choose_default_recipe(data: DataSet, device: str) -> str:
    """Return the name of the recipe for data when the user names none; a data set's own choice comes first."""
    if data.source in list_names("data") and (chosen := find_source(data.source).default_recipe(device)):
        return chosen
    if len(data.train.shape) == 1:
        return f"{OWN}-vectors"
    from afda.recipes.own import is_tiny

    return f"{OWN}-images" if device == "cpu" or is_tiny(data) else f"{OWN}-images-gpu"


def select_applicable(made: Recipe, settings: tuple[str, ...]) -> list[str]:
    """Return the settings of parts that this recipe has; `with vat: steps=5` is one for that method only."""
    methods, known = {m.name() for m in made.method}, list_paths(made.model_dump())
    chosen = []
    for setting in settings:
        condition, _, plain = setting.rpartition(": ")
        if condition and condition.removeprefix("with ") not in methods:
            continue
        if not plain.startswith(("method.", "align.")) or plain.partition("=")[0] in known:
            chosen.append(plain)
    return chosen


def drop_overridden(settings: tuple[str, ...]) -> tuple[str, ...]:
    """Return the settings without those that a later one replaces."""
    kept: dict[str, str] = {}
    for setting in settings:
        place = setting.partition("=")[0]
        kept = {known: text for known, text in kept.items() if known.rpartition(": ")[2] != place} | {place: setting}
    return tuple(kept.values())


def choose_methods(names: str, **fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Return `a+b` as method values, with the fields that the recipe gives those it mentions."""
    return [{"name": name, **fields.get(name.replace("-", "_"), {})} for name in names.split("+")]


def choose_statistics(method: str, align: str) -> str:
    """Return whose statistics BatchNorm keeps: both kinds of images, unless only the labelled ones pass."""
    methods = [find_plugin("methods", name) for name in method.split("+")]
    uses_unlabelled = align != "none" or any(getattr(one, "uses_unlabelled", True) for one in methods)
    return "both" if uses_unlabelled else "labelled"


def build_recipe(data: DataSet, **fields: Any) -> Recipe:
    """Return a recipe with the data set's name, preparation and way of drawing labels, unless `fields` has others."""
    known = {"data": data.name, "preparation": data.preparation.model_dump(), "balanced": data.balanced}
    return Recipe.of({**known, **fields})
