"""Strong views: RandAugment and cutout as in FixMatch (Sohn et al., 2020), on a whole batch at once.

Of fourteen operations two are drawn per image, with replacement, and each is applied with probability 1/2. Levels are
whole numbers from 1 to 9, of 10. Cutout follows. Pixels remain uint8 between the operations, and every operation gives
what Pillow's counterpart gives.

Images of one batch have different operations. They are grouped by kind: all moves are one gather of pixels, all
point operations one lookup in tables with 256 entries per image and channel. Images without an operation cost nothing.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cache

import torch
from torch import Tensor

from afda.data.draws import Draws

LAYERS = 2
"""Operations drawn per image."""
PROBABILITY = 0.5
"""With which each of them is applied."""
LEVELS = 10
"""Levels are drawn from 1 to 9; 10 would be an operation's full range."""
DEGREES, SHEAR, SHIFT = 30, 0.3, 10 / 32
"""Full ranges of the moves; shifts are a share of the image's side: 10 pixels of 32."""
CUTOUT = 0.5
"""Side of the square that is cut out, as a share of the image's."""
GREY = 127.5
"""What a cutout leaves, in every channel; zero once pixels are brought to [-0.5, 0.5]."""
OUTSIDE = 128
"""What a move brings in at the border, in every channel: the byte nearest to `GREY`."""
ONE = 1 << 16
"""One pixel in the fixed-point numbers of a move, Pillow's and the same on every device."""
MASKED, NOISE = 0.05, 0.05
"""Per level: the share of a vector's features that is masked, and the noise in standard deviations."""


class Operation(IntEnum):
    """RandAugment's operations, grouped by kind."""

    IDENTITY = 0
    ROTATE = 1
    SHEAR_X = 2
    SHEAR_Y = 3
    TRANSLATE_X = 4
    TRANSLATE_Y = 5
    AUTOCONTRAST = 6
    EQUALISE = 7
    SOLARISE = 8
    POSTERISE = 9
    BRIGHTNESS = 10
    CONTRAST = 11
    COLOUR = 12
    SHARPNESS = 13


@dataclass(frozen=True)
class ImageDraws(Draws):
    """What is done to each image. Operations and levels stay on the host, which groups images by them."""

    operation: Tensor
    """(n, 2) of `Operation`; the identity where the draw is not applied."""
    level: Tensor
    """(n, 2) from 1 to 9, with a random sign that only moves heed."""
    centre: Tensor
    """(n, 2): row and column of the cutout's centre."""


@dataclass(frozen=True)
class VectorDraws(Draws):
    """What is done to each vector."""

    masked: Tensor
    """(n, d) of booleans."""
    noise: Tensor
    """(n, d) in standard deviations."""


def draw_strong(n: int, shape: tuple[int, ...], generator: torch.Generator, device: torch.device | str) -> Draws:
    """Draw what `strong_views` does to n images of shape (c, h, w), or n vectors of shape (d,).

    Numbers come from the generator on the generator's own device; with one on the CPU a GPU need not be waited for.
    """
    at = generator.device

    def integers(low: int, high: int, *size: int) -> Tensor:
        return torch.randint(low, high, size, generator=generator, device=at)

    if len(shape) == 1:
        levels = integers(1, LEVELS, n, 2)
        masked = torch.rand(n, *shape, generator=generator, device=at) < MASKED * levels[:, :1]
        noise = torch.randn(n, *shape, generator=generator, device=at) * (NOISE * levels[:, 1:])
        return VectorDraws(masked.to(device), noise.to(device))
    operation = integers(0, len(Operation), n, LAYERS)
    applied = torch.rand(n, LAYERS, generator=generator, device=at) < PROBABILITY
    level = integers(1, LEVELS, n, LAYERS) * (2 * integers(0, 2, n, LAYERS) - 1)
    centre = torch.cat([integers(0, side, n, 1) for side in shape[1:]], dim=1)
    return ImageDraws((operation * applied).cpu(), level.cpu(), centre.to(device))


def strong_views(x: Tensor, draws: Draws, mean: Tensor | None = None, deviation: Tensor | None = None) -> Tensor:
    """Return a strong view of each image or vector; `x` itself is not changed.

    Images are uint8 (n, c, h, w) with 1, 3 or 4 channels; the fourth, alpha, moves with the others but keeps its
    values. Floats from 0 to 255, such as weak views with zero padding, are rounded first. The result is float32 from 0
    to 255, with the channels last in memory.

    Vectors are floats (n, d). In each, 5 to 45 % of the features are masked, that is replaced by their `mean`, as
    cutout hides a part of an image; the others get Gaussian noise of 0.05 to 0.45 times their standard `deviation`.
    Both default to those of this batch; give those of the training set where a batch is shared by processes.
    """
    if isinstance(draws, VectorDraws):
        mean = x.mean(dim=0) if mean is None else mean
        deviation = x.std(dim=0, correction=0) if deviation is None else deviation
        return torch.where(draws.masked, mean, x + draws.noise * deviation).to(x.dtype)
    assert isinstance(draws, ImageDraws)
    if x.dtype != torch.uint8:
        x = x.round().clamp(0, 255).to(torch.uint8)
    pixels = x.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format)
    if len(x):
        for operation, level in zip(draws.operation.unbind(1), draws.level.unbind(1), strict=True):
            apply_layer(pixels, operation, level)
    return cut_out(pixels.float(), draws.centre).permute(0, 3, 1, 2)


def apply_layer(pixels: Tensor, operation: Tensor, level: Tensor) -> None:
    """Apply one operation per image to pixels (n, h, w, c), in place."""
    kinds = (
        (move, Operation.ROTATE, Operation.TRANSLATE_Y),
        (look_up, Operation.AUTOCONTRAST, Operation.CONTRAST),
        (colour, Operation.COLOUR, Operation.COLOUR),
        (sharpen, Operation.SHARPNESS, Operation.SHARPNESS),
    )
    for apply, first, last in kinds:
        rows = ((operation >= first) & (operation <= last)).nonzero()[:, 0]
        if len(rows) and not (apply is colour and pixels.shape[3] == 1):
            at = rows.to(pixels.device)
            pixels.index_copy_(0, at, apply(pixels.index_select(0, at), operation[rows], level[rows]))


def move(pixels: Tensor, operation: Tensor, level: Tensor) -> Tensor:
    """Rotate about the centre, shear or translate: each pixel of the view is fetched from its nearest source."""
    n, height, width, channels = pixels.shape
    numbers = move_matrix(operation, level, height, width).to(pixels.device)
    xx, xy, x0, yx, yy, y0 = numbers[:, :, None, None].unbind(1)
    row = torch.arange(height, dtype=torch.int32, device=pixels.device)[:, None]
    column = torch.arange(width, dtype=torch.int32, device=pixels.device)
    x = (xx * column + (xy * row + x0)) >> 16
    y = (yx * column + (yy * row + y0)) >> 16
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    image = torch.arange(n, device=pixels.device)[:, None, None] * (height * width)
    # One more pixel, for all that come from outside: cheaper than filling them in afterwards.
    place = torch.where(inside, image + y * width + x, n * height * width).flatten()
    sources = torch.cat([pixels.view(-1, channels), pixels.new_full((1, channels), OUTSIDE)])
    return sources.index_select(0, place).view_as(pixels)


def move_matrix(operation: Tensor, level: Tensor, height: int, width: int) -> Tensor:
    """Return (n, 6) fixed-point numbers from a view's pixel to its source: x = xx * column + xy * row + x0, and y."""
    share = level.double() / LEVELS

    def amount(which: Operation, full: float) -> Tensor:
        return torch.where(operation == which, share * full, 0.0)

    angle = -torch.deg2rad(amount(Operation.ROTATE, DEGREES))
    xx, xy = angle.cos(), angle.sin() + amount(Operation.SHEAR_X, SHEAR)
    yx, yy = -angle.sin() + amount(Operation.SHEAR_Y, SHEAR), angle.cos()
    across, down = width / 2, height / 2
    x0 = torch.where(operation == Operation.ROTATE, across - xx * across - xy * down, 0.0)
    y0 = torch.where(operation == Operation.ROTATE, down - yx * across - yy * down, 0.0)
    x0 = x0 + amount(Operation.TRANSLATE_X, SHIFT * width).round()
    y0 = y0 + amount(Operation.TRANSLATE_Y, SHIFT * height).round()
    # From the middle of a pixel.
    numbers = torch.stack([xx, xy, x0 + (xx + xy) / 2, yx, yy, y0 + (yx + yy) / 2], dim=1)
    return (numbers * ONE + 0.5).floor().int()


def look_up(pixels: Tensor, operation: Tensor, level: Tensor) -> Tensor:
    """Apply the operations that replace each value by another: one table per image and channel."""
    n, _, _, channels = pixels.shape
    device = pixels.device
    chosen = fixed_tables(device)[operation.to(device), level.abs().to(device)]
    tables = chosen[:, None].repeat(1, channels, 1)
    for which, make in (
        (Operation.AUTOCONTRAST, autocontrast_tables),
        (Operation.EQUALISE, equalise_tables),
        (Operation.CONTRAST, contrast_tables),
    ):
        rows = (operation == which).nonzero()[:, 0]
        if len(rows):
            at = rows.to(device)
            tables.index_copy_(0, at, make(pixels.index_select(0, at), factor(level[rows]).to(device)))
    if channels == 4:
        tables[:, 3] = torch.arange(256, dtype=torch.uint8, device=device)
    start = torch.arange(n * channels, device=device).view(n, 1, 1, channels) * 256
    return tables.flatten().index_select(0, (start + pixels).flatten()).view_as(pixels)


@cache
def fixed_tables(device: torch.device) -> Tensor:
    """Return (operations, levels, 256) tables of the operations that do not depend on the image; else the identity."""
    value = torch.arange(256)
    level = torch.arange(LEVELS)[:, None]
    tables = value.repeat(len(Operation), LEVELS, 1)
    tables[Operation.SOLARISE] = torch.where(10 * value < 2560 - 256 * level, value, 255 - value)
    dropped = 4 + 4 * level // LEVELS
    tables[Operation.POSTERISE] = value >> dropped << dropped
    tables[Operation.BRIGHTNESS] = blend(torch.zeros(256), value, factor(level))
    return tables.to(torch.uint8).to(device)


def factor(level: Tensor) -> Tensor:
    """Return the factor of colour, contrast, brightness and sharpness: 0.28 to 1.72."""
    return (0.1 + 1.8 * level.abs().double() / LEVELS).float()


def blend(low: Tensor, high: Tensor, weight: Tensor) -> Tensor:
    """Return low + weight * (high - low), limited to bytes."""
    low = low.float()
    # Not torch.lerp, which rounds otherwise than Pillow.
    return ((high - low) * weight).add_(low).clamp_(0, 255).to(torch.uint8)


def autocontrast_tables(pixels: Tensor, _: Tensor) -> Tensor:
    """Return tables (n, c, 256) that stretch each channel to the full range."""
    low, high = pixels.amin(dim=(1, 2)).double()[..., None], pixels.amax(dim=(1, 2)).double()[..., None]
    value = torch.arange(256, dtype=torch.float64, device=pixels.device)
    scale = torch.full_like(low, 255) / (high - low)
    return torch.where(high > low, (value * scale - low * scale).clamp(0, 255), value).to(torch.uint8)


def equalise_tables(pixels: Tensor, _: Tensor) -> Tensor:
    """Return tables (n, c, 256) that make each channel's histogram as even as possible."""
    n, height, width, channels = pixels.shape
    device = pixels.device
    start = torch.arange(n * channels, device=device).view(n, 1, 1, channels) * 256
    counts = torch.bincount((start + pixels).flatten(), minlength=n * channels * 256).view(n, channels, 256)
    last = counts.gather(2, pixels.amax(dim=(1, 2)).long()[..., None])
    step = (height * width - last) // 255
    before = counts.cumsum(dim=2) - counts
    table = ((before + step // 2) // step.clamp_min(1)).clamp_(max=255)
    return torch.where(step > 0, table, torch.arange(256, device=device)).to(torch.uint8)


def contrast_tables(pixels: Tensor, weight: Tensor) -> Tensor:
    """Return tables (n, c, 256) that blend with each image's mean grey."""
    mean = (luminance(pixels).sum(dim=(1, 2)).double() / pixels[0, :, :, 0].numel() + 0.5).floor()
    value = torch.arange(256, device=pixels.device)
    table = blend(mean[:, None].expand(-1, 256), value, weight[:, None])
    return table[:, None].expand(-1, pixels.shape[3], -1)


def luminance(pixels: Tensor) -> Tensor:
    """Return the grey value of each pixel, int32 (n, h, w), by the weights of ITU-R 601-2."""
    if pixels.shape[3] == 1:
        return pixels[..., 0].int()
    red, green, blue = pixels[..., :3].int().unbind(3)
    return (19595 * red + 38470 * green + 7471 * blue + ONE // 2) >> 16


def colour(pixels: Tensor, _: Tensor, level: Tensor) -> Tensor:
    """Blend each image with its grey version."""
    weight = factor(level).to(pixels.device)[:, None, None, None]
    pixels[..., :3] = blend(luminance(pixels)[..., None].expand(-1, -1, -1, 3), pixels[..., :3], weight)
    return pixels


def sharpen(pixels: Tensor, _: Tensor, level: Tensor) -> Tensor:
    """Blend each image with its smoothed version; the outermost pixels stay."""
    weight = factor(level).to(pixels.device)[:, None, None, None]
    values = (pixels[..., :3] if pixels.shape[3] == 4 else pixels).short()
    down = values[:, :-2] + values[:, 1:-1] + values[:, 2:]
    inner = values[:, 1:-1, 1:-1]
    smooth = down[:, :, :-2] + down[:, :, 1:-1] + down[:, :, 2:] + 4 * inner
    smooth = (2 * smooth + 13) // 26
    pixels[:, 1:-1, 1:-1, : values.shape[3]] = blend(smooth, inner, weight)
    return pixels


def cut_out(pixels: Tensor, centre: Tensor) -> Tensor:
    """Fill a square, half as wide as the image and clipped at its border, with grey, in place."""
    n, height, width, channels = pixels.shape
    rows, columns = (
        # A square that crosses the border covers the outermost pixels, so clamping adds none.
        (middle[:, None] - size // 2 + torch.arange(size, device=pixels.device)).clamp_(0, side - 1)
        for middle, side, size in (
            (centre[:, 0], height, int(CUTOUT * height)),
            (centre[:, 1], width, int(CUTOUT * width)),
        )
    )
    image = torch.arange(n, device=pixels.device)[:, None, None] * height
    place = (image + rows[:, :, None]) * width + columns[:, None, :]
    pixels.view(-1, channels).index_fill_(0, place.flatten(), GREY)
    return pixels
