"""The state of a training: what Algorithm 1 works on, from its first weights on."""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from afda.data.batch import BatchSource
from afda.data.images import DataSet
from afda.data.normalise import fit_normaliser
from afda.data.shares import ClassShares
from afda.data.split import Split
from afda.errors import UserError, describe
from afda.machine.group import ALONE, Group
from afda.machine.runtime import Runtime, get_memory_size
from afda.methods import Context, Objective
from afda.nets import Classifier, Net, Networks, Normaliser, adopt_layers
from afda.recipe import Recipe
from afda.runs.log import LogLine
from afda.runs.model import Model


@dataclass
class Training:
    """All that changes while training, and the data it is trained on."""

    recipe: Recipe
    data: DataSet
    runtime: Runtime
    split: Split
    nets: Networks
    owned: dict[str, nn.Module]
    """What methods and alignments own, by their names."""
    averaged: dict[str, nn.Module]
    """Moving averages of what they own, where they ask for it."""
    optimizer: torch.optim.Optimizer
    shares: ClassShares | None = None
    """Class shares of labelled and unlabelled images, where a method or alignment uses them."""
    group: Group = ALONE
    pool_weights: Tensor | None = None
    """How often each unlabelled image is drawn, compared with others (`afda.training.outliers`); None for all alike."""
    outlier_share: float | None = None
    """The estimated share of unlabelled images that are unlike the labelled ones; None if it was not estimated."""
    step: int = 0
    seconds: float = 0.0
    sums: dict[str, Tensor] = field(default_factory=dict)
    """Sums of terms since the last log line; left on the device, so that nothing waits for them."""
    metric_sums: dict[str, Tensor] = field(default_factory=dict)
    """Sum and number of the finite values of each metric since the last log line."""
    latest: dict[str, float | None] = field(default_factory=dict)
    """Metrics that are plain numbers, as of the last update."""

    def __post_init__(self) -> None:
        recipe = self.recipe
        self.uses_unlabelled = recipe.uses_unlabelled
        self.objectives: dict[str, Objective] = {part.name(): part for part in recipe.objectives}
        self.opponents = [name for name in self.objectives if find_optimizer(self.owned.get(name)) is not None]
        self.trained_parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.set_runtime(self.runtime)

    def set_runtime(self, runtime: Runtime) -> None:
        """Train on this device and in this precision."""
        self.runtime = runtime
        self.autocast: Callable[[], AbstractContextManager[Any]] = runtime.autocast
        if not runtime.is_emulated:
            mixed = runtime.precision == "bfloat16"
            self.autocast = partial(torch.autocast, runtime.device.type, dtype=torch.bfloat16, enabled=mixed)
        self.__dict__.pop("batches", None)

    @cached_property
    def normaliser(self) -> Normaliser:
        """Fitted when it is first needed, and kept in the checkpoint: whitening takes minutes."""
        return make_normaliser(self.recipe, self.data, self.split).to(self.runtime.device)

    @cached_property
    def batches(self) -> BatchSource:
        """Where the batches come from."""
        recipe = self.recipe
        return BatchSource(
            images=self.data.train,
            split=self.split,
            preparation=recipe.preparation,
            normaliser=self.normaliser,
            labelled=recipe.labelled_batch,
            unlabelled=recipe.unlabelled_batch if recipe.uses_unlabelled else 0,
            seed=recipe.seed,
            device=self.runtime.device,
            group=self.group,
            sampling=recipe.sampling,
            weights=None if self.pool_weights is None else self.pool_weights.numpy(),
        )

    def set_pool_weights(self, weights: Tensor, outlier_share: float) -> None:
        """Draw the unlabelled images with these weights from now on."""
        self.pool_weights, self.outlier_share = weights, outlier_share
        self.__dict__.pop("batches", None)

    @cached_property
    def log_shares(self) -> Tensor:
        """The logarithm of each class's share of the labels; a class without labels counts as if it had one."""
        labels = self.data.train.y.numpy()[self.split.labelled]
        counts = np.bincount(labels, minlength=len(self.data.classes)).clip(min=1)
        return torch.from_numpy(np.log(counts / counts.sum())).float().to(self.runtime.device)

    def make_model(self) -> Model:
        """Return what is evaluated and kept: the teacher if there is one, else the student."""
        return Model(self.normaliser, self.nets.teacher or self.nets.student, self.data.classes)

    def is_finite(self) -> bool:
        """Return whether all numbers in a checkpoint would be finite."""
        state = self.save_state()
        checked = (state["sums"], state["modules"], state["optimizers"])
        return all(bool(torch.isfinite(numbers).all()) for numbers in iter_tensors(checked))

    def save_state(self) -> dict[str, Any]:
        """Return all that a checkpoint needs."""
        modules: dict[str, nn.Module | None] = {"student": self.nets.student, "teacher": self.nets.teacher}
        modules |= {"normaliser": self.normaliser, "shares": self.shares}
        modules |= {f"owned.{name}": module for name, module in self.owned.items()}
        modules |= {f"averaged.{name}": module for name, module in self.averaged.items()}
        optimizers = {"": self.optimizer} | {
            name: optimizer for name, module in self.owned.items() if (optimizer := find_optimizer(module)) is not None
        }
        return {
            "step": self.step,
            "seconds": self.seconds,
            "sums": self.sums,
            "metric_sums": self.metric_sums,
            "latest": self.latest,
            "clip": self.normaliser.clip,
            "pool_weights": self.pool_weights,
            "outlier_share": self.outlier_share,
            "modules": {name: module.state_dict() for name, module in modules.items() if module is not None},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in optimizers.items()},
        }

    def restore_state(self, state: dict[str, Any]) -> None:
        """Continue where a checkpoint was written."""
        self.step, self.seconds, self.latest = state["step"], state["seconds"], dict(state["latest"])
        self.sums, self.metric_sums = (
            {name: total.to(self.runtime.device) for name, total in state[kind].items()}
            for kind in ("sums", "metric_sums")
        )
        self.pool_weights, self.outlier_share = state["pool_weights"], state["outlier_share"]
        modules, optimizers = state["modules"], state["optimizers"]
        self.normaliser = Normaliser.from_state(modules["normaliser"], state["clip"]).to(self.runtime.device)
        self.nets.student.load_state_dict(modules["student"])
        if self.nets.teacher is not None:
            self.nets.teacher.load_state_dict(modules["teacher"])
        if self.shares is not None:
            self.shares.load_state_dict(modules["shares"])
        for name, module in self.owned.items():
            module.load_state_dict(modules[f"owned.{name}"])
            if (optimizer := find_optimizer(module)) is not None:
                optimizer.load_state_dict(optimizers[name])
        for name, module in self.averaged.items():
            module.load_state_dict(modules[f"averaged.{name}"])
        self.optimizer.load_state_dict(optimizers[""])
        self.__dict__.pop("batches", None)  # by another normaliser


def find_optimizer(module: nn.Module | None) -> torch.optim.Optimizer | None:
    """Return the optimiser that a module has of its own, if any."""
    optimizer = getattr(module, "optimizer", None)
    return optimizer if isinstance(optimizer, torch.optim.Optimizer) else None


def iter_tensors(state: Any) -> Iterator[Tensor]:
    """Yield all tensors in a nested state."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from iter_tensors(part)


def begin(recipe: Recipe, data: DataSet, runtime: Runtime, group: Group = ALONE) -> Training:
    """Draw the split and the first weights: functions of the seed."""
    split = check_pool(recipe, data)
    check_shares(recipe, group)
    objectives = recipe.objectives
    torch.manual_seed(recipe.seed)
    student = build_net(recipe, data)
    adopt_layers(student, group)
    context = Context(data.train.shape, len(data.classes), student.features, len(data.train))
    # The alignment first, as in version 0.1: the order decides which random numbers each gets.
    owned = {part.name(): part.build(context) for part in (*objectives[len(recipe.method) :], *recipe.method)}
    present = {name: module for name, module in owned.items() if module is not None}
    runtime = runtime.choose_precision(student, any(part.gains_little_from_bfloat16 for part in recipe.method))
    shares = make_shares(recipe, data, split)
    if shares is not None:
        runtime.place(shares)
    for module in (student, *present.values()):
        runtime.place(module)
    has_teacher = any(method.teacher_decay(0) is not None for method in recipe.method)
    averaged = [part.name() for part in objectives if part.averages_owned and has_teacher and part.name() in present]
    return Training(
        recipe=recipe,
        data=data,
        runtime=runtime,
        split=split,
        nets=Networks(student, copy_frozen(student) if has_teacher else None, recipe.batchnorm == "apart", group),
        owned=present,
        averaged={name: copy_frozen(present[name]) for name in averaged},
        optimizer=make_optimizer(recipe, student, present),
        shares=shares,
        group=group,
    )


def check_pool(recipe: Recipe, data: DataSet) -> Split:
    """Return the recipe's split of the data, or refuse one without the unlabelled images that the recipe needs."""
    split = recipe.split_of(data)
    if recipe.uses_unlabelled and not len(split.unlabelled):
        raise UserError(
            "Every training image has a label, so there are no unlabelled images to learn from; "
            "keep fewer labels with --labels, or use --method supervised --align none."
        )
    return split


def make_shares(recipe: Recipe, data: DataSet, split: Split) -> ClassShares | None:
    """Return the class shares that a training begins with, if a method or alignment uses them."""
    if not recipe.uses_shares:
        return None
    given = recipe.pool_shares if recipe.shares_by == "given" else None
    if recipe.shares_by == "given" and (given is None or len(given) != len(data.classes)):
        raise UserError(f"shares_by=given needs pool_shares, one number for each of the {len(data.classes)} classes.")
    return ClassShares.of(data.train.y[torch.from_numpy(split.labelled)], len(data.classes), recipe.shares_by, given)


M = TypeVar("M", bound=nn.Module)


def copy_frozen(module: M) -> M:
    """Return a copy that no gradient changes."""
    return copy.deepcopy(module).requires_grad_(False)


def check_shares(recipe: Recipe, group: Group) -> None:
    """Refuse a batch that the processes cannot share evenly."""
    x, u = recipe.labelled_batch, recipe.unlabelled_batch if recipe.uses_unlabelled else 0
    if math.gcd(x, u) % group.count:
        fitting = [str(n) for n in range(2, 65) if math.gcd(x, u) % n == 0]
        raise UserError(
            f"{group.count} processes cannot share batches of {x} labelled and {u} unlabelled images evenly; "
            + (f"--processes can be {' or '.join(fitting)}." if fitting else "leave out --processes.")
        )


def build_net(recipe: Recipe, data: DataSet) -> Classifier:
    """Return the net with its first weights; refuse one that cannot take these inputs."""
    shape, net = data.train.shape, recipe.net
    try:
        size = count_weights(net, shape, len(data.classes))
        if 16 * size > get_memory_size():  # in float32: weights, gradients and what Adam keeps of them
            raise UserError(f"The net {net.name()} has {size:,} weights, too many for this machine's memory.")
        classifier = net.build(shape, len(data.classes)).eval()
        with torch.no_grad():
            classifier(torch.zeros(1, *shape))
    except (ArithmeticError, RuntimeError, ValueError) as error:
        raise UserError(
            f"The net {net.name()} cannot take inputs of shape {shape} ({describe(error)}); "
            "choose another --net, such as mlp."
        ) from None
    net.load_pretrained(classifier)
    return classifier.train()


def count_weights(net: Net, shape: tuple[int, ...], classes: int) -> int:
    """Return the number of a net's weights without making them; 0 for a net that cannot be built on no device."""
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            return sum(p.numel() for p in net.build(shape, classes).parameters())
    except (NotImplementedError, RuntimeError):
        return 0


def make_normaliser(recipe: Recipe, data: DataSet, split: Split) -> Normaliser:
    """Return the net's own normalisation, or fit the recipe's to the training images without those for validation."""
    own = recipe.net.make_normaliser(data.train.shape)
    if own is not None:
        if type(own) is not Normaliser:
            raise UserError(f"The net {recipe.net.name()} brings a {type(own).__name__}; give it a plain Normaliser.")
        return own
    x = data.train.x
    if len(split.validation) and recipe.preparation.normalise != "centre":  # which is not fitted
        x = x[torch.from_numpy(np.concatenate([split.labelled, split.unlabelled]))]
    return fit_normaliser(recipe.preparation, x)


def make_optimizer(recipe: Recipe, student: Classifier, owned: dict[str, nn.Module]) -> torch.optim.Optimizer:
    """Return the optimiser of f, g and what is owned without an optimiser of its own."""
    o = recipe.optimisation
    groups: list[dict[str, Any]] = []
    for factor, named in student.iter_rate_groups():
        groups += split_decay([p for _, p in named], o.weight_decay_on, factor=factor, owner="")
    for name, module in owned.items():
        optimizer = find_optimizer(module)
        own = {id(p) for group in optimizer.param_groups for p in group["params"]} if optimizer is not None else set()
        parameters = [p for p in module.parameters() if p.requires_grad and id(p) not in own]
        groups += split_decay(parameters, o.weight_decay_on, factor=1.0, owner=name)
    if o.optimizer == "sgd":
        return torch.optim.SGD(
            groups, lr=o.learning_rate, momentum=o.momentum, nesterov=True, weight_decay=o.weight_decay, fused=True
        )
    return torch.optim.Adam(
        groups, lr=o.learning_rate, betas=(o.beta1, o.beta2), weight_decay=o.weight_decay, fused=True
    )


def split_decay(parameters: list[nn.Parameter], decay_on: str, **fields: Any) -> list[dict[str, Any]]:
    """Return parameter groups with these fields: all in one, or with biases and normalisation apart, not decayed."""
    decayed = [p for p in parameters if decay_on == "all" or p.dim() > 1]
    others = [p for p in parameters if decay_on != "all" and p.dim() <= 1]
    groups = [{"params": decayed, **fields}, {"params": others, **fields, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def make_log_line(training: Training, since: int) -> LogLine:
    """Return the means of terms and metrics over the last updates, and begin new sums."""
    recipe, step = training.recipe, training.step
    values: dict[str, float | None] = {name: round(float(s) / since, 6) for name, s in training.sums.items()}
    values["learning_rate"] = recipe.optimisation.compute_rates((step - 1) / recipe.steps).learning_rate
    values |= {name: None if value is None else round(value, 6) for name, value in training.latest.items()}
    for name, (total, count) in ((name, both.tolist()) for name, both in training.metric_sums.items()):
        values[name] = round(total / count, 6) if count else None
    if taken := values.keys() & (LogLine.model_fields.keys() - {"values"}):
        raise UserError(f"A method reports {min(taken)!r}, a name that the log itself uses; rename it.")
    training.sums, training.metric_sums = {}, {}
    return LogLine(step=step, values=values, seconds=round(training.seconds, 2))
