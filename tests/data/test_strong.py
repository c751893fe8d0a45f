"""Strong views: every operation against Pillow, and what holds for a batch of them."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from afda.data.strong import GREY, OUTSIDE, ImageDraws, Operation, apply_layer, draw_strong, strong_views

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
SIZES = [(32, 32), (17, 23), (8, 5)]
MOVES = [Operation.ROTATE, Operation.SHEAR_X, Operation.SHEAR_Y, Operation.TRANSLATE_X, Operation.TRANSLATE_Y]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n, channels, height, width, seed=0):
    """Images with structure in them: noise around a gradient, of different ranges."""
    random = np.random.default_rng(seed)
    ramp = np.linspace(0, 120, height)[:, None] + np.linspace(0, 60, width)
    low, spread = random.integers(0, 40, (n, channels, 1, 1)), random.integers(1, 36, (n, channels, 1, 1))
    return torch.from_numpy((low + ramp + random.integers(0, 256, (n, channels, height, width)) % spread).astype("u1"))


def apply(x, *layers):
    """Return what operations of a level each, given as pairs, make of all images; without the cutout."""
    pixels = x.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format)
    for operation, level in layers:
        apply_layer(pixels, torch.full((len(x),), operation), torch.full((len(x),), level))
    return pixels.permute(0, 3, 1, 2)


def by_pillow(image, operation, level):
    """Return what Pillow makes of an image (c, h, w)."""
    channels, height, width = image.shape
    array = image.permute(1, 2, 0).numpy()
    picture = Image.fromarray(array[..., 0] if channels == 1 else array, MODES[channels])
    colours = picture.convert("RGB") if channels == 4 else picture
    factor, fill = 0.1 + 0.18 * abs(level), (OUTSIDE,) * channels if channels > 1 else OUTSIDE

    def affine(*matrix):
        return picture.transform(picture.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST, fillcolor=fill)

    made = {
        Operation.IDENTITY: lambda: picture,
        Operation.ROTATE: lambda: picture.rotate(3 * level, fillcolor=fill),
        Operation.SHEAR_X: lambda: affine(1, 0.03 * level, 0, 0, 1, 0),
        Operation.SHEAR_Y: lambda: affine(1, 0, 0, 0.03 * level, 1, 0),
        Operation.TRANSLATE_X: lambda: affine(1, 0, round(level * width / 32), 0, 1, 0),
        Operation.TRANSLATE_Y: lambda: affine(1, 0, 0, 0, 1, round(level * height / 32)),
        Operation.AUTOCONTRAST: lambda: ImageOps.autocontrast(colours),
        Operation.EQUALISE: lambda: ImageOps.equalize(colours),
        Operation.SOLARISE: lambda: ImageOps.solarize(colours, 256 - int(25.6 * abs(level))),
        Operation.POSTERISE: lambda: ImageOps.posterize(colours, 4 - int(0.4 * abs(level))),
        Operation.BRIGHTNESS: lambda: ImageEnhance.Brightness(colours).enhance(factor),
        Operation.CONTRAST: lambda: ImageEnhance.Contrast(colours).enhance(factor),
        Operation.COLOUR: lambda: ImageEnhance.Color(colours).enhance(factor),
        Operation.SHARPNESS: lambda: ImageEnhance.Sharpness(colours).enhance(factor),
    }[operation]()
    if made.mode != picture.mode:
        made.putalpha(picture.getchannel("A"))
    array = np.asarray(made)
    return torch.from_numpy((array[..., None] if array.ndim == 2 else array).copy()).permute(2, 0, 1)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("channels", MODES)
@pytest.mark.parametrize("operation", Operation, ids=lambda operation: operation.name.lower())
def test_each_operation_gives_what_pillow_gives(operation, channels, size):
    x = images(6, channels, *size)
    for level in (1, 4, 6, 9, -3, -9):
        made = apply(x, (operation, level))
        expected = torch.stack([by_pillow(image, operation, level) for image in x])
        # A processor that fuses multiplication and addition may round a blend otherwise.
        difference = (made.int() - expected.int()).abs()
        assert int(difference.max()) <= (0 if operation in MOVES else 1)
        assert float((difference > 0).float().mean()) < 0.01


def test_the_second_operation_sees_what_the_first_one_made():
    x = images(5, 3, 16, 16)
    made = apply(x, (Operation.ROTATE, 7), (Operation.AUTOCONTRAST, 7))
    expected = [by_pillow(by_pillow(image, Operation.ROTATE, 7), Operation.AUTOCONTRAST, 7) for image in x]
    assert torch.equal(made, torch.stack(expected))


@pytest.mark.parametrize("value", [0, 100, 255])
@pytest.mark.parametrize("operation", [Operation.AUTOCONTRAST, Operation.EQUALISE, Operation.CONTRAST])
def test_images_of_one_colour_stay(operation, value):
    x = torch.full((2, 3, 9, 9), value, dtype=torch.uint8)
    assert torch.equal(apply(x, (operation, 5)), x)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (4, 31, 18), (3, 1, 1), (1, 2, 7), (3, 64, 96)])
def test_shapes_and_ranges(shape):
    x = torch.randint(0, 256, (40, *shape), generator=generator(), dtype=torch.uint8)
    before = x.clone()
    views = strong_views(x, draw_strong(40, shape, generator(1), "cpu"))
    assert views.shape == x.shape
    assert views.dtype == torch.float32
    assert float(views.min()) >= 0
    assert float(views.max()) <= 255
    assert views.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(x, before)


def test_floats_are_rounded_to_bytes():
    x = images(20, 3, 8, 8)
    draws = draw_strong(20, (3, 8, 8), generator(1), "cpu")
    assert torch.equal(strong_views(x + 0.3, draws), strong_views(x, draws))


def test_an_empty_batch():
    draws = draw_strong(0, (3, 8, 8), generator(), "cpu")
    assert strong_views(torch.zeros(0, 3, 8, 8, dtype=torch.uint8), draws).shape == (0, 3, 8, 8)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_views_are_a_function_of_images_and_draws(layout):
    x = images(30, 3, 12, 13)
    views = [
        strong_views(given, draw_strong(30, (3, 12, 13), generator(5), "cpu"))
        for given in (x, x.contiguous(memory_format=layout))
    ]
    assert torch.equal(*views)
    assert not torch.equal(views[0], strong_views(x, draw_strong(30, (3, 12, 13), generator(6), "cpu")))


def test_a_row_depends_on_its_own_draws_alone():
    x = images(30, 3, 16, 16)
    draws = draw_strong(30, (3, 16, 16), generator(2), "cpu")
    whole = strong_views(x, draws)
    assert len(draws) == 30
    for part in (slice(0, 15), slice(15, 30), slice(7, 8)):
        assert torch.equal(strong_views(x[part], draws[part]), whole[part])
        assert torch.equal(strong_views(x[part], draws.rows(part)), whole[part])


def test_what_is_drawn_is_what_was_published():
    draws = draw_strong(40_000, (3, 32, 32), generator(), "cpu")
    shares = torch.bincount(draws.operation.flatten(), minlength=14) / draws.operation.numel()
    assert torch.allclose(shares[1:], torch.full((13,), 0.5 / 14), atol=0.003)
    levels = torch.bincount(draws.level.flatten() + 10, minlength=20) / draws.level.numel()
    expected = torch.tensor([0.0] + [1 / 18] * 9 + [0.0] + [1 / 18] * 9)
    assert torch.allclose(levels, expected, atol=0.003)
    for side in draws.centre.unbind(1):
        assert torch.allclose(torch.bincount(side, minlength=32) / 40_000, torch.full((32,), 1 / 32), atol=0.005)


@pytest.mark.parametrize("side", [(32, 32), (9, 21)])
def test_cutout_is_a_grey_square_of_half_the_side(side):
    height, width = side
    n = height * width
    centre = torch.cartesian_prod(torch.arange(height), torch.arange(width))
    identity = torch.zeros(n, 2, dtype=torch.int64)
    x = torch.full((n, 4, height, width), 10, dtype=torch.uint8)
    views = strong_views(x, ImageDraws(identity, identity + 1, centre))
    row, column = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    top, left = centre[:, 0, None, None] - height // 2 // 2, centre[:, 1, None, None] - width // 2 // 2
    covered = (row >= top) & (row < top + height // 2) & (column >= left) & (column < left + width // 2)
    assert torch.equal(views, torch.where(covered[:, None], GREY, 10.0).expand_as(views))
    assert int(covered.flatten(1).sum(1).max()) == (height // 2) * (width // 2)


def test_vectors_are_masked_and_get_noise():
    n, d = 4000, 50
    mean, deviation = torch.linspace(-5, 5, d), torch.linspace(0.1, 10, d)
    x = mean + deviation * torch.randn(n, d, generator=generator())
    before = x.clone()
    draws = draw_strong(n, (d,), generator(1), "cpu")
    views = strong_views(x, draws, mean, deviation)
    assert torch.equal(x, before)
    assert views.dtype == x.dtype
    masked = views == mean
    assert float(masked.float().mean()) == pytest.approx(0.25, abs=0.01)
    assert float(masked.float().mean(1).max()) < 0.75
    noise = torch.where(masked, torch.nan, (views - x) / deviation)
    # The root mean square of 0.05, 0.10, ..., 0.45.
    assert float(noise.square().nanmean().sqrt()) == pytest.approx(0.281, abs=0.01)
    assert torch.equal(strong_views(x[5:9], draws[5:9], mean, deviation), views[5:9])
    constant = torch.ones(3, d)
    assert torch.allclose(strong_views(constant, draws[:3]), constant)
