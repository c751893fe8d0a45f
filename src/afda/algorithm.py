"""Algorithm 1 of the paper: learn f and g from few labels and many unlabelled images, against the discriminator d."""

from collections.abc import Iterator

import torch
from torch import Tensor

from afda import losses, processes
from afda.classifier import Classifier
from afda.methods import Terms
from afda.training import Training


def steps(training: Training) -> Iterator[int]:
    """Algorithm 1. Yields the number of updates done after each of them.

    The paper updates f and g, then d at the new f. Here the loop is rotated: the clean pass of a new batch is a pass of
    the new f, so d is updated on it first and f and g then face the newest d, without a pass of f being repeated.
    """
    recipe, nets, alignment, optimizer = training.recipe, training.nets, training.alignment, training.optimizer
    labelled = recipe.labelled_batch  # the first rows of a pass
    together = [method for method in recipe.method if not method.goes_back_alone]
    alone = [method for method in recipe.method if method.goes_back_alone]

    for step in range(training.step, recipe.steps):
        t = recipe.progress(step)
        rates = recipe.optimisation.rates(step / recipe.steps)
        batch = training.batch(step)

        with training.runtime.autocast():
            clean = nets.passes(
                batch.x,
                batch.u if recipe.uses_unlabelled else None,
                key=batch.key,
                track_labelled=recipe.statistics != "unlabelled",
                track_unlabelled=recipe.statistics != "labelled",
            )

            # max over d
            if alignment is not None and alignment.optimizer is not None and recipe.order == "rotated":
                alignment.step(clean.features.detach(), labelled, **training.opponent_rates(rates))

            # min over f, g
            of_x = clean.first if clean.first is not None else clean.logits[: len(batch.y)]
            supervised = losses.cross_entropy(of_x, batch.y)
            if recipe.supervised_mean == "batch":
                supervised = supervised * recipe.labelled_batch / (recipe.labelled_batch + recipe.unlabelled_batch)
            terms = [{"supervised": supervised}, *(method.terms(nets, batch, clean, t) for method in together)]
            if alignment is not None and recipe.align is not None:
                terms.append({"alignment": alignment(clean.features, labelled, recipe.align.mu(t))})
        optimizer.zero_grad()
        total(terms).backward()
        clean = clean.detach()  # frees what it kept of u, also where nothing went back through u, as in plain VAT
        for method in alone:
            with training.runtime.autocast():
                own = method.terms(nets, batch, clean, t)
            total([own]).backward()
            terms.append(own)
        set_rates(training, rates)
        processes.add_gradients(nets.student)
        optimizer.step()

        if nets.teacher is not None:
            average(nets.teacher, nets.student, training.teacher_decay(step))

        if alignment is not None and alignment.optimizer is not None and recipe.order == "literal":
            with torch.no_grad(), training.runtime.autocast():
                features = nets.passes(batch.x, batch.u, key=batch.key).features
            alignment.step(features, labelled, **training.opponent_rates(rates))

        training.step = step + 1
        training.record(terms)
        yield training.step


def total(terms: list[Terms]) -> Tensor:
    return sum((term for some in terms for term in some.values()), torch.zeros(()))


def set_rates(training: Training, rates: dict[str, float]) -> None:
    for group in training.optimizer.param_groups:
        own = training.opponent_rates(rates) if group.get("opponent") else rates
        group["lr"] = own["learning_rate"]
        if "betas" in group:
            group["betas"] = (own["beta1"], training.recipe.optimisation.beta2)


@torch.no_grad()
def average(teacher: Classifier, student: Classifier, decay: float | None) -> None:
    """Move the teacher towards the student: weights, and the running statistics that evaluation uses."""
    if decay is None:
        return
    for mine, theirs in ((teacher.parameters(), student.parameters()), (teacher.buffers(), student.buffers())):
        pairs = [(m, s) for m, s in zip(mine, theirs, strict=True) if m.is_floating_point()]
        torch._foreach_lerp_([m for m, _ in pairs], [s for _, s in pairs], 1 - decay)
