"""The stored state of a hyper-parameter search: an Optuna study that several processes can share and continue."""

import contextlib
import fcntl
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afda.errors import RunFailed, UserError
from afda.machine.files import check_writable, explain_os_errors
from afda.machine.strict_json import parse_json
from afda.recipe import Recipe
from afda.runs.directory import describe_differences

Grid = dict[str, list[float]]
"""The values to try of each setting of a recipe."""


@dataclass(frozen=True)
class Trial:
    """A point of the grid that was run, and its validation error in percent."""

    settings: dict[str, float]
    val_error: float


def open_study(folder: Path, recipe: Recipe, seeds: int, grid: Grid) -> Any:
    """Return the Optuna study in this folder: a new one, or one that earlier or other processes have begun."""
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
    with explain_storage_errors(folder):
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{folder.resolve() / 'study.db'}", heartbeat_interval=10, heartbeat_stale_trial_callback=retry
        )
        study = optuna.create_study(
            study_name="afda",
            storage=storage,
            load_if_exists=True,
            sampler=optuna.samplers.GridSampler(grid, seed=0),
        )
    check_same_search(study, folder, recipe, seeds, grid)
    study.set_user_attr("recipe", recipe.to_json())
    study.set_user_attr("seeds", seeds)
    requeue_dead_trials(study, storage, folder)
    return study


def check_same_search(study: Any, folder: Path, recipe: Recipe, seeds: int, grid: Grid) -> None:
    """Refuse to continue a search that was begun with another recipe, grid or number of seeds."""
    before = study.user_attrs.get("recipe")
    if before is not None and (changed := describe_differences(Recipe.of(parse_json(before)), recipe)):
        raise UserError(f"{folder} is a search with another recipe ({changed}); choose another --out.")
    trials: list[Any] = study.get_trials(deepcopy=False)
    earlier: dict[str, Any] = next((trial.distributions for trial in trials if trial.distributions), {})
    if any(list(earlier[path].choices) != values for path, values in grid.items() if path in earlier):
        raise UserError(f"{folder} is a search of another grid, by another version of afda; choose another --out.")
    if (other := study.user_attrs.get("seeds", seeds)) != seeds:
        raise UserError(f"{folder} is a search with --seeds {other}; continue with that, or choose another --out.")


def requeue_dead_trials(study: Any, storage: Any, folder: Path) -> None:
    """Queue the trials of processes that died, unless another process is at this search."""
    import optuna

    with explain_os_errors(folder):
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)  # held until the process ends
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # No other process holds the lock, so those that began the running trials have died.
        state = optuna.trial.TrialState
        for trial in study.get_trials(states=(state.RUNNING,)):
            storage.set_trial_state_values(trial._trial_id, state=state.FAIL)
        done = [t.params for t in study.get_trials(states=(state.COMPLETE,))]
        done += [t.system_attrs.get("fixed_params", t.params) for t in study.get_trials(states=(state.WAITING,))]
        for trial in study.get_trials(states=(state.FAIL,)):
            if trial.params and trial.params not in done:
                queue_trial(study, trial)
                done.append(trial.params)
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_SH)


def queue_trial(study: Any, trial: Any) -> None:
    """Queue the point of a trial again; its runs continue from their checkpoints."""
    import optuna

    again = {**trial.system_attrs, "fixed_params": trial.params}  # by which the sampler knows the point
    study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.WAITING, system_attrs=again))


def list_trials(study: Any) -> list[Trial]:
    """Return every point that was run, the best first; equal ones in the order of the grid."""
    done = [Trial(t.params, t.value) for t in study.get_trials(deepcopy=False) if t.value is not None]
    unique = {tuple(sorted(trial.settings.items())): trial for trial in done}
    return sorted(unique.values(), key=lambda trial: (trial.val_error, list(trial.settings.values())))


@contextlib.contextmanager
def explain_storage_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the study's file into RunFailed with one sentence."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise RunFailed(f"{folder / 'study.db'} cannot be used ({reason}); the runs in {folder} are kept.") from error
