"""`afda train`: what it prints, writes and resumes."""

import json
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from command import FAST, read_error

from afda.data import load
from afda.machine.runtime import select_runtime
from afda.recipes import recipe
from afda.runs.directory import CHECKPOINT, Run
from afda.runs.model import compute_outputs
from afda.training import budget, check
from afda.training.baseline import make_baseline


def test_train_prints_only_json(finished):
    out, done, _ = finished
    assert done.returncode == 0
    printed = json.loads(done.stdout)
    assert printed.pop("run") == str(out)
    baseline, verdict = printed.pop("baseline"), printed.pop("verdict")  # of the run on the labels alone
    assert baseline["test_error"] == json.loads((out / "supervised-only" / "result.json").read_text())["test_error"]
    assert "unlabelled images" in verdict
    selection = printed.pop("selection")
    assert selection == Run(out).read_selection().summarise()
    assert (selection["chosen"], selection["reason"]) == ("vat+entropy-adversarial", "it was asked for")
    assert printed == json.loads((out / "result.json").read_text())
    assert "Traceback" not in done.stderr


def test_run_directory(finished):
    out, _, _ = finished
    promised = {"recipe.json", "environment.json", "log.jsonl", "model.safetensors", "model.json", "result.json"}
    assert promised <= {p.name for p in out.iterdir()}
    result = json.loads((out / "result.json").read_text())
    keys = "test_error val_error mmd2 bound labels seed steps seconds images_per_second"
    assert set(keys.split()) <= set(result)
    assert (result["labels"], result["seed"], result["steps"], result["val_error"]) == (20, 1, 20, None)
    assert [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines()] == list(range(1, 21))
    card = json.loads((out / "model.json").read_text())
    assert {"classes", "shape", "normalise", "net"} <= set(card)


def test_evaluate_gives_the_test_error(afda, finished, few):
    out, _, _ = finished
    result = json.loads((out / "result.json").read_text())
    for data in ([], [few]):
        code, text, err = afda("evaluate", out, *data, "--json", "--threads", 1)
        assert (code, err) == (0, "")
        found = json.loads(text)
        assert (found["error"], found["images"]) == (result["test_error"], 50)
        assert found["confusion"] == result["test"]["confusion"]
    code, text, _ = afda("evaluate", out, "digits", "--json", "--threads", 1)
    assert (code, json.loads(text)["images"]) == (0, 500)
    code, text, _ = afda("evaluate", out)
    assert code == 0
    assert f"{result['test_error']:.2f} %" in text


def test_an_existing_run_is_not_replaced(afda, finished):
    out, _, arguments = finished
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert "already exists; add --resume" in read_error(*afda(*arguments))
    message = read_error(*afda(*arguments, "--resume", "--set", "optimisation.learning_rate=0.25"))
    assert "optimisation.learning_rate: 0.003 there, 0.25 now" in message
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before


def test_resume_of_a_finished_run_prints_its_result(afda, finished):
    _, done, arguments = finished
    code, text, err = afda(*arguments, "--resume", "--json")
    assert (code, text, err) == (0, done.stdout, "")
    code, text, _ = afda(*arguments, "--resume")
    assert code == 0
    assert f"{json.loads(done.stdout)['test_error']:.2f} %" in text
    assert "The run was already finished" in text


def test_the_baseline_is_trained_in_the_precision_of_the_run(afda, few, tmp_path, monkeypatch):
    def precisions(name):
        paths = tmp_path / name, tmp_path / name / "supervised-only"
        return [Run(path).read_environment().precision for path in paths]

    options = ("--quiet", "--baseline", "--out")
    assert afda("train", few, *FAST, "--steps", 2, *options, tmp_path / "a", "--precision", "bfloat16")[0] == 0
    assert precisions("a") == ["bfloat16", "bfloat16"]
    shutil.rmtree(tmp_path / "a" / "supervised-only")
    assert afda("train", few, *options, tmp_path / "a", "--resume")[0] == 0
    assert precisions("a") == ["bfloat16", "bfloat16"]
    monkeypatch.setattr("afda.machine.runtime.has_fast_bfloat16", lambda _: True)
    wide = ("train", few, "--labels", 20, "--set", "net.width=1", "--steps", 2, *options)
    assert afda(*wide, tmp_path / "b", "--method", "vat+entropy")[0] == 0  # with VAT, which gains little from it
    assert precisions("b") == ["float32", "float32"]
    assert afda(*wide, tmp_path / "c", "--method", "mean-teacher")[0] == 0
    assert precisions("c") == ["bfloat16", "bfloat16"]
    tested = []

    def record_precision(model, x, runtime):
        tested.append(runtime.precision)
        return compute_outputs(model, x, runtime)

    monkeypatch.setattr("afda.runs.evaluate.compute_outputs", record_precision)
    for name, given in (("b", "auto"), ("c", "auto"), ("c", "float32")):
        assert afda("evaluate", tmp_path / name, "--precision", given)[0] == 0
    monkeypatch.setattr("afda.machine.runtime.has_fast_bfloat16", lambda _: False)
    assert afda("evaluate", tmp_path / "c")[0] == 0
    assert tested == ["float32", "bfloat16", "float32", "auto"]  # auto is float32 where there is no bfloat16


def test_the_baseline_is_timed_in_the_precision_of_the_run(few, monkeypatch):
    monkeypatch.setattr("afda.machine.runtime.has_fast_bfloat16", lambda _: True)
    data, timed = load(str(few)), []

    def instantly(training):
        timed.append(training.runtime.precision)
        return 1e-6

    for module in (budget, check):
        monkeypatch.setattr(module, "measure_step_seconds", instantly)
    made = recipe("own-images", data, labels=20).with_settings(["net=small", "net.width=1"])
    machine = select_runtime("cpu", "auto")
    budget.fit_steps(1, [made, make_baseline(made)], data, machine)
    check.estimate_time(made, data, machine)
    assert timed == ["float32"] * 3  # a check times the training only


def test_a_resumed_run_does_not_explain_its_precision(afda, tmp_path, few):
    out = tmp_path / "run"
    assert afda("train", few, *FAST, "--steps", 2, "--precision", "bfloat16", "--out", out)[0] == 0
    (out / "result.json").unlink()
    code, _, stderr = afda("train", few, "--out", out, "--resume")
    assert code == 0
    assert "training in bfloat16" not in stderr
    assert "no images are held out" not in stderr


def test_a_note_says_that_nothing_is_held_out(afda, digits, tmp_path):
    y = np.where(np.arange(100) < 40, digits.train.y[:100], -1)
    np.savez(tmp_path / "few.npz", x=digits.train.x[:100, 0].numpy(), y=y)
    code, _, stderr = afda("train", tmp_path / "few.npz", "--steps", 2, "--out", tmp_path / "run")
    assert code == 0
    assert "Note: there are too few labels (4 per class) to hold out a test set or a validation set" in stderr
    assert "candidates by cross-validation on the labels" in stderr
    result = Run(tmp_path / "run").read_result()
    assert (result.test_error, result.labels) == (None, 40)
    assert result.cross_validation.images == 40


def test_overwrite(afda, finished, few, tmp_path):
    assert afda("train", few, *FAST, "--steps", 2, "--quiet", "--out", tmp_path / "a") == (0, "", "")
    assert "5 labels cannot cover" in read_error(
        *afda("train", few, *FAST, "--set", "labels=5", "--overwrite", "--out", tmp_path / "a")
    )
    assert Run(tmp_path / "a").read_result().steps == 2
    code, text, _ = afda("train", few, *FAST, "--steps", 3, "--overwrite", "--json", "--out", tmp_path / "a")
    assert (code, json.loads(text)["steps"]) == (0, 3)


def test_digits_with_the_papers_method_by_default(afda, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = afda("train", "digits", "--steps", 20, "--labels", 30, "--threads", 1)
    assert code == 0
    assert "Note: using recipe digits-demo." in err
    assert "step 20/20" in err
    assert "test error" in out
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name == "digits-vat+entropy-adversarial-30-seed0"
    recipe = Run(run).read_recipe()
    assert (recipe.steps, recipe.labels, recipe.title) == (20, 30, "vat+entropy-adversarial")


def test_options_reach_the_recipe(afda, few, tmp_path):
    options = [
        "--method=pi-model",
        "--align=mmd",
        "--net=small",
        "--labels=12",
        "--steps=1",
        "--seed=5",
        "--validation",
    ]
    settings = ["--set", "net.width=0.25", "--set", "optimisation.learning_rate=0.002"]
    code, _, _ = afda("train", few, *options, *settings, "--quiet", "--out", tmp_path / "run")
    assert code == 0
    recipe = Run(tmp_path / "run").read_recipe()
    assert (recipe.title, recipe.net.name(), recipe.net.width) == ("pi-model-mmd", "small", 0.25)
    assert (recipe.labels, recipe.steps, recipe.seed, recipe.validation) == (12, 1, 5, True)
    assert recipe.optimisation.learning_rate == 0.002
    again = ["train", few, "--recipe", tmp_path / "run" / "recipe.json", "--quiet", "--out", tmp_path / "again"]
    assert afda(*again, "--method", "entropy", "--align", "none", "--steps", 2)[0] == 0
    recipe = Run(tmp_path / "again").read_recipe()
    assert (recipe.title, recipe.steps, recipe.labels) == ("entropy", 2, 12)


def test_names_that_look_like_markup(afda, few, tmp_path):
    data = tmp_path / "[red]a[bold].npz"
    data.write_bytes(few.read_bytes())
    out = tmp_path / "b[" / "x]"
    code, text, err = afda("train", data, *FAST, "--steps", 1, "--out", out)
    assert code == 0, err
    assert "[red]a[bold]" in text
    assert str(out) in text
    code, text, _ = afda("evaluate", out)
    assert (code, str(out) in text) == (0, True)


@pytest.mark.parametrize("name", ["svhn", "digits", "cifar10"])
def test_own_data_with_a_known_name(afda, tmp_path, name):
    np.savez(tmp_path / f"{name}.npz", x=np.random.default_rng(0).normal(size=(40, 5)), y=[0, 1, -1, -1] * 10)
    train = ("train", tmp_path / f"{name}.npz", "--steps", 1, "--out")
    assert afda(*train, tmp_path / "run")[0] == 0
    chosen = Run(tmp_path / "run").read_selection()
    assert {one.recipe["net"]["name"] for one in chosen.candidates} == {"linear", "mlp"}
    code, _, err = afda(*train, tmp_path / "named", "--method", "vat", "--no-baseline")
    assert code == 0
    assert "Note: using recipe own-vectors." in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_and_keeps_the_run(few, tmp_path, number):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "afda", "train", few, "--steps", 50_000, "--out", out, *FAST]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        while running.poll() is None and not (out / CHECKPOINT).exists():
            time.sleep(0.01)
        running.send_signal(number)
        printed, err = running.communicate()
    assert (running.returncode, printed) == (130, "")
    step = Run(out).read_checkpoint()["step"]
    message = f"Note: stopped after {step} of 50000 updates; continue with: afda train {few} --out {out} --resume"
    assert err.splitlines()[-1] == message
    assert "Traceback" not in err
    assert not Run(out).finished
