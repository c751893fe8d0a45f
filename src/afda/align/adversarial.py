"""The paper's alignment: a discriminator d learns to tell labelled from unlabelled features, f learns to confuse it."""

from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from afda import losses
from afda.align import Alignment, WithDiscriminator


def hyphenated(value: Any) -> Any:
    return value.replace("_", "-") if isinstance(value, str) else value


class Adversarial(WithDiscriminator):
    """The paper's: d and f are updated in turn, d to tell the features apart, f to make them alike."""

    own_optimizer: ClassVar[bool] = True

    form: Annotated[Literal["minimax", "inverted", "unlabelled-only"], BeforeValidator(hyphenated)] = Field(
        "minimax",
        description="f's loss: as in Eq. 4; with d's labels swapped; as in Eq. 4 but moving unlabelled features only",
    )

    def build(self, features: int) -> "AdversarialAlignment":
        return AdversarialAlignment(features, **dict(self))


class AdversarialAlignment(Alignment):
    """The paper's alignment as a part of anybody's training loop.

    Each step, call `step(features.detach(), labelled)` to update d, then add `mu * align(features, labelled)` to the
    loss of f. Keyword arguments are the fields of `Adversarial`.
    """

    optimizer: torch.optim.Adam

    def __init__(self, features: int, **choices: Any) -> None:
        super().__init__()
        self.choices = Adversarial(**choices)
        self.d = discriminator(features, self.choices.hidden)
        self.optimizer = torch.optim.Adam(self.d.parameters(), lr=self.choices.learning_rate or 5e-4, fused=True)

    def step(
        self,
        features: Tensor,
        labelled: losses.Labelled,
        *,
        learning_rate: float | None = None,
        beta1: float | None = None,
    ) -> None:
        """d's gradient ascent on L_Adv. Its loss is never scaled by mu."""
        group = self.optimizer.param_groups[0]
        if learning_rate is not None:
            group["lr"] = learning_rate
        if beta1 is not None:
            group["betas"] = (beta1, group["betas"][1])
        with torch.autocast(features.device.type, enabled=False):  # which would round the way back, too
            scores = self.scores(features.detach())
            self.accuracy = losses.balanced_accuracy(scores.detach(), labelled)
            self.optimizer.zero_grad()
            (-losses.adversarial(scores, labelled)).backward()
        self.optimizer.step()

    def scores(self, features: Tensor) -> Tensor:
        """d's logits, in full precision: d is small, and its loss is a difference."""
        with torch.autocast(features.device.type, enabled=False):
            return self.d(features).squeeze(1)

    def forward(self, features: Tensor, labelled: losses.Labelled, mu: float = 1.0) -> Tensor:
        """mu times f's loss against the current d; no gradient is computed for d."""
        if self.choices.form == "unlabelled-only":
            of_labelled, of_unlabelled = losses.of_kinds(features, labelled)
            features, labelled = torch.cat([of_labelled.detach(), of_unlabelled]), len(of_labelled)
        self.d.requires_grad_(False)
        scores = self.scores(features)
        self.d.requires_grad_(True)
        loss = losses.inverted_adversarial if self.choices.form == "inverted" else losses.adversarial
        return mu * loss(scores, labelled)


def discriminator(features: int, hidden: int) -> nn.Sequential:
    """Three layers with ReLU between and no normalisation; its sigmoid is left to the loss, which takes logits."""
    return nn.Sequential(
        nn.Linear(features, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, 1),
    )
