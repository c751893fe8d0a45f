"""A training from its first weights to its result: what Algorithm 1 works on, and the files it leaves behind."""

import copy
import io
import math
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from afda import __version__, processes, results
from afda.alarms import alarm
from afda.algorithm import steps
from afda.align import Alignment
from afda.classifier import Classifier, seed_noise
from afda.data.augment import augmented
from afda.data.images import DataSet
from afda.data.normalise import Normaliser, fitted
from afda.data.sampling import draw
from afda.data.split import Split, split
from afda.errors import RunFailed, UserError, in_short
from afda.inference import Model, model_bytes, save_model
from afda.methods import Batch, Nets
from afda.recipe import Recipe
from afda.runs import CHECKPOINT, SNAPSHOT, WORKING_FILES, Run, as_csv, open_run
from afda.runtime import Runtime, memory, runtime

CHECKPOINT_SECONDS = float(os.environ.get("AFDA_CHECKPOINT_SECONDS", "60"))
"""Between checkpoints: the most that is lost."""
LOG_LINES = 100


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
        sizes = self.recipe.labelled_batch, self.recipe.unlabelled_batch
        self.labelled_rows = (torch.arange(sum(sizes)) < sizes[0]).to(self.runtime.device)
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

    def batch(self, step: int) -> Batch:
        """The batch of this step, or this process's images of it: a function of the seed and the step."""
        recipe, device = self.recipe, self.runtime.device
        key = int(np.random.SeedSequence([recipe.seed, step]).generate_state(1, np.uint64)[0] >> np.uint64(2))

        def drawn(indices: np.ndarray, size: int, stream: int) -> Tensor:
            chosen = indices[draw(len(indices), size, step, seed=recipe.seed, stream=stream)]
            return torch.from_numpy(chosen).to(self.images.device)

        i = drawn(self.split.labelled, recipe.labelled_batch, 1)
        x, y = self.normaliser(self.images[processes.mine(i)].to(device)), self.labels[i.to(device)]
        u = x[:0]
        if recipe.uses_unlabelled:
            j = drawn(self.split.unlabelled, recipe.unlabelled_batch, 2)
            u = self.normaliser(self.images[processes.mine(j)].to(device))

        def view() -> tuple[Tensor, Tensor]:
            return augmented(x, recipe.preparation), augmented(u, recipe.preparation)

        seed_noise(key + 3, device)
        first_x, first_u = view()
        return Batch(first_x, y, first_u, key, view)

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

    def record(self, terms: dict[str, Tensor]) -> None:
        for name, term in terms.items():
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
            "opponent": opponent.state_dict() if (opponent := getattr(self.alignment, "optimizer", None)) else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.step, self.seconds = state["step"], state["seconds"]
        self.sums = {name: total.to(self.runtime.device) for name, total in state["sums"].items()}
        self.normaliser = Normaliser.of(state["normaliser"]).to(self.runtime.device)
        self.nets.student.load_state_dict(state["student"])
        if self.nets.teacher is not None:
            self.nets.teacher.load_state_dict(state["teacher"])
        if self.alignment is not None:
            self.alignment.load_state_dict(state["alignment"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["opponent"] is not None and self.alignment is not None:
            self.alignment.optimizer.load_state_dict(state["opponent"])  # type: ignore[union-attr]


def tensors(state: Any) -> Iterator[Tensor]:
    """All tensors in a nested state."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from tensors(part)


def begin(recipe: Recipe, data: DataSet, runtime: Runtime) -> Training:
    """Draw the split and the first weights: functions of the seed."""
    parts = split(
        data.train.y,
        data.classes,
        labels=recipe.labels,
        seed=recipe.seed,
        balanced=recipe.balanced,
        validation=recipe.validation,
    )
    if recipe.uses_unlabelled and not len(parts.unlabelled):
        raise UserError(
            "Every training image has a label, so none is left to learn from without one; "
            "keep fewer with --labels, or use --method supervised --align none."
        )
    check_shares(recipe)
    torch.manual_seed(recipe.seed)
    student = built(recipe, data)
    alignment = recipe.align.build(student.features) if recipe.align is not None else None
    runtime = runtime.suited(student)
    runtime.place(student)
    if alignment is not None:
        alignment.to(runtime.device)
    has_teacher = any(method.teacher_decay(0) is not None for method in recipe.method)
    teacher = copy.deepcopy(student).requires_grad_(False) if has_teacher else None
    parameters = [*student.parameters(), *(alignment.joint_parameters() if alignment is not None else ())]
    return Training(
        recipe=recipe,
        data=data,
        runtime=runtime,
        split=parts,
        nets=Nets(student, teacher, apart=recipe.batchnorm == "apart"),
        alignment=alignment,
        optimizer=make_optimizer(recipe, parameters),
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


def make_optimizer(recipe: Recipe, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    o = recipe.optimisation
    if o.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, lr=o.learning_rate, momentum=o.momentum, nesterov=True, weight_decay=o.weight_decay, fused=True
        )
    return torch.optim.Adam(
        parameters, lr=o.learning_rate, betas=(o.beta1, o.beta2), weight_decay=o.weight_decay, fused=True
    )


def fit(
    training: Training, run: Run, *, snapshots: bool = False, stop: threading.Event | None = None
) -> Iterator[dict[str, Any]]:
    """Train to the end and write the run's files. Yields each line of the log.

    `snapshots` keeps the model at every fifth line and tests all of them after the last update. When `stop` is set, the
    state is saved and KeyboardInterrupt raised.
    """
    recipe = training.recipe
    saved_step, saved_time = training.step, time.monotonic()
    before, started = training.seconds, time.monotonic()
    every = max(1, recipe.steps // LOG_LINES)
    log = run.log()

    def check() -> None:
        if not training.finite():
            raise RunFailed(
                f"The loss stopped being a number between steps {saved_step} and {training.step}; "
                f"the checkpoint of step {saved_step} is kept. Try a lower learning rate, "
                f"such as --set optimisation.learning_rate={recipe.optimisation.learning_rate / 4:g}, "
                "with another --out."
            )

    def save() -> None:
        nonlocal saved_step, saved_time
        check()
        run.write_checkpoint(training.state())
        saved_step, saved_time = training.step, time.monotonic()

    if not (training.step or (run.path / CHECKPOINT).exists()):
        save()
    if processes.count() > 1:
        buffer = io.BytesIO()
        torch.save(training.state(), buffer)
        processes.told(buffer.getvalue())
    for step in steps(training):
        training.seconds = before + time.monotonic() - started
        if step % every == 0 or step == recipe.steps:
            check()
            line = log_line(training, step % every or every)
            if step % (5 * every) == 0 or step == recipe.steps:
                line |= results.trace(training.model(), recipe, training.data, training.split, training.runtime)
                if snapshots:
                    run.write(f"{SNAPSHOT}{step}.safetensors", model_bytes(training.model()))
            training.sums = {}
            log.append(line)
            if warning := alarm(log, recipe):
                line["warning"] = warning
            run.append_log(line)
            yield line
        if processes.any_says(stop is not None and stop.is_set()):
            save()
            processes.told()  # the others may go
            raise KeyboardInterrupt
        if time.monotonic() - saved_time > CHECKPOINT_SECONDS:
            save()

    training.seconds = before + time.monotonic() - started
    save()
    model = training.model()
    found = results.final(model, recipe, training.data, training.split, training.runtime)
    save_model(run, model, recipe, training.data.train.shape)
    run.write_json(
        "result.json",
        {
            **found,
            "seconds": round(training.seconds, 2),
            "images_per_second": round(recipe.steps * recipe.images_per_step / max(training.seconds, 1e-9), 1),
            "test_curve": results.test_curve(model, run, training.data, training.runtime) if snapshots else None,
        },
    )
    run.discard(*WORKING_FILES)


def assist(training: Training, stop: threading.Event | None = None) -> None:
    """What the other processes do while the first one does `fit`: the same updates from the same state. They write
    nothing, and do nothing if the first says nothing, since the run is finished."""
    if state := processes.told():
        training.restore(torch.load(io.BytesIO(state), map_location="cpu", weights_only=True))
        for _ in steps(training):
            if processes.any_says(stop is not None and stop.is_set()):
                processes.told()
                raise KeyboardInterrupt


def log_line(training: Training, since: int) -> dict[str, Any]:
    recipe, step = training.recipe, training.step
    means = {name: float(total) / since for name, total in training.sums.items()}
    line: dict[str, Any] = {"step": step, **{k: round(v, 6) for k, v in means.items()}}
    line["learning_rate"] = recipe.optimisation.rates((step - 1) / recipe.steps)["learning_rate"]
    if recipe.align is not None:
        line["mu"] = round(recipe.align.mu(recipe.progress(step - 1)), 6)
    line["seconds"] = round(training.seconds, 2)
    return line


def train(
    recipe: Recipe,
    data: DataSet,
    out: str | Path,
    *,
    on: Runtime | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Run:
    """Train a recipe on a data set and return the finished run."""
    training = begin(recipe, data, on or runtime())  # what cannot begin leaves what is in `out` alone
    if processes.rank() > 0:
        assist(training)
        return Run(Path(out))
    run = open_run(Path(out), recipe, resume=resume, overwrite=overwrite)
    try:
        if run.finished:
            processes.told()
        else:
            for _ in fit(prepared(training, run), run):
                pass
    finally:
        run.unlock()
    return run


def prepared(training: Training, run: Run, asked: dict[str, Any] | None = None) -> Training:
    """The training at its beginning, or where the run's last checkpoint left it.

    What was `asked` for besides the recipe is kept in environment.json.
    """
    data, machine = training.data, training.runtime.describe()
    state = run.read_checkpoint()
    if state is None:
        about: dict[str, Any] = {
            "source": data.source,
            "shape": list(data.train.shape),
            "more_labels": list(data.more_labels),
        }
        about |= {"afda": __version__, "data": data.files, "notes": list(data.notes)}
        run.write_json("environment.json", {**machine, **about, **(asked or {})})
        run.write_json("split.json", training.split.as_dict(data.rows))
        if data.skipped:
            run.write("skipped.csv", as_csv(("path", "reason"), data.skipped).encode(errors="replace"))
    else:
        check_data(run, data)
        before = run.read_json("environment.json")
        if before.get("precision") != machine["precision"]:
            if not training.runtime.free:
                raise UserError(f"{run.path} was begun in {before.get('precision')}; continue with that --precision.")
            training.runtime = replace(training.runtime, precision=before["precision"])
        try:
            if not 0 <= state["step"] <= training.recipe.steps or not 0 <= state["seconds"] < math.inf:
                raise ValueError("it is of no step of this training")
            training.restore(state)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise RunFailed(
                f"The checkpoint in {run.path} is of another training ({in_short(error)}); "
                "start again with --overwrite."
            ) from None
    run.cut_log(training.step)
    return training


def check_data(run: Run, data: DataSet) -> None:
    """Refuse to go on with a run on other data than it began with."""
    if run.read_json("environment.json").get("data") != data.files:
        raise UserError(f"The data of {run.path} have changed since it began; start again with another --out.")
