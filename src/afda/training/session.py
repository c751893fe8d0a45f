"""A training session: from what a user asks for to a finished run, with its baseline, on one or several processes."""

import os.path
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from afda import recipes
from afda.data import load
from afda.data.images import DataSet
from afda.errors import UserError
from afda.machine import launch
from afda.machine.group import Group
from afda.machine.runtime import Runtime, select_runtime
from afda.recipe import Recipe
from afda.recipes import choose_default_recipe
from afda.runs.directory import BASELINE, Run
from afda.runs.log import LogLine
from afda.runs.schemas import Environment, Result
from afda.runs.verdict import describe_comparison
from afda.training.baseline import is_baseline_useful, make_baseline, should_train_baseline
from afda.training.budget import fit_steps
from afda.training.request import TrainRequest
from afda.training.run import train
from afda.training.state import Training


@dataclass(frozen=True)
class TrainingStart:
    """A training that begins or continues."""

    recipe: Recipe
    step: int
    """Updates done before."""
    is_baseline: bool
    notes: tuple[str, ...]
    """What the user should know, one sentence each."""


@dataclass(frozen=True)
class TrainCallbacks:
    """What is called as a session goes on; all but `on_ready` in the first process only."""

    on_ready: Callable[[], None] = lambda: None
    """Before the first update, when the data are loaded and everything is decided."""
    on_decode: Callable[[int, int], None] | None = None
    """With the number of image files that are decoded, and of all."""
    on_start: Callable[[TrainingStart], None] = lambda _: None
    on_log: Callable[[LogLine], None] = lambda _: None
    """With each line of the log."""


@dataclass(frozen=True)
class TrainOutcome:
    """A finished run, beside its baseline if there is one."""

    path: Path
    recipe: Recipe
    result: Result
    baseline: Result | None
    """The result of the baseline."""
    verdict: str | None
    """Whether the unlabelled images helped, if there is a baseline."""
    was_finished: bool
    """True if the run was finished before, so that nothing was trained."""

    def to_json(self) -> dict[str, Any]:
        """Return what `afda train --json` prints."""
        found = {"run": str(self.path), **self.result.to_dict()}
        if self.baseline is not None:
            found["baseline"] = self.baseline.model_dump(include={"test_error", "val_error", "mmd2", "seconds"})
            found["verdict"] = self.verdict
        return found


class TrainingStopped(KeyboardInterrupt):
    """A training was stopped and can be resumed."""


def run_training(
    request: TrainRequest, *, callbacks: TrainCallbacks | None = None, stop: threading.Event | None = None
) -> TrainOutcome | None:
    """Train what is asked for and return the outcome, or None in all processes but the first.

    When `stop` is set, the state is saved and TrainingStopped raised. Raises UserError for a mistake in the request and
    RunFailed for a training that failed.
    """
    session = Session.open(request, callbacks or TrainCallbacks())
    session.train(stop or threading.Event())
    return session.summarise() if session.role.rank == 0 else None


@dataclass(frozen=True)
class Session:
    """A request with everything that it leaves open decided."""

    request: TrainRequest
    callbacks: TrainCallbacks
    role: launch.Role
    data: DataSet
    runtime: Runtime
    recipe: Recipe
    recipe_name: str | None
    """The named recipe that was chosen; None for a run that is continued."""
    path: Path
    has_baseline: bool
    was_finished: bool

    @classmethod
    def open(cls, request: TrainRequest, callbacks: TrainCallbacks) -> "Session":
        """Load the data and decide on recipe, directory, baseline and number of steps."""
        started = time.monotonic()
        role = launch.detect_role(request.processes, request.minutes is not None)
        if role.rank > 0:
            callbacks = TrainCallbacks(on_ready=callbacks.on_ready)
        begun = find_begun_run(request)
        request = restore_options(request, begun, keep_threads=role.count == 1)
        runtime = select_runtime(request.device, request.precision, role.choose_threads(request.threads))
        data = load_data(request, begun, callbacks)
        if begun is not None and (trained_on := begun.read_recipe().data) != data.name:
            raise UserError(
                f"The run in {begun.path} is of {trained_on!r}, not of {data.name!r}; choose another --out."
            )
        # A run is continued with its own settings.
        name = str(begun.path / "recipe.json") if request.recipe is None and begun is not None else request.recipe
        name = name or choose_default_recipe(data, runtime.device.type)
        recipe = request.make_recipe(name, data)
        path = request.out or Path("runs") / f"{data.name}-{recipe.title}-{recipe.labels or 'all'}-seed{recipe.seed}"
        if request.resume and not (path / "recipe.json").exists():
            raise UserError(f"There is no run to resume in {path}; leave out --resume to begin one.")
        if request.resume and request.out is None:  # with the options that it was started with
            return cls.open(replace(request, out=path), callbacks)
        wanted = should_train_baseline(recipe, data) if request.baseline is None else request.baseline
        has_baseline = wanted and recipe.uses_unlabelled
        if request.minutes is not None:
            both = [recipe, make_baseline(recipe)] if has_baseline else [recipe]
            steps = fit_steps(request.minutes, both, data, runtime, started)
            recipe = recipe.with_settings([f"steps={steps}"])
        return cls(
            request=request,
            callbacks=callbacks,
            role=role,
            data=data,
            runtime=runtime,
            recipe=recipe,
            recipe_name=None if begun is not None else name,
            path=path,
            has_baseline=has_baseline,
            was_finished=begun is not None and begun.finished,
        )

    def train(self, stop: threading.Event) -> None:
        """Train the run, then its baseline, as one of several processes or alone."""
        self.callbacks.on_ready()
        arguments, command = self.request.to_arguments(), self.request.to_resume_command(self.path)
        with launch.join_workers(self.role, self.runtime.device, arguments, command) as group:
            self.train_one(self.recipe, self.path, self.runtime, group, stop)
            if self.has_baseline:
                # In the precision of the run, or it would be the one that suits the baseline best.
                precision = read_environment(Run(self.path)).precision or self.request.precision
                runtime = replace(self.runtime, precision=precision)
                self.train_one(make_baseline(self.recipe), self.path / BASELINE, runtime, group, stop)

    def train_one(self, recipe: Recipe, path: Path, runtime: Runtime, group: Group, stop: threading.Event) -> None:
        """Train one recipe; raise TrainingStopped with the command that continues it."""
        request = self.request
        begun: list[Training] = []

        def start(training: Training) -> None:
            begun.append(training)
            self.callbacks.on_start(self.describe_start(recipe, training))

        try:
            train(
                recipe,
                self.data,
                path,
                on=runtime,
                group=group,
                resume=request.resume,
                overwrite=request.overwrite,
                snapshots=request.snapshots,
                asked={
                    "no_test": request.no_test,
                    "snapshots": request.snapshots,
                    "baseline": self.has_baseline,
                },
                stop=stop,
                on_start=start,
                on_log=self.callbacks.on_log,
            )
        except KeyboardInterrupt:
            if self.role.rank > 0:
                raise
            step, command = begun[0].step if begun else 0, request.to_resume_command(self.path)
            raise TrainingStopped(f"stopped after {step} of {recipe.steps} updates; continue with: {command}") from None

    def describe_start(self, recipe: Recipe, training: Training) -> TrainingStart:
        """Return what begins; the notes are about the run, not its baseline."""
        is_baseline = recipe is not self.recipe
        notes = () if is_baseline else list_notes(recipe, self.data, training.runtime, self.recipe_name)
        return TrainingStart(recipe=recipe, step=training.step, is_baseline=is_baseline, notes=tuple(notes))

    def summarise(self) -> TrainOutcome:
        """Read the results of the finished run and its baseline, and compare them."""
        result = Run(self.path).read_result()
        baseline = Run(self.path / BASELINE).read_result() if self.has_baseline else None
        return TrainOutcome(
            path=self.path,
            recipe=self.recipe,
            result=result,
            baseline=baseline,
            verdict=None if baseline is None else describe_comparison(result, baseline),
            was_finished=self.was_finished,
        )


def find_begun_run(request: TrainRequest) -> Run | None:
    """Return the run that is to be continued, if its directory is given and it has begun."""
    if request.resume and request.out is not None and (request.out / "recipe.json").exists():
        return Run(request.out)
    return None


def read_environment(run: Run | None) -> Environment:
    """Return the environment in which a run began, or an empty one."""
    if run is None or not (run.path / "environment.json").exists():
        return Environment()
    return run.read_environment()


def restore_options(request: TrainRequest, begun: Run | None, keep_threads: bool) -> TrainRequest:
    """Return the request with the options with which the run began, where the user gives none."""
    before = read_environment(begun)
    threads = request.threads
    if threads is None and keep_threads and before.processes == 1:  # their number decides the last bits
        threads = before.threads or None
    return replace(
        request,
        no_test=request.no_test or before.no_test,
        snapshots=request.snapshots or before.snapshots,
        baseline=before.baseline if request.baseline is None else request.baseline,
        threads=threads,
    )


def load_data(request: TrainRequest, begun: Run | None, callbacks: TrainCallbacks) -> DataSet:
    """Load the data; for a run that has begun, with the image shape and the additional labels that it began with."""
    before = read_environment(begun)
    data = load(
        request.data,
        shape=before.input_shape,
        side=request.size,
        more_labels=[str(path) for path in request.more_labels] or before.more_labels or (),
        progress=callbacks.on_decode,
    )
    return replace(data, test=None) if request.no_test else data


def list_notes(recipe: Recipe, data: DataSet, runtime: Runtime, recipe_name: str | None) -> list[str]:
    """Return what the user should know before a training begins, one sentence each."""
    notes = []
    if recipe_name is not None:
        notes.append(f"using recipe {recipe_name}. Use --recipe to change this (see afda list recipes).")
        is_default = recipe_name == choose_default_recipe(data, runtime.device.type)
        if os.path.isabs(data.source) and is_default and recipe.net == recipes.recipe(recipe_name, data).net:
            shape = data.train.shape
            kind = "vectors" if len(shape) == 1 else f"images of {shape[2]}x{shape[1]} pixels"
            notes.append(f"using net {recipe.net.name()} for {kind}. Use --net to change this.")
        if os.path.isabs(data.source) and recipe.preparation.flip and not data.preparation.flip:
            notes.append("images are flipped at random. Use --set preparation.flip=false to change this.")
    notes += data.notes
    if recipe.preparation.normalise == "zca":
        notes.append("fitting the whitening of the images takes a minute or two.")
    if runtime.is_emulated:
        notes.append("this CPU emulates bfloat16; --precision float32 is faster.")
    elif runtime.precision == "bfloat16" and runtime.is_automatic:
        notes.append("training in bfloat16, which is faster for this net. Use --precision to change this.")
    if is_baseline_useful(recipe, data) and not should_train_baseline(recipe, data):
        half = int((data.train.y >= 0).sum()) // 2
        notes.append(
            "no images are held out, so the effect of the unlabelled images cannot be measured. "
            f"Use --labels {half} --validation to train on half of the labels and measure it on the others."
        )
    return notes
