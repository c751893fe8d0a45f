"""A training: what Algorithm 1 works on, from its first weights on."""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from afda import processes
from afda.align import Alignment
from afda.classifier import Classifier, Stream, seed_noise
from afda.data.augment import augmented
from afda.data.images import DataSet
from afda.data.normalise import Normaliser, fitted
from afda.data.sampling import draw
from afda.data.split import Split
from afda.errors import UserError
from afda.inference import Model
from afda.methods import Batch, Nets, Terms
from afda.recipe import Recipe
from afda.runtime import Runtime, memory

WHITENED_AHEAD = 2**30
"""Bytes up to which all images are whitened before the first update; more are whitened batch by batch."""


@dataclass
class Training:
    """All that changes while training, and what it is trained on."""

    recipe: Recipe
    data: DataSet
    runtime: Runtime
    split: Split
    nets: Nets
    alignment: Alignment | None
    optimizer: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0
    sums: dict[str, Tensor] = field(default_factory=dict)
    """Sums of the loss terms since the last line of the log; left on the device, so that nothing waits for them."""

    def __post_init__(self) -> None:
        self.images = self.runtime.kept(self.data.train.x)
        self.labels = self.data.train.y.to(self.runtime.device)

    @cached_property
    def normaliser(self) -> Normaliser:
        """Fitted when it is first needed, and kept in the checkpoint: whitening takes minutes. Validation images are
        left out of it."""
        x = self.data.train.x
        if len(self.split.validation) and self.recipe.preparation.normalise != "centre":  # which is not fitted
            x = x[torch.from_numpy(np.concatenate([self.split.labelled, self.split.unlabelled]))]
        return fitted(self.recipe.preparation, x).to(self.runtime.device)

    @cached_property
    def whitened(self) -> Tensor | None:
        """The images that are trained on after whitening, unless they are too many: a product with its matrix costs as
        much as a pass of a narrow net."""
        if self.normaliser.matrix is None or 4 * self.images.numel() > WHITENED_AHEAD:
            return None
        used = [self.split.labelled, self.split.unlabelled] if self.recipe.uses_unlabelled else [self.split.labelled]
        found = torch.empty(self.images.shape)  # rows that are not used take no memory
        for rows in torch.from_numpy(np.sort(np.concatenate(used))).split(4096):
            images = self.images[rows.to(self.images.device)].to(self.runtime.device)
            found[rows] = self.normaliser(images).cpu()
        return self.runtime.kept(found)

    def inputs(self, rows: Tensor) -> Tensor:
        """What the net gets for these training images."""
        if self.whitened is None:
            return self.normaliser(self.runtime.picked(self.images, rows))
        return self.runtime.picked(self.whitened, rows).contiguous(memory_format=torch.channels_last)

    def batch(self, step: int) -> Batch:
        """The batch of this step, or this process's images of it: a function of the seed and the step."""
        recipe, device = self.recipe, self.runtime.device
        key = int(np.random.SeedSequence([recipe.seed, step]).generate_state(1, np.uint64)[0] >> np.uint64(2))

        def drawn(indices: np.ndarray, size: int, stream: int) -> Tensor:
            return torch.from_numpy(indices[draw(len(indices), size, step, seed=recipe.seed, stream=stream)])

        i = drawn(self.split.labelled, recipe.labelled_batch, 1)
        x, y = self.inputs(processes.mine(i)), self.runtime.picked(self.labels, i)
        u = x[:0]
        if recipe.uses_unlabelled:
            j = drawn(self.split.unlabelled, recipe.unlabelled_batch, 2)
            u = self.inputs(processes.mine(j))

        def view() -> tuple[Tensor, Tensor]:
            return augmented(x, recipe.preparation), augmented(u, recipe.preparation)

        seed_noise(key + Stream.VIEWS, device)
        first_x, first_u = view()
        return Batch(first_x, y, first_u, key, view)

    @property
    def opponent(self) -> torch.optim.Optimizer | None:
        """d's optimiser, if it has one of its own."""
        return self.alignment.optimizer if self.alignment is not None else None

    def opponent_rates(self, rates: dict[str, float]) -> dict[str, float]:
        """d follows the schedule of f and g, unless it has a learning rate of its own to scale by it."""
        own = getattr(self.recipe.align, "learning_rate", None)
        if own is None:
            return rates
        scale = rates["learning_rate"] / self.recipe.optimisation.learning_rate
        return {**rates, "learning_rate": own * scale}

    def teacher_decay(self, step: int) -> float | None:
        decays = (method.teacher_decay(step) for method in self.recipe.method)
        return next((d for d in decays if d is not None), None)

    def record(self, terms: list[Terms]) -> None:
        for name, term in (named for some in terms for named in some.items()):
            self.sums[name] = self.sums.get(name, 0) + term.detach().double()
        if self.alignment is not None and self.alignment.accuracy is not None:
            accuracy = self.alignment.accuracy.double()
            self.sums["discriminator_accuracy"] = self.sums.get("discriminator_accuracy", 0) + accuracy

    def model(self) -> Model:
        """What is evaluated and kept: the teacher if there is one, else the student."""
        return Model(self.normaliser, self.nets.teacher or self.nets.student, self.data.classes)

    def finite(self) -> bool:
        """Whether all that a checkpoint would hold are numbers."""
        return all(bool(torch.isfinite(numbers).all()) for numbers in tensors(self.state()))

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "seconds": self.seconds,
            "sums": self.sums,
            "normaliser": self.normaliser.state_dict(),
            "student": self.nets.student.state_dict(),
            "teacher": self.nets.teacher.state_dict() if self.nets.teacher is not None else None,
            "alignment": self.alignment.state_dict() if self.alignment is not None else None,
            "optimizer": self.optimizer.state_dict(),
            "opponent": self.opponent.state_dict() if self.opponent is not None else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.step, self.seconds = state["step"], state["seconds"]
        self.sums = {name: total.to(self.runtime.device) for name, total in state["sums"].items()}
        self.normaliser = Normaliser.of(state["normaliser"]).to(self.runtime.device)
        self.__dict__.pop("whitened", None)  # by another normaliser
        self.nets.student.load_state_dict(state["student"])
        if self.nets.teacher is not None:
            self.nets.teacher.load_state_dict(state["teacher"])
        if self.alignment is not None:
            self.alignment.load_state_dict(state["alignment"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.opponent is not None:
            self.opponent.load_state_dict(state["opponent"])


def tensors(state: Any) -> Iterator[Tensor]:
    """All tensors in a nested state."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from tensors(part)


def begin(recipe: Recipe, data: DataSet, runtime: Runtime) -> Training:
    """Draw the split and the first weights: functions of the seed."""
    parts = recipe.split_of(data)
    if recipe.uses_unlabelled and not len(parts.unlabelled):
        raise UserError(
            "Every training image has a label, so none is left to learn from without one; "
            "keep fewer with --labels, or use --method supervised --align none."
        )
    check_shares(recipe)
    torch.manual_seed(recipe.seed)
    student = built(recipe, data)
    alignment = recipe.align.build(student.features) if recipe.align is not None else None
    runtime = runtime.suited(student, any(method.gains_little_from_bfloat16 for method in recipe.method))
    runtime.place(student)
    if alignment is not None:
        alignment.to(runtime.device)
    has_teacher = any(method.teacher_decay(0) is not None for method in recipe.method)
    teacher = copy.deepcopy(student).requires_grad_(False) if has_teacher else None
    groups: list[dict[str, Any]] = [{"params": list(student.parameters())}]
    if alignment is not None and (joint := alignment.joint_parameters()):
        groups.append({"params": joint, "opponent": True})
    return Training(
        recipe=recipe,
        data=data,
        runtime=runtime,
        split=parts,
        nets=Nets(student, teacher, apart=recipe.batchnorm == "apart"),
        alignment=alignment,
        optimizer=make_optimizer(recipe, groups),
    )


def check_shares(recipe: Recipe) -> None:
    """Refuse a batch that the processes cannot share evenly."""
    x, u = recipe.labelled_batch, recipe.unlabelled_batch if recipe.uses_unlabelled else 0
    if math.gcd(x, u) % processes.count():
        fitting = [str(n) for n in range(2, 65) if math.gcd(x, u) % n == 0]
        raise UserError(
            f"{processes.count()} processes cannot share batches of {x} labelled and {u} unlabelled images evenly; "
            + (f"--processes can be {' or '.join(fitting)}." if fitting else "leave out --processes.")
        )


def built(recipe: Recipe, data: DataSet) -> Classifier:
    """The net with fresh weights; one that cannot take these inputs says so now."""
    shape = data.train.shape
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            size = sum(p.numel() for p in recipe.net.build(shape, len(data.classes)).parameters())
        if 16 * size > memory():  # in float32: weights, gradients and what Adam keeps of them
            raise UserError(f"The net {recipe.net.name()} has {size:,} weights, too many for this machine's memory.")
        net = recipe.net.build(shape, len(data.classes)).eval()
        with torch.no_grad():
            net(torch.zeros(1, *shape))
    except (ArithmeticError, RuntimeError, ValueError):
        raise UserError(
            f"The net {recipe.net.name()} cannot take inputs of shape {shape}; choose another --net, such as mlp."
        ) from None
    return net.train()


def make_optimizer(recipe: Recipe, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    o = recipe.optimisation
    if o.optimizer == "sgd":
        return torch.optim.SGD(
            groups, lr=o.learning_rate, momentum=o.momentum, nesterov=True, weight_decay=o.weight_decay, fused=True
        )
    return torch.optim.Adam(
        groups, lr=o.learning_rate, betas=(o.beta1, o.beta2), weight_decay=o.weight_decay, fused=True
    )


def log_line(training: Training, since: int) -> dict[str, Any]:
    recipe, step = training.recipe, training.step
    means = {name: float(total) / since for name, total in training.sums.items()}
    line: dict[str, Any] = {"step": step, **{k: round(v, 6) for k, v in means.items()}}
    line["learning_rate"] = recipe.optimisation.rates((step - 1) / recipe.steps)["learning_rate"]
    if recipe.align is not None:
        line["mu"] = round(recipe.align.mu(recipe.progress(step - 1)), 6)
    line["seconds"] = round(training.seconds, 2)
    return line
