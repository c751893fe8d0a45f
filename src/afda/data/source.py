"""The plug-in contract of a data set: one file with how it is loaded and the recipes that suit it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from afda.data.images import DataSet
from afda.registry import Plugin

if TYPE_CHECKING:
    from afda.recipe import Recipe


class BuildRecipe(Protocol):
    """A function that makes a recipe; its name is the recipe's, its docstring's first line describes it."""

    __name__: str

    def __call__(self, data: DataSet, method: str, align: str, labels: int | None = None) -> "Recipe": ...


@dataclass(frozen=True)
class NamedRecipe:
    """A recipe that a user can choose by name, and its short profile for a CPU."""

    build: BuildRecipe
    cpu: tuple[str, ...] = ()
    """Settings that the `-cpu` profile changes; without any there is no such profile."""
    method: str | None = None
    """The method if the user names none; None stands for AFDA's."""

    @property
    def name(self) -> str:
        """The name without that of the data set."""
        return self.build.__name__.replace("_", "-")

    @property
    def summary(self) -> str:
        return (self.build.__doc__ or "").strip().split("\n")[0]


class Source(Plugin):
    """A data set known by name.

    A class in a file of `afda/data/sets/`, or one that an installed package registers as an entry point of `afda.data`.
    """

    kind: ClassVar[str] = "data"
    recipes: ClassVar[tuple[NamedRecipe, ...]] = ()
    """Each is called by the names of the data set and of its function, such as svhn-ablation. The first one is the
    default. A set without recipes is trained as a user's own data are."""

    def load(self, folder: Path) -> DataSet:
        """Read the set from `folder`, fetching its files there first if they are missing."""
        raise NotImplementedError

    @classmethod
    def default_recipe(cls, device: str) -> str | None:
        """Return the name of the recipe when the user names none: the first, and on a CPU its short profile."""
        if not cls.recipes:
            return None
        first = cls.recipes[0]
        return f"{cls.name()}-{first.name}" + ("-cpu" if first.cpu and device == "cpu" else "")
