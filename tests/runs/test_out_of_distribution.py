"""The detector of images that are unlike the training images."""

import pytest
import torch
import torch.nn.functional as F

from afda.nets import Output
from afda.runs.model import OutOfDistribution


def make_outputs(count, features, decay, seed):
    """Return outputs for ten classes whose features have a variance that decays from the first to the last."""
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 10, (count,), generator=random)
    means = 3 * torch.randn(10, features, generator=torch.Generator().manual_seed(99))
    scale = torch.exp(-decay * torch.arange(features) / features)
    return Output(F.one_hot(y, 10).float(), (means[y] + torch.randn(count, features, generator=random)) * scale)


@pytest.mark.parametrize(("count", "features"), [(300, 128), (1725, 64), (5000, 128)])
@pytest.mark.parametrize("decay", [0, 4, 8])
def test_three_percent_of_similar_images_are_detected(count, features, decay):
    detector = OutOfDistribution.fit(make_outputs(count, features, decay, seed=0))
    similar = make_outputs(5000, features, decay, seed=1).features
    assert detector.detect(similar).float().mean() <= 0.035
    assert detector.detect(4 * torch.randn(500, features)).all()


def test_too_few_images_give_no_detector():
    assert OutOfDistribution.fit(make_outputs(255, 128, 0, seed=0)) is None
