"""A training session: from what a user asks for to a finished run, with its baseline, on one or several processes."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from afda import recipes
from afda.data import load
from afda.data.hold_out import LOAD_RULES
from afda.data.images import DataSet
from afda.errors import UserError
from afda.machine import launch
from afda.machine.group import Group
from afda.machine.runtime import Runtime, select_runtime
from afda.recipe import Recipe
from afda.recipes import choose_default_recipe
from afda.recipes.candidates import list_candidates
from afda.runs.directory import BASELINE, SELECTION, Run, open_selection, refuse_existing
from afda.runs.log import LogLine
from afda.runs.schemas import Environment, Result
from afda.runs.selection import Selection
from afda.runs.verdict import describe_comparison
from afda.training.baseline import make_baseline
from afda.training.budget import fit_steps, plan_selection, refit_steps
from afda.training.request import AUTO, TrainRequest
from afda.training.run import check_data, train, write_environment
from afda.training.select import TrialDone, begin_selection, run_trials
from afda.training.state import Training, check_pool


@dataclass(frozen=True)
class TrainingStart:
    """A training that begins or continues."""

    recipe: Recipe
    step: int
    """Updates done before."""
    is_baseline: bool
    notes: tuple[str, ...]
    """What the user should know, one sentence each."""
    warnings: tuple[str, ...] = ()
    """What is probably wrong with the data, one sentence each."""


@dataclass(frozen=True)
class TrainCallbacks:
    """What is called as a session goes on; all but `on_ready` in the first process only."""

    on_ready: Callable[[], None] = lambda: None
    """Before the first update, when the data are loaded and everything is decided."""
    on_decode: Callable[[int, int], None] | None = None
    """With the number of image files that are decoded, and of all."""
    on_compare: Callable[[Selection, tuple[str, ...], tuple[str, ...]], None] = lambda selection, notes, warnings: None
    """Before candidates are compared, with notes and warnings for the user."""
    on_trial: Callable[[TrialDone], None] = lambda _: None
    """After each training of a candidate."""
    on_start: Callable[[TrainingStart], None] = lambda _: None
    on_log: Callable[[LogLine], None] = lambda _: None
    """With each line of the log."""


@dataclass(frozen=True)
class TrainOutcome:
    """A finished run, with the comparison of its candidates and its baseline if there are any."""

    path: Path
    recipe: Recipe
    result: Result
    selection: Selection | None
    """The candidates that were compared by cross-validation."""
    baseline: Result | None
    """The result of the baseline."""
    verdict: str | None
    """Whether the unlabelled images helped, if that was measured."""
    was_finished: bool
    """True if the run was finished before, so that nothing was trained."""

    def to_json(self) -> dict[str, Any]:
        """Return what `afda train --json` prints."""
        found = {"run": str(self.path), **self.result.to_dict()}
        if self.selection is not None:
            found["selection"] = self.selection.summarise()
        if self.baseline is not None:
            found["baseline"] = self.baseline.model_dump(
                include={"test_error", "val_error", "balanced_error", "mmd2", "seconds"}
            )
        if self.verdict is not None:
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
    session = Session.open(request, callbacks or TrainCallbacks()).train(stop or threading.Event())
    return session.summarise() if session.role.rank == 0 else None


@dataclass(frozen=True)
class Session:
    """A request with everything that it leaves open decided, but the choice among candidates."""

    request: TrainRequest
    callbacks: TrainCallbacks
    role: launch.Role
    data: DataSet
    runtime: Runtime
    recipe: Recipe
    """What is trained; if candidates are compared, the first of them until one is chosen."""
    recipe_name: str | None
    """The named recipe that was chosen; None for a run that is continued."""
    path: Path
    comparison: Selection | None
    """The candidates that are compared before the training, if any."""
    was_finished: bool
    started: float
    """When the session began, as a reading of the monotonic clock."""

    @classmethod
    def open(cls, request: TrainRequest, callbacks: TrainCallbacks) -> "Session":
        """Load the data and decide on recipe, directory, comparison, baseline and number of steps."""
        started = time.monotonic()
        role = launch.detect_role(request.processes, request.minutes is not None)
        if role.rank > 0:
            callbacks = TrainCallbacks(on_ready=callbacks.on_ready)
        begun, before = find_begun_run(request), read_environment(find_kept_run(request))
        request = restore_options(request, before, keep_threads=role.count == 1)
        if begun is None and before.precision and request.precision == "auto":  # a checkpoint brings its own
            request = replace(request, precision=before.precision)
        runtime = select_runtime(request.device, request.precision, role.choose_threads(request.threads))
        data = load_data(request, before, callbacks)
        if begun is not None and (trained_on := begun.read_recipe().data) != data.name:
            raise UserError(
                f"The run in {begun.path} is of {trained_on!r}, not of {data.name!r}; choose another --out."
            )
        automatic = begun is None and is_automatic(request, data)
        # A run is continued with its own settings.
        name = str(begun.path / "recipe.json") if request.recipe is None and begun is not None else request.recipe
        name = name or choose_default_recipe(data, runtime.device.type)
        asked = replace(request, method=None) if request.method == AUTO else request
        chosen = begun is not None and (selection := begun.read_selection()) is not None and selection.automatic
        # Of a recipe that was chosen, what the user asked of all candidates is a part, as far as it has such fields.
        recipe = begun.read_recipe() if begun is not None and chosen else asked.make_recipe(name, data)
        title = AUTO if automatic else recipe.title
        path = request.out or Path("runs") / f"{data.name}-{title}-{recipe.labels or 'all'}-seed{recipe.seed}"
        if request.resume and not Run(path).begun:
            raise UserError(f"There is no run to resume in {path}; leave out --resume to begin one.")
        if role.rank == 0 and not (request.resume or request.overwrite):
            refuse_existing(path)
        if request.resume and request.out is None:  # with the options that it was started with
            return cls.open(replace(request, out=path), callbacks)
        comparison = None
        if begun is None and role.count == 1:
            comparison = plan_comparison(asked, recipe, data, runtime, path, automatic, started)
        elif automatic:
            raise UserError("--method auto compares methods in one process; name a --method, or leave out --processes.")
        if comparison is not None:
            recipe = Recipe.of(comparison.find(comparison.chosen or comparison.candidates[0].name).recipe)
        elif request.minutes is not None:
            both = [recipe, make_baseline(recipe)] if request.baseline else [recipe]
            recipe = recipe.with_settings([f"steps={fit_steps(request.minutes, both, data, runtime, started)}"])
        return cls(
            request=request,
            callbacks=callbacks,
            role=role,
            data=data,
            runtime=runtime,
            recipe=recipe,
            recipe_name=None if begun is not None or automatic else name,
            path=path,
            comparison=comparison,
            was_finished=begun is not None and begun.finished,
            started=started,
        )

    @property
    def has_baseline(self) -> bool:
        """Whether a baseline is trained after the run."""
        return bool(self.request.baseline) and self.recipe.uses_unlabelled

    @property
    def asked(self) -> dict[str, bool | None]:
        """The options that a run is continued with."""
        request = self.request
        return {"no_test": request.no_test, "snapshots": request.snapshots, "baseline": request.baseline}

    def train(self, stop: threading.Event) -> "Session":
        """Compare candidates, then train the run and its baseline, as one of several processes or alone.

        Returns the session with the recipe that was trained.
        """
        self.callbacks.on_ready()
        session = self if self.comparison is None else replace(self, recipe=self.compare(self.comparison, stop))
        arguments, command = self.request.to_arguments(), self.request.to_resume_command(self.path)
        with launch.join_workers(self.role, self.runtime.device, arguments, command) as group:
            session.train_one(session.recipe, self.path, self.runtime, group, stop)
            if session.has_baseline:
                # In the precision of the run, or it would be the one that suits the baseline best.
                precision = read_environment(Run(self.path)).precision or self.request.precision
                runtime = replace(self.runtime, precision=precision)
                session.train_one(make_baseline(session.recipe), self.path / BASELINE, runtime, group, stop)
        return session

    def compare(self, selection: Selection, stop: threading.Event) -> Recipe:
        """Run the trials, keeping them in the run's directory as they end, and return the recipe that is taken."""
        request = self.request
        run = open_selection(self.path, resume=request.resume, overwrite=request.overwrite)

        def keep(trial: TrialDone) -> None:
            run.write_json(SELECTION, trial.selection)
            self.callbacks.on_trial(trial)

        try:
            if read_environment(run).data is not None:
                check_data(run, self.data)
            notes = list_notes(self.recipe, self.data, self.runtime, None)
            notes += [selection.note] if selection.note else []
            self.callbacks.on_compare(selection, tuple(notes), self.data.warnings)
            run.write_json(SELECTION, selection)
            write_environment(run, self.data, self.runtime, asked=self.asked)
            run_trials(selection, self.data, self.runtime, on_trial=keep, stop=stop)
            run.write_json(SELECTION, selection)
        except KeyboardInterrupt:
            done = sum(len(candidate.trials) for candidate in selection.candidates)
            command = request.to_resume_command(self.path)
            raise TrainingStopped(f"stopped after {done} trials; continue with: {command}") from None
        finally:
            run.unlock()
        chosen = selection.read_chosen()
        if request.minutes is None:
            return chosen
        return refit_steps(chosen, request.minutes, self.data, self.runtime, self.started)

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
                overwrite=request.overwrite and self.comparison is None,  # which has replaced what was there
                snapshots=request.snapshots,
                asked=self.asked,
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
        known = is_baseline or self.comparison is not None  # they were shown before the comparison
        notes = () if known else list_notes(recipe, self.data, training.runtime, self.recipe_name)
        return TrainingStart(
            recipe=recipe,
            step=training.step,
            is_baseline=is_baseline,
            notes=tuple(notes),
            warnings=() if known else self.data.warnings,
        )

    def summarise(self) -> TrainOutcome:
        """Read the results of the finished run and its baseline, and compare them."""
        run = Run(self.path)
        result, selection = run.read_result(), run.read_selection()
        baseline = Run(self.path / BASELINE).read_result() if self.has_baseline else None
        judged = None if selection is None else selection.judge()
        verdict = None if judged is None else judged.sentence
        if verdict is None and baseline is not None:
            verdict = describe_comparison(result, baseline)
        return TrainOutcome(
            path=self.path,
            recipe=self.recipe,
            result=result,
            selection=selection,
            baseline=baseline,
            verdict=verdict,
            was_finished=self.was_finished,
        )


def is_automatic(request: TrainRequest, data: DataSet) -> bool:
    """Return whether the method is chosen by cross-validation: if asked for, and by default with a user's own data."""
    if request.method == AUTO:
        if request.recipe is not None:
            raise UserError("--method auto has recipes of its own; leave out --recipe, or name a --method.")
        return True
    return request.method is None and request.recipe is None and data.is_own


def plan_comparison(
    request: TrainRequest,
    recipe: Recipe,
    data: DataSet,
    runtime: Runtime,
    path: Path,
    automatic: bool,
    started: float,
) -> Selection | None:
    """Return the candidates: all of the automatic choice, or the user's own method beside the labels alone.

    None if nothing is to be compared: the user wants no baseline, or the method uses the labels alone.
    """
    if request.resume and (kept := Run(path).read_selection()) is not None:
        return kept
    if automatic:
        settings = request.list_settings()
        kind = choose_default_recipe(data, runtime.device.type) if data.is_own else None
        candidates = list_candidates(data, request.labels, tuple(settings), request.align, kind)
        chosen = None
    elif request.baseline is False or not recipe.uses_unlabelled or not data.is_own:
        return None
    else:
        candidates = [
            ("supervised", "network on the labels alone", make_baseline(recipe)),
            (recipe.title, "as asked for", recipe),
        ]
        chosen = recipe.title
    for _, _, one in candidates:
        check_pool(one, data)
    measurable = [one for _, _, one in candidates if one.shares_by != "given"]  # those that lack no shares
    plan = plan_selection(measurable, data, runtime, request.minutes, started)
    note = None
    if not plan.fits and chosen is None:
        candidates = [candidate for candidate in candidates if not candidate[2].uses_unlabelled]
        note = "the time is too short to learn from the unlabelled images, so only the labels are used."
    if plan.steps is not None:
        candidates = [(n, text, set_steps(one, plan.steps)) for n, text, one in candidates]
    return begin_selection(candidates, data, plan.share, chosen, plan.seconds, note)


def set_steps(recipe: Recipe, steps: int) -> Recipe:
    """Return the recipe with this many updates; a linear classifier needs no more than its own."""
    return recipe if recipe.net.name() == "linear" else recipe.with_settings([f"steps={steps}"])


def find_begun_run(request: TrainRequest) -> Run | None:
    """Return the run that is to be continued, if its directory is given and its recipe is known."""
    if request.resume and request.out is not None and (request.out / "recipe.json").exists():
        return Run(request.out)
    return None


def find_kept_run(request: TrainRequest) -> Run | None:
    """Return the run that is to be continued, if its directory is given, whether or not its recipe is known."""
    return Run(request.out) if request.resume and request.out is not None and Run(request.out).begun else None


def read_environment(run: Run | None) -> Environment:
    """Return the environment in which a run began, or an empty one."""
    if run is None or not (run.path / "environment.json").exists():
        return Environment()
    return run.read_environment()


def restore_options(request: TrainRequest, before: Environment, keep_threads: bool) -> TrainRequest:
    """Return the request with the options with which the run began, where the user gives none."""
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


def load_data(request: TrainRequest, before: Environment, callbacks: TrainCallbacks) -> DataSet:
    """Load the data; for a run that has begun, with the image shape, labels and groups that it began with."""
    data = load(
        request.data,
        shape=before.input_shape,
        side=request.size,
        more_labels=[str(path) for path in request.more_labels] or before.more_labels or (),
        group_by=request.group_by or before.group_by,
        load_rules=before.load_rules if before.source else LOAD_RULES,
        progress=callbacks.on_decode,
    )
    return replace(data, test=None) if request.no_test else data


def list_notes(recipe: Recipe, data: DataSet, runtime: Runtime, recipe_name: str | None) -> list[str]:
    """Return what the user should know before a training begins, one sentence each."""
    notes = []
    if recipe_name is not None:
        notes.append(f"using recipe {recipe_name}. Use --recipe to change this (see afda list recipes).")
        is_default = recipe_name == choose_default_recipe(data, runtime.device.type)
        if data.is_own and is_default and recipe.net == recipes.recipe(recipe_name, data).net:
            shape = data.train.shape
            kind = "vectors" if len(shape) == 1 else f"images of {shape[2]}x{shape[1]} pixels"
            notes.append(f"using net {recipe.net.name()} for {kind}. Use --net to change this.")
        if data.is_own and recipe.preparation.flip and not data.preparation.flip:
            notes.append("images are flipped at random. Use --set preparation.flip=false to change this.")
    notes += data.notes
    counts = data.train.y[data.train.y >= 0].bincount(minlength=len(data.classes)).tolist()
    if data.is_own and (single := [name for name, count in zip(data.classes, counts, strict=True) if count == 1]):
        more = f" and {len(single) - 3} more" if len(single) > 3 else ""
        named = ", ".join(map(repr, single[:3])) + more
        notes.append(f"with one label only, the error of a class cannot be estimated: {named}. Label more of them.")
    if recipe.preparation.normalise == "zca":
        notes.append("fitting the whitening of the images takes a minute or two.")
    if runtime.is_emulated:
        notes.append("this CPU emulates bfloat16; --precision float32 is faster.")
    elif runtime.precision == "bfloat16" and runtime.is_automatic:
        notes.append("training in bfloat16, which is faster for this net. Use --precision to change this.")
    return notes
