"""Virtual adversarial training (Miyato et al., 2018): predictions should survive the worst small perturbation."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from afda import losses, processes
from afda.classifier import Output, Stream
from afda.methods import Batch, Method, Nets, Terms


class VAT(Method):
    """Divergence between the predictions for an image and for its worst perturbation of a given norm."""

    goes_back_alone: ClassVar[bool] = True
    gains_little_from_bfloat16: ClassVar[bool] = True  # its probe, a third of a step, is in float32 anyhow

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
        target = (clean if self.on == "all" else clean.rows(slice(len(batch.y), None))).logits.detach()
        x, u = self.moved(batch, self.worst_directions(nets, batch, target), self.radius)
        logits = self.passes(nets, batch, x, u).logits
        return {"consistency": self.weight * losses.kl_divergence(target, logits)}

    def passes(self, nets: Nets, batch: Batch, x: Tensor, u: Tensor, exact: bool = False) -> Output:
        """A perturbed pass: of all images or the unlabelled, normalised, and noisy if so wished, as the clean one."""
        chosen = nets.passes if self.on == "all" else nets.of_unlabelled
        return chosen(x, u, key=batch.key if self.noise == "shared" else None, exact=exact)

    def moved(self, batch: Batch, directions: list[Tensor], length: float) -> tuple[Tensor, Tensor]:
        """x and u with a step along the directions, of which there is one set if only u is perturbed."""
        x = batch.x + length * directions[0] if self.on == "all" else batch.x
        return x, batch.u + length * directions[-1]

    def worst_directions(self, nets: Nets, batch: Batch, target: Tensor) -> list[Tensor]:
        """Unit vectors, one per perturbed image, along which the predictions leave the target fastest."""
        # A generator of its own: the global one would repeat the numbers that the dropout masks are made of.
        random = torch.Generator(batch.u.device).manual_seed(batch.key + Stream.DIRECTIONS)
        images = [batch.x, batch.u] if self.on == "all" else [batch.u]
        # Drawn for the images of all processes, so that an image has the same however many there are.
        sizes = [(processes.count() * len(part), *part.shape[1:]) for part in images]
        of_all = [torch.randn(size, generator=random, dtype=batch.u.dtype, device=batch.u.device) for size in sizes]
        directions = [unit(processes.mine(part)) for part in of_all]
        mixed_precision = torch.is_autocast_enabled(batch.u.device.type)
        # The probe differences two nearly equal passes, so both must be in full precision.
        with torch.autocast(batch.u.device.type, enabled=False):
            if mixed_precision:
                with torch.no_grad():
                    target = self.passes(nets, batch, batch.x, batch.u).logits
            for _ in range(self.iterations):
                probes = [d.requires_grad_() for d in directions]
                logits = self.passes(nets, batch, *self.moved(batch, probes, self.xi), exact=True).logits
                # Summed over images, not averaged: these gradients are tiny. Only the probes' are asked for, so none
                # are computed for the weights.
                distance = len(logits) * losses.kl_divergence(target, logits)
                directions = [unit(g) for g in torch.autograd.grad(distance, probes)]
        return directions


def unit(d: Tensor) -> Tensor:
    """Each image's vector scaled to L2 norm 1; by its largest entry first, so that tiny gradients do not vanish."""
    of_image = tuple(range(1, d.dim()))
    d = d / (1e-12 + d.abs().amax(dim=of_image, keepdim=True))
    return d / (1e-6 + d.square().sum(dim=of_image, keepdim=True)).sqrt()
