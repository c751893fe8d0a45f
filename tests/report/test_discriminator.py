import pytest

from afda.recipe import Recipe
from afda.report.discriminator import assess_discriminator
from afda.runs.log import LogLine

RECIPE = Recipe.of({"data": "digits", "net": "mlp", "method": ["supervised"], "align": "adversarial", "steps": 1})


def make_log(accuracies):
    return [LogLine(step=i, values={"discriminator_accuracy": a}) for i, a in enumerate(accuracies)]


@pytest.mark.parametrize(
    ("accuracies", "state", "light"),
    [
        ([0.6, 0.7, 0.6, 0.55, 0.53], "healthy", "good"),
        ([0.6, 0.7, 0.9, 0.95, 0.99], "too strong", "bad"),
        ([0.6, 0.7, 0.7, 0.7, 0.75], "rather strong", "warn"),
        ([0.5, 0.51, 0.5, 0.5, 0.49], "collapsed", "bad"),
        ([0.6, 0.7, *[0.5] * 20], "collapsed", "bad"),
        ([0.6, 0.5, 0.4, 0.3, 0.3], "too weak", "warn"),
    ],
)
def test_states(accuracies, state, light):
    found = assess_discriminator(make_log(accuracies), RECIPE)
    assert (found.state, found.light, found.accuracy) == (state, light, accuracies[-1])


def test_no_discriminator():
    assert assess_discriminator(make_log([0.6]), RECIPE.with_settings(['align="none"'])) is None
    assert assess_discriminator([LogLine(step=1, values={"supervised": 1.0})], RECIPE) is None
