"""The limit of a training step: its network passes, backward passes and updates on fixed tensors, and nothing else.

The loop is written out by hand around the nets and uses no code of the training, so that the ratio of the two times
shows what that code costs.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from afda.training.state import Training

METHODS = ("supervised", "entropy", "pi-model", "mean-teacher", "vat")
"""The methods whose passes are written out here. Other methods have no limit to be compared with."""


def build_bare_step(training: Training) -> Callable[[], None]:
    """Return a function that makes the training's step as a bare loop would. It uses up the nets and optimisers."""
    return BareStep(training)


class BareStep:
    """The step of a training on its first batch, without the training's code."""

    def __init__(self, training: Training) -> None:
        self.recipe, self.runtime = training.recipe, training.runtime
        self.student, self.teacher = training.nets.student, training.nets.teacher
        self.optimizer = training.optimizer
        align = self.recipe.align
        self.alignment: Any = None if align is None else training.owned.get(align.name())
        self.methods: dict[str, Any] = {method.name(): method for method in self.recipe.method}
        decays = [method.teacher_decay(10**6) for method in self.recipe.method]
        self.decay = next((decay for decay in decays if decay is not None), None)
        self.vat = self.methods.get("vat")
        batch = training.batches.draw(0)
        self.x, self.y, self.u = batch.x, batch.y, batch.u
        self.second_u = batch.weak().u
        self.device = self.x.device.type
        self.perturbed = [self.x, self.u] if self.vat is not None and self.vat.on == "all" else [self.u]
        self.noise = [torch.randn_like(part) for part in self.perturbed]
        sides = torch.ones(len(self.x), device=self.x.device), torch.zeros(len(self.u), device=self.x.device)
        self.is_labelled = torch.cat(sides)

    def __call__(self) -> None:
        """Make one step."""
        with self.runtime.autocast():
            clean = self.student(self.x, track=True)
            loss = F.cross_entropy(clean.logits, self.y)
            features, logits_u = clean.features, clean.logits[:0]
            if self.recipe.uses_unlabelled:
                clean_u = self.student(self.u, track=self.recipe.statistics != "labelled")
                features, logits_u = torch.cat([features, clean_u.features]), clean_u.logits
            if self.alignment is not None:
                loss = loss - self.align(self.alignment, features)
            loss = loss + self.regularise(logits_u)
        self.optimizer.zero_grad()
        loss.backward()
        if self.vat is not None:
            target = (torch.cat([clean.logits, logits_u]) if self.vat.on == "all" else logits_u).detach()
            del clean, clean_u, features, logits_u  # frees their feature maps before the next pass
            with self.runtime.autocast():
                pairs = zip(self.perturbed, self.find_worst_direction(target), strict=True)
                loss = divergence(target, self.logits([part + direction for part, direction in pairs]))
            loss.backward()
        self.optimizer.step()
        if self.teacher is not None and self.decay is not None:
            with torch.no_grad():
                averaged: list[Tensor] = list(self.teacher.parameters())
                torch._foreach_lerp_(averaged, list(self.student.parameters()), 1 - self.decay)

    def align(self, alignment: Any, features: Tensor) -> Tensor:
        """Update the discriminator and return its loss, which the student increases."""
        with torch.autocast(self.device, enabled=False):
            ascent = self.discriminate(alignment, features.detach())
            alignment.optimizer.zero_grad()
            ascent.backward()
            alignment.optimizer.step()
            alignment.d.requires_grad_(False)
            loss = self.discriminate(alignment, features)
            alignment.d.requires_grad_(True)
        return loss

    def discriminate(self, alignment: Any, features: Tensor) -> Tensor:
        """Return the discriminator's cross-entropy between labelled and unlabelled images."""
        return F.binary_cross_entropy_with_logits(alignment.d(features).squeeze(1), self.is_labelled)

    def regularise(self, logits_u: Tensor) -> Tensor:
        """Return the loss terms of the methods other than VAT."""
        loss = logits_u.new_zeros(())
        if "entropy" in self.methods:
            loss = loss - (logits_u.softmax(1) * logits_u.log_softmax(1)).sum(1).mean()
        if "pi-model" in self.methods:
            loss = loss + F.mse_loss(self.student(self.second_u).logits.softmax(1), logits_u.softmax(1))
        if self.teacher is not None:
            with torch.no_grad():
                target = self.teacher(self.second_u).logits.softmax(1)
            loss = loss + F.mse_loss(logits_u.softmax(1), target)
        return loss

    def find_worst_direction(self, target: Tensor) -> list[Tensor]:
        """Return the gradient of the divergence near the images, as one power iteration of VAT computes it."""
        with torch.autocast(self.device, enabled=False):
            if self.runtime.precision != "float32":
                with torch.no_grad():
                    target = self.logits(self.perturbed)
            probes = [noise.clone().requires_grad_() for noise in self.noise]
            moved = [part + 1e-3 * probe for part, probe in zip(self.perturbed, probes, strict=True)]
            return list(torch.autograd.grad(divergence(target, self.logits(moved)), probes))

    def logits(self, images: list[Tensor]) -> Tensor:
        """Return the student's logits, from one pass per part of the batch."""
        return torch.cat([self.student(part).logits for part in images])


def divergence(target: Tensor, logits: Tensor) -> Tensor:
    """Return the mean Kullback-Leibler divergence of two distributions given by their logits."""
    return F.kl_div(logits.log_softmax(1), target.log_softmax(1), log_target=True, reduction="batchmean")
