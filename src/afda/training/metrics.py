"""The numbers that every training may log. Methods and alignments declare their own beside their code."""

from afda.recipe import Recipe
from afda.registry import Metric

BALANCED_ERROR = Metric(
    name="balanced_error",
    label="balanced error",
    description="Mean of the class errors: every class counts the same, however many images it has.",
    unit="%",
    direction="lower",
)
"""Part of a result, not of the log."""
LOGGED = (
    Metric(
        name="supervised",
        label="supervised",
        description="Cross-entropy of the labelled images.",
        direction="lower",
        term=True,
    ),
    Metric(
        name="consistency",
        label="consistency",
        description="How much predictions change under perturbations or other views, weighted.",
        direction="lower",
        term=True,
    ),
    Metric(
        name="alignment",
        label="alignment",
        description="The features' loss against the discriminator, or their distance, weighted by mu.",
        term=True,
    ),
    Metric(
        name="learning_rate", label="learning rate", description="Of f and g, at the last update.", in_progress=False
    ),
    Metric(name="mu", label="mu", description="The weight of alignment, at the last update.", in_progress=False),
    Metric(
        name="labelled_error",
        label="labelled error",
        description="Error on the labelled training images.",
        unit="%",
        direction="lower",
    ),
    Metric(
        name="val_error",
        label="validation error",
        description="Error on the validation images.",
        unit="%",
        direction="lower",
    ),
    Metric(
        name="mmd2",
        label="MMD²",
        description="Distance between the features of labelled and unlabelled images; unbiased, so it scatters around "
        "zero once they are aligned.",
        unit="1e-3",
        direction="lower",
    ),
    Metric(
        name="commonest",
        label="commonest class",
        description="Share of images that are assigned to the class predicted most often.",
        unit="share",
    ),
    Metric(
        name="skew",
        label="skew",
        description="Share of the unlabelled images that would have to be assigned to another class for the classes to "
        "have the same shares as among the labels.",
        unit="share",
        in_progress=False,
    ),
)


def describe_metrics(recipe: Recipe) -> dict[str, Metric]:
    """Return the declared metrics that a run of this recipe may log, by name: terms of the loss first."""
    declared = [*LOGGED, *(metric for objective in recipe.objectives for metric in objective.metrics)]
    return {metric.name: metric for metric in sorted(declared, key=lambda metric: not metric.term)}
