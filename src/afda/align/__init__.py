"""Ways of aligning the features of labelled and unlabelled images, one file each; a new file is a new alignment."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from afda import schedules
from afda.methods import Metric, Objective, Step
from afda.schedules import Rates

DISCRIMINATOR_ACCURACY = Metric(
    name="discriminator_accuracy",
    label="d",
    description="How often the discriminator is right; 50 % is chance: the features are alike to it.",
    unit="share",
)


class Align(Objective):
    """An alignment by name. Its term is weighted by mu, which rises over the training."""

    kind: ClassVar[str] = "align"
    own_optimizer: ClassVar[bool] = False
    """Whether it owns an optimiser that plays against f and g."""

    weight: float = Field(1.0, ge=0, description="the weight that mu rises to")
    gamma: float = Field(10.0, gt=0, description="how fast mu rises: weight * tanh(gamma t / 2)")
    shares: Literal["ignored", "matched"] = Field(
        "ignored",
        description="matched: labelled images weigh as much as their class is estimated to have among the unlabelled "
        "ones; otherwise alignment pulls the unlabelled features towards the labelled class shares",
    )

    @property
    def uses_shares(self) -> bool:
        return self.shares == "matched"

    def weigh_labelled(self, step: Step) -> Tensor | None:
        """Return the weight of each labelled row, or None if all weigh the same."""
        return step.shares.weigh(step.batch.y) if self.shares == "matched" and step.shares is not None else None

    def mu(self, t: float) -> float:
        """Return mu at progress t in [0, 1]."""
        return self.weight * schedules.rise_mu(t, self.gamma)


class WithDiscriminator(Align):
    """An alignment against a discriminator d.

    With `hidden` "auto", d has twice as many units per hidden layer as there are features, but 64 to 1024, and a third
    of the learning rate of f and g, unless it has one of its own.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (DISCRIMINATOR_ACCURACY,)

    hidden: Annotated[int, Field(gt=0, le=20_000)] | Literal["auto"] = Field(
        1024, description="units of each of d's two hidden layers; auto: twice the number of features, from 64 to 1024"
    )
    learning_rate: float | None = Field(
        None, gt=0, description="d's own learning rate; by default that of f and g, or a third of it if hidden is auto"
    )

    def count_hidden(self, features: int) -> int:
        """Return the units of each hidden layer of d for this number of features."""
        return min(1024, max(64, 2 * features)) if self.hidden == "auto" else self.hidden

    def own_rates(self, rates: Rates) -> Rates:
        if self.learning_rate is None and self.hidden == "auto":
            return rates._replace(learning_rate=rates.learning_rate / 3)
        return rates.rescale(self.learning_rate)
