"""The paper's tuning protocol: grids searched on a validation set of its size, with the test set left shut."""

import contextlib
import fcntl
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from afda.data.images import DataSet
from afda.data.split import MOST_VALIDATION
from afda.disk import check_writable, refusals_explained, write_whole
from afda.errors import RunFailed, UserError
from afda.recipe import Recipe
from afda.report import figures, tables
from afda.runs import Run, differences
from afda.strict_json import parsed
from afda.sweep import HERE, Job, Machines

LABELLED = (2, 4, 8, 16, 32)
SUPERVISED_BATCH = (8, 16, 32, 64, 100)
RATES = (1e-4, 5e-4, 1e-3, 5e-3)
RAMPED_RATES = (1e-3, 3e-3, 5e-3)
CONSISTENCY = (1.0, 5.0, 10.0, 50.0, 100.0)
RADII = (0.5, 0.7, 1.0, 1.4, 2.0)
"""VAT's radius as multiples of the recipe's; the paper searches it, but does not say where."""
LEAST_UNLABELLED = 2
"""Images of a batch that must be left: BatchNorm needs two."""


def grid(recipe: Recipe) -> dict[str, list[float]]:
    """The grids of the paper's supplement for this method, and the recipe's own values, as settings of the recipe."""
    ramped = recipe.optimisation.schedule == "ramps"
    batches: tuple[float, ...] = SUPERVISED_BATCH
    if recipe.uses_unlabelled:
        whole = recipe.labelled_batch + recipe.unlabelled_batch
        batches = tuple(size for size in LABELLED if size <= whole - LEAST_UNLABELLED)
    found: dict[str, list[float]] = {
        "labelled_batch": [*batches, recipe.labelled_batch],
        "optimisation.learning_rate": [*(RAMPED_RATES if ramped else RATES), recipe.optimisation.learning_rate],
    }
    for method in recipe.method:
        if method.name() == "vat":
            found["method.vat.radius"] = [round(factor * method.radius, 4) for factor in RADII]  # type: ignore[attr-defined]
        elif method.name() in ("pi-model", "mean-teacher"):
            found[f"method.{method.name()}.weight"] = [*CONSISTENCY, method.weight]  # type: ignore[attr-defined]
    return {path: sorted(set(values)) for path, values in found.items()}


def with_point(recipe: Recipe, point: dict[str, float]) -> Recipe:
    """The recipe at a point of the grid; the batch keeps its size, whatever share of it is labelled."""
    settings = [f"{path}={value}" for path, value in point.items()]
    if recipe.uses_unlabelled:
        whole = recipe.labelled_batch + recipe.unlabelled_batch
        settings.append(f"unlabelled_batch={whole - int(point['labelled_batch'])}")
    return recipe.with_settings(settings)


def holding_out(recipe: Recipe) -> Recipe:
    """The recipe as a search runs it: with images held out."""
    return recipe.with_settings(["validation=true"])


def check_labels(data: DataSet, recipe: Recipe) -> None:
    """Refuse what leaves too few labels to learn from or for a validation set."""
    known = int((data.train.y >= 0).sum())
    most = max(known // 2, known - MOST_VALIDATION)
    if (recipe.labels or known) > most:
        raise UserError(
            "A search chooses by labelled images that it holds out, as many as it learns from "
            f"(at most {MOST_VALIDATION:,}): of the {known:,} labels here, keep {most:,} or fewer with --labels."
        )
    holding_out(recipe).split_of(data)


def study_in(folder: Path, recipe: Recipe, seeds: int) -> Any:
    """The search in this folder: new, or as earlier or other processes have left it."""
    try:
        import optuna
    except ImportError:
        raise UserError("Tuning needs optuna: pip install -c constraints.txt 'afda[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if folder.exists() and not (folder.is_dir() and ((folder / "study.db").exists() or not any(folder.iterdir()))):
        raise UserError(f"{folder} holds something else than a search; choose another --out.")
    check_writable(folder)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    # A trial whose process died is queued again; its run continues from its checkpoint.
    retry = optuna.storages.RetryHeartbeatStaleTrialCallback()
    with storage_explained(folder):
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{folder.resolve() / 'study.db'}", heartbeat_interval=10, heartbeat_stale_trial_callback=retry
        )
        study = optuna.create_study(
            study_name="afda",
            storage=storage,
            load_if_exists=True,
            sampler=optuna.samplers.GridSampler(grid(recipe), seed=0),
        )
    before = study.user_attrs.get("recipe")
    if before is not None and (changed := differences(Recipe.of(parsed(before)), recipe)):
        raise UserError(f"{folder} is a search with another recipe ({changed}); choose another --out.")
    trials: list[Any] = study.get_trials(deepcopy=False)
    earlier: dict[str, Any] = next((trial.distributions for trial in trials if trial.distributions), {})
    if any(list(earlier[path].choices) != values for path, values in grid(recipe).items() if path in earlier):
        raise UserError(f"{folder} is a search of another grid, by another version of afda; choose another --out.")
    if study.user_attrs.get("seeds", seeds) != seeds:
        before = study.user_attrs["seeds"]
        raise UserError(f"{folder} is a search with --seeds {before}; go on with that, or choose another --out.")
    study.set_user_attr("recipe", recipe.to_json())
    study.set_user_attr("seeds", seeds)
    with refusals_explained(folder):
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)  # held until the process ends
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # No other process is at this search: whoever began the trials that are running has died.
        state = optuna.trial.TrialState
        for trial in study.get_trials(states=(state.RUNNING,)):
            storage.set_trial_state_values(trial._trial_id, state=state.FAIL)
        done = [t.params for t in study.get_trials(states=(state.COMPLETE,))]
        done += [t.system_attrs.get("fixed_params", t.params) for t in study.get_trials(states=(state.WAITING,))]
        for trial in study.get_trials(states=(state.FAIL,)):
            if trial.params and trial.params not in done:
                queue_again(study, trial)
                done.append(trial.params)
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_SH)
    return study


def queue_again(study: Any, trial: Any) -> None:
    """Put the point of a trial in the queue; its runs continue from their checkpoints. The sampler knows the point by
    the attributes of the trial."""
    import optuna

    again = {**trial.system_attrs, "fixed_params": trial.params}
    study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.WAITING, system_attrs=again))


@contextlib.contextmanager
def storage_explained(folder: Path) -> Iterator[None]:
    """Turn what the study's file refuses into a sentence."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise RunFailed(f"{folder / 'study.db'} cannot be used ({reason}); the runs in {folder} are kept.") from error


def tuned(
    study: Any,
    recipe: Recipe,
    data: str,
    folder: Path,
    *,
    trials: int,
    seeds: int,
    at_once: int,
    threads: int = 1,
    machines: Machines = HERE,
    stop: threading.Event,
    tell: Callable[[str], None],
) -> list[RunFailed]:
    """Run up to `trials` points of the grid, `at_once` at a time; each is a training whose validation error counts, and
    is told when it ends. Returns why some have none.

    Only this process and others that share the search touch its storage, wherever the trainings run. When `stop` is
    set, they are stopped, their points queued again and KeyboardInterrupt raised.
    """

    def objective(trial: Any) -> float:
        point = {path: trial.suggest_categorical(path, values) for path, values in grid(recipe).items()}
        name = "_".join(f"{path.rpartition('.')[2]}-{value}" for path, value in point.items())
        errors = []
        for seed in range(seeds):
            chosen = holding_out(with_point(recipe, point)).with_settings([f"seed={seed}"])
            job = Job(chosen, Run(folder / "trials" / f"{name}-seed{seed}"), data, ("--no-test",))
            if not ended(job, threads, machines, stop):
                queue_again(study, study.trials[trial.number])
                raise KeyboardInterrupt
            errors.append(float(job.run.result()["val_error"]))
        return mean(errors)

    problems: list[BaseException] = []  # optuna drops those of the last trials that run at once
    failures: list[RunFailed] = []
    tried = 0

    def guarded(trial: Any) -> float:
        nonlocal tried
        tried += 1
        try:
            error = objective(trial)
            tell(f"{', '.join(f'{path} {value:g}' for path, value in trial.params.items())}: {error:.2f} %")
            return error
        except RunFailed as failure:
            failures.append(failure)
            tell(f"failed: {failure}")
            raise
        except (Exception, KeyboardInterrupt) as problem:
            problems.append(problem)
            raise

    with storage_explained(folder):
        while trials > 0 and not problems:
            study.optimize(guarded, n_trials=trials, n_jobs=at_once, catch=(RunFailed,))
            # It ends early after the last point that the sampler has not seen, though others may be queued.
            trials -= max(1, tried)
            tried = 0
            if not any(t.state.name == "WAITING" for t in study.get_trials(deepcopy=False)):
                break
        if problems:
            raise problems[0]
    return failures


def ended(job: Job, threads: int, machines: Machines, stop: threading.Event) -> bool:
    """Run a job to its end, or until `stop` is set, and say whether that was the end."""
    try:
        while job.state in ("waiting", "running") and not stop.is_set():
            if job.state == "waiting":
                job.start(threads, machines)
            time.sleep(0.2)
            job.look()
    finally:
        if job.process is not None:
            job.process.terminate()
            job.stop()
    if job.state == "failed" and not stop.is_set():
        raise RunFailed(f"{job.run.path}: {job.problem}")
    return job.state == "done"


def finished(study: Any) -> list[tuple[dict[str, float], float]]:
    """Every point that was run, with its validation error, the best first; equals in the order of the grid."""
    done = [(t.params, t.value) for t in study.get_trials(deepcopy=False) if t.value is not None]
    unique = {tuple(sorted(point.items())): (point, value) for point, value in done}
    return sorted(unique.values(), key=lambda pair: (pair[1], list(pair[0].values())))


def doubt(points: list[tuple[dict[str, float], float]], data: DataSet, recipe: Recipe, seeds: int) -> str:
    """How far the order of the points can be trusted: one standard error of the best, and ties."""
    best, held_out = points[0][1], len(holding_out(recipe).split_of(data).validation)
    error = (best * (100 - best) / (held_out * seeds)) ** 0.5
    text = f"Labels: {recipe.labels}, validation images: {held_out}, seeds: {seeds}; "
    text += f"one standard error is {error:.1f} points."
    tied = sum(value == best for _, value in points)
    return text + (f" {tied} points share the best error; the first of the grid is taken." if tied > 1 else "")


def page(points: list[tuple[dict[str, float], float]], recipe: Recipe, folder: Path, caution: str) -> Path:
    """A page with a plot of the trials against each setting, and a table of them."""
    title = f"Tuning: {recipe.data}, {recipe.title}, {recipe.labels} labels"
    about = (
        f"Validation error of {len(points)} points of the grid, the best first. {caution} The test set was not opened."
    )
    header = [*points[0][0], "validation error %"]
    body = [[*(f"{value:g}" for value in point.values()), f"{error:.2f}"] for point, error in points]
    picture = figures.as_svg(figures.trials_figure(points))
    write_whole(folder / "trials.html", tables.page(title, about, [header, *body], picture, words=0).encode())
    return folder / "trials.html"
