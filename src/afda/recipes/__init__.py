"""The named recipes: the paper's experiments at full length, and a shorter `cpu` profile of each.

Each file is about one data set; each function in its `RECIPES` makes a recipe from the data, a method, an alignment and
the number of labels. `DEFAULT_METHODS` names the method of those that are not AFDA, and `CPU` lists what the short
profile of a recipe changes, as settings.
"""

import importlib
import pkgutil
from typing import Any

from afda.data.images import DataSet
from afda.errors import unknown
from afda.recipe import Recipe, paths

AFDA = "vat+entropy"
"""The paper's method on SVHN: virtual adversarial training with entropy, to which alignment is added."""


def shelf() -> dict[str, tuple[Any, Any, bool]]:
    """Every recipe's name with its module, its function and whether it is the cpu profile."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for build in module.RECIPES:
            name = f"{info.name}-{build.__name__}".replace("_", "-")
            found[name] = (module, build, False)
            if build.__name__ in module.CPU:
                found[f"{name}-cpu"] = (module, build, True)
    return found


def recipe(
    name: str, data: DataSet, method: str | None = None, align: str = "adversarial", labels: int | None = None
) -> Recipe:
    """The named recipe with this method (`a+b` adds up two; the recipe's own by default), this alignment (`none` for
    none) and this many labels."""
    known = shelf()
    if name not in known:
        raise unknown("recipe", name, known)
    module, build, short = known[name]
    made = build(data, method or module.DEFAULT_METHODS.get(build.__name__, AFDA), align, labels)
    return made.with_settings(applicable(made, module.CPU[build.__name__])) if short else made


def applicable(made: Recipe, settings: tuple[str, ...]) -> list[str]:
    """Those settings that are about parts this recipe has; `with vat: steps=5` is one for that method only."""
    methods, known = {m.name() for m in made.method}, paths(made.model_dump())
    chosen = []
    for setting in settings:
        condition, _, plain = setting.rpartition(": ")
        if condition and condition.removeprefix("with ") not in methods:
            continue
        if not plain.startswith(("method.", "align.")) or plain.partition("=")[0] in known:
            chosen.append(plain)
    return chosen


def summaries() -> list[tuple[str, str, tuple[str, ...]]]:
    """Name, one line, and what the cpu profile changes, of every recipe."""
    rows = []
    for name, (module, build, short) in shelf().items():
        changes = lasting(module.CPU[build.__name__]) if short else ()
        rows.append((name, build.__doc__.strip().splitlines()[0], changes))
    return rows


def lasting(settings: tuple[str, ...]) -> tuple[str, ...]:
    """Those settings that no later one takes back."""
    kept: dict[str, str] = {}
    for setting in settings:
        place = setting.partition("=")[0]
        kept = {known: text for known, text in kept.items() if known.rpartition(": ")[2] != place} | {place: setting}
    return tuple(kept.values())


def methods(names: str, **fields: dict[str, Any]) -> list[dict[str, Any]]:
    """`a+b` as method values, with the fields that the recipe gives those it mentions."""
    return [{"name": name, **fields.get(name.replace("-", "_"), {})} for name in names.split("+")]


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
small batches, a large learning rate and a smaller one for d, chosen on validation images of SVHN (docs/experiments.md),
but for the number of unlabelled images, which is for speed."""

CONSISTENCY = {"weight": 50.0, "ramp": 0.3}
TEACHER = {**CONSISTENCY, "decay": 0.99}
"""The Pi-model's and Mean Teacher's settings in short trainings, where averaging over 1,000 updates is too long."""


def of_all_that_pass(method: str, align: str) -> str:
    """BatchNorm's statistics: of both kinds of images, unless only the labelled ones pass."""
    return "labelled" if (method, align) == ("supervised", "none") else "both"


def of_data(data: DataSet, **fields: Any) -> Recipe:
    """A recipe with the data set's own name, preparation and way of drawing labels, unless told otherwise."""
    known = {"data": data.name, "preparation": data.preparation.model_dump(), "balanced": data.balanced}
    return Recipe.of({**known, **fields})
