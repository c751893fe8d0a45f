"""Weak views: random shifts and flips."""

import numpy as np
import pytest
import torch

from afda.data.batch import draw_weak, weak_views
from afda.data.images import Preparation
from afda.nets import Normaliser


def make_views(x, how, seed=0, fill=0):
    return weak_views(x, draw_weak(len(x), how, torch.Generator().manual_seed(seed), "cpu"), how, fill)


def images(n=40, height=6, width=7):
    return torch.randn(n, 2, height, width, generator=torch.Generator().manual_seed(0))


def list_views(image, how):
    """Return every view this preparation can make of an image, by padding and cutting: (down, right, flipped)."""
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
    x = images()
    made = make_views(x, how).numpy()
    drawn = set()
    for image, view in zip(x.numpy(), made, strict=True):
        matches = [key for key, expected in list_views(image, how).items() if np.array_equal(view, expected)]
        assert matches
        drawn.add(matches[0])
    # Every image has a draw of its own.
    assert len(drawn) == 1 if not (shift or flip) else len(drawn) >= 2


def test_shifts_are_uniform_and_independent_of_each_other_and_of_flips():
    n, s = 20_000, 2
    # Each pixel tells where it came from.
    x = torch.arange(1.0, 82).view(1, 1, 9, 9).expand(n, 1, 9, 9)
    made = make_views(x, Preparation(shift=s, flip=True))
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
    made = make_views(x, Preparation(shift=0, flip=True))
    flipped = (made == x.flip(3)).flatten(1).all(dim=1)
    assert ((made == x).flatten(1).all(dim=1) | flipped).all()
    assert float(flipped.float().mean()) == pytest.approx(0.5, abs=0.05)


def test_bytes_and_layout():
    x = torch.randint(0, 256, (5, 3, 8, 8), dtype=torch.uint8)
    made = make_views(x, Preparation(shift=2, padding="zero"))
    assert made.dtype == torch.uint8
    assert made.shape == x.shape
    assert made.is_contiguous(memory_format=torch.channels_last)


def test_what_needs_no_augmentation_comes_back_as_it_is():
    x = images()
    assert make_views(x, Preparation(shift=0, flip=False)) is x
    vectors = torch.randn(5, 3)
    assert make_views(vectors, Preparation(shift=2, flip=True)) is vectors


def test_views_follow_the_generator_and_leave_the_images_alone():
    x, how = images(), Preparation(shift=2, flip=True)
    before = x.clone()
    assert torch.equal(make_views(x, how, seed=3), make_views(x, how, seed=3))
    assert not torch.equal(make_views(x, how, seed=3), make_views(x, how, seed=4))
    assert torch.equal(x, before)
    assert len(make_views(x[:0], how)) == 0


@pytest.mark.parametrize(
    "how", [Preparation(shift=2), Preparation(shift=0, flip=True), Preparation(shift=3, flip=True)]
)
def test_the_order_of_the_draws(how):
    """Shifts of all images come first, then their flips: a seed gives the views that it gave in version 0.1."""
    draws = draw_weak(7, how, torch.Generator().manual_seed(5), "cpu")
    torch.manual_seed(5)
    shifts = torch.randint(-how.shift, how.shift + 1, (2, 7, 1))
    assert torch.equal(torch.stack([draws.down, draws.right]), shifts)
    assert torch.equal(draws.flipped, torch.rand(7, 1) < 0.5 if how.flip else torch.zeros(7, 1, dtype=torch.bool))
    torch.manual_seed(5)
    by_default = draw_weak(7, how, None, "cpu")
    assert torch.equal(by_default.down, draws.down)


def test_nothing_is_drawn_where_nothing_moves():
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert len(draw_weak(4, Preparation(shift=0), generator, "cpu")) == 4
    assert torch.equal(generator.get_state(), before)


def test_a_row_depends_on_its_own_draws_alone():
    x, how = images(), Preparation(shift=2, flip=True, padding="zero")
    draws = draw_weak(len(x), how, torch.Generator().manual_seed(0), "cpu")
    whole = weak_views(x, draws, how)
    for part in (slice(0, 20), slice(20, 40), slice(3, 4)):
        assert torch.equal(weak_views(x[part], draws[part], how), whole[part])


@pytest.mark.parametrize("mean", [torch.tensor(127.5), torch.tensor([100.25, 3.5, 250.0])[:, None, None]])
def test_zero_padding_before_and_after_normalisation_is_the_same(mean):
    x = torch.randint(0, 256, (30, 3, 8, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    how = Preparation(shift=3, flip=True, padding="zero")
    normaliser = Normaliser(mean, torch.tensor(1 / 255))
    fill = float(mean) if mean.dim() == 0 else mean
    assert torch.equal(normaliser(make_views(x, how, fill=fill)), make_views(normaliser(x), how))
