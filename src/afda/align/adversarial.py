"""The paper's alignment: a discriminator d learns to tell labelled from unlabelled features, f learns to confuse it."""

from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from afda import losses, schedules
from afda.align import WithDiscriminator
from afda.methods import Context, Loss, Step


def hyphenate(value: Any) -> Any:
    """Accept unlabelled_only for unlabelled-only."""
    return value.replace("_", "-") if isinstance(value, str) else value


class Adversarial(WithDiscriminator):
    """The paper's: d and f are updated in turn, d to tell the features apart, f to make them alike."""

    own_optimizer: ClassVar[bool] = True

    form: Annotated[Literal["minimax", "inverted", "unlabelled-only"], BeforeValidator(hyphenate)] = Field(
        "minimax",
        description="f's loss: as in Eq. 4; with d's labels swapped; as in Eq. 4 but moving unlabelled features only",
    )

    def build(self, context: Context) -> "AdversarialAlignment":
        return AdversarialAlignment(context.features, **dict(self))

    def compete(self, step: Step) -> None:
        rates = self.own_rates(step.rates) if self.hidden == "auto" else step.rates.rescale(self.learning_rate)
        step.owned.step(
            step.clean.features,
            len(step.batch.y),
            learning_rate=rates.learning_rate,
            beta1=rates.beta1,
            weights=None if self.shares == "ignored" else self.weigh_labelled(step),
        )

    def loss(self, step: Step) -> Loss:
        mu = self.weight * schedules.rise_mu(step.t, self.gamma)
        weights = None if self.shares == "ignored" else self.weigh_labelled(step)
        term = step.owned(step.clean.features, len(step.batch.y), mu, weights)
        return Loss({"alignment": term}, {"discriminator_accuracy": step.owned.accuracy, "mu": mu})


class AdversarialAlignment(nn.Module):
    """The paper's alignment as a part of anybody's training loop.

    Each step, call `step(features.detach(), labelled)` to update d, then add `mu * align(features, labelled)` to the
    loss of f. `labelled` says which rows are labelled: a mask, or how many, if they are the first. Keyword arguments
    are the fields of `Adversarial`.
    """

    accuracy: Tensor
    """d's balanced accuracy before its latest update; 0.5, which is chance, before the first."""

    def __init__(self, features: int, **settings: Any) -> None:
        super().__init__()
        self.settings = Adversarial(**settings)
        self.d = build_discriminator(features, self.settings.count_hidden(features))
        self.optimizer = torch.optim.Adam(self.d.parameters(), lr=self.settings.learning_rate or 5e-4, fused=True)
        self.register_buffer("accuracy", torch.tensor(0.5))  # so that a resumed training logs what it would have

    def step(
        self,
        features: Tensor,
        labelled: losses.Labelled,
        *,
        learning_rate: float | None = None,
        beta1: float | None = None,
        weights: Tensor | None = None,
    ) -> None:
        """Update d by gradient ascent on L_Adv. Its loss is never scaled by mu; `weights` are of the labelled rows."""
        group = self.optimizer.param_groups[0]
        if learning_rate is not None:
            group["lr"] = learning_rate
        if beta1 is not None:
            group["betas"] = (beta1, group["betas"][1])
        with torch.autocast(features.device.type, enabled=False):  # which would round the way back, too
            scores = self.score(features.detach())
            self.accuracy = losses.balanced_accuracy(scores.detach(), labelled)
            self.optimizer.zero_grad()
            (-losses.adversarial(scores, labelled, weights)).backward()
        self.optimizer.step()

    def score(self, features: Tensor) -> Tensor:
        """Return d's logits, in full precision: d is small, and its loss is a difference."""
        with torch.autocast(features.device.type, enabled=False):
            scores: Tensor = self.d(features).squeeze(1)
        return scores

    def forward(
        self, features: Tensor, labelled: losses.Labelled, mu: float = 1.0, weights: Tensor | None = None
    ) -> Tensor:
        """Return mu times f's loss against the current d; no gradient is computed for d."""
        if self.settings.form == "unlabelled-only":
            of_labelled, of_unlabelled = losses.split_rows(features, labelled)
            features, labelled = torch.cat([of_labelled.detach(), of_unlabelled]), len(of_labelled)
        self.d.requires_grad_(False)
        scores = self.score(features)
        self.d.requires_grad_(True)
        loss = losses.inverted_adversarial if self.settings.form == "inverted" else losses.adversarial
        return mu * loss(scores, labelled, weights)


def build_discriminator(features: int, hidden: int) -> nn.Sequential:
    """Return three layers with ReLU between them; the sigmoid is left to the loss, which takes logits."""
    return nn.Sequential(
        nn.Linear(features, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, 1),
    )
