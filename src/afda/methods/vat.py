"""Virtual adversarial training (Miyato et al., 2018): predictions should survive the worst small perturbation."""

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from afda import losses
from afda.methods import Batch, Loss, Method, Networks, Step
from afda.nets import Output, Stream


class VAT(Method):
    """Divergence between the predictions for an image and for its worst perturbation of a given norm."""

    separate_backward: ClassVar[bool] = True
    gains_little_from_bfloat16: ClassVar[bool] = True  # its probe, a third of a step, is in float32 anyhow

    radius: float = Field(3.5, gt=0, description="L2 norm of the perturbation per image, in units of the net's input")
    scale: Literal["absolute", "root"] = Field(
        "absolute",
        description="whether the radius is the norm itself, or is multiplied by the root of the number of inputs, so "
        "that each changes as much on average, whatever their number",
    )
    weight: float = Field(1.0, ge=0, description="eta; the paper keeps it at 1")
    on: Literal["all", "unlabelled"] = Field("all", description="which images are perturbed")
    iterations: int = Field(1, ge=1, description="power iterations that look for the worst direction")
    xi: float = Field(
        1e-3,
        gt=0,
        description="length of the probe; the published 1e-6 drowns in float32 rounding, so it is longer here",
    )
    noise: Literal["shared", "fresh"] = Field(
        "shared", description="whether perturbed passes keep the clean pass's dropout masks or draw their own"
    )

    def loss(self, step: Step) -> Loss:
        target = (step.clean if self.on == "all" else step.unlabelled).logits.detach()
        directions = self.find_worst_directions(step.nets, step.batch, target)
        logits = self.run_perturbed(step.nets, step.batch, directions, self.norm(step.batch.u)).logits
        return Loss({"consistency": self.weight * losses.kl_divergence(target, logits)})

    def norm(self, images: Tensor) -> float:
        """Return the L2 norm of the perturbation of each of these images."""
        return self.radius if self.scale == "absolute" else self.radius * math.prod(images.shape[1:]) ** 0.5

    def run_perturbed(
        self, nets: Networks, batch: Batch, directions: list[Tensor], length: float, exact: bool = False
    ) -> Output:
        """Pass all or the unlabelled images, moved along the directions; normalised, and noisy, as the clean pass."""
        key = batch.key if self.noise == "shared" else None
        u = batch.u + length * directions[-1]
        if self.on == "all":
            return nets.run(batch.x + length * directions[0], u, key=key, exact=exact)
        if nets.separate:
            return nets.run(None, u, key=key, exact=exact)
        return nets.run(batch.x, u, key=key, exact=exact).rows(slice(len(batch.y), None))

    def find_worst_directions(self, nets: Networks, batch: Batch, target: Tensor) -> list[Tensor]:
        """Return unit vectors, one per perturbed image, along which the predictions leave the target fastest."""
        # A generator of its own: the global one would repeat the numbers that the dropout masks are made of.
        random = torch.Generator(batch.u.device).manual_seed(batch.key + Stream.DIRECTIONS)
        images = [batch.x, batch.u] if self.on == "all" else [batch.u]
        # Drawn for the images of all processes, so that an image has the same however many there are.
        sizes = [(batch.group.count * len(part), *part.shape[1:]) for part in images]
        drawn = [torch.randn(size, generator=random, dtype=batch.u.dtype, device=batch.u.device) for size in sizes]
        if batch.group.count > 1:
            drawn = [batch.group.own(part) for part in drawn]
        directions = [normalise(part) for part in drawn]
        mixed_precision = torch.is_autocast_enabled(batch.u.device.type)
        # The probe differences two nearly equal passes, so both must be in full precision.
        with torch.autocast(batch.u.device.type, enabled=False):
            if mixed_precision:
                with torch.no_grad():
                    target = self.run_perturbed(nets, batch, directions, 0.0).logits
            for _ in range(self.iterations):
                probes = [d.requires_grad_() for d in directions]
                logits = self.run_perturbed(nets, batch, probes, self.xi, exact=True).logits
                # Summed over images, not averaged: these gradients are tiny. Every process computes it, so each
                # counts for its share. Only the probes' gradients are computed, none for the weights.
                distance = len(logits) * losses.kl_divergence(target, logits) / batch.group.count
                directions = [normalise(g) for g in torch.autograd.grad(distance, probes)]
        return directions


def normalise(d: Tensor) -> Tensor:
    """Scale each image's vector to L2 norm 1; by its largest entry first, so that tiny gradients do not vanish."""
    axes = tuple(range(1, d.dim()))
    d = d / (1e-12 + d.abs().amax(dim=axes, keepdim=True))
    return d / (1e-6 + d.square().sum(dim=axes, keepdim=True)).sqrt()
