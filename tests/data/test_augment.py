import numpy as np
import pytest
import torch

from afda.data.augment import augmented
from afda.data.images import Preparation


def images(n=40, height=6, width=7):
    return torch.randn(n, 2, height, width, generator=torch.Generator().manual_seed(0))


def views(image, how):
    """Every view this preparation can make of an image, by padding and cutting: (down, right, flipped) -> view."""
    s = how.shift
    mode = {"mode": "reflect"} if how.padding == "reflect" else {"mode": "constant"}
    padded = np.pad(image, ((0, 0), (s, s), (s, s)), **mode)
    _, height, width = image.shape
    found = {}
    for down in range(-s, s + 1):
        for right in range(-s, s + 1):
            cut = padded[:, s - down : s - down + height, s - right : s - right + width]
            found[down, right, False] = cut
            if how.flip:
                found[down, right, True] = cut[:, :, ::-1]
    return found


@pytest.mark.parametrize("padding", ["reflect", "zero"])
@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("shift", [0, 1, 2, 4])
def test_each_image_by_hand(padding, flip, shift):
    how = Preparation(shift=shift, padding=padding, flip=flip)
    torch.manual_seed(0)
    x = images()
    made = augmented(x, how).numpy()
    drawn = set()
    for image, view in zip(x.numpy(), made, strict=True):
        matches = [key for key, expected in views(image, how).items() if np.array_equal(view, expected)]
        assert matches
        drawn.add(matches[0])
    # Every image has a draw of its own.
    assert len(drawn) == 1 if not (shift or flip) else len(drawn) >= 2


def test_shifts_are_uniform_and_independent_of_each_other_and_of_flips():
    n, s = 20_000, 2
    # Each pixel tells where it came from.
    x = torch.arange(1.0, 82).view(1, 1, 9, 9).expand(n, 1, 9, 9)
    torch.manual_seed(0)
    made = augmented(x, Preparation(shift=s, flip=True))
    flipped = made[:, 0, 4, 3] > made[:, 0, 4, 5]
    straight = torch.where(flipped[:, None, None], made[:, 0].flip(2), made[:, 0])
    centre = straight[:, 4, 4] - 1
    down, right = 4 - centre // 9, 4 - centre % 9
    cells = torch.bincount((((down + 2) * 5 + right + 2) * 2 + flipped).long(), minlength=50)
    assert len(cells) == 50
    # 400 expected in each of 5 x 5 x 2 cells, with a deviation of 20.
    assert int(cells.min()) > 300
    assert int(cells.max()) < 500


def test_only_half_are_flipped_and_never_upside_down():
    x = images(2000)
    torch.manual_seed(0)
    made = augmented(x, Preparation(shift=0, flip=True))
    flipped = (made == x.flip(3)).flatten(1).all(dim=1)
    assert ((made == x).flatten(1).all(dim=1) | flipped).all()
    assert float(flipped.float().mean()) == pytest.approx(0.5, abs=0.05)


def test_bytes_and_layout():
    x = torch.randint(0, 256, (5, 3, 8, 8), dtype=torch.uint8)
    made = augmented(x, Preparation(shift=2, padding="zero"))
    assert made.dtype == torch.uint8
    assert made.shape == x.shape
    assert made.is_contiguous(memory_format=torch.channels_last)


def test_what_needs_no_augmentation_comes_back_as_it_is():
    x = images()
    assert augmented(x, Preparation(shift=0, flip=False)) is x
    vectors = torch.randn(5, 3)
    assert augmented(vectors, Preparation(shift=2, flip=True)) is vectors


def test_views_follow_the_seed_and_leave_the_images_alone():
    x, how = images(), Preparation(shift=2, flip=True)
    before = x.clone()
    torch.manual_seed(3)
    first, second = augmented(x, how), augmented(x, how)
    torch.manual_seed(3)
    assert torch.equal(augmented(x, how), first)
    assert not torch.equal(first, second)
    assert torch.equal(x, before)
    assert len(augmented(x[:0], how)) == 0
