"""A run from its first update to its result, and the files it leaves behind."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from afda.data.images import Images
from afda.data.split import split
from afda.errors import UserError
from afda.measures import error_rate, mmd2, risk_bound
from afda.runs.directory import CHECKPOINT, Run
from afda.runs.model import compute_outputs, load_model
from afda.training import loop
from afda.training.loop import run_updates
from afda.training.run import train
from afda.training.state import begin
from contract import CPU
from small_runs import assert_same, make_light_recipe, read_log, read_result, read_weights, train_until


@pytest.fixture(scope="module")
def finished(some_digits, tmp_path_factory):
    made = make_light_recipe(some_digits, "mean-teacher", "adversarial", "steps=40", "validation=true", "seed=3")
    return made, train(made, some_digits, tmp_path_factory.mktemp("runs") / "run", on=CPU)


def test_files(finished):
    made, run = finished
    names = "environment.json log.jsonl model.json model.safetensors recipe.json result.json split.json"
    assert sorted(p.name for p in run.path.iterdir()) == [".lock", *names.split()]
    assert run.finished
    assert run.read_recipe() == made


def test_result_equals_what_the_saved_model_gives(some_digits, finished):
    _, run = finished
    found = run.read_result()
    keys = "test_error val_error mmd2 bound labels seed steps seconds images_per_second"
    assert set(keys.split()) <= set(found.to_dict())
    assert (found.labels, found.seed, found.steps) == (20, 3, 40)
    assert found.unlabelled == len(some_digits.train) - 40
    assert found.seconds >= 0
    assert found.images_per_second > 0

    model, shape = load_model(run.path)
    assert (shape, model.classes) == (some_digits.train.shape, some_digits.classes)
    parts = json.loads((run.path / "split.json").read_text())
    l, v = np.array(parts["labelled"]), np.array(parts["validation"])  # noqa: E741
    u = np.setdiff1d(np.arange(len(some_digits.train)), np.concatenate([l, v]))

    def of(images):
        return compute_outputs(model, images.x, CPU)

    test, validation = of(some_digits.test), of(some_digits.train[torch.from_numpy(v)])
    assert found.test_error == error_rate(test.logits.argmax(1), some_digits.test.y)
    assert found.val_error == error_rate(validation.logits.argmax(1), some_digits.train.y[v])
    assert np.sum(found.test.confusion) == 100
    assert 100 * (1 - np.trace(found.test.confusion) / 100) == pytest.approx(found.test_error)
    recalls = np.diag(found.test.confusion) / np.sum(found.test.confusion, axis=1)
    written = json.loads((run.path / "result.json").read_text())
    assert written["balanced_error"] == found.balanced_error == pytest.approx(100 * (1 - recalls.mean()))
    labelled, unlabelled = some_digits.train[torch.from_numpy(l)], some_digits.train[torch.from_numpy(u)]
    f_l, f_u = of(labelled).features, of(unlabelled).features
    assert found.mmd2 == pytest.approx(float(mmd2(f_l, f_u)))
    bound = risk_bound(f_l, labelled.y, f_u, unlabelled.y, *model.classifier.fold_linear())
    assert found.bound == pytest.approx(bound.as_dict())
    assert {"features_true", "labels_true", "features_predicted", "labels_predicted"} <= set(found.bound)
    assert found.bound["gap"] <= found.bound["total"] + found.bound["remainder"]


def test_the_split_is_a_function_of_labels_and_seed(some_digits, finished):
    made, run = finished
    parts = json.loads((run.path / "split.json").read_text())
    again = split(some_digits.train.y, some_digits.classes, labels=20, seed=3, balanced=made.balanced, validation=True)
    assert parts["labelled"] == again.labelled.tolist()
    assert parts["validation"] == again.validation.tolist()
    assert parts["counts"] == {"labelled": 20, "validation": 20, "unlabelled": len(again.unlabelled)}
    assert set(some_digits.train.y[parts["labelled"]].tolist()) == set(range(10))


def test_the_teacher_is_what_is_kept(some_digits, finished, tmp_path):
    made, run = finished
    training = begin(made, some_digits, CPU)
    for _ in run_updates(training):
        pass
    model, _ = load_model(run.path)
    teacher, student = training.nets.teacher.state_dict(), training.nets.student.state_dict()
    kept = model.classifier.state_dict()
    assert all(torch.equal(kept[k], teacher[k]) for k in kept)
    assert not torch.equal(kept["g.weight"], student["g.weight"])


def test_environment(some_digits, finished):
    _, run = finished
    known = run.read_environment()
    assert {"device", "precision", "threads", "python", "torch", "platform"} <= known.model_fields_set
    assert (known.source, known.data) == ("digits", some_digits.files)


def test_log_columns(finished):
    made, run = finished
    lines = run.log.read()
    assert [line.step for line in lines] == list(range(1, 41))
    always = {"step", "supervised", "consistency", "alignment", "discriminator_accuracy", "learning_rate", "mu"}
    for line in lines:
        if line.step % 5:
            assert set(line.to_dict()) == always | {"seconds"}
        else:
            assert set(line.to_dict()) >= always | {"seconds", "mmd2", "bound", "val_error"}
        t = (line.step - 1) / 40
        assert line.values["learning_rate"] == made.optimisation.compute_rates(t).learning_rate
        assert line.values["mu"] == pytest.approx(made.align.mu(t), abs=1e-6)
        assert 0 <= line.values["discriminator_accuracy"] <= 1
    assert lines[-1].values["val_error"] == run.read_result().val_error
    assert [line.seconds for line in lines] == sorted(line.seconds for line in lines)


@pytest.mark.parametrize(
    ("method", "align", "columns"),
    [
        ("supervised", "none", {"supervised"}),
        ("vat+entropy", "none", {"supervised", "consistency", "entropy"}),
        ("supervised", "mmd", {"supervised", "alignment", "mu"}),
        ("supervised", "reversal", {"supervised", "alignment", "mu", "discriminator_accuracy"}),
    ],
)
def test_columns_of_other_methods(some_digits, tmp_path, method, align, columns):
    (line,) = train(
        make_light_recipe(some_digits, method, align, "steps=1"), some_digits, tmp_path / "run", on=CPU
    ).log.read()
    terms = {"supervised", "consistency", "entropy", "alignment", "mu", "discriminator_accuracy"}
    assert set(line.to_dict()) & terms == columns
    assert set(line.to_dict()) >= {"step", "learning_rate", "seconds", "mmd2", "bound"}
    assert "val_error" not in line.values


def test_a_second_call_changes_nothing(some_digits, finished):
    made, run = finished
    before = {p.name: p.stat().st_mtime_ns for p in run.path.iterdir() if p.name != ".lock"}
    assert train(made, some_digits, run.path, resume=True).read_result() == run.read_result()
    assert {p.name: p.stat().st_mtime_ns for p in run.path.iterdir() if p.name != ".lock"} == before
    with pytest.raises(UserError, match="already exists"):
        train(made, some_digits, run.path)


# A training finishes the run or raises


def test_a_callback_that_raises_leaves_a_run_that_can_be_resumed(some_digits, tmp_path):
    made, steps, started = make_light_recipe(some_digits), [], []

    def fail(line):
        steps.append(line.step)
        if line.step == 5:
            raise ZeroDivisionError("of the callback")

    with pytest.raises(ZeroDivisionError, match="of the callback"):
        train(made, some_digits, tmp_path / "run", on=CPU, on_log=fail)
    assert steps == [1, 2, 3, 4, 5]
    run = Run(tmp_path / "run")
    assert not run.finished
    with pytest.raises(UserError, match="not finished"):
        load_model(run.path)

    def start(training):
        started.append(training.step)

    resumed = train(made, some_digits, run.path, on=CPU, resume=True, on_start=start)
    assert len(started) == 1
    assert_same(train(made, some_digits, tmp_path / "whole", on=CPU), resumed)


def test_a_callback_that_raises_at_the_start_changes_nothing(some_digits, tmp_path):
    made = make_light_recipe(some_digits)

    def fail(training):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(made, some_digits, tmp_path / "run", on=CPU, on_start=fail)
    assert not Run(tmp_path / "run").finished
    whole = train(made, some_digits, tmp_path / "whole", on=CPU)
    assert_same(whole, train(made, some_digits, tmp_path / "run", on=CPU, resume=True))


@pytest.mark.parametrize("answer", [None, False, StopIteration, iter(())])
def test_no_answer_of_a_callback_stops_a_training(some_digits, tmp_path, answer):
    made, lines = make_light_recipe(some_digits), []

    def on_log(line):
        lines.append(line)
        return answer

    run = train(made, some_digits, tmp_path / "run", on=CPU, on_start=lambda _: answer, on_log=on_log)
    assert run.finished
    assert [line.step for line in lines] == list(range(1, 13))
    assert lines == run.log.read()


@pytest.mark.parametrize("error", [StopIteration, GeneratorExit])
def test_an_exception_that_ends_generators_is_raised_too(some_digits, tmp_path, error):
    def fail(line):
        raise error

    with pytest.raises(error):
        train(make_light_recipe(some_digits), some_digits, tmp_path / "run", on=CPU, on_log=fail)
    assert not Run(tmp_path / "run").finished


def test_a_stopped_training_raises(some_digits, tmp_path):
    made, stop = make_light_recipe(some_digits), threading.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        train(made, some_digits, tmp_path / "run", on=CPU, stop=stop)
    run = Run(tmp_path / "run")
    assert not run.finished
    assert run.read_checkpoint()["step"] == 1


# The test set has no influence


def test_the_test_set_has_no_influence(some_digits, tmp_path):
    made = make_light_recipe(
        some_digits, "vat+entropy", "adversarial", "validation=true", "preparation.normalise=standard"
    )
    noise = torch.Generator().manual_seed(0)
    garbage = Images(
        torch.randint(0, 256, some_digits.test.x.shape, generator=noise, dtype=torch.uint8),
        torch.randint(0, 10, some_digits.test.y.shape, generator=noise),
    )
    honest = train_until(made, some_digits, tmp_path / "honest")
    other = train_until(made, replace(some_digits, test=garbage), tmp_path / "garbage")
    none = train_until(made, replace(some_digits, test=None), tmp_path / "none")
    assert read_weights(honest) == read_weights(other) == read_weights(none)
    assert read_log(honest) == read_log(other) == read_log(none)
    of_test = {"test": 0, "test_error": 0, "balanced_error": 0}
    for run in (other, none):
        assert read_result(run) | of_test == read_result(honest) | of_test
    assert read_result(honest)["test_error"] != read_result(other)["test_error"]
    assert read_result(none)["test_error"] is None


class Sealed:
    """A test set that counts the updates done before anybody looks into it."""

    def __init__(self, images, updates):
        self.images, self.updates, self.opened = images, updates, []

    def __getattr__(self, name):
        self.opened.append(len(self.updates))
        return getattr(self.images, name)

    def __len__(self):
        return 0


def test_the_test_set_is_opened_after_the_last_update(some_digits, tmp_path, monkeypatch):
    made, updates = make_light_recipe(some_digits), []
    sealed = Sealed(some_digits.test, updates)
    monkeypatch.setattr(loop, "set_rates", lambda *_, f=loop.set_rates: (updates.append(1), f(*_)))
    run = train_until(made, replace(some_digits, test=sealed), tmp_path / "run")
    assert sealed.opened
    assert set(sealed.opened) == {made.steps}
    assert read_result(run) == read_result(train_until(made, some_digits, tmp_path / "plain"))


# Mistakes are noticed before anything is written


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["labels=5"], "5 labels cannot cover the 10 classes"),
        (["labels=5000"], "5000 labels were asked for, but only 250"),
        (["labels=250"], "Every training image has a label"),
        (["labels=null"], "Every training image has a label"),
        (["labels=200", "validation=true"], "Only 50 labels are left for a validation set of 200"),
    ],
)
def test_mistakes_leave_what_is_there_alone(some_digits, tmp_path, settings, words):
    made = make_light_recipe(some_digits)
    run = train_until(made, some_digits, tmp_path / "run", stop_at=2)
    before = (run.path / CHECKPOINT).read_bytes()
    wrong = made.with_settings(settings)
    with pytest.raises(UserError, match=words):
        train(wrong, some_digits, run.path, overwrite=True)
    with pytest.raises(UserError, match=words):
        train(wrong, some_digits, tmp_path / "new")
    assert (run.path / CHECKPOINT).read_bytes() == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("net", "shape"), [("small", (5,)), ("conv-large", (5,)), ("conv-large", (1, 2, 2))])
def test_a_net_that_cannot_take_the_inputs(some_digits, tmp_path, net, shape):
    images = Images(torch.zeros(30, *shape), torch.arange(30) % 10)
    made = make_light_recipe(some_digits, "supervised", "none", f"net={net}")
    with pytest.raises(UserError, match=rf"The net {net} cannot take inputs of shape .*choose another --net"):
        train(made, replace(some_digits, train=images, test=None), tmp_path / "run", on=CPU)
    assert not (tmp_path / "run").exists()
