"""A training from its beginning, or its last checkpoint, to its result, and the files it leaves behind."""

import io
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from afda import __version__, processes, results
from afda.alarms import alarm
from afda.algorithm import steps
from afda.data.images import DataSet
from afda.errors import RunFailed, UserError, in_short
from afda.inference import model_bytes, save_model
from afda.recipe import Recipe
from afda.runs import CHECKPOINT, SNAPSHOT, WORKING_FILES, Run, as_csv, open_run
from afda.runtime import Runtime, runtime
from afda.training import Training, begin, log_line

LOG_LINES = 100


def train(
    recipe: Recipe,
    data: DataSet,
    out: str | Path,
    *,
    on: Runtime | None = None,
    resume: bool = False,
    overwrite: bool = False,
    snapshots: bool = False,
    asked: dict[str, Any] | None = None,
    stop: threading.Event | None = None,
    follow: Callable[[Training, Iterator[dict[str, Any]]], None] | None = None,
) -> Run:
    """Train a recipe on a data set and return the finished run.

    What was `asked` for besides the recipe is kept in environment.json; `follow` goes through the lines of the log as
    they come; `snapshots` and `stop` are those of `fit`.
    """
    training = begin(recipe, data, on or runtime())  # what cannot begin leaves what is in `out` alone
    if processes.rank() > 0:
        assist(training, stop)
        return Run(Path(out))
    run = open_run(Path(out), recipe, resume=resume, overwrite=overwrite)
    try:
        if run.finished:
            check_data(run, data)
            processes.told()
        else:
            lines = fit(prepared(training, run, asked), run, snapshots=snapshots, stop=stop)
            follow(training, lines) if follow is not None else list(lines)
    finally:
        run.unlock()
    return run


def prepared(training: Training, run: Run, asked: dict[str, Any] | None = None) -> Training:
    """The training at its beginning, or where the run's last checkpoint left it."""
    data, machine = training.data, training.runtime.describe()
    state = run.read_checkpoint()
    if state is None:
        about: dict[str, Any] = {
            "source": data.source,
            "shape": list(data.train.shape),
            "more_labels": list(data.more_labels),
        }
        about |= {"afda": __version__, "data": data.files, "notes": list(data.notes)}
        run.write_json("environment.json", {**machine, **about, **(asked or {})})
        held = {"test": data.test, "val": data.val}
        rows = {f"{part}_rows_of_source": i.rows.tolist() for part, i in held.items() if i and i.rows is not None}
        run.write_json("split.json", training.split.as_dict(data.train.rows) | rows)
        if data.skipped:
            run.write("skipped.csv", as_csv(("path", "reason"), data.skipped).encode(errors="replace"))
    else:
        check_data(run, data)
        before = run.read_json("environment.json")
        if before.get("precision") != machine["precision"]:
            if not training.runtime.free:
                raise UserError(f"{run.path} was begun in {before.get('precision')}; continue with that --precision.")
            training.runtime = replace(training.runtime, precision=before["precision"], free=False)
        try:
            if not 0 <= state["step"] <= training.recipe.steps or not 0 <= state["seconds"] < math.inf:
                raise ValueError("it is of no step of this training")
            training.restore(state)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise RunFailed(
                f"The checkpoint in {run.path} is of another training ({in_short(error)}); "
                "start again with --overwrite."
            ) from None
    run.cut_log(training.step)
    return training


def checkpoint_seconds() -> float:
    """Between checkpoints: the most that is lost."""
    given = os.environ.get("AFDA_CHECKPOINT_SECONDS", "60")
    try:
        return float(given)
    except ValueError:
        raise UserError(f"AFDA_CHECKPOINT_SECONDS is a number of seconds, not {given!r}.") from None


def check_data(run: Run, data: DataSet) -> None:
    """Refuse to go on with a run on other data than it began with."""
    if run.read_json("environment.json").get("data") != data.files:
        raise UserError(f"The data of {run.path} have changed since it began; start again with another --out.")


def fit(
    training: Training, run: Run, *, snapshots: bool = False, stop: threading.Event | None = None
) -> Iterator[dict[str, Any]]:
    """Train to the end and write the run's files. Yields each line of the log.

    `snapshots` keeps the model at every fifth line and tests all of them after the last update. When `stop` is set, the
    state is saved and KeyboardInterrupt raised.
    """
    recipe = training.recipe
    saved_step, saved_time, checkpoint_after = training.step, time.monotonic(), checkpoint_seconds()
    before, started = training.seconds, time.monotonic()
    every = max(1, recipe.steps // LOG_LINES)
    log = run.log()

    def check() -> None:
        if not training.finite():
            raise RunFailed(
                f"The loss stopped being a number between steps {saved_step} and {training.step}; "
                f"the checkpoint of step {saved_step} is kept. Try a lower learning rate, "
                f"such as --set optimisation.learning_rate={recipe.optimisation.learning_rate / 4:g}, "
                "with another --out."
            )

    def save() -> None:
        nonlocal saved_step, saved_time
        check()
        run.write_checkpoint(training.state())
        saved_step, saved_time = training.step, time.monotonic()

    if not (training.step or (run.path / CHECKPOINT).exists()):
        save()
    if processes.count() > 1:
        buffer = io.BytesIO()
        torch.save({**training.state(), "precision": training.runtime.precision}, buffer)
        processes.told(buffer.getvalue())
    for step in steps(training):
        training.seconds = before + time.monotonic() - started
        if step % every == 0 or step == recipe.steps:
            check()
            line = log_line(training, step % every or every)
            if step % (5 * every) == 0 or step == recipe.steps:
                line |= results.trace(training.model(), recipe, training.data, training.split, training.runtime)
                if snapshots:
                    run.write(f"{SNAPSHOT}{step}.safetensors", model_bytes(training.model()))
            training.sums = {}
            log.append(line)
            if warning := alarm(log, recipe):
                line["warning"] = warning
            run.append_log(line)
            yield line
        if processes.any_says(stop is not None and stop.is_set()):
            save()
            processes.told()  # the others may go
            raise KeyboardInterrupt
        if time.monotonic() - saved_time > checkpoint_after:
            save()

    training.seconds = before + time.monotonic() - started
    save()
    model = training.model()
    found = results.final(model, recipe, training.data, training.split, training.runtime)
    save_model(run, model, recipe, training.data.train.shape)
    run.write_json(
        "result.json",
        {
            **found,
            "seconds": round(training.seconds, 2),
            "images_per_second": round(recipe.steps * recipe.images_per_step / max(training.seconds, 1e-9), 1),
            "test_curve": results.test_curve(model, run, training.data, training.runtime) if snapshots else None,
        },
    )
    run.discard(*WORKING_FILES)


def assist(training: Training, stop: threading.Event | None = None) -> None:
    """What the other processes do while the first one does `fit`: the same updates from the same state. They write
    nothing, and do nothing if the first says nothing, since the run is finished."""
    if said := processes.told():
        state = torch.load(io.BytesIO(said), map_location="cpu", weights_only=True)
        training.runtime = replace(training.runtime, precision=state["precision"])
        training.restore(state)
        for _ in steps(training):
            if processes.any_says(stop is not None and stop.is_set()):
                processes.told()
                raise KeyboardInterrupt
