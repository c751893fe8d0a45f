"""Digits differ from their mirror images; noise and images that come in both orientations do not."""

import torch

from afda.data.images import DataSet, Images
from afda.data.mirror import describe_edges, is_like_its_mirror_image, measure_mirror_accuracy
from afda.recipes import recipe


def make_noise(n, seed=0):
    return torch.randint(0, 256, (n, 3, 24, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def mirror_half(x):
    """Return the images with every other one mirrored."""
    return torch.where((torch.arange(len(x)) % 4 < 2)[:, None, None, None], x.flip(3), x)


def test_digits_differ_from_their_mirror_images(digits):
    assert measure_mirror_accuracy(digits.train.x) > 0.8
    assert not is_like_its_mirror_image(digits.train.x)


def test_images_in_both_orientations_do_not(digits):
    assert is_like_its_mirror_image(mirror_half(digits.train.x))
    assert is_like_its_mirror_image(make_noise(400))


def test_few_images_count_as_different():
    assert not is_like_its_mirror_image(make_noise(20))


def test_edges_by_hand():
    """A vertical edge has the first direction, in the cells where it lies, whichever side is darker."""
    x = torch.zeros(2, 1, 32, 32, dtype=torch.uint8)
    x[0, :, :, 12:] = x[1, :, :, :12] = 200
    first, second = describe_edges(x).view(2, 8, 4, 4)
    torch.testing.assert_close(first, second)
    assert (first[0, :, 1] > 0.4).all()
    assert first[1:].abs().max() == 0


def test_photos_are_flipped_unless_their_mirror_images_differ(digits):
    large = torch.nn.functional.interpolate(digits.train.x.float(), scale_factor=3).to(torch.uint8)
    for x, expected in ((large, False), (mirror_half(large), True)):
        data = DataSet("x", digits.classes, Images(x, digits.train.y), source="/home/me/x")
        assert recipe("own-images", data).preparation.flip == expected
        assert recipe("own-images-gpu", data).preparation.flip == expected
    assert not recipe("own-images", digits).preparation.flip
