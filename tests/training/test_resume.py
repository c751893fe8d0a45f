"""A stopped, killed or damaged run continues to the same bits; a diverging one keeps its checkpoint."""

import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from afda import losses
from afda.errors import RunFailed, UserError
from afda.runs.directory import CHECKPOINT, Run, open_run
from afda.runs.log import LogLine
from afda.training import loop
from afda.training.run import fit, load_checkpoint
from afda.training.state import begin
from contract import CPU
from small_runs import assert_same, make_light_recipe, read_log, read_weights, train_until


@pytest.mark.parametrize(
    ("method", "align", "settings"),
    [
        ("supervised", "adversarial", []),
        ("pi-model", "adversarial", []),
        ("fixmatch", "none", []),
        ("temporal-ensembling", "adversarial", []),
        ("mean-teacher", "adversarial", []),
        ("vat+entropy", "adversarial", []),
        ("vat+entropy", "reversal", []),
        ("entropy", "mmd", []),
        ("supervised", "none", []),
        ("supervised", "none", ["sampling=balanced"]),
        ("vat+entropy", "adversarial", ["logit_adjustment=1", "balanced=false"]),
        ("vat+entropy", "adversarial", ["method.entropy.prior=uniform", "align.shares=matched"]),
        ("entropy", "mmd", ["method.entropy.prior=estimated", "align.shares=matched", "shares_by=em"]),
        ("supervised", "reversal", ["align.shares=matched", "shares_by=bbse"]),
    ],
)
def test_a_resumed_run_is_the_same_to_the_last_bit(some_digits, tmp_path, method, align, settings):
    made = make_light_recipe(some_digits, method, align, "net=small", "net.width=0.25", "validation=true", *settings)
    whole = train_until(made, some_digits, tmp_path / "whole")
    for step in (1, 5, 11):
        parts = train_until(made, some_digits, tmp_path / "parts", stop_at=step)
        assert not parts.finished
        assert parts.read_checkpoint()["step"] == step
    parts = train_until(made, some_digits, tmp_path / "parts")
    assert_same(whole, parts)
    assert not list(parts.path.glob("*.pt"))


def test_clipped_vectors_are_clipped_in_a_resumed_run(some_digits, tmp_path):
    images = some_digits.train
    data = replace(some_digits, train=replace(images, x=images.x.flatten(1).float()), test=None)
    made = make_light_recipe(data, "vat+entropy", "adversarial", "preparation.clip=1.5")
    whole = train_until(made, data, tmp_path / "whole")
    train_until(made, data, tmp_path / "parts", stop_at=5)
    assert_same(whole, train_until(made, data, tmp_path / "parts"))
    free = train_until(made.with_settings(["preparation.clip=null"]), data, tmp_path / "free")
    assert read_weights(free) != read_weights(whole)


def test_stopping_between_lines_of_the_log(some_digits, tmp_path, monkeypatch):
    """Sums since the last line, and lines that were logged after the last checkpoint."""
    made = make_light_recipe(some_digits, "vat+entropy", "adversarial", "steps=20")
    monkeypatch.setattr("afda.training.run.LOG_LINES", 4)

    def in_lines_of_five(path, stop_after=None):
        run = open_run(path, made, resume=True)
        training, stop = begin(made, some_digits, CPU), threading.Event()
        load_checkpoint(training, run)

        def record(training, parts, record=loop.record):
            record(training, parts)
            if training.step == stop_after:
                stop.set()

        try:
            with monkeypatch.context() as patch:
                patch.setattr(loop, "record", record)
                fit(training, run, stop=stop)
        except KeyboardInterrupt:
            assert training.step == stop_after
        run.unlock()
        return run

    whole = in_lines_of_five(tmp_path / "whole")
    assert [line["step"] for line in read_log(whole)] == [5, 10, 15, 20]
    assert ["mmd2" in line["values"] for line in read_log(whole)] == [False, False, False, True]
    parts = in_lines_of_five(tmp_path / "parts", stop_after=7)
    # As if it had continued and died before the next checkpoint.
    parts.log.append(LogLine(step=10, values={"supervised": 0.0}))
    assert_same(whole, in_lines_of_five(tmp_path / "parts"))


def test_going_on_from_the_checkpoint_before_a_damaged_one(some_digits, tmp_path):
    made = make_light_recipe(some_digits)
    whole = train_until(made, some_digits, tmp_path / "whole")
    train_until(made, some_digits, tmp_path / "parts", stop_at=4)
    parts = train_until(made, some_digits, tmp_path / "parts", stop_at=8)
    content = bytearray((parts.path / CHECKPOINT).read_bytes())
    content[1000] ^= 4
    (parts.path / CHECKPOINT).write_bytes(content)
    assert parts.read_checkpoint()["step"] == 4
    assert_same(whole, train_until(made, some_digits, tmp_path / "parts"))


def test_stopping_at_the_very_end(some_digits, tmp_path):
    made = make_light_recipe(some_digits)
    parts = train_until(made, some_digits, tmp_path / "parts", stop_at=12)
    assert not parts.finished
    assert_same(train_until(made, some_digits, tmp_path / "whole"), train_until(made, some_digits, tmp_path / "parts"))


def test_a_run_is_not_resumed_on_other_data(some_digits, tmp_path):
    made = make_light_recipe(some_digits)
    train_until(made, some_digits, tmp_path / "run", stop_at=4)
    with pytest.raises(UserError, match="have changed since it was started"):
        train_until(made, replace(some_digits, files={"x": "y"}), tmp_path / "run")


KILLABLE = """
import os, sys
from afda.cli import main
os.environ["AFDA_CHECKPOINT_SECONDS"] = "0.02"
sys.argv = ["afda", *sys.argv[1:]]
main()
"""


def test_killed_at_random_moments_and_resumed(some_digits, tmp_path):
    made = make_light_recipe(some_digits, "vat+entropy", "adversarial", "steps=120", "data=few")
    (tmp_path / "recipe.json").write_text(made.to_json())
    np.savez(tmp_path / "few.npz", x=some_digits.train.x[:, 0], y=some_digits.train.y)

    def start(out):
        arguments = ["train", f"{tmp_path}/few.npz", "--recipe", f"{tmp_path}/recipe.json", "--out", out]
        arguments += ["--resume"] if (out / "recipe.json").exists() else []
        command = [sys.executable, "-c", KILLABLE, *arguments, "--threads", "1", "--quiet"]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def finish(out):
        process = start(out)
        _, complaint = process.communicate()
        assert (process.returncode, complaint) == (0, "")
        return Run(out)

    whole = finish(tmp_path / "whole")
    choose, killed = random.Random(0), Run(tmp_path / "killed")
    for lines in sorted(choose.sample(range(1, 90), 3)):
        with start(killed.path) as process:
            # Not after some time but after some progress, so that a slow machine is killed at work too.
            while process.poll() is None and len(killed.log.read()) < lines:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert not killed.finished
    assert_same(whole, finish(killed.path))
    assert killed.read_checkpoint() is None


# Numbers that are not finite


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_diverging_run_stops_and_keeps_its_checkpoint(some_digits, tmp_path, optimizer):
    settings = (f"optimisation.optimizer={optimizer}", "optimisation.learning_rate=1e36")
    made = make_light_recipe(some_digits, "supervised", "none", *settings)
    with pytest.raises(RunFailed, match=r"checkpoint .*is kept\. Try a lower learning rate"):
        train_until(made, some_digits, tmp_path / "run")
    run = Run(tmp_path / "run")
    assert not run.finished
    assert run.read_checkpoint()["step"] == 0
    assert all(torch.isfinite(w).all() for w in run.read_checkpoint()["modules"]["student"].values())


def test_huge_but_finite_weights(some_digits, tmp_path):
    """Losses and weights are numbers still, what is measured of the features is not."""
    made = make_light_recipe(
        some_digits, "supervised", "none", "optimisation.learning_rate=1e19", "steps=1", "net=small"
    )
    with pytest.raises(RunFailed, match="Try a lower learning rate"):
        train_until(made, some_digits, tmp_path / "run")
    assert Run(tmp_path / "run").read_checkpoint()["step"] == 0


def test_one_loss_that_is_not_a_number(some_digits, tmp_path, monkeypatch):
    made, calls = make_light_recipe(some_digits, "vat+entropy", "adversarial"), []
    train_until(made, some_digits, tmp_path / "run", stop_at=6)
    before = (tmp_path / "run" / CHECKPOINT).read_bytes()

    def entropy(logits, f=losses.entropy):
        calls.append(1)
        return f(logits) * (float("nan") if len(calls) == 3 else 1)

    with monkeypatch.context() as patch:
        patch.setattr(losses, "entropy", entropy)
        with pytest.raises(RunFailed, match="between steps 6 and 9; the checkpoint of step 6 is kept"):
            train_until(made, some_digits, tmp_path / "run")
    assert (tmp_path / "run" / CHECKPOINT).read_bytes() == before
    assert_same(train_until(made, some_digits, tmp_path / "whole"), train_until(made, some_digits, tmp_path / "run"))
