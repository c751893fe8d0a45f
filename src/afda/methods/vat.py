"""Virtual adversarial training (Miyato et al., 2018): predictions should survive the worst small perturbation."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from afda import losses
from afda.classifier import Output
from afda.methods import Batch, Method, Nets, Terms


class VAT(Method):
    """Divergence between the predictions for an image and for its worst perturbation of a given norm."""

    radius: float = Field(3.5, gt=0, description="L2 norm of the perturbation per image, in units of the net's input")
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

    def terms(self, nets: Nets, batch: Batch, clean: Output, t: float) -> Terms:
        x = batch.x if self.on == "all" else None
        clean_logits = (clean.logits if x is not None else clean.logits[len(batch.x) :]).detach()
        key = batch.key if self.noise == "shared" else None
        directions = self.worst_directions(nets, x, batch.u, clean_logits, key)
        perturbed = moved(x, batch.u, [self.radius * d for d in directions])
        logits = nets.passes(*perturbed, key=key).logits
        return {"consistency": self.weight * losses.kl_divergence(clean_logits, logits)}

    def worst_directions(
        self, nets: Nets, x: Tensor | None, u: Tensor, clean_logits: Tensor, key: int | None
    ) -> list[Tensor]:
        """Unit vectors, one per image, along which the predictions change most."""
        # A generator of its own: the global one would repeat the numbers that the dropout masks are made of.
        random = torch.Generator(u.device).manual_seed((torch.initial_seed() if key is None else key) + 2)
        parts = [part for part in (x, u) if part is not None]
        directions = [unit(torch.empty_like(p).normal_(generator=random)) for p in parts]
        mixed_precision = torch.is_autocast_enabled(u.device.type)
        # The probe differences two nearly equal passes, so both must be in full precision.
        with torch.autocast(u.device.type, enabled=False):
            if mixed_precision:
                with torch.no_grad():
                    clean_logits = nets.passes(x, u, key=key).logits
            for _ in range(self.iterations):
                probes = [d.requires_grad_() for d in directions]
                logits = nets.passes(*moved(x, u, [self.xi * d for d in probes]), key=key).logits
                # Summed over images, not averaged: these gradients are tiny. Only the probes' are asked for, so none
                # are computed for the weights.
                distance = len(logits) * losses.kl_divergence(clean_logits, logits)
                directions = [unit(g) for g in torch.autograd.grad(distance, probes)]
        return directions


def moved(x: Tensor | None, u: Tensor, steps: list[Tensor]) -> tuple[Tensor | None, Tensor]:
    """x and u with one step added to each that is there."""
    return (None if x is None else x + steps[0]), u + steps[-1]


def unit(d: Tensor) -> Tensor:
    """Each image's vector scaled to L2 norm 1; by its largest entry first, so that tiny gradients do not vanish."""
    of_image = tuple(range(1, d.dim()))
    d = d / (1e-12 + d.abs().amax(dim=of_image, keepdim=True))
    return d / (1e-6 + d.square().sum(dim=of_image, keepdim=True)).sqrt()
