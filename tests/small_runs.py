"""Runs on a few digits whose updates take milliseconds, and what is compared of them."""

import threading

from afda.recipes import recipe
from afda.runs.directory import open_run
from afda.training.run import fit, load_checkpoint
from afda.training.state import begin
from contract import CPU

LIGHT = ["labels=20", "labelled_batch=4", "unlabelled_batch=8", "net=mlp", "net.hidden=16", "net.features=8"]


def make_light_recipe(digits, method="vat+entropy", align="adversarial", *settings):
    """Return a recipe whose updates take milliseconds."""
    small = ["align.hidden=8"] if align in ("adversarial", "reversal") else []
    return recipe("digits-demo", digits, method, align).with_settings([*LIGHT, *small, "steps=12", *settings])


def train_until(made, data, path, stop_at=None):
    """Train to the end, or until `stop_at` updates are done; continue where an earlier call stopped."""
    run = open_run(path, made, resume=True)
    stop = threading.Event()

    def stop_if_due(line):
        if line.step == stop_at:
            stop.set()

    try:
        training = begin(made, data, CPU)
        load_checkpoint(training, run)
        fit(training, run, stop=stop, on_log=stop_if_due)
    except KeyboardInterrupt:
        assert stop.is_set()
    finally:
        run.unlock()
    return run


def read_log(run):
    """Return the lines of a run's log without their times."""
    return [line.model_dump(exclude={"seconds"}) for line in run.log.read()]


def read_result(run):
    """Return a run's result without its times."""
    return run.read_result().model_dump(exclude={"seconds", "images_per_second"})


def read_weights(run):
    return (run.path / "model.safetensors").read_bytes()


def assert_same(a, b):
    """Check that two runs are the same to the last bit."""
    assert read_weights(a) == read_weights(b)
    assert read_log(a) == read_log(b)
    assert read_result(a) == read_result(b)
    assert (a.path / "split.json").read_text() == (b.path / "split.json").read_text()
