import copy
import json
import os
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
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from afda import algorithm, fit, losses
from afda.choices import names
from afda.data.images import Images
from afda.data.split import split
from afda.errors import RunFailed, UserError
from afda.inference import load_model, outputs
from afda.measures import error_rate, mmd2, risk_bound
from afda.methods.vat import VAT
from afda.nets.mlp import MLP
from afda.recipes import recipe
from afda.runs import CHECKPOINT, Run, open_run
from afda.runtime import Runtime
from afda.training import begin

CPU = Runtime(torch.device("cpu"))
LIGHT = ["labels=20", "labelled_batch=4", "unlabelled_batch=8", "net=mlp", "net.hidden=16", "net.features=8"]


@pytest.fixture(scope="module")
def digits(digits):
    """Fewer of them: what takes time is measuring their features."""
    return replace(digits, train=digits.train[torch.arange(250)], test=digits.test[torch.arange(100)])


def light(digits, method="vat+entropy", align="adversarial", *settings):
    """A recipe whose updates take milliseconds."""
    small = ["align.hidden=8"] if align in ("adversarial", "reversal") else []
    return recipe("digits-demo", digits, method, align).with_settings([*LIGHT, *small, "steps=12", *settings])


def trained(made, data, path, stop_at=None):
    """Train to the end, or until `stop_at` updates are done; goes on where an earlier call left off."""
    run = open_run(path, made, resume=True)
    stop = threading.Event()
    try:
        for line in fit.fit(fit.prepared(begin(made, data, CPU), run), run, stop=stop):
            if line["step"] == stop_at:
                stop.set()
    except KeyboardInterrupt:
        assert stop.is_set()
    finally:
        run.unlock()
    return run


def log(run):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in run.log()]


def result(run):
    return {k: v for k, v in run.result().items() if k not in ("seconds", "images_per_second")}


def weights(run):
    return (run.path / "model.safetensors").read_bytes()


def assert_same(a, b):
    assert weights(a) == weights(b)
    assert log(a) == log(b)
    assert result(a) == result(b)
    assert (a.path / "split.json").read_text() == (b.path / "split.json").read_text()


# Resuming


@pytest.mark.parametrize(
    ("method", "align"),
    [
        ("supervised", "adversarial"),
        ("pi-model", "adversarial"),
        ("mean-teacher", "adversarial"),
        ("vat+entropy", "adversarial"),
        ("vat+entropy", "reversal"),
        ("entropy", "mmd"),
        ("supervised", "none"),
    ],
)
def test_a_resumed_run_is_the_same_to_the_last_bit(digits, tmp_path, method, align):
    made = light(digits, method, align, "net=small", "net.width=0.25", "validation=true")
    whole = trained(made, digits, tmp_path / "whole")
    for step in (1, 5, 11):
        parts = trained(made, digits, tmp_path / "parts", stop_at=step)
        assert not parts.finished
        assert parts.read_checkpoint()["step"] == step
    parts = trained(made, digits, tmp_path / "parts")
    assert_same(whole, parts)
    assert not list(parts.path.glob("*.pt"))


def test_stopping_between_lines_of_the_log(digits, tmp_path, monkeypatch):
    """Sums since the last line, and lines that were logged after the last checkpoint."""
    made = light(digits, "vat+entropy", "adversarial", "steps=20")
    monkeypatch.setattr(fit, "LOG_LINES", 4)

    def in_lines_of_five(path, stop_after=None):
        run = open_run(path, made, resume=True)
        training = fit.prepared(begin(made, digits, CPU), run)
        stop = threading.Event()
        record = training.record

        def counted(terms):
            record(terms)
            if training.step == stop_after:
                stop.set()

        training.record = counted
        try:
            list(fit.fit(training, run, stop=stop))
        except KeyboardInterrupt:
            assert training.step == stop_after
        run.unlock()
        return run

    whole = in_lines_of_five(tmp_path / "whole")
    assert [line["step"] for line in log(whole)] == [5, 10, 15, 20]
    assert ["mmd2" in line for line in log(whole)] == [False, False, False, True]
    parts = in_lines_of_five(tmp_path / "parts", stop_after=7)
    parts.append_log({"step": 10, "supervised": 0.0})  # as if it had gone on and died before the next checkpoint
    assert_same(whole, in_lines_of_five(tmp_path / "parts"))


def test_going_on_from_the_checkpoint_before_a_damaged_one(digits, tmp_path):
    made = light(digits)
    whole = trained(made, digits, tmp_path / "whole")
    trained(made, digits, tmp_path / "parts", stop_at=4)
    parts = trained(made, digits, tmp_path / "parts", stop_at=8)
    content = bytearray((parts.path / CHECKPOINT).read_bytes())
    content[1000] ^= 4
    (parts.path / CHECKPOINT).write_bytes(content)
    assert parts.read_checkpoint()["step"] == 4
    assert_same(whole, trained(made, digits, tmp_path / "parts"))


def test_stopping_at_the_very_end(digits, tmp_path):
    made = light(digits)
    parts = trained(made, digits, tmp_path / "parts", stop_at=12)
    assert not parts.finished
    assert_same(trained(made, digits, tmp_path / "whole"), trained(made, digits, tmp_path / "parts"))


def test_a_run_is_not_resumed_on_other_data(digits, tmp_path):
    made = light(digits)
    trained(made, digits, tmp_path / "run", stop_at=4)
    with pytest.raises(UserError, match="have changed since it began"):
        trained(made, replace(digits, files={"x": "y"}), tmp_path / "run")


KILLABLE = """
import os, sys
from afda.cli import main
os.environ["AFDA_CHECKPOINT_SECONDS"] = "0.02"
sys.argv = ["afda", *sys.argv[1:]]
main()
"""


def test_killed_at_random_moments_and_resumed(digits, tmp_path):
    made = light(digits, "vat+entropy", "adversarial", "steps=120", "data=few")
    (tmp_path / "recipe.json").write_text(made.to_json())
    np.savez(tmp_path / "few.npz", x=digits.train.x[:, 0], y=digits.train.y)

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
            while process.poll() is None and len(killed.log()) < lines:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert not killed.finished
    assert_same(whole, finish(killed.path))
    assert killed.read_checkpoint() is None


# The test set is sealed


def test_the_test_set_has_no_influence(digits, tmp_path):
    made = light(digits, "vat+entropy", "adversarial", "validation=true", "preparation.normalise=standard")
    noise = torch.Generator().manual_seed(0)
    garbage = Images(
        torch.randint(0, 256, digits.test.x.shape, generator=noise, dtype=torch.uint8),
        torch.randint(0, 10, digits.test.y.shape, generator=noise),
    )
    honest = trained(made, digits, tmp_path / "honest")
    other = trained(made, replace(digits, test=garbage), tmp_path / "garbage")
    none = trained(made, replace(digits, test=None), tmp_path / "none")
    assert weights(honest) == weights(other) == weights(none)
    assert log(honest) == log(other) == log(none)
    for run in (other, none):
        assert result(run) | {"test": 0, "test_error": 0} == result(honest) | {"test": 0, "test_error": 0}
    assert result(honest)["test_error"] != result(other)["test_error"]
    assert result(none)["test_error"] is None


class Sealed:
    """A test set that counts the updates done before anybody looks into it."""

    def __init__(self, images, updates):
        self.images, self.updates, self.opened = images, updates, []

    def __getattr__(self, name):
        self.opened.append(len(self.updates))
        return getattr(self.images, name)

    def __len__(self):
        return 0


def test_the_test_set_is_opened_after_the_last_update(digits, tmp_path, monkeypatch):
    made, updates = light(digits), []
    sealed = Sealed(digits.test, updates)
    monkeypatch.setattr(algorithm, "set_rates", lambda *_, f=algorithm.set_rates: (updates.append(1), f(*_)))
    run = trained(made, replace(digits, test=sealed), tmp_path / "run")
    assert sealed.opened
    assert set(sealed.opened) == {made.steps}
    assert result(run) == result(trained(made, digits, tmp_path / "plain"))


# Numbers that are none


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_diverging_run_stops_and_keeps_its_checkpoint(digits, tmp_path, optimizer):
    settings = (f"optimisation.optimizer={optimizer}", "optimisation.learning_rate=1e36")
    made = light(digits, "supervised", "none", *settings)
    with pytest.raises(RunFailed, match=r"checkpoint .*is kept\. Try a lower learning rate"):
        trained(made, digits, tmp_path / "run")
    run = Run(tmp_path / "run")
    assert not run.finished
    assert run.read_checkpoint()["step"] == 0
    assert all(torch.isfinite(w).all() for w in run.read_checkpoint()["student"].values())


def test_huge_but_finite_weights(digits, tmp_path):
    """Losses and weights are numbers still, what is measured of the features is not."""
    made = light(digits, "supervised", "none", "optimisation.learning_rate=1e19", "steps=1", "net=small")
    with pytest.raises(RunFailed, match="Try a lower learning rate"):
        trained(made, digits, tmp_path / "run")
    assert Run(tmp_path / "run").read_checkpoint()["step"] == 0


def test_one_loss_that_is_not_a_number(digits, tmp_path, monkeypatch):
    made, calls = light(digits, "vat+entropy", "adversarial"), []
    trained(made, digits, tmp_path / "run", stop_at=6)
    before = (tmp_path / "run" / CHECKPOINT).read_bytes()

    def entropy(logits, f=losses.entropy):
        calls.append(1)
        return f(logits) * (float("nan") if len(calls) == 3 else 1)

    with monkeypatch.context() as patch:
        patch.setattr(losses, "entropy", entropy)
        with pytest.raises(RunFailed, match="between steps 6 and 9; the checkpoint of step 6 is kept"):
            trained(made, digits, tmp_path / "run")
    assert (tmp_path / "run" / CHECKPOINT).read_bytes() == before
    assert_same(trained(made, digits, tmp_path / "whole"), trained(made, digits, tmp_path / "run"))


# What a run leaves behind


@pytest.fixture(scope="module")
def finished(digits, tmp_path_factory):
    made = light(digits, "mean-teacher", "adversarial", "steps=40", "validation=true", "seed=3")
    return made, fit.train(made, digits, tmp_path_factory.mktemp("runs") / "run", on=CPU)


def test_files(finished):
    made, run = finished
    names = "environment.json log.jsonl model.json model.safetensors recipe.json result.json split.json"
    assert sorted(p.name for p in run.path.iterdir()) == [".lock", *names.split()]
    assert run.finished
    assert run.recipe() == made


def test_result_equals_what_the_saved_model_gives(digits, finished):
    _, run = finished
    found = run.result()
    keys = "test_error val_error mmd2 bound labels seed steps seconds images_per_second"
    assert set(keys.split()) <= set(found)
    assert (found["labels"], found["seed"], found["steps"]) == (20, 3, 40)
    assert found["unlabelled"] == len(digits.train) - 40
    assert found["seconds"] >= 0
    assert found["images_per_second"] > 0

    model, shape = load_model(run.path)
    assert (shape, model.classes) == (digits.train.shape, digits.classes)
    parts = json.loads((run.path / "split.json").read_text())
    l, v = np.array(parts["labelled"]), np.array(parts["validation"])  # noqa: E741
    u = np.setdiff1d(np.arange(len(digits.train)), np.concatenate([l, v]))

    def of(images):
        return outputs(model, images.x, CPU)

    test, validation = of(digits.test), of(digits.train[torch.from_numpy(v)])
    assert found["test_error"] == error_rate(test.logits.argmax(1), digits.test.y)
    assert found["val_error"] == error_rate(validation.logits.argmax(1), digits.train.y[v])
    assert np.sum(found["test"]["confusion"]) == 100
    assert 100 * (1 - np.trace(found["test"]["confusion"]) / 100) == pytest.approx(found["test_error"])
    labelled, unlabelled = digits.train[torch.from_numpy(l)], digits.train[torch.from_numpy(u)]
    f_l, f_u = of(labelled).features, of(unlabelled).features
    assert found["mmd2"] == pytest.approx(float(mmd2(f_l, f_u)))
    bound = risk_bound(f_l, labelled.y, f_u, unlabelled.y, *model.classifier.linear())
    assert found["bound"] == pytest.approx(bound.as_dict())
    assert {"features_true", "labels_true", "features_predicted", "labels_predicted"} <= set(found["bound"])
    assert found["bound"]["gap"] <= found["bound"]["total"] + found["bound"]["remainder"]


def test_the_split_is_a_function_of_labels_and_seed(digits, finished):
    made, run = finished
    parts = json.loads((run.path / "split.json").read_text())
    again = split(digits.train.y, digits.classes, labels=20, seed=3, balanced=made.balanced, validation=True)
    assert parts["labelled"] == again.labelled.tolist()
    assert parts["validation"] == again.validation.tolist()
    assert parts["counts"] == {"labelled": 20, "validation": 20, "unlabelled": len(again.unlabelled)}
    assert set(digits.train.y[parts["labelled"]].tolist()) == set(range(10))


def test_the_teacher_is_what_is_kept(digits, finished, tmp_path):
    made, run = finished
    training = begin(made, digits, CPU)
    for _ in algorithm.steps(training):
        pass
    model, _ = load_model(run.path)
    teacher, student = training.nets.teacher.state_dict(), training.nets.student.state_dict()
    kept = model.classifier.state_dict()
    assert all(torch.equal(kept[k], teacher[k]) for k in kept)
    assert not torch.equal(kept["g.weight"], student["g.weight"])


def test_environment(digits, finished):
    _, run = finished
    known = run.read_json("environment.json")
    assert {"device", "precision", "threads", "python", "torch", "platform"} <= set(known)
    assert (known["source"], known["data"]) == ("digits", digits.files)


def test_log_columns(finished):
    made, run = finished
    lines = run.log()
    assert [line["step"] for line in lines] == list(range(1, 41))
    always = {"step", "supervised", "consistency", "alignment", "discriminator_accuracy", "learning_rate", "mu"}
    for line in lines:
        if line["step"] % 5:
            assert set(line) == always | {"seconds"}
        else:
            assert set(line) >= always | {"seconds", "mmd2", "bound", "val_error"}
        t = (line["step"] - 1) / 40
        assert line["learning_rate"] == made.optimisation.rates(t)["learning_rate"]
        assert line["mu"] == pytest.approx(made.align.mu(t), abs=1e-6)
        assert 0 <= line["discriminator_accuracy"] <= 1
    assert lines[-1]["val_error"] == run.result()["val_error"]
    assert [line["seconds"] for line in lines] == sorted(line["seconds"] for line in lines)


@pytest.mark.parametrize(
    ("method", "align", "columns"),
    [
        ("supervised", "none", {"supervised"}),
        ("vat+entropy", "none", {"supervised", "consistency", "entropy"}),
        ("supervised", "mmd", {"supervised", "alignment", "mu"}),
        ("supervised", "reversal", {"supervised", "alignment", "mu", "discriminator_accuracy"}),
    ],
)
def test_columns_of_other_methods(digits, tmp_path, method, align, columns):
    (line,) = fit.train(light(digits, method, align, "steps=1"), digits, tmp_path / "run", on=CPU).log()
    terms = {"supervised", "consistency", "entropy", "alignment", "mu", "discriminator_accuracy"}
    assert set(line) & terms == columns
    assert set(line) >= {"step", "learning_rate", "seconds", "mmd2", "bound"}
    assert "val_error" not in line


def test_a_second_call_changes_nothing(digits, finished):
    made, run = finished
    before = {p.name: p.stat().st_mtime_ns for p in run.path.iterdir() if p.name != ".lock"}
    assert fit.train(made, digits, run.path, resume=True).result() == run.result()
    assert {p.name: p.stat().st_mtime_ns for p in run.path.iterdir() if p.name != ".lock"} == before
    with pytest.raises(UserError, match="already exists"):
        fit.train(made, digits, run.path)


# Mistakes that show before anything is written


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
def test_mistakes_leave_what_is_there_alone(digits, tmp_path, settings, words):
    made = light(digits)
    run = trained(made, digits, tmp_path / "run", stop_at=2)
    before = (run.path / CHECKPOINT).read_bytes()
    wrong = made.with_settings(settings)
    with pytest.raises(UserError, match=words):
        fit.train(wrong, digits, run.path, overwrite=True)
    with pytest.raises(UserError, match=words):
        fit.train(wrong, digits, tmp_path / "new")
    assert (run.path / CHECKPOINT).read_bytes() == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("net", "shape"), [("small", (5,)), ("conv-large", (5,)), ("conv-large", (1, 2, 2))])
def test_a_net_that_cannot_take_the_inputs(digits, tmp_path, net, shape):
    images = Images(torch.zeros(30, *shape), torch.arange(30) % 10)
    made = light(digits, "supervised", "none", f"net={net}")
    with pytest.raises(UserError, match=rf"The net {net} cannot take inputs of shape .*choose another --net"):
        fit.train(made, replace(digits, train=images, test=None), tmp_path / "run", on=CPU)
    assert not (tmp_path / "run").exists()


# The algorithm


def test_the_order_matters_and_both_train(digits, tmp_path):
    runs = {order: trained(light(digits, "supervised", "adversarial", f"order={order}"), digits, tmp_path / order)
            for order in ("rotated", "literal")}  # fmt: skip
    assert weights(runs["rotated"]) != weights(runs["literal"])
    for run in runs.values():
        assert all("alignment" in line and "discriminator_accuracy" in line for line in log(run)[1:])
        assert run.finished


@pytest.mark.parametrize("method", ["supervised", "vat+entropy"])
def test_the_loss_goes_down(digits, tmp_path, method):
    net = ("net.hidden=64", "net.features=32", "net.momentum=0.1")
    settings = ("steps=60", "labelled_batch=20", "optimisation.learning_rate=0.005", *net)
    lines = fit.train(light(digits, method, "adversarial", *settings), digits, tmp_path / "run", on=CPU).log()
    first, last = (np.mean([line["supervised"] for line in part]) for part in (lines[:5], lines[-5:]))
    assert last < 0.7 * first
    assert Run(tmp_path / "run").result()["test_error"] < 60


@pytest.mark.parametrize("settings", [(), ("batchnorm=together",), ('method.vat.on="all"',)])
@pytest.mark.parametrize(
    ("method", "align"), [("vat", "none"), ("vat+entropy", "adversarial"), ("vat+pi-model", "mmd")]
)
def test_what_goes_back_alone_gives_the_gradient_of_the_whole_loss(digits, monkeypatch, method, align, settings):
    found = []
    for alone in (True, False):
        monkeypatch.setattr(VAT, "goes_back_alone", alone)
        training = begin(light(digits, method, align, *settings), digits, CPU)
        next(algorithm.steps(training))
        found.append(torch.cat([p.grad.flatten() for p in training.nets.student.parameters()]))
    assert found[0].abs().max() > 1e-3
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("net", ["mlp", "small"])
@pytest.mark.parametrize("method", ["supervised", "mean-teacher", "vat+entropy"])
def test_bfloat16_gives_nearly_the_gradient_of_float32(digits, method, net):
    """Of the first step: unlike a wrong target or a lost term, rounding turns it a little only."""
    found = []
    for precision in ("float32", "bfloat16"):
        made = light(digits, method, "adversarial", *(["net=small"] if net == "small" else []))
        training = begin(made, digits, Runtime(CPU.device, precision))
        next(algorithm.steps(training))
        found.append(torch.cat([p.grad.flatten() for p in training.nets.student.parameters()]))
    assert not torch.equal(*found)
    assert torch.cosine_similarity(*found, dim=0) > 0.99


class Waiting(TorchDispatchMode):
    """While it is entered, `asked` collects what would make the host wait for a GPU."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        picked = args[1] if name in ("index", "index_put", "index_put_") else ()
        counted = any(rows is not None and rows.dtype in (torch.bool, torch.uint8) for rows in picked)
        if counted or name in ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2"):
            self.asked.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("align", ["none", *names("align")])
@pytest.mark.parametrize("method", [*names("methods"), "vat+entropy"])
def test_no_step_asks_for_a_number(digits, method, align):
    """There is no GPU here; but what one would have to be waited for is known by its name."""
    updates = algorithm.steps(begin(light(digits, method, align), digits, CPU))
    with Waiting() as host:
        next(updates)
    assert host.asked == []
    with Waiting() as host:
        float(torch.ones(3)[torch.ones(3, dtype=torch.bool)].sum())
    assert host.asked == ["index", "_local_scalar_dense"]


def test_seeds_differ_and_repeat(digits, tmp_path):
    runs = [trained(light(digits, "vat+entropy", "adversarial", f"seed={s}"), digits, tmp_path / f"{i}")
            for i, s in enumerate((0, 0, 1))]  # fmt: skip
    assert_same(runs[0], runs[1])
    assert weights(runs[0]) != weights(runs[2])


def test_methods_share_their_labels(digits):
    parts = [begin(light(digits, m, a), digits, CPU).split.labelled.tolist()
             for m, a in (("supervised", "none"), ("vat+entropy", "adversarial"))]  # fmt: skip
    assert parts[0] == parts[1]


def test_the_opponent_may_have_its_own_rate(digits):
    made = light(digits, "supervised", "adversarial", "align.learning_rate=0.1", "optimisation.learning_rate=0.01")
    training = begin(made, digits, CPU)
    assert training.opponent_rates({"learning_rate": 0.005, "beta1": 0.5}) == {"learning_rate": 0.05, "beta1": 0.5}
    plain = begin(light(digits), digits, CPU)
    assert plain.opponent_rates({"learning_rate": 0.005, "beta1": 0.5}) == {"learning_rate": 0.005, "beta1": 0.5}


def test_the_opponent_that_is_trained_along_may_have_its_own_rate(digits):
    made = light(digits, "supervised", "reversal", "align.learning_rate=0.1", "optimisation.learning_rate=0.01")
    training = begin(made, digits, CPU)
    next(algorithm.steps(training))
    of_net, of_d = training.optimizer.param_groups
    assert (of_net["lr"], of_d["lr"]) == (0.01, 0.1)
    assert [id(p) for p in of_d["params"]] == [id(p) for p in training.alignment.d.parameters()]


def test_average():
    """Weights and running statistics by hand; counters are left alone, and no decay means no teacher."""
    torch.manual_seed(0)
    student, teacher = (MLP(hidden=4, features=3).build((5,), 2) for _ in range(2))
    for net in (student, teacher):
        net(torch.randn(8, 5), track=True)
    before, aim = copy.deepcopy(teacher.state_dict()), student.state_dict()
    algorithm.average(teacher, student, 0.75)
    for name, value in teacher.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, 0.75 * before[name] + 0.25 * aim[name])
            assert not torch.equal(value, before[name]) or torch.equal(before[name], aim[name])
    assert any("running_var" in name for name in before)
    now = copy.deepcopy(teacher.state_dict())
    algorithm.average(teacher, student, None)
    assert all(torch.equal(v, now[k]) for k, v in teacher.state_dict().items())
    algorithm.average(teacher, student, 0.0)
    assert all(torch.equal(v, aim[k]) for k, v in teacher.state_dict().items() if v.is_floating_point())


def test_the_teacher_follows_its_decay(digits):
    training = begin(light(digits, "mean-teacher", "none", "method.mean-teacher.decay=0.7"), digits, CPU)
    decays = [0.5, 2 / 3, 0.7, 0.7]
    teacher = {k: v.clone() for k, v in training.nets.teacher.named_parameters()}
    for decay, step in zip(decays, algorithm.steps(training), strict=False):
        for name, weight in training.nets.student.named_parameters():
            teacher[name] = decay * teacher[name] + (1 - decay) * weight.detach()
        for name, weight in training.nets.teacher.named_parameters():
            torch.testing.assert_close(weight, teacher[name])
            assert not weight.requires_grad
        assert training.step == step


def test_the_discriminator_is_not_moved_by_the_loss_of_f(digits):
    """Each kind of update touches its own weights only."""
    training = begin(light(digits, "supervised", "adversarial"), digits, CPU)
    assert isinstance(training.alignment, nn.Module)
    mine = {id(p) for group in training.optimizer.param_groups for p in group["params"]}
    its = {id(p) for p in training.alignment.parameters()}
    assert not mine & its
    assert mine == {id(p) for p in training.nets.student.parameters()}


def test_bfloat16_trains(digits, tmp_path):
    made = light(digits)
    run = fit.train(made, digits, tmp_path / "run", on=Runtime(torch.device("cpu"), "bfloat16"))
    assert all(np.isfinite(line["supervised"]) for line in run.log())
    assert run.read_json("environment.json")["precision"] == "bfloat16"
    assert os.path.getsize(run.path / "model.safetensors") > 0


def test_whitening_ahead_gives_what_whitening_each_batch_does(digits, monkeypatch):
    colours = digits.train.x.repeat(1, 3, 1, 1)
    colours[:, 1:] = colours[:, 1:].roll(1, 2)
    digits = replace(digits, train=Images(colours, digits.train.y))
    made = recipe("digits-demo", digits, "supervised", "adversarial", 50).with_settings(['preparation.normalise="zca"'])
    ahead = begin(made, digits, CPU)
    with monkeypatch.context() as patch:
        patch.setattr("afda.training.WHITENED_AHEAD", 0)
        each = begin(made, digits, CPU)
        assert each.whitened is None
        expected = each.batch(0)
    assert ahead.whitened is not None
    found = ahead.batch(0)
    for ours, theirs in ((found.x, expected.x), (found.u, expected.u)):
        torch.testing.assert_close(ours, theirs)
        assert ours.is_contiguous(memory_format=torch.channels_last)
    state = each.state()
    state["normaliser"] = {**state["normaliser"], "matrix": 2 * state["normaliser"]["matrix"]}
    ahead.restore(state)
    torch.testing.assert_close(ahead.batch(0).u, 2 * expected.u)
