"""What methods own: networks, memories, queues and optimisers, which the training looks after."""

from functools import partial
from typing import ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import nn

from afda import registry
from afda.errors import UserError
from afda.machine.group import ALONE
from afda.machine.runtime import Runtime
from afda.methods import Context, Loss, Method, Step
from afda.training.loop import make_step
from afda.training.run import train
from contract import CPU, convert_to_float64, list_tensors, make_data, make_recipe, make_training, update
from small_runs import assert_same
from workers import assert_agreement, run_in_processes


class Things(nn.Module):
    """Two networks, a memory of each training image's prediction, and a queue of features."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        pixels = torch.Size(context.shape).numel()
        self.of_features = nn.Linear(context.features, context.classes)
        self.of_pixels = nn.Linear(pixels, context.classes)
        self.register_buffer("memory", torch.zeros(context.images, context.classes))
        self.register_buffer("queue", torch.zeros(6, context.features))


class Owner(Method):
    """A method that uses all that it may own."""

    entry_point: ClassVar[str] = "owner"
    averages_owned: ClassVar[bool] = True

    network: Literal["features", "pixels", "none"] = "features"
    decay: float | None = 0.5

    def build(self, context: Context) -> Things:
        return Things(context)

    def loss(self, step: Step) -> Loss:
        owned, batch, group = step.owned, step.batch, step.nets.group
        if self.network == "features":  # those of all processes
            logits = owned.of_features(step.unlabelled.features)
        elif self.network == "pixels":  # those of this process
            logits = group.gather(owned.of_pixels(batch.u.flatten(1))) + step.unlabelled.logits
        else:
            logits = step.unlabelled.logits
        probabilities = logits.softmax(dim=1)
        terms = {
            "agreement": (probabilities - owned.memory[batch.j]).square().mean(),
            "repulsion": 0.01 * (step.clean.features @ owned.queue.clone().T).square().mean(),
            "penalty": 0.1 * sum(p.square().sum() for p in step.nets.student.parameters()),
        }
        with torch.no_grad():
            owned.memory[batch.j] = 0.5 * owned.memory[batch.j] + 0.5 * probabilities
            owned.memory[batch.i] = step.labelled.logits.softmax(dim=1)
            owned.queue.copy_(torch.cat([step.labelled.features[:2], owned.queue[:-2]]))
        return Loss(terms)

    def teacher_decay(self, step: int) -> float | None:
        return self.decay


class Rival(nn.Module):
    """A network with an optimiser of its own."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.guess = nn.Linear(context.features, context.classes)
        self.optimizer = torch.optim.Adam(self.guess.parameters())


class Opponent(Method):
    """A method whose network learns to predict classes that f learns to hide from it."""

    entry_point: ClassVar[str] = "opponent"

    def build(self, context: Context) -> Rival:
        return Rival(context)

    def compute_error(self, step: Step) -> torch.Tensor:
        return nn.functional.cross_entropy(step.owned.guess(step.clean.features), step.clean.logits.argmax(dim=1))

    def compete(self, step: Step) -> None:
        assert not step.clean.features.requires_grad
        for group in step.owned.optimizer.param_groups:
            group["lr"] = 2 * step.rates.learning_rate
        step.owned.optimizer.zero_grad()
        self.compute_error(step).backward()
        step.owned.optimizer.step()

    def loss(self, step: Step) -> Loss:
        return Loss({"hiding": -0.1 * self.compute_error(step)})


METHODS = [Owner(), Owner(network="pixels"), Owner(network="none"), Opponent()]


@pytest.fixture
def registered(monkeypatch):
    """Let recipes that are read from a file find the methods of this module."""
    known = {method.entry_point: method for method in (Owner, Opponent)}
    find = registry.find_plugin
    monkeypatch.setattr(registry, "find_plugin", lambda kind, name: known.get(name) or find(kind, name))


def copy_state(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def test_what_is_owned_is_placed_and_not_exported(monkeypatch):
    placed, place = [], Runtime.place
    monkeypatch.setattr(Runtime, "place", lambda self, module: placed.append(module) or place(self, module))
    training = make_training(Owner(), "adversarial")
    assert set(training.owned) == {"owner", "adversarial"}
    assert {id(module) for module in placed} >= {id(module) for module in training.owned.values()}
    exported = make_training("mean-teacher").make_model().state_dict()
    assert training.make_model().state_dict().keys() == exported.keys()


def test_what_is_owned_is_trained_by_the_main_optimiser():
    training = make_training(Owner())
    things = training.owned["owner"]
    before = copy_state(things)
    update(training, 1)
    after = things.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"of_features.weight", "of_features.bias", "memory", "queue"}
    (group,) = (group for group in training.optimizer.param_groups if group["owner"] == "owner")
    assert [id(p) for p in group["params"]] == [id(p) for p in things.parameters()]
    assert training.opponents == []


def test_the_rows_of_a_memory_are_those_of_the_batch():
    training = make_training(Owner())
    things, batch = training.owned["owner"], training.batches.draw(0)
    update(training, 1)
    seen = set(things.memory.any(dim=1).nonzero()[:, 0].tolist())
    assert seen == {*batch.i.tolist(), *batch.j.tolist()}
    assert torch.equal(training.data.train.y[batch.i], batch.y)
    assert set(batch.i.tolist()) <= set(training.split.labelled.tolist())
    assert set(batch.j.tolist()) <= set(training.split.unlabelled.tolist())
    assert things.queue[:2].any(dim=1).all()
    assert not things.queue[2:].any()


def test_an_average_of_what_is_owned_is_kept_along_with_the_teacher():
    training = make_training(Owner(decay=0.75))
    average, expected = training.averaged["owner"], copy_state(training.owned["owner"])
    for _ in range(3):
        update(training, 1)
        for name, value in training.owned["owner"].state_dict().items():
            expected[name] = 0.75 * expected[name] + 0.25 * value
    for name, value in average.state_dict().items():
        torch.testing.assert_close(value, expected[name])
        assert not torch.equal(value, training.owned["owner"].state_dict()[name]) or name.startswith("of_pixels")
    batch, rates = training.batches.draw(0), training.recipe.optimisation.compute_rates(0)
    step = make_step(training, "owner", batch, training.nets.run(batch.x, batch.u), 0, rates)
    assert (step.owned, step.averaged) == (training.owned["owner"], average)


def test_without_a_teacher_nothing_is_averaged():
    training = make_training(Owner(decay=None))
    assert training.averaged == {}
    assert training.nets.teacher is None


def test_an_opponent_is_updated_by_its_own_optimiser_only():
    training = make_training(Opponent(), optimisation={"learning_rate": 0.01})
    rival, student = training.owned["opponent"], training.nets.student
    assert training.opponents == ["opponent"]
    assert {id(p) for p in training.trained_parameters} == {id(p) for p in student.parameters()}
    before = copy_state(rival)
    update(training, 1)
    assert not any(torch.equal(before[name], value) for name, value in rival.state_dict().items())
    # Adam's first step is as long as the rate, whatever the gradient.
    step = (rival.guess.bias - before["guess.bias"]).abs().max().item()
    assert step == pytest.approx(0.02, rel=1e-3)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_checkpoint_has_what_is_owned(method):
    whole = update(make_training(method, "adversarial", steps=6))
    first = update(make_training(method, "adversarial", steps=6), 4)
    state = first.save_state()
    assert f"owned.{method.name()}" in state["modules"]
    assert (f"averaged.{method.name()}" in state["modules"]) == isinstance(method, Owner)
    assert set(state["optimizers"]) == {"", "adversarial"} | ({"opponent"} if isinstance(method, Opponent) else set())
    restored = make_training(method, "adversarial", steps=6)
    restored.restore_state(state)
    assert all(map(torch.equal, list_tensors(whole), list_tensors(update(restored))))


@pytest.mark.parametrize("method", [Owner(), Opponent()], ids=repr)
def test_a_run_that_is_stopped_ends_with_the_same_bits(method, tmp_path, monkeypatch, registered):
    made = make_recipe(method, "adversarial", steps=6)

    def fail(line):
        if line.step == 4:
            raise ZeroDivisionError

    whole = train(made, make_data(), tmp_path / "whole", on=CPU)
    monkeypatch.setenv("AFDA_CHECKPOINT_SECONDS", "-1")  # after every update
    with pytest.raises(ZeroDivisionError):
        train(made, make_data(), tmp_path / "parts", on=CPU, on_log=fail)
    starts = []
    parts = train(made, make_data(), tmp_path / "parts", on=CPU, resume=True, on_start=lambda t: starts.append(t.step))
    assert starts == [3]
    assert_same(whole, parts)


def compute_state(group, method):
    """Return the state after three updates in float64."""
    training = make_training(method, group=group, labelled_batch=4, unlabelled_batch=8)
    return list_tensors(update(convert_to_float64(training), 3))


def compute_states(group, methods):
    return [compute_state(group, method) for method in methods]


def test_two_processes_agree_with_one(tmp_path):
    found = run_in_processes(compute_states, 2, tmp_path, METHODS)
    assert_agreement(METHODS, partial(compute_state, ALONE), found)


# Loss(terms, metrics)


class Measuring(Method):
    """A method that reports metrics and adds nothing to the loss."""

    entry_point: ClassVar[str] = "measuring"
    reports: bool = True

    def loss(self, step: Step) -> Loss:
        if not self.reports:
            return Loss()
        return Loss(metrics={"a_tensor": 100 * step.clean.logits.sum(), "a_number": float(step.number) / 8})


def test_a_metric_is_shown_and_not_added_to_the_loss():
    with_metrics, without = (update(make_training(Measuring(reports=reports))) for reports in (True, False))
    weights = [training.nets.student.state_dict() for training in (with_metrics, without)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert set(with_metrics.sums) == {"supervised"}
    assert set(with_metrics.metric_sums) == {"a_tensor"}
    assert with_metrics.latest == {"a_number": 3 / 8}


def test_the_log_has_the_mean_of_a_tensor_and_the_last_of_a_number(tmp_path, monkeypatch, registered):
    monkeypatch.setattr("afda.training.run.LOG_LINES", 2)
    seen = []

    def loss(self, step):
        seen.append(10.0 * step.number)
        return Loss(metrics={"a_tensor": torch.tensor(seen[-1], requires_grad=True), "a_number": seen[-1]})

    monkeypatch.setattr(Measuring, "loss", loss)
    run = train(make_recipe(Measuring(), steps=6), make_data(), tmp_path / "run", on=CPU)
    lines = run.log.read()
    assert seen == [0, 10, 20, 30, 40, 50]
    assert [line.values["a_tensor"] for line in lines] == [10, 40]
    assert [line.values["a_number"] for line in lines] == [20, 50]


def test_a_metric_counts_where_it_is_a_finite_number(tmp_path, monkeypatch, registered):
    """A method may report it now and then, or of no images at all; neither stops a run, and a resumed run has both."""
    monkeypatch.setattr("afda.training.run.LOG_LINES", 1)

    def loss(self, step):
        odd = step.number % 2
        rare = {"rare": torch.tensor(6.0 if odd else torch.nan)}
        return Loss(metrics={**rare, "never": torch.tensor(torch.nan), "a_number": np.float64("nan")})

    monkeypatch.setattr(Measuring, "loss", loss)
    (line,) = train(make_recipe(Measuring(), steps=4), make_data(), tmp_path / "run", on=CPU).log.read()
    assert (line.values["rare"], line.values["never"], line.values["a_number"]) == (6.0, None, None)


def test_a_metric_cannot_take_a_name_of_the_log(tmp_path, monkeypatch, registered):
    monkeypatch.setattr(Measuring, "loss", lambda self, step: Loss(metrics={"bound": 1.0}))
    with pytest.raises(UserError, match="'bound', a name that the log itself uses"):
        train(make_recipe(Measuring(), steps=2), make_data(), tmp_path / "run", on=CPU)


class PartlyCompeting(Method):
    """A method with a head that is trained with the net, beside an opponent with an optimiser of its own."""

    entry_point: ClassVar[str] = "partly-competing"

    def build(self, context: Context) -> nn.Module:
        owned = nn.ModuleDict({"head": nn.Linear(context.features, 2), "opponent": nn.Linear(context.features, 1)})
        owned.optimizer = torch.optim.SGD(owned["opponent"].parameters(), lr=0.1)
        return owned

    def compete(self, step: Step) -> None:
        step.owned.optimizer.zero_grad()
        step.owned["opponent"](step.clean.features).mean().backward()
        step.owned.optimizer.step()

    def loss(self, step: Step) -> Loss:
        return Loss({"head": step.owned["head"](step.unlabelled.features).square().mean()})


def test_what_an_own_optimizer_does_not_hold_is_trained_with_the_net():
    training = make_training(PartlyCompeting())
    before = {name: tensor.clone() for name, tensor in training.owned["partly-competing"].state_dict().items()}
    update(training)
    after = training.owned["partly-competing"].state_dict()
    assert not any(torch.equal(before[name], after[name]) for name in ("head.weight", "opponent.weight"))


def test_a_separate_backward_without_terms_is_skipped(monkeypatch):
    monkeypatch.setattr(Measuring, "separate_backward", True)
    update(make_training(Measuring()))


def test_a_method_and_an_alignment_of_one_name_are_refused():
    class Namesake(Measuring):
        entry_point: ClassVar[str] = "mmd"

    with pytest.raises(ValueError, match="a method is named twice, or as the alignment is"):
        make_recipe(Namesake(), "mmd")
