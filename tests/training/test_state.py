"""The state of a training: first weights, optimiser, what is owned, and checkpoints."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from afda.data.images import Images
from afda.recipes import recipe
from afda.schedules import Rates
from afda.training.loop import run_updates
from afda.training.state import begin
from contract import CPU, make_training, update
from small_runs import make_light_recipe


def test_methods_share_their_labels(some_digits):
    plain, combined = make_light_recipe(some_digits, "supervised", "none"), make_light_recipe(some_digits)
    parts = [begin(made, some_digits, CPU).split.labelled.tolist() for made in (plain, combined)]
    assert parts[0] == parts[1]


def test_the_opponent_may_have_its_own_rate(some_digits):
    settings = ("optimisation.learning_rate=0.01", "optimisation.tail=1", "optimisation.stairs=2", "steps=2")
    for own, expected in ((None, [0.01, 0.005]), (0.1, [0.1, 0.05])):
        made = make_light_recipe(
            some_digits, "supervised", "adversarial", f"align.learning_rate={own or 'null'}", *settings
        )
        training = begin(made, some_digits, CPU)
        assert made.align.own_rates(Rates(0.005, 0.5, 0.5)) == Rates(expected[1], 0.5, 0.5)
        (group,) = training.owned["adversarial"].optimizer.param_groups
        assert [group["lr"] for _ in run_updates(training)] == expected
        assert group["betas"] == (0.5, 0.999)
        assert training.optimizer.param_groups[0]["lr"] == 0.005


def test_the_opponent_that_is_trained_along_may_have_its_own_rate(some_digits):
    rates = ("align.learning_rate=0.1", "optimisation.learning_rate=0.01")
    made = make_light_recipe(some_digits, "supervised", "reversal", *rates)
    training = begin(made, some_digits, CPU)
    next(run_updates(training))
    of_net, of_d = training.optimizer.param_groups
    assert (of_net["lr"], of_d["lr"]) == (0.01, 0.1)
    assert [id(p) for p in of_d["params"]] == [id(p) for p in training.owned["reversal"].d.parameters()]


def test_whitening_ahead_gives_what_whitening_each_batch_does(some_digits, monkeypatch):
    colours = some_digits.train.x.repeat(1, 3, 1, 1)
    colours[:, 1:] = colours[:, 1:].roll(1, 2)
    some_digits = replace(some_digits, train=Images(colours, some_digits.train.y))
    made = recipe("digits-demo", some_digits, "supervised", "adversarial", 50).with_settings(
        ['preparation.normalise="zca"']
    )
    ahead = begin(made, some_digits, CPU)
    with monkeypatch.context() as patch:
        patch.setattr("afda.data.batch.WHITENED_AHEAD", 0)
        each = begin(made, some_digits, CPU)
        assert each.batches.whitened is None
        expected = each.batches.draw(0)
        first = expected.x, expected.u  # made while nothing is whitened ahead
    assert ahead.batches.whitened is not None
    found = ahead.batches.draw(0)
    for ours, theirs in zip((found.x, found.u), first, strict=True):
        torch.testing.assert_close(ours, theirs)
        assert ours.is_contiguous(memory_format=torch.channels_last)
    state = each.save_state()
    normaliser = state["modules"]["normaliser"]
    state["modules"]["normaliser"] = {**normaliser, "matrix": 2 * normaliser["matrix"]}
    ahead.restore_state(state)
    torch.testing.assert_close(ahead.batches.draw(0).u, 2 * first[1])


@pytest.mark.parametrize("decayed", ["all", "kernels"])
def test_weight_decay_by_hand(decayed):
    """SGD without momentum and gradients: one update multiplies a decayed weight by 1 - rate * decay."""
    optimisation = {"optimizer": "sgd", "momentum": 0.5, "weight_decay": 0.1, "weight_decay_on": decayed}
    training = make_training("supervised", net="mlp", optimisation={**optimisation, "learning_rate": 0.5})
    student = training.nets.student
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.fill_(2.0)
            parameter.grad = torch.zeros_like(parameter)
    training.optimizer.step()
    # Nesterov's momentum makes the first step 1 + momentum times as long.
    shrunk = 2 - 0.5 * (1 + 0.5) * 0.1 * 2
    kernels = {f"{name}.weight" for name, m in student.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}
    for name, parameter in student.named_parameters():
        expected = shrunk if decayed == "all" or name in kernels else 2.0
        torch.testing.assert_close(parameter.detach(), torch.full_like(parameter, expected), msg=name)
    groups = training.optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == ([0.1] if decayed == "all" else [0.1, 0.0])


def test_weight_decay_of_kernels_only_changes_a_training():
    def train(**optimisation):
        return update(make_training("supervised", optimisation=optimisation)).nets.student.state_dict()

    none, every = train(weight_decay=0.0), train(weight_decay=0.1)
    kernels = train(weight_decay=0.1, weight_decay_on="kernels")
    assert not torch.equal(kernels["g.bias"], every["g.bias"])
    assert not torch.equal(kernels["g.weight"], none["g.weight"])
    for name, value in train(weight_decay=0.0, weight_decay_on="kernels").items():
        assert torch.equal(value, none[name])
