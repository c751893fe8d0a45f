"""The candidates of the automatic choice for a user's own data, from simple to strong."""

from dataclasses import dataclass

from afda.data.images import DataSet
from afda.recipe import Recipe, list_paths
from afda.recipes import AFDA, OWN, recipe


@dataclass(frozen=True)
class Option:
    """A named method with settings; those of parts that its recipe lacks do not count."""

    name: str
    summary: str
    method: str = AFDA
    align: str = "adversarial"
    settings: tuple[str, ...] = ()
    linear: bool = False
    """Whether it is a linear classifier, whatever net the others have."""
    for_uneven_labels: bool = False
    """Whether it differs from the others only if the classes have different numbers of labels."""


LABELS_ALONE = (
    Option("linear", "linear classifier on the labels alone", "supervised", "none", linear=True),
    Option("supervised", "network on the labels alone", "supervised", "none"),
)
WITH_POOL = (
    Option("afda", "AFDA, mean prediction near equal class shares"),
    Option(
        "afda-labelled-shares",
        "AFDA, mean prediction near the class shares of the labels",
        settings=('method.entropy.prior="labelled"',),
        for_uneven_labels=True,
    ),
    Option("vat", "virtual adversarial training", "vat", "none"),
)


def list_candidates(
    data: DataSet, labels: int | None = None, settings: tuple[str, ...] = (), align: str | None = None
) -> list[tuple[str, str, Recipe]]:
    """Return name, summary and recipe of each candidate, those on the labels alone first, preferred ones first.

    `settings` change every recipe that has these fields; a net among them excludes the linear classifier. `align`
    replaces the alignment of those that have one.
    """
    kind = f"{OWN}-vectors" if len(data.train.shape) == 1 else f"{OWN}-images"
    has_pool = bool((data.train.y < 0).any()) or labels is not None
    uneven = has_uneven_labels(data, labels)
    names_net = any(setting.startswith(("net=", "net.")) for setting in settings)
    found = []
    for option in (*LABELS_ALONE, *(WITH_POOL if has_pool else ())):
        if (option.linear and names_net) or (option.for_uneven_labels and not uneven):
            continue
        name = f"{OWN}-linear" if option.linear else kind
        aligned = align if align is not None and option.align != "none" else option.align
        made = recipe(name, data, option.method, aligned, labels)
        wanted = [*option.settings, *(() if option.linear else settings)]
        if option.linear:  # its length and rates are those of a linear classifier
            wanted += [setting for setting in settings if setting.startswith(("seed=", "labels=", "validation="))]
        known = list_paths(made.model_dump())
        found.append((option.name, option.summary, made.with_settings([s for s in wanted if applies(s, known)])))
    return found


def has_uneven_labels(data: DataSet, labels: int | None) -> bool:
    """Return whether the shares of the labels are away from equal ones by a tenth or more, in total variation."""
    if labels is not None:
        return not data.balanced
    counts = data.train.y[data.train.y >= 0].bincount(minlength=len(data.classes)).double()
    return bool((counts / counts.sum() - 1 / len(counts)).abs().sum() / 2 >= 0.1)


def applies(setting: str, known: list[str]) -> bool:
    """Return whether a recipe with these fields has the one that is set; fields that no recipe has are left in."""
    path = setting.partition("=")[0].strip()
    return path in known or not path.startswith(("method.", "align."))
