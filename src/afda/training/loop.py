"""Algorithm 1 of the paper: learn f and g from few labels and many unlabelled images, against the discriminator d."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from afda import losses
from afda.data.batch import Batch
from afda.methods import Loss, Step
from afda.nets import Output
from afda.schedules import Rates, compute_progress
from afda.training.state import Training


def run_updates(training: Training) -> Iterator[int]:
    """Run Algorithm 1. Yield the number of updates done after each of them.

    The paper updates f and g, then d at the new f. Here the loop is rotated: the clean pass of a new batch is a pass of
    the new f, so d is updated on it first and f and g then face the newest d, without a pass of f being repeated.
    """
    recipe, nets, group = training.recipe, training.nets, training.group
    together = [name for name, part in training.objectives.items() if not part.separate_backward]
    separate = [name for name, part in training.objectives.items() if part.separate_backward]

    for number in range(training.step, recipe.steps):
        rates = recipe.optimisation.compute_rates(number / recipe.steps)
        batch = training.batches.draw(number)

        with training.autocast():
            clean = nets.run(
                batch.x,
                batch.u if training.uses_unlabelled else None,
                key=batch.key,
                track_labelled=recipe.statistics != "unlabelled",
                track_unlabelled=recipe.statistics != "labelled",
            )

            if training.shares is not None:
                training.shares.update(clean.detach().logits, batch.y)

            # max over d
            if recipe.order == "rotated":
                compete(training, batch, clean, number, rates)

            # min over f, g
            supervised = Loss({"supervised": compute_supervised(training, batch, clean)})
            parts = [supervised, *compute_losses(training, together, batch, clean, number, rates)]
        training.optimizer.zero_grad()
        add_terms(parts, group.count).backward()
        clean = clean.detach()  # frees what it kept of u, also where nothing went back through u, as in plain VAT
        for name in separate:
            with training.autocast():
                own = compute_losses(training, [name], batch, clean, number, rates)
            if (total := add_terms(own, group.count)).requires_grad:
                total.backward()
            parts += own
        set_rates(training, rates)
        if group.count > 1:
            group.sum_gradients(training.trained_parameters)
        training.optimizer.step()

        if nets.teacher is not None:
            update_averages(training, number)

        if recipe.order == "literal" and training.opponents:
            with torch.no_grad(), training.autocast():
                moved = nets.run(batch.x, batch.u, key=batch.key)
            compete(training, batch, moved, number, rates)

        training.step = number + 1
        record(training, parts)
        yield training.step


def make_step(training: Training, name: str, batch: Batch, clean: Output, number: int, rates: Rates) -> Step:
    """Return what a method or alignment sees of this update."""
    every, labelled = training.recipe.progress_every, len(batch.y)
    return Step(
        nets=training.nets,
        batch=batch,
        clean=clean,
        labelled=clean.rows(slice(labelled)),
        unlabelled=clean.rows(slice(labelled, None)),
        t=compute_progress(number, training.recipe.steps, every),
        number=number,
        rates=rates,
        owned=training.owned.get(name),
        averaged=training.averaged.get(name),
        shares=training.shares,
    )


def compete(training: Training, batch: Batch, clean: Output, number: int, rates: Rates) -> None:
    """Let what plays against f and g learn from this pass."""
    detached = clean.detach()
    with torch.autocast(batch.y.device.type, enabled=False):  # which would round their way back, too
        for name in training.opponents:
            training.objectives[name].compete(make_step(training, name, batch, detached, number, rates))


def compute_supervised(training: Training, batch: Batch, clean: Output) -> Tensor:
    """Return L_Sup of the labelled images."""
    recipe = training.recipe
    logits = clean.first if clean.first is not None else clean.logits[: len(batch.y)]
    if recipe.logit_adjustment:  # Menon et al. (2021); predictions and all other terms use the plain logits
        logits = logits + recipe.logit_adjustment * training.log_shares
    supervised = losses.cross_entropy(logits, batch.y)
    if recipe.supervised_mean == "batch":
        supervised = supervised * recipe.labelled_batch / (recipe.labelled_batch + recipe.unlabelled_batch)
    return supervised


def compute_losses(
    training: Training, names: list[str], batch: Batch, clean: Output, number: int, rates: Rates
) -> list[Loss]:
    """Return what each of these methods and alignments adds to the loss."""
    return [training.objectives[name].loss(make_step(training, name, batch, clean, number, rates)) for name in names]


def add_terms(parts: list[Loss], processes: int) -> Tensor:
    """Return the sum of all terms; every process computes all of it, so each counts for its share."""
    total = sum((term for part in parts for term in part.terms.values()), torch.zeros(()))
    return total / processes if processes > 1 else total


def set_rates(training: Training, rates: Rates) -> None:
    """Set the learning rate and beta1 of every parameter group."""
    for group in training.optimizer.param_groups:
        own = training.objectives[group["owner"]].own_rates(rates) if group["owner"] else rates
        group["lr"] = own.learning_rate * group["factor"]
        if "betas" in group:
            group["betas"] = (own.beta1, group["betas"][1])


@torch.no_grad()
def update_averages(training: Training, number: int) -> None:
    """Move the teacher, and averages of what methods own, towards the trained weights and running statistics."""
    decays = (method.teacher_decay(number) for method in training.recipe.method)
    decay = next((d for d in decays if d is not None), None)
    assert training.nets.teacher is not None
    if decay is None:
        return
    move_towards(training.nets.teacher, training.nets.student, 1 - decay)
    for name, average in training.averaged.items():
        move_towards(average, training.owned[name], 1 - decay)


def move_towards(average: nn.Module, module: nn.Module, share: float) -> None:
    """Move weights and floating-point buffers a share of the way."""
    for mine, theirs in ((average.parameters(), module.parameters()), (average.buffers(), module.buffers())):
        pairs = [(m, s) for m, s in zip(mine, theirs, strict=True) if m.is_floating_point()]
        if pairs:
            torch._foreach_lerp_([m for m, _ in pairs], [s for _, s in pairs], share)


def record(training: Training, parts: list[Loss]) -> None:
    """Add terms and metrics to the sums of the next log line; a metric that is a plain number is logged as it is.

    A metric that is not a finite number, such as an accuracy of no images, does not count.
    """
    for part in parts:
        for name, term in part.terms.items():
            training.sums[name] = training.sums.get(name, 0) + term.detach().double()
        for name, metric in part.metrics.items():
            if isinstance(metric, Tensor):
                value = metric.detach().double()
                counts = value.isfinite()
                both = torch.stack([torch.where(counts, value, 0.0), counts.double()])
                training.metric_sums[name] = training.metric_sums.get(name, 0) + both
            else:
                training.latest[name] = float(metric) if math.isfinite(metric) else None
