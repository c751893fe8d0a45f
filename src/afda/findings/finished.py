"""Finished runs with their data and models, as far as they are still there."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from afda.data import load_again
from afda.data.images import DataSet, Images
from afda.data.split import Split
from afda.errors import UserError
from afda.inference import Model, load_model
from afda.recipe import Recipe
from afda.results import validation_images
from afda.runs import BASELINE, Run


@dataclass
class Finished:
    """A finished run with its data and model, as far as they are still there, and the model's answers."""

    run: Run
    recipe: Recipe
    result: dict[str, Any]
    environment: dict[str, Any]
    data: DataSet | None = None
    model: Model | None = None
    missing: list[str] = field(default_factory=list)
    scored: Images | None = None
    """The images that its error is of."""
    logits: torch.Tensor | None = None
    """The model's for those."""

    @property
    def name(self) -> str:
        """That of its directory; a companion's with the directory that it lies in."""
        path = self.run.path.resolve()
        return f"{path.parent.name}/{path.name}" if path.name == BASELINE else path.name

    @property
    def part(self) -> str | None:
        """Which images its error is of: test images, or validation images if no test set was opened."""
        return next((part for part in ("test", "validation") if self.result.get(part)), None)

    @property
    def supervised_only(self) -> bool:
        return not self.recipe.uses_unlabelled

    @property
    def words(self) -> str:
        """Its method in words."""
        methods = "+".join(m.name() for m in self.recipe.method)
        if self.recipe.align is None:
            return BASELINE if self.supervised_only else methods
        return f"{methods} with {self.recipe.align.name()} alignment"

    @property
    def same_labels(self) -> tuple[Any, ...]:
        """What two runs have in common that were trained with the same labels of the same images."""
        recipe = self.recipe
        files = tuple(sorted(self.environment.get("data", {}).items()))
        return recipe.data, files, recipe.labels, recipe.balanced, recipe.validation, recipe.seed

    @property
    def but_for_the_seed(self) -> str:
        return self.recipe.model_copy(update={"seed": 0}).to_json() + str(self.environment.get("data"))


def finished_runs(paths: Sequence[Path]) -> list[Finished]:
    """The runs in these directories, each once, and the supervised-only runs inside them."""
    inside = [path / BASELINE for path in paths if (path / BASELINE / "result.json").exists()]
    found: dict[Path, Finished] = {}
    for path in [*paths, *inside]:
        run = Run(path)
        if not path.is_dir():
            raise UserError(f"There is no directory {path}; give the directory of a finished run.")
        if (path / "recipe.json").exists() and not run.finished:
            raise UserError(
                f"The run in {path} is not finished; continue it with: afda train DATA --out {path} --resume."
            )
        result = run.result()
        found.setdefault(path.resolve(), Finished(run, run.recipe(), result, run.read_json("environment.json")))
    return list(found.values())


def unique(names: list[str]) -> list[str]:
    """The names, those that come again with a number."""
    return [n if names.count(n) == 1 else f"{n} ({names[: i + 1].count(n)})" for i, n in enumerate(names)]


def complete(one: Finished, loaded: dict[str, DataSet | str]) -> None:
    """Look for the run's data and model; what is not there any more is said in `missing`."""
    source = str(one.environment.get("source", ""))
    key = str((source, one.environment.get("shape"), one.environment.get("more_labels")))
    if key not in loaded:
        try:
            loaded[key] = load_again(one.environment)
        except (UserError, OSError) as error:
            loaded[key] = str(error)
    data = loaded[key]
    if isinstance(data, str):
        one.missing.append(f"The data cannot be read, so there are no pictures and no predictions: {data}")
    elif data.files != one.environment.get("data"):
        one.missing.append("The data have changed since the training, so there are no pictures and no predictions.")
    elif one.part is not None and list(one.result[one.part]["class_errors"]) != list(data.classes):
        one.missing.append("The result has other classes than the data, so there are no pictures and no predictions.")
    elif not (one.run.path / "split.json").exists():
        one.missing.append("The run has no split.json, so there are no pictures and no predictions.")
    else:
        one.data = data
    if not (one.run.path / "model.safetensors").exists():
        one.missing.append("The run has no model.safetensors, so there are no predictions and no map.")
    elif one.data is not None:
        try:
            model, shape = load_model(one.run.path)
            if (model.classes, shape) != (one.data.classes, one.data.train.shape):
                raise UserError(f"The model in {one.run.path} is for other data.")
            one.model = model
        except UserError as error:
            one.missing.append(f"{error} There are no predictions and no map.")
    if one.data is not None and one.part is not None:
        one.scored = one.data.test if one.part == "test" else validation_images(one.data, split_of(one))


def split_of(one: Finished) -> Split:
    """The run's split; the unlabelled images are those that are in neither list."""
    lists = one.run.read_json("split.json")
    labelled, validation = (np.array(lists[k], dtype=np.int64) for k in ("labelled", "validation"))
    others = np.arange(len(one.data.train) if one.data is not None else 0)
    if one.data is not None and not np.isin(np.concatenate([labelled, validation]), others).all():
        raise UserError(f"{one.run.path / 'split.json'} names images that {one.data.name} does not have.")
    return Split(labelled, np.setdiff1d(others, np.concatenate([labelled, validation])), validation)
