"""Algorithm 1: its updates, their gradients and their order."""

import copy
import math
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from afda.data.strong import strong_views
from afda.machine.runtime import Runtime
from afda.methods.vat import VAT
from afda.nets import Output
from afda.nets.mlp import MLP
from afda.runs.directory import Run
from afda.training.loop import compute_supervised, move_towards, run_updates
from afda.training.run import train
from afda.training.state import begin
from contract import ALIGNMENTS, CPU, METHODS, make_training
from small_runs import assert_same, make_light_recipe, read_log, read_weights, train_until


def test_the_order_matters_and_both_train(some_digits, tmp_path):
    runs = {}
    for order in ("rotated", "literal"):
        made = make_light_recipe(some_digits, "supervised", "adversarial", f"order={order}")
        runs[order] = train_until(made, some_digits, tmp_path / order)
    assert read_weights(runs["rotated"]) != read_weights(runs["literal"])
    for run in runs.values():
        assert all({"alignment", "discriminator_accuracy"} <= line["values"].keys() for line in read_log(run))
        assert run.finished


@pytest.mark.parametrize(("align", "passes"), [("none", 2), ("reversal", 2), ("adversarial", 4)])
def test_the_literal_order_passes_again_only_for_an_opponent(align, passes):
    training, calls = make_training("entropy", align, order="literal"), []
    training.nets.student.register_forward_hook(lambda *_: calls.append(1))
    next(run_updates(training))
    assert len(calls) == passes


def test_logit_adjustment_against_a_slow_formula():
    """-log(share_y^tau e^z_y / sum_k share_k^tau e^z_k) in float64, and its gradient by finite differences."""
    tau = 1.5
    training = make_training("supervised", labels=7, balanced=False, logit_adjustment=tau)
    counts = [int((training.data.train.y[training.split.labelled] == k).sum()) for k in range(3)]
    assert len(set(counts)) > 1
    batch = training.batches.draw(0)
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(len(batch.y), 3, generator=random, dtype=torch.float64, requires_grad=True)

    def compute_slowly(z):
        total = 0.0
        for row, y in zip(z.tolist(), batch.y.tolist(), strict=True):
            odds = [(count / sum(counts)) ** tau * math.exp(value) for count, value in zip(counts, row, strict=True)]
            total -= math.log(odds[y] / sum(odds))
        return total / len(z)

    loss = compute_supervised(training, batch, Output(logits, logits))
    loss.backward()
    assert loss.item() == pytest.approx(compute_slowly(logits), rel=1e-6)
    for place in np.ndindex(*logits.shape):
        step = torch.zeros_like(logits)
        step[place] = 1e-5
        slope = (compute_slowly(logits + step) - compute_slowly(logits - step)) / 2e-5
        assert float(logits.grad[place]) == pytest.approx(slope, abs=1e-6)


def test_a_class_without_labels_is_adjusted_by_a_finite_number():
    training = make_training("supervised", labels=7, balanced=False, logit_adjustment=1.0)
    training.split = replace(training.split, labelled=np.array([0, 3, 6, 1]))  # of the classes a, a, a and b
    assert torch.allclose(training.log_shares.exp(), torch.tensor([0.6, 0.2, 0.2]))


def test_logit_adjustment_leaves_all_other_terms_alone():
    """The terms of the first update are computed before any weight has moved."""
    found = []
    for tau in (0.0, 1.0):
        training = make_training("entropy", "mmd", labels=7, balanced=False, logit_adjustment=tau)
        next(run_updates(training))
        found.append({name: float(total) for name, total in training.sums.items()})
    plain, adjusted = found
    assert plain.pop("supervised") != adjusted.pop("supervised")
    assert plain == adjusted


@pytest.mark.parametrize("method", ["supervised", "vat+entropy"])
def test_the_loss_goes_down(some_digits, tmp_path, method):
    net = ("net.hidden=64", "net.features=32", "net.momentum=0.1")
    settings = ("steps=60", "labelled_batch=20", "optimisation.learning_rate=0.005", *net)
    made = make_light_recipe(some_digits, method, "adversarial", *settings)
    lines = train(made, some_digits, tmp_path / "run", on=CPU).log.read()
    first, last = (np.mean([line.values["supervised"] for line in part]) for part in (lines[:5], lines[-5:]))
    assert last < 0.7 * first
    assert Run(tmp_path / "run").read_result().test_error < 60


@pytest.mark.parametrize("settings", [(), ("batchnorm=together",), ('method.vat.on="all"',)])
@pytest.mark.parametrize(
    ("method", "align"), [("vat", "none"), ("vat+entropy", "adversarial"), ("vat+pi-model", "mmd")]
)
def test_separate_backward_gives_the_gradient_of_the_whole_loss(some_digits, monkeypatch, method, align, settings):
    found = []
    for separate in (True, False):
        monkeypatch.setattr(VAT, "separate_backward", separate)
        training = begin(make_light_recipe(some_digits, method, align, *settings), some_digits, CPU)
        next(run_updates(training))
        found.append(torch.cat([p.grad.flatten() for p in training.nets.student.parameters()]))
    assert found[0].abs().max() > 1e-3
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("net", ["mlp", "small"])
@pytest.mark.parametrize("method", ["supervised", "mean-teacher", "vat+entropy"])
def test_bfloat16_gives_nearly_the_gradient_of_float32(some_digits, method, net):
    """Of the first step: unlike a wrong target or a lost term, rounding turns it a little only."""
    found = []
    for precision in ("float32", "bfloat16"):
        made = make_light_recipe(some_digits, method, "adversarial", *(["net=small"] if net == "small" else []))
        training = begin(made, some_digits, Runtime(CPU.device, precision))
        next(run_updates(training))
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


@pytest.mark.parametrize("align", ALIGNMENTS)
@pytest.mark.parametrize("method", METHODS)
def test_no_step_asks_for_a_number(some_digits, method, align, monkeypatch):
    """There is no GPU here, but the operations that wait for one are known by their names."""

    def make_strong_views(*arguments):
        with _disable_current_modes():  # it groups images by operations that are on the host anyhow
            return strong_views(*arguments)

    monkeypatch.setattr("afda.data.batch.strong_views", make_strong_views)
    updates = run_updates(begin(make_light_recipe(some_digits, method, align), some_digits, CPU))
    with Waiting() as host:
        next(updates)
    assert host.asked == []
    with Waiting() as host:
        float(torch.ones(3)[torch.ones(3, dtype=torch.bool)].sum())
    assert host.asked == ["index", "_local_scalar_dense"]


def test_seeds_differ_and_repeat(some_digits, tmp_path):
    made = [make_light_recipe(some_digits, "vat+entropy", "adversarial", f"seed={seed}") for seed in (0, 0, 1)]
    runs = [train_until(one, some_digits, tmp_path / f"{i}") for i, one in enumerate(made)]
    assert_same(runs[0], runs[1])
    assert read_weights(runs[0]) != read_weights(runs[2])


def test_a_weight_average():
    """Weights and running statistics by hand; counters are left alone."""
    torch.manual_seed(0)
    student, teacher = (MLP(hidden=4, features=3).build((5,), 2) for _ in range(2))
    for net in (student, teacher):
        net(torch.randn(8, 5), track=True)
    before, aim = copy.deepcopy(teacher.state_dict()), student.state_dict()
    with torch.no_grad():
        move_towards(teacher, student, 0.25)
    for name, value in teacher.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, 0.75 * before[name] + 0.25 * aim[name])
            assert not torch.equal(value, before[name]) or torch.equal(before[name], aim[name])
    assert any("running_var" in name for name in before)
    now = copy.deepcopy(teacher.state_dict())
    with torch.no_grad():
        move_towards(teacher, student, 0.0)
    assert all(torch.equal(v, now[k]) for k, v in teacher.state_dict().items())
    with torch.no_grad():
        move_towards(teacher, student, 1.0)
    assert all(torch.equal(v, aim[k]) for k, v in teacher.state_dict().items() if v.is_floating_point())


def test_the_teacher_follows_its_decay(some_digits):
    training = begin(
        make_light_recipe(some_digits, "mean-teacher", "none", "method.mean-teacher.decay=0.7"), some_digits, CPU
    )
    decays = [0.5, 2 / 3, 0.7, 0.7]
    teacher = {k: v.clone() for k, v in training.nets.teacher.named_parameters()}
    for decay, step in zip(decays, run_updates(training), strict=False):
        for name, weight in training.nets.student.named_parameters():
            teacher[name] = decay * teacher[name] + (1 - decay) * weight.detach()
        for name, weight in training.nets.teacher.named_parameters():
            torch.testing.assert_close(weight, teacher[name])
            assert not weight.requires_grad
        assert training.step == step


def test_the_discriminator_is_not_moved_by_the_loss_of_f(some_digits):
    """Each kind of update touches its own weights only."""
    training = begin(make_light_recipe(some_digits, "supervised", "adversarial"), some_digits, CPU)
    assert isinstance(training.owned["adversarial"], nn.Module)
    mine = {id(p) for group in training.optimizer.param_groups for p in group["params"]}
    its = {id(p) for p in training.owned["adversarial"].parameters()}
    assert not mine & its
    assert mine == {id(p) for p in training.nets.student.parameters()}


def test_bfloat16_trains(some_digits, tmp_path):
    made = make_light_recipe(some_digits)
    run = train(made, some_digits, tmp_path / "run", on=Runtime(torch.device("cpu"), "bfloat16"))
    assert all(np.isfinite(line.values["supervised"]) for line in run.log.read())
    assert run.read_environment().precision == "bfloat16"
    assert os.path.getsize(run.path / "model.safetensors") > 0
