"""A request to train: everything that a user can ask of one training, and the recipe that follows from it."""

import json
import os
import shlex
from dataclasses import dataclass, fields
from pathlib import Path

from afda.data.groups import GROUP_BY
from afda.data.images import DataSet
from afda.errors import UserError, unknown
from afda.machine.runtime import PRECISIONS
from afda.recipe import Recipe
from afda.recipes import recipe as named_recipe

AUTO = "auto"
"""The method that compares several and takes the best."""


@dataclass(frozen=True)
class TrainRequest:
    """What the user asks for; `None` leaves a choice to the recipe, the data or the machine.

    Raises UserError if options contradict each other.
    """

    data: str
    """The name of a data set, or the path of a folder, table or .npz file."""
    labels: int | None = None
    """Keep only this many labels, chosen by the seed."""
    method: str | None = None
    align: str | None = None
    net: str | None = None
    steps: int | None = None
    minutes: float | None = None
    """Train for this long instead of a number of steps."""
    size: int | None = None
    """Side in pixels that images are resized to."""
    group_by: str | None = None
    """Keep the images of a folder that belong together on one side of the split: "folder" groups by sub-folder."""
    seed: int | None = None
    validation: bool | None = None
    """Hold out a validation set."""
    recipe: str | None = None
    """The name of a recipe, or the path of a recipe.json."""
    settings: tuple[str, ...] = ()
    """Changes of the recipe, each `path=value`."""
    more_labels: tuple[Path, ...] = ()
    """Tables with more labels."""
    baseline: bool | None = None
    """Also train on the labelled images alone, to compare."""
    out: Path | None = None
    resume: bool = False
    overwrite: bool = False
    device: str = "auto"
    precision: str = "auto"
    threads: int | None = None
    processes: int | None = None
    no_test: bool = False
    """Do not open the test set."""
    snapshots: bool = False
    """Keep the model at intervals, and test all of them after the last update."""

    def __post_init__(self) -> None:
        if self.snapshots and self.no_test:
            raise UserError("--snapshots are tested after the last update, so --no-test cannot be used with them.")
        if self.resume and self.overwrite:
            raise UserError("--resume continues a run and --overwrite replaces it; choose one of them.")
        if self.minutes is not None and not 0 < self.minutes < float("inf"):
            raise UserError(f"--minutes takes a positive number, not {self.minutes:g}.")
        if self.minutes is not None and (self.steps is not None or self.resume):
            raise UserError(
                "--minutes decides the number of updates, so it cannot be combined with --steps or --resume."
            )
        if self.labels is not None and self.more_labels:
            raise UserError("--more-labels adds to all the labels of the data, so it excludes --labels.")
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        if self.group_by is not None and self.group_by not in GROUP_BY:
            raise unknown("grouping", self.group_by, GROUP_BY)

    def to_arguments(self) -> list[str]:
        """Return the arguments of `afda` that make the same request."""
        words = ["train", os.path.join(".", self.data) if self.data.startswith("-") else self.data]
        for field in fields(self):
            value, option = getattr(self, field.name), "--" + field.name.replace("_", "-")
            if field.name == "data" or value == field.default:
                continue
            if field.name == "settings":
                words += [word for setting in value for word in ("--set", setting)]
            elif field.name == "more_labels":
                words += [word for path in value for word in (option, str(path))]
            elif isinstance(value, bool):
                words.append(option if value else "--no-" + field.name)
            else:
                words += [option, str(value)]
        return words

    def to_resume_command(self, path: Path) -> str:
        """Return the shell command that continues the run in `path`."""
        processes = ["--processes", str(self.processes)] if (self.processes or 1) > 1 else []
        return shlex.join(["afda", "train", self.data, "--out", str(path), "--resume", *processes])

    def make_recipe(self, name: str, data: DataSet) -> Recipe:
        """Return the recipe of this name, or in this file, with everything that the user asked for."""
        return make_recipe(name, data, self.method, self.align, self.labels, self.list_settings())

    def list_settings(self) -> list[str]:
        """Return all that the user asked for about a recipe, but its parts, as settings."""
        options = {
            "labels": self.labels,
            "net": self.net,
            "steps": self.steps,
            "seed": self.seed,
            "validation": self.validation,
        }
        settings = [f"{key}={json.dumps(value)}" for key, value in options.items() if value is not None]
        return [*settings, *self.settings]


def make_recipe(
    name: str,
    data: DataSet,
    method: str | None = None,
    align: str | None = None,
    labels: int | None = None,
    settings: list[str] | None = None,
) -> Recipe:
    """Return the recipe of this name, or in this file, with these parts and settings."""
    settings = settings or []
    if name.endswith(".json") or os.sep in name:
        made = Recipe.read(Path(name))
        named = "+".join(part.name() for part in made.method), "none" if made.align is None else made.align.name()
        parts = zip(("method", "align"), (method, align), named, strict=True)
        # Those that it has already keep their settings in the file.
        changes = [f"{key}={json.dumps(value)}" for key, value, has in parts if value not in (None, has)]
        made = made.with_settings(changes + settings)
    else:
        made = named_recipe(name, data, method, align or "adversarial", labels).with_settings(settings)
    if made.data != data.name:
        raise UserError(
            f"The recipe is for the data set {made.data!r}, not {data.name!r}; set it with --set data={data.name}."
        )
    return made
