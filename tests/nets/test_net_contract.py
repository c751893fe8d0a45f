"""What a net may bring: torch layers, frozen parts, learning-rate groups, pretrained weights, normalisation."""

import copy
from typing import ClassVar

import pytest
import torch
from torch import nn

from afda import registry
from afda.data.normalise import Normaliser
from afda.errors import UserError
from afda.machine.group import ALONE, Group
from afda.nets import BatchNorm, Classifier, Net, adopt_layers
from afda.runs.model import compute_outputs, load_model
from afda.training.run import train
from afda.training.state import begin
from contract import CPU, make_data, make_recipe, update


class Ordinary(Net):
    """A net of torch's own layers, with all that a net may bring."""

    entry_point: ClassVar[str] = "ordinary"
    loads: ClassVar[list[str]] = []
    """The devices of the weights that were loaded."""
    frozen: bool = False
    factor: float = 1.0
    normalises: bool = False

    def build(self, shape, classes):
        backbone = nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.BatchNorm2d(4, momentum=0.3), nn.ReLU())
        top = nn.Sequential(nn.Flatten(), nn.Linear(4 * (shape[1] - 2) * (shape[2] - 2), 6), nn.BatchNorm1d(6))
        classifier = Classifier(nn.Sequential(backbone, top), 6, classes)
        if self.frozen:
            classifier.freeze("f.0")
        if self.factor != 1:
            classifier.scale_rate("f", self.factor)
            classifier.scale_rate("f.1", self.factor / 10)
        return classifier

    def load_pretrained(self, classifier):
        self.loads.append(classifier.g.weight.device.type)
        with torch.no_grad():
            classifier.f[0][0].weight.fill_(0.25)

    def make_normaliser(self, shape):
        return Normaliser(torch.full((shape[0], 1, 1), 100.0), torch.tensor(1 / 50)) if self.normalises else None


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Let recipes and models find the net of this module by its name."""
    find = registry.find_plugin
    monkeypatch.setattr(
        registry, "find_plugin", lambda kind, name: Ordinary if name == "ordinary" else find(kind, name)
    )
    monkeypatch.setattr(Ordinary, "loads", [])


def make_net_recipe(net, method="supervised", align="none", **fields):
    return make_recipe(method, align, **fields).model_copy(update={"net": net})


def make_training(net, method="supervised", align="none", **fields):
    return begin(make_net_recipe(net, method, align, **fields), make_data(), CPU)


def copy_state(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


# Frozen parts


@pytest.mark.parametrize("method", ["supervised", "mean-teacher", "vat"])
def test_a_frozen_part_stays_as_it_is(method):
    training = make_training(Ordinary(frozen=True), method, optimisation={"weight_decay": 0.1})
    student = training.nets.student
    before = copy_state(student)
    update(training)
    after = student.state_dict()
    kept = {name for name in before if torch.equal(before[name], after[name])}
    assert kept == {name for name in before if name.startswith("f.0.")}
    assert all(p.grad is None and not p.requires_grad for p in student.f[0].parameters())
    assert {id(p) for p in training.trained_parameters} == {
        id(p) for p in [*student.f[1].parameters(), *student.g.parameters()]
    }
    if training.nets.teacher is not None:
        assert all(torch.equal(before[name], training.nets.teacher.state_dict()[name]) for name in kept)


def test_a_frozen_part_is_in_evaluation_mode_also_in_training():
    net = Ordinary(frozen=True).build((3, 8, 8), 3)
    for mode in (True, False, True):
        net.train(mode)
        assert {module.training for module in net.f[0].modules()} == {False}
        assert {module.training for module in (net, net.f[1], net.f[1][2], net.g)} == {mode}
    assert not copy.deepcopy(net).train().f[0][1].training
    with pytest.raises(AttributeError):
        net.freeze("f.missing")


# Learning-rate groups


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_learning_rate_groups(optimizer):
    rates = {"optimizer": optimizer, "learning_rate": 0.01, "tail": 1.0, "stairs": 2}
    training = make_training(Ordinary(factor=0.5), optimisation=rates, steps=2)
    student = training.nets.student
    groups = {group["factor"]: {id(p) for p in group["params"]} for group in training.optimizer.param_groups}
    assert groups == {
        1.0: {id(p) for p in student.g.parameters()},
        0.5: {id(p) for p in student.f[0].parameters()},
        0.05: {id(p) for p in student.f[1].parameters()},  # the most specific part counts
    }
    found = []
    for _ in range(2):
        update(training, 1)
        found.append({group["factor"]: group["lr"] for group in training.optimizer.param_groups})
    assert found[0] == pytest.approx({1.0: 0.01, 0.5: 0.005, 0.05: 0.0005})
    assert found[1] == pytest.approx({1.0: 0.005, 0.5: 0.0025, 0.05: 0.00025})


def test_adams_first_step_is_as_long_as_the_rate_of_its_group():
    training = make_training(Ordinary(factor=0.5), optimisation={"learning_rate": 0.01})
    student = training.nets.student
    before = copy_state(student)
    update(training, 1)
    for name, length in (("g.weight", 0.01), ("f.0.1.weight", 0.005), ("f.1.2.weight", 0.0005)):
        moved = (student.state_dict()[name] - before[name]).abs().max().item()
        assert moved == pytest.approx(length, rel=1e-2)


# torch's own BatchNorm


def test_torchs_batchnorm_honours_track():
    """As ours does: the same outputs and statistics, which move only in passes with `track`."""
    torch.manual_seed(0)
    theirs = Ordinary().build((3, 8, 8), 3)
    ours = copy.deepcopy(theirs)
    ours.f[0][1], ours.f[1][2] = BatchNorm(4, momentum=0.3), BatchNorm(6)
    x = torch.randn(5, 3, 8, 8)
    weights = [id(p) for p in theirs.parameters()]
    before = copy_state(theirs)
    adopt_layers(theirs, ALONE)
    assert [id(p) for p in theirs.parameters()] == weights
    assert before.keys() == theirs.state_dict().keys()
    for track in (False, True, False, True):
        state = copy_state(theirs)
        outputs = [net(x, track=track).logits for net in (ours, theirs)]
        assert torch.equal(*outputs)
        for name, value in theirs.state_dict().items():
            assert torch.equal(value, ours.state_dict()[name])
            assert torch.equal(value, state[name]) != (track and ("running" in name or "tracked" in name))
    assert torch.equal(ours.eval()(x).logits, theirs.eval()(x).logits)


def test_a_net_of_torchs_layers_trains_with_statistics_of_the_clean_pass_only():
    training = make_training(Ordinary(), "vat+pi-model+mean-teacher", "adversarial")
    update(training, 3)
    norms = [module for module in training.nets.student.modules() if isinstance(module, BatchNorm)]
    assert [int(norm.num_batches_tracked) for norm in norms] == [3, 3]


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (nn.BatchNorm2d(4, momentum=None), r"layer f\.0\.1 has no running average"),
        (nn.BatchNorm2d(4, track_running_stats=False), r"layer f\.0\.1 has no running average"),
        (nn.InstanceNorm2d(4, track_running_stats=True), r"layer f\.0\.1 \(InstanceNorm2d\) keeps running statistics"),
    ],
)
def test_layers_whose_statistics_cannot_be_controlled_are_refused(monkeypatch, layer, words):
    def build(self, shape, classes, build=Ordinary.build):
        classifier = build(self, shape, classes)
        classifier.f[0][1] = copy.deepcopy(layer)
        return classifier

    monkeypatch.setattr(Ordinary, "build", build)
    with pytest.raises(UserError, match=words):
        make_training(Ordinary())


@pytest.mark.parametrize("layer", [nn.InstanceNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm((4, 6, 6))])
def test_layers_without_running_statistics_are_accepted(monkeypatch, layer):
    def build(self, shape, classes, build=Ordinary.build):
        classifier = build(self, shape, classes)
        classifier.f[0][1] = copy.deepcopy(layer)
        return classifier

    monkeypatch.setattr(Ordinary, "build", build)
    update(make_training(Ordinary()), 1)


# Pretrained weights and normalisation


def test_pretrained_weights_are_loaded_once_per_training(tmp_path):
    made = make_net_recipe(Ordinary(), "mean-teacher")
    training = begin(made, make_data(), CPU)
    assert Ordinary.loads == ["cpu"]
    for net in (training.nets.student, training.nets.teacher):
        assert (net.f[0][0].weight == 0.25).all()
    Ordinary.loads.clear()
    run = train(made, make_data(), tmp_path / "run", on=CPU)
    assert Ordinary.loads == ["cpu"]
    model, _ = load_model(run.path)
    assert Ordinary.loads == ["cpu"]
    assert not (model.classifier.f[0][0].weight == 0.25).all()


def test_a_net_s_own_normalisation_is_used_and_saved(tmp_path):
    made = make_net_recipe(Ordinary(normalises=True))
    training = begin(made, make_data(), CPU)
    assert training.normaliser.mean.tolist() == [[[100.0]]] * 3
    pixels = 50 * training.batches.draw(0).x + 100
    torch.testing.assert_close(pixels, pixels.round(), rtol=0, atol=1e-3)
    assert 0 <= pixels.round().min() < pixels.max() <= 255.001
    run = train(made, make_data(), tmp_path / "run", on=CPU)
    model, _ = load_model(run.path)
    assert torch.equal(model.normaliser.mean, training.normaliser.mean)
    assert torch.equal(model.normaliser.scale, training.normaliser.scale)
    plain = begin(make_net_recipe(Ordinary()), make_data(), CPU)
    assert plain.normaliser.mean == 127.5


# Layers that cannot be folded, loaded on no device, or shared by processes


class Tapped(nn.Sequential):
    """A chain with a way of its own to pass, which folding must leave alone."""

    def forward(self, x):
        return super().forward(x) + self[0](x)


def test_evaluation_and_a_loaded_model_agree_with_the_net(tmp_path, monkeypatch):
    def build(self, shape, classes):
        convolutions = Tapped(nn.Conv2d(shape[0], 4, 3), nn.BatchNorm2d(4, momentum=0.3))
        size = 4 * (shape[1] - 2) * (shape[2] - 2)
        top = nn.Sequential(nn.Flatten(), nn.Linear(size, 6), nn.BatchNorm1d(6, affine=False))
        f = nn.Sequential(convolutions, top)
        f.register_buffer("mask", torch.ones(()), persistent=False)
        return Classifier(f, 6, classes)

    monkeypatch.setattr(Ordinary, "build", build)
    run = train(make_net_recipe(Ordinary(), steps=3), make_data(), tmp_path / "run", on=CPU)
    model, _ = load_model(run.path)
    x = make_data().train.x
    with torch.no_grad():
        expected = model.eval()(x).logits
    torch.testing.assert_close(compute_outputs(model, x, CPU).logits, expected, rtol=1e-4, atol=1e-5)


def test_torchs_dropout_is_refused_with_several_processes():
    net = Classifier(nn.Sequential(nn.Flatten(), nn.Dropout(0.5)), 4, 2)
    adopt_layers(net, ALONE)
    with pytest.raises(UserError, match=r"layer f\.1 \(Dropout\) would draw the same noise in every process"):
        adopt_layers(net, Group(0, 2))


def test_a_normaliser_of_another_kind_is_refused(monkeypatch):
    class Squashing(Normaliser):
        pass

    monkeypatch.setattr(Ordinary, "make_normaliser", lambda *_: Squashing(torch.zeros(()), torch.ones(())))
    with pytest.raises(UserError, match="brings a Squashing; give it a plain Normaliser"):
        _ = make_training(Ordinary()).normaliser
