"""Finished runs with their data, models and predictions, as far as these can still be loaded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from afda.data.images import DataSet, Images
from afda.data.split import Split
from afda.errors import UserError
from afda.machine.runtime import Runtime
from afda.recipe import Recipe
from afda.runs.directory import BASELINE, Run
from afda.runs.evaluate import load_data
from afda.runs.log import LogLine
from afda.runs.model import Model, compute_outputs, load_model
from afda.runs.results import select_validation
from afda.runs.schemas import Environment, Result, Scores
from afda.runs.selection import Selection


@dataclass(frozen=True)
class Predictions:
    """Logits for the images that a run's error is measured on."""

    images: Images
    logits: Tensor
    part: str
    """The part of the data that they belong to: train, val or test."""
    rows: np.ndarray
    """The row of each in that part."""

    @property
    def misclassified(self) -> list[int]:
        """The indices of the images that are misclassified."""
        return torch.nonzero(self.logits.argmax(dim=1) != self.images.y).flatten().tolist()


@dataclass(frozen=True)
class LoadedRun:
    """A finished run: its files and, where they can be loaded, its data, model and predictions."""

    path: Path
    recipe: Recipe
    result: Result
    environment: Environment
    log: list[LogLine]
    selection: Selection | None = None
    """The candidates that it was chosen from, or compared with."""
    data: DataSet | None = None
    split: Split | None = None
    model: Model | None = None
    predictions: Predictions | None = None
    problems: tuple[str, ...] = ()
    """Why something could not be loaded, one sentence each."""

    @property
    def name(self) -> str:
        """The name of its directory; for a baseline, also that of the directory around it."""
        path = self.path.resolve()
        return f"{path.parent.name}/{path.name}" if path.name == BASELINE else path.name

    @property
    def scores(self) -> Scores | None:
        """Its errors on test images, else on validation images, else by cross-validation on the labelled ones."""
        return self.result.scores

    @property
    def supervised_only(self) -> bool:
        """Whether it is trained on the labelled images alone."""
        return not self.recipe.uses_unlabelled

    @property
    def method(self) -> str:
        """Its method and alignment in words."""
        methods = "+".join(m.name() for m in self.recipe.method)
        if self.recipe.align is None:
            return BASELINE if self.supervised_only else methods
        return f"{methods} with {self.recipe.align.name()} alignment"

    @property
    def labels_key(self) -> tuple[Any, ...]:
        """A value that runs share if they are trained with the same labels of the same images."""
        recipe = self.recipe
        files = tuple(sorted((self.environment.data or {}).items()))
        return recipe.data, files, recipe.labels, recipe.balanced, recipe.validation, recipe.seed

    @property
    def seeds_key(self) -> str:
        """A value that runs share if they differ in nothing but the seed."""
        return self.recipe.model_copy(update={"seed": 0}).to_json() + str(self.environment.data)


def load_runs(
    paths: Sequence[Path], runtime: Runtime, progress: Callable[[str], None] = lambda _: None
) -> list[LoadedRun]:
    """Load the runs in these directories and the baselines inside them, each once."""
    data_sets: dict[str, DataSet | str] = {}
    runs = []
    for run in read_runs(paths):
        progress(f"loading {run.name}")
        loaded = load_model_of(load_data_of(run, data_sets), runtime)
        progress(f"predicting with {run.name}")
        runs.append(predict(loaded, runtime))
    return runs


def read_runs(paths: Sequence[Path]) -> list[LoadedRun]:
    """Read the files of the runs in these directories and of the baselines inside them, each once."""
    baselines = [path / BASELINE for path in paths if (path / BASELINE / "result.json").exists()]
    return list({path.resolve(): read_run(path) for path in reversed([*paths, *baselines])}.values())[::-1]


def read_run(path: Path) -> LoadedRun:
    """Read the files of one finished run."""
    run = Run(path)
    if not path.is_dir():
        raise UserError(f"There is no directory {path}; give the directory of a finished run.")
    if (path / "recipe.json").exists() and not run.finished:
        raise UserError(f"The run in {path} is not finished; continue it with: afda train DATA --out {path} --resume.")
    return LoadedRun(
        path,
        recipe=run.read_recipe(),
        result=run.read_result(),
        environment=run.read_environment(),
        log=run.log.read(),
        selection=run.read_selection(),
    )


def load_data_of(run: LoadedRun, data_sets: dict[str, DataSet | str]) -> LoadedRun:
    """Return the run with its data and split, or with the reason why not.

    `data_sets` caches what is loaded, or why it cannot be.
    """
    environment = run.environment
    options = environment.more_labels, environment.group_by, environment.load_rules
    key = str((environment.source, environment.shape, options))
    if key not in data_sets:
        try:
            data_sets[key] = load_data(environment)
        except (UserError, OSError) as error:
            data_sets[key] = str(error)
    data = data_sets[key]
    if isinstance(data, str):
        return add_problem(run, f"The data cannot be read, so there are no pictures and no predictions: {data}")
    if data.files != environment.data:
        return add_problem(run, "The data have changed since training, so there are no pictures and no predictions.")
    if run.scores is not None and list(run.scores.class_errors) != list(data.classes):
        return add_problem(
            run, "The result has other classes than the data, so there are no pictures and no predictions."
        )
    if not (run.path / "split.json").exists():
        return add_problem(run, "The run has no split.json, so there are no pictures and no predictions.")
    return replace(run, data=data, split=read_split(run.path, data))


def read_split(path: Path, data: DataSet) -> Split:
    """Read a run's split; the unlabelled images are those that are in neither of its lists."""
    indices = Run(path).read_split()
    labelled, validation = (np.array(rows, dtype=np.int64) for rows in (indices.labelled, indices.validation))
    rows, known = np.arange(len(data.train)), np.concatenate([labelled, validation])
    if not np.isin(known, rows).all():
        raise UserError(f"{path / 'split.json'} names images that {data.name} does not have.")
    return Split(labelled, np.setdiff1d(rows, known), validation)


def load_model_of(run: LoadedRun, runtime: Runtime) -> LoadedRun:
    """Return the run with its model on the device, or with the reason why not."""
    if not (run.path / "model.safetensors").exists():
        return add_problem(run, "The run has no model.safetensors, so there are no predictions and no embedding.")
    if run.data is None:
        return run
    try:
        model, shape = load_model(run.path)
        if (model.classes, shape) != (run.data.classes, run.data.train.shape):
            raise UserError(f"The model in {run.path} is for other data.")
    except UserError as error:
        return add_problem(run, f"{error} There are no predictions and no embedding.")
    runtime.place(model)
    return replace(run, model=model)


def predict(run: LoadedRun, runtime: Runtime) -> LoadedRun:
    """Return the run with predictions for the images that its error is measured on.

    They are its model's, or for a cross-validated error those of the trainings without the labels of these images.
    """
    if run.model is None or run.data is None or run.split is None or run.scores is None:
        return run
    if run.result.part == "cross-validation":
        return collect_held_out(run)
    images = run.data.test if run.result.part == "test" else select_validation(run.data, run.split)
    if images is None:
        return run
    held_out = run.result.part == "validation" and len(run.split.validation) > 0
    predictions = Predictions(
        images,
        compute_outputs(run.model, images.x, runtime).logits,
        part="test" if run.result.part == "test" else "train" if held_out else "val",
        rows=run.split.validation if held_out else np.arange(len(images)),
    )
    if run.scores.misclassified is None:  # a run of version 0.1
        scores = run.scores.model_copy(update={"misclassified": predictions.misclassified})
        run = replace(run, result=run.result.model_copy(update={str(run.result.part): scores}))
    return replace(run, predictions=predictions)


def collect_held_out(run: LoadedRun) -> LoadedRun:
    """Return the run with the predictions of its selection for labelled images, or with the reason why not."""
    assert run.data is not None
    held_out = None if run.selection is None else run.selection.collect_held_out()
    if run.selection is None or held_out is None:
        return add_problem(run, "The run has no held-out predictions in selection.json, so there are no mistakes.")
    (logits, y), rows = held_out, torch.tensor(run.selection.held_out_rows)
    fits = int(rows.max()) < len(run.data.train) and logits.shape[1] == len(run.data.classes)
    if not fits or not torch.equal(run.data.train.y[rows], y):
        return add_problem(run, "The selection.json of the run is for other data, so there are no mistakes.")
    return replace(run, predictions=Predictions(run.data.train[rows], logits, part="train", rows=rows.numpy()))


def add_problem(run: LoadedRun, problem: str) -> LoadedRun:
    """Return the run with one more problem."""
    return replace(run, problems=(*run.problems, problem))
