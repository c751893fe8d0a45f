"""The candidates of the automatic choice for a user's own data, from simple to strong."""

from dataclasses import dataclass, replace

from afda.data.images import DataSet
from afda.recipe import Recipe, list_paths
from afda.recipes import AFDA, OWN, recipe
from afda.recipes.own import is_tiny

ESTIMATED_SHARES = "afda-estimated-shares"
"""A candidate whose recipe lacks the class shares of the unlabelled images until they are estimated."""


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

    def without_alignment(self) -> "Option":
        """Return the option without alignment, under a name that says so."""
        name, summary = self.name.replace("afda", "vat+entropy"), self.summary.replace("AFDA", "VAT with entropy")
        return replace(
            self, align="none", name=name.removesuffix("-aligned"), summary=summary.removesuffix(" with alignment")
        )


OF_THE_SPLIT = ("seed=", "labels=", "balanced=", "validation=")
"""Settings of which images are labelled, which are the same for all candidates."""
LABELS_ALONE = (
    Option("linear", "linear classifier on the labels alone", "supervised", "none", linear=True),
    Option("supervised", "network on the labels alone", "supervised", "none"),
)
WITH_POOL = (
    Option(
        ESTIMATED_SHARES,
        "AFDA, mean prediction near the estimated class shares",
        settings=('method.entropy.prior="estimated"', 'shares_by="given"'),
    ),
    Option("afda", "AFDA, mean prediction near equal class shares"),
    Option("vat", "virtual adversarial training", "vat", "none"),
)


PHOTO_LABELS_ALONE = (
    LABELS_ALONE[0],
    Option("supervised", "network on strong views of the labelled images", "strong-labels", "none"),
)
PHOTO_WITH_POOL = (
    Option("fixmatch-aligned", "FixMatch with alignment", "fixmatch+strong-labels"),
    Option("fixmatch", "FixMatch: strong views of unlabelled images", "fixmatch+strong-labels", "none"),
)
"""For images above 16 pixels, where an update with VAT takes more than twice as long on a CPU (docs/experiments.md)."""


def list_candidates(
    data: DataSet,
    labels: int | None = None,
    settings: tuple[str, ...] = (),
    align: str | None = None,
    kind: str | None = None,
) -> list[tuple[str, str, Recipe]]:
    """Return name, summary and recipe of each candidate, those on the labels alone first, preferred ones first.

    `settings` change every recipe that has these fields; a net among them excludes the linear classifier. `align`
    replaces the alignment of those that have one. `kind` is the recipe for such data, by default that for a CPU.
    """
    kind = kind or (f"{OWN}-vectors" if len(data.train.shape) == 1 else f"{OWN}-images")
    are_photos = len(data.train.shape) == 3 and not is_tiny(data)
    alone, with_pool = (PHOTO_LABELS_ALONE, PHOTO_WITH_POOL) if are_photos else (LABELS_ALONE, WITH_POOL)
    names_net = any(setting.startswith(("net=", "net.")) for setting in settings)
    found: list[tuple[str, str, Recipe]] = []
    for listed in (*alone, *with_pool):
        option = listed.without_alignment() if align == "none" and listed.align != "none" else listed
        if option.linear and names_net:
            continue
        aligned = align if align is not None and option.align != "none" else option.align
        made = recipe(f"{OWN}-linear" if option.linear else kind, data, option.method, aligned, labels)
        wanted = [*option.settings, *settings]
        if option.linear:  # its length and rates are those of a linear classifier
            wanted = [setting for setting in settings if setting.startswith(OF_THE_SPLIT)]
        known = list_paths(made.model_dump())
        made = made.with_settings([setting for setting in wanted if applies(setting, known)])
        if made.uses_unlabelled and not len(made.split_of(data).unlabelled):
            continue
        if made not in [other for _, _, other in found]:
            found.append((option.name, option.summary, made))
    return found


def applies(setting: str, known: list[str]) -> bool:
    """Return whether a recipe with these fields has the one that is set; fields that no recipe has are left in."""
    path = setting.partition("=")[0].strip()
    return path in known or not path.startswith(("method.", "align."))
