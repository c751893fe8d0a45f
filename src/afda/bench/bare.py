"""The limit of a training step: its network passes, backward passes and updates on fixed tensors, and nothing else.

Written out by hand around the nets, with none of the training's own code, so that whatever that code costs shows.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from afda.training import Training

KNOWN = ("supervised", "entropy", "pi-model", "mean-teacher", "vat")
"""The methods whose passes are written out here."""


def bare_step(training: Training) -> Callable[[], None]:
    """The step of this training as a bare loop would have it. It uses up the training's nets and optimisers."""
    recipe, runtime, student = training.recipe, training.runtime, training.nets.student
    teacher, optimizer = training.nets.teacher, training.optimizer
    methods: dict[str, Any] = {m.name(): m for m in recipe.method}
    vat = methods.get("vat")
    decay = training.teacher_decay(10**6)
    batch = training.batch(0)
    x, y, u = batch.x, batch.y, batch.u
    _, second_u = batch.view()
    parts = [x, u] if vat is not None and vat.on == "all" else [u]
    noise = [torch.randn_like(part) for part in parts]
    is_labelled = torch.cat([torch.ones(len(x), device=x.device), torch.zeros(len(u), device=x.device)])
    alignment: Any = training.alignment

    def logits(images: list[Tensor]) -> Tensor:
        return torch.cat([student(part).logits for part in images])

    def divergence(target: Tensor, others: Tensor) -> Tensor:
        return F.kl_div(others.log_softmax(1), target.log_softmax(1), log_target=True, reduction="batchmean")

    def worst(target: Tensor) -> list[Tensor]:
        with torch.autocast(x.device.type, enabled=False):
            if runtime.precision != "float32":
                with torch.no_grad():
                    target = logits(parts)
            probes = [n.clone().requires_grad_() for n in noise]
            moved = [part + 1e-3 * probe for part, probe in zip(parts, probes, strict=True)]
            return list(torch.autograd.grad(divergence(target, logits(moved)), probes))

    def step() -> None:
        with runtime.autocast():
            clean = student(x, track=True)
            loss = F.cross_entropy(clean.logits, y)
            features, of_u = clean.features, clean.logits[:0]
            if recipe.uses_unlabelled:
                clean_u = student(u, track=recipe.statistics != "labelled")
                features, of_u = torch.cat([features, clean_u.features]), clean_u.logits
            if alignment is not None:
                with torch.autocast(x.device.type, enabled=False):
                    ascent = F.binary_cross_entropy_with_logits(alignment.d(features.detach()).squeeze(1), is_labelled)
                    alignment.optimizer.zero_grad()
                    ascent.backward()
                    alignment.optimizer.step()
                    alignment.d.requires_grad_(False)
                    loss = loss - F.binary_cross_entropy_with_logits(alignment.d(features).squeeze(1), is_labelled)
                    alignment.d.requires_grad_(True)
            if "entropy" in methods:
                loss = loss - (of_u.softmax(1) * of_u.log_softmax(1)).sum(1).mean()
            if "pi-model" in methods:
                loss = loss + F.mse_loss(student(second_u).logits.softmax(1), of_u.softmax(1))
            if teacher is not None:
                with torch.no_grad():
                    target = teacher(second_u).logits.softmax(1)
                loss = loss + F.mse_loss(of_u.softmax(1), target)
        optimizer.zero_grad()
        loss.backward()
        if vat is not None:
            target = (torch.cat([clean.logits, of_u]) if vat.on == "all" else of_u).detach()
            del clean, clean_u, features, of_u
            with runtime.autocast():
                moved = [part + d for part, d in zip(parts, worst(target), strict=True)]
                loss = divergence(target, logits(moved))
            loss.backward()
        optimizer.step()
        if teacher is not None and decay is not None:
            with torch.no_grad():
                torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - decay)

    return step
