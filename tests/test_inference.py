"""What a trained model says besides the class: whether an image is unlike those it was trained on."""

import pytest
import torch
import torch.nn.functional as F

from afda.classifier import Output
from afda.inference import Familiar


def outputs(count, features, decay, seed):
    """Ten classes whose features vary less and less from the first to the last."""
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 10, (count,), generator=random)
    means = 3 * torch.randn(10, features, generator=torch.Generator().manual_seed(99))
    scale = torch.exp(-decay * torch.arange(features) / features)
    return Output(F.one_hot(y, 10).float(), (means[y] + torch.randn(count, features, generator=random)) * scale)


@pytest.mark.parametrize(("count", "features"), [(300, 128), (1725, 64), (5000, 128)])
@pytest.mark.parametrize("decay", [0, 4, 8])
def test_three_in_a_hundred_are_unlike_the_others(count, features, decay):
    familiar = Familiar.of(outputs(count, features, decay, seed=0))
    of_the_same_kind = outputs(5000, features, decay, seed=1).features
    assert familiar.unlike(of_the_same_kind).float().mean() <= 0.035
    assert familiar.unlike(4 * torch.randn(500, features)).all()


def test_too_few_images_say_nothing():
    assert Familiar.of(outputs(255, 128, 0, seed=0)) is None
