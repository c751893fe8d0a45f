"""A training from its beginning, or its last checkpoint, to its result, and the files it leaves behind."""

import io
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from afda import __version__
from afda.data.images import DataSet
from afda.errors import RunFailed, UserError, describe
from afda.machine.group import ALONE, Group
from afda.machine.runtime import Runtime, select_runtime
from afda.recipe import Recipe
from afda.runs import results
from afda.runs.directory import CHECKPOINT, SNAPSHOT, WORKING_FILES, Run, format_csv, open_run
from afda.runs.log import LogLine
from afda.runs.model import save_model, serialise_model
from afda.runs.pool import list_unlike
from afda.runs.selection import Selection
from afda.training.alarms import find_alarm
from afda.training.evaluations import LOG_LINES, EvaluationPlan, plan_evaluations
from afda.training.loop import run_updates
from afda.training.outliers import weigh_pool
from afda.training.state import Training, begin, make_log_line

SNAPSHOT_INTERVAL = 5
"""Lines of the log between two snapshots."""

OnStart = Callable[[Training], None]
OnLog = Callable[[LogLine], None]


def train(
    recipe: Recipe,
    data: DataSet,
    out: str | Path,
    *,
    on: Runtime | None = None,
    group: Group = ALONE,
    resume: bool = False,
    overwrite: bool = False,
    snapshots: bool = False,
    asked: dict[str, Any] | None = None,
    stop: threading.Event | None = None,
    on_start: OnStart | None = None,
    on_log: OnLog | None = None,
) -> Run:
    """Train a recipe on a data set and return the finished run, or raise.

    `asked` is kept in environment.json beside the machine; `snapshots` keeps the model at every fifth log line and
    tests all of them after the last update; `on_start` is called before the first update with the training, `on_log`
    with every line of the log. When `stop` is set, the state is saved and KeyboardInterrupt raised. In a group of
    processes rank 0 writes the run, and the others return it when it is finished.
    """
    training = begin(recipe, data, on or select_runtime(), group)  # what cannot begin leaves `out` as it is
    if group.rank > 0:
        assist(training, stop)
        return Run(Path(out))
    run = open_run(Path(out), recipe, resume=resume, overwrite=overwrite)
    try:
        if run.finished:
            check_data(run, data)
            group.broadcast()
        else:
            load_checkpoint(training, run, asked)
            if on_start is not None:
                on_start(training)
            fit(training, run, snapshots=snapshots, stop=stop, on_log=on_log)
    finally:
        run.unlock()
    return run


def load_checkpoint(training: Training, run: Run, asked: dict[str, Any] | None = None) -> None:
    """Continue where the run's last checkpoint was written, or describe a run that begins."""
    state = run.read_checkpoint()
    if state is None:
        write_description(training, run, asked)
    else:
        check_data(run, training.data)
        begun = run.read_environment()
        if begun.afda and begun.afda != __version__:
            raise UserError(
                f"{run.path} was started with afda {begun.afda} and this is {__version__}; "
                "finish it with that version, or start again with --overwrite."
            )
        precision = begun.precision
        if precision != training.runtime.precision:
            if not training.runtime.is_automatic:
                raise UserError(f"{run.path} was started in {precision}; continue with that --precision.")
            training.set_runtime(replace(training.runtime, precision=precision, is_automatic=False))
        try:
            if not 0 <= state["step"] <= training.recipe.steps or not 0 <= state["seconds"] < math.inf:
                raise ValueError("it is of no step of this training")
            training.restore_state(state)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise RunFailed(
                f"The checkpoint in {run.path} is of another training or version ({describe(error)}); "
                "start again with --overwrite."
            ) from None
    run.log.truncate(training.step)


def write_description(training: Training, run: Run, asked: dict[str, Any] | None) -> None:
    """Write what the run is about: environment, split, and the files that cannot be used."""
    data = training.data
    write_environment(run, data, training.runtime, training.group.count, asked)
    held = {"test": data.test, "val": data.val}
    rows = {f"{part}_rows_of_source": i.rows.tolist() for part, i in held.items() if i and i.rows is not None}
    run.write_json("split.json", training.split.to_dict(data.train.rows) | rows)
    if data.skipped:
        run.write("skipped.csv", format_csv(("path", "reason"), data.skipped).encode(errors="replace"))


def write_environment(
    run: Run, data: DataSet, runtime: Runtime, processes: int = 1, asked: dict[str, Any] | None = None
) -> None:
    """Write the machine, the data and the options with which a run begins, so that it continues with the same."""
    environment: dict[str, Any] = {
        **asdict(runtime.describe(processes)),
        "source": data.source,
        "shape": list(data.train.shape),
        "more_labels": list(data.more_labels),
        "group_by": data.group_by,
        "load_rules": data.load_rules,
        "afda": __version__,
        "data": data.files,
        "notes": [*data.warnings, *data.notes],
    }
    run.write_json("environment.json", environment | (asked or {}))


def read_checkpoint_interval() -> float:
    """Return the seconds between checkpoints: the most work that is lost."""
    given = os.environ.get("AFDA_CHECKPOINT_SECONDS", "60")
    try:
        return float(given)
    except ValueError:
        raise UserError(f"AFDA_CHECKPOINT_SECONDS is a number of seconds, not {given!r}.") from None


def check_data(run: Run, data: DataSet) -> None:
    """Refuse to continue a run on other data than it was started with."""
    if run.read_environment().data != data.files:
        raise UserError(f"The data of {run.path} have changed since it was started; start again with another --out.")


class Checkpoints:
    """Writes the checkpoints of a run, and refuses to write one with numbers that are not finite."""

    def __init__(self, training: Training, run: Run) -> None:
        self.training, self.run, self.interval = training, run, read_checkpoint_interval()
        self.step, self.time = training.step, time.monotonic()

    def check(self) -> None:
        """Raise if the training has diverged."""
        if not self.training.is_finite():
            rate = self.training.recipe.optimisation.learning_rate
            raise RunFailed(
                f"The loss stopped being a number between steps {self.step} and {self.training.step}; "
                f"the checkpoint of step {self.step} is kept. Try a lower learning rate, "
                f"such as --set optimisation.learning_rate={rate / 4:g}, with another --out."
            )

    def save(self) -> None:
        """Write a checkpoint."""
        self.check()
        self.run.write_checkpoint(self.training.save_state())
        self.step, self.time = self.training.step, time.monotonic()

    def save_if_due(self) -> None:
        """Write a checkpoint if the last one is old enough."""
        if time.monotonic() - self.time > self.interval:
            self.save()


def fit(
    training: Training,
    run: Run,
    *,
    snapshots: bool = False,
    stop: threading.Event | None = None,
    on_log: OnLog | None = None,
) -> None:
    """Train to the end and write the run's files."""
    recipe, group = training.recipe, training.group
    weigh_pool(training)
    before, started = training.seconds, time.monotonic()
    every = max(1, recipe.steps // LOG_LINES)
    plan = plan_evaluations(recipe, training.data, training.split)
    log, checkpoints = run.log, Checkpoints(training, run)
    lines = log.read()
    if not (training.step or (run.path / CHECKPOINT).exists()):
        checkpoints.save()
    if group.count > 1:
        buffer = io.BytesIO()
        torch.save({**training.save_state(), "precision": training.runtime.precision}, buffer)
        group.broadcast(buffer.getvalue())
    for step in run_updates(training):
        training.seconds = before + time.monotonic() - started
        if step % every == 0 or step == recipe.steps:
            checkpoints.check()
            line = make_log_line(training, step % every or every)
            if step % (plan.interval * every) == 0 or step == recipe.steps:
                measure(training, line, plan)
            if snapshots and (step % (SNAPSHOT_INTERVAL * every) == 0 or step == recipe.steps):
                run.write(f"{SNAPSHOT}{step}.safetensors", serialise_model(training.make_model()))
            lines.append(line)
            if warning := find_alarm(lines, recipe, training.outlier_share):
                line.warning = warning
            log.append(line)
            if on_log is not None:
                on_log(line)
        stopped = stop is not None and stop.is_set()
        if stopped if group.count == 1 else group.any(stopped):
            checkpoints.save()
            group.broadcast()  # the others may go
            raise KeyboardInterrupt
        checkpoints.save_if_due()
    training.seconds = before + time.monotonic() - started
    checkpoints.save()
    write_result(training, run, snapshots)


def measure(training: Training, line: LogLine, plan: EvaluationPlan) -> None:
    """Add measures of the classifier to a line of the log."""
    model, data, split = training.make_model(), training.data, training.split
    progress = results.measure_progress(model, training.recipe, data, split, training.runtime, plan.sample)
    progress.add_to(line)


def write_result(training: Training, run: Run, snapshots: bool) -> None:
    """Evaluate the trained model, and write it and the result."""
    model = training.make_model()
    final = results.evaluate_final(
        model,
        training.recipe,
        training.data,
        training.split,
        training.runtime,
        seconds=training.seconds,
        snapshots=run if snapshots else None,
        selection=find_own_selection(run, training.recipe),
        outlier_share=training.outlier_share,
        pool_weights=training.pool_weights,
    )
    model.temperature, model.out_of_distribution = final.result.temperature, final.out_of_distribution
    save_model(run, model, training.recipe, training.data.train.shape)
    if training.pool_weights is not None:
        columns, rows = list_unlike(model, training.data, training.split, training.pool_weights, training.runtime)
        if rows:
            run.write("unlike.csv", format_csv(columns, rows).encode(errors="replace"))
    run.write_json("result.json", final.result)
    run.discard(*WORKING_FILES)


def find_own_selection(run: Run, recipe: Recipe) -> Selection | None:
    """Return the automatic choice in the run's directory if it is the one that this recipe came from."""
    selection = run.read_selection()
    if selection is None or selection.chosen is None:
        return None
    chosen = selection.read_chosen()
    return selection if chosen.model_copy(update={"steps": recipe.steps}) == recipe else None


def assist(training: Training, stop: threading.Event | None = None) -> None:
    """Run the updates of rank 0 from the same state, on the other ranks; they write nothing.

    Nothing is broadcast if the run is finished already.
    """
    if content := training.group.broadcast():
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        training.set_runtime(replace(training.runtime, precision=state["precision"]))
        training.restore_state(state)
        for _ in run_updates(training):
            if training.group.any(stop is not None and stop.is_set()):
                training.group.broadcast()
                raise KeyboardInterrupt
