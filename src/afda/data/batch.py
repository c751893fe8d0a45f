"""The batch of a step: which images it has, and their views. All of it is a function of the seed and the step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from afda.data.draws import Draws
from afda.data.images import Images, Preparation
from afda.data.split import Split
from afda.data.strong import draw_strong, strong_views
from afda.machine.group import ALONE, Group
from afda.nets import Normaliser, Stream

WHITENED_AHEAD = 2**30
"""Bytes up to which all images are whitened before the first update; more are whitened batch by batch."""
LABELLED, UNLABELLED, CLASSES = 1, 2, 3
"""Streams of the order in which images are drawn; CLASSES + 1 + k is that of the labelled images of class k."""


@dataclass(frozen=True)
class WeakDraws(Draws):
    """How each image is shifted and flipped, as columns (n, 1)."""

    down: Tensor
    right: Tensor
    flipped: Tensor


def draw_weak(
    n: int, preparation: Preparation, generator: torch.Generator | None, device: torch.device | str
) -> WeakDraws:
    """Draw what `weak_views` does to n images; nothing is drawn where the preparation has neither shifts nor flips.

    The generator belongs to the device; None stands for torch's own.
    """
    still = torch.zeros(2, n, 1, dtype=torch.int64, device=device)
    straight = torch.zeros(n, 1, dtype=torch.bool, device=device)
    if not (preparation.shift or preparation.flip):
        return WeakDraws(still[0], still[1], straight)
    size = preparation.shift
    down, right = torch.randint(-size, size + 1, (2, n, 1), generator=generator, device=device)
    flipped = torch.rand(n, 1, generator=generator, device=device) < 0.5 if preparation.flip else straight
    return WeakDraws(down, right, flipped)


def weak_views(x: Tensor, draws: WeakDraws, preparation: Preparation, fill: float | Tensor = 0) -> Tensor:
    """Return a shifted and perhaps flipped view of each image (n, c, h, w); vectors are returned unchanged.

    With zero padding, `fill` is the value that normalises to zero: a number, or a tensor that broadcasts to (c, h, w).
    It decides the type of the result: bytes with 127.5 become floats.
    """
    if x.dim() < 4 or not (preparation.shift or preparation.flip):
        return x
    n, channels, height, width = x.shape
    rows = torch.arange(height, device=x.device) - draws.down
    columns = torch.arange(width, device=x.device) - draws.right
    if preparation.flip:
        columns = torch.where(draws.flipped, columns.flip(1), columns)
    # One list of places, and the channels last: the fast way to pick pixels, and the layout that is fast afterwards.
    image = torch.arange(n, device=x.device)[:, None, None]
    place = (image * height + reflect(rows, height)[:, :, None]) * width + reflect(columns, width)[:, None, :]
    pixels = x.permute(0, 2, 3, 1).flatten(0, 2)
    view = pixels.index_select(0, place.flatten()).view(n, height, width, channels)
    if preparation.padding == "zero":
        inside = is_inside(rows, height)[:, :, None] & is_inside(columns, width)[:, None, :]
        if isinstance(fill, Tensor):
            fill = fill.expand(channels, height, width).permute(1, 2, 0)
        view = torch.where(inside[..., None], view, fill)
    return view.permute(0, 3, 1, 2)


def reflect(index: Tensor, size: int) -> Tensor:
    """Return indices with those outside [0, size) mirrored at the border, which itself is not repeated."""
    index = index.abs()
    return torch.where(index >= size, 2 * (size - 1) - index, index).clamp_(0, size - 1)


def is_inside(index: Tensor, size: int) -> Tensor:
    """Return where indices lie in [0, size)."""
    return (index >= 0) & (index < size)


class View:
    """One view of the labelled images x and the unlabelled images u of this process, made when first asked for."""

    def __init__(self, make_x: Callable[[], Tensor], make_u: Callable[[], Tensor]) -> None:
        self._make_x, self._make_u = make_x, make_u

    @cached_property
    def x(self) -> Tensor:
        return self._make_x()

    @cached_property
    def u(self) -> Tensor:
        return self._make_u()


@dataclass
class Batch:
    """Labelled images x with labels y, and unlabelled images u: one weak view of each, and more on demand.

    With several processes x and u are the images of this process; y, i and j are those of the whole batch, as are the
    outputs of passes. `key` seeds the noise of the step (`afda.nets.Stream`), so that a pass can be repeated under the
    same noise.
    """

    y: Tensor
    """The labels of the labelled images."""
    i: Tensor
    """The labelled images' rows in the training set."""
    j: Tensor
    """The unlabelled images' rows in the training set."""
    key: int
    group: Group
    make_view: Callable[[int, Literal["weak", "strong"]], View]
    view: View = field(init=False)
    """The first weak view, which the clean pass sees."""
    views: int = 0
    """How many views were made."""

    def __post_init__(self) -> None:
        self.view = self.weak()

    @property
    def x(self) -> Tensor:
        """The first weak view of the labelled images."""
        return self.view.x

    @property
    def u(self) -> Tensor:
        """The first weak view of the unlabelled images."""
        return self.view.u

    def weak(self) -> View:
        """Return a fresh weak view: shifts and flips. View n depends on the seed, the step and n alone."""
        return self._next("weak")

    def strong(self) -> View:
        """Return a fresh strong view: a weak one, then RandAugment and cutout; for vectors, masks and noise."""
        return self._next("strong")

    def _next(self, strength: Literal["weak", "strong"]) -> View:
        self.views += 1
        return self.make_view(self.views - 1, strength)


@dataclass
class BatchSource:
    """Draws the batches of a training: over the steps, every image comes up once before any comes up again.

    With `sampling` "balanced" the classes come up evenly among the labelled images, and it is so within each class.
    """

    images: Images
    split: Split
    preparation: Preparation
    normaliser: Normaliser
    labelled: int
    """Labelled images per batch."""
    unlabelled: int
    """Unlabelled images per batch; 0 if none are used."""
    seed: int
    device: torch.device
    group: Group = ALONE
    sampling: Literal["natural", "balanced"] = "natural"
    weights: np.ndarray | None = None
    """How often each unlabelled image comes up, compared with others; None if all come up as often."""

    def __post_init__(self) -> None:
        self.x = keep_on_device(self.images.x, self.device)
        self.y = self.images.y.to(self.device)

    def draw(self, step: int) -> Batch:
        """Return the batch of a step."""
        key = int(np.random.SeedSequence([self.seed, step]).generate_state(1, np.uint64)[0] >> np.uint64(2))
        if self.sampling == "balanced":
            i = torch.from_numpy(draw_balanced(self.labelled_by_class, self.labelled, step, seed=self.seed))
        else:
            i = self._draw_rows(self.split.labelled, self.labelled, step, LABELLED)
        if self.weights is None or not self.unlabelled:
            j = self._draw_rows(self.split.unlabelled, self.unlabelled, step, UNLABELLED)
        else:
            positions = draw_weighted(self.weights, self.unlabelled, step, seed=self.seed, stream=UNLABELLED)
            j = torch.from_numpy(self.split.unlabelled[positions])

        def make_view(n: int, strength: Literal["weak", "strong"]) -> View:
            generator = torch.Generator(self.device).manual_seed(key + Stream.VIEWS + len(Stream) * n)
            makers = [self._prepare_view(rows, strength, generator) for rows in (i, j)]
            return View(*makers)

        return Batch(take_rows(self.y, i), i, j, key, self.group, make_view)

    def _draw_rows(self, rows: np.ndarray, size: int, step: int, stream: int) -> Tensor:
        if not size:
            return torch.zeros(0, dtype=torch.int64)
        return torch.from_numpy(rows[draw_positions(len(rows), size, step, seed=self.seed, stream=stream)])

    def _prepare_view(self, rows: Tensor, strength: str, generator: torch.Generator) -> Callable[[], Tensor]:
        """Draw a view's random numbers now, for the images of all processes, and make it when it is asked for."""
        weak = draw_weak(len(rows), self.preparation, generator, self.device)
        strong = draw_strong(len(rows), self.images.shape, generator, self.device) if strength == "strong" else None
        if self.group.count > 1:
            size = len(rows) // self.group.count
            own = slice(self.group.rank * size, (self.group.rank + 1) * size)
            rows, weak, strong = rows[own], weak.rows(own), strong and strong.rows(own)
        return lambda: self._make_view(rows, weak, strong)

    def _make_view(self, rows: Tensor, weak: WeakDraws, strong: Draws | None) -> Tensor:
        whitens = self.normaliser.matrix is not None
        if whitens and strong is None:
            # Shifts of whitened images, as in the code of Laine and Aila (2017); a product for every view costs as much
            # as a pass of a narrow net.
            if self.whitened is None:
                x = self.normaliser(take_rows(self.x, rows, self.device))
            else:
                x = take_rows(self.whitened, rows, self.device).contiguous(memory_format=torch.channels_last)
            return weak_views(x, weak, self.preparation)
        x = weak_views(take_rows(self.x, rows, self.device), weak, self.preparation, self.normaliser.mean)
        if strong is not None:
            x = strong_views(x, strong, *self.vector_moments)
        normalised: Tensor = self.normaliser(x)
        return normalised

    @cached_property
    def labelled_by_class(self) -> list[np.ndarray]:
        """The rows of the labelled images of each class that has any."""
        y = self.images.y.numpy()[self.split.labelled]
        return [self.split.labelled[y == k] for k in np.unique(y)]

    @cached_property
    def vector_moments(self) -> tuple[Tensor, Tensor] | tuple[()]:
        """The mean and deviation of vectors, which strong views of them need."""
        if len(self.images.shape) != 1:
            return ()
        return self.normaliser.mean, self.x.float().std(dim=0, correction=0).to(self.device)

    @cached_property
    def whitened(self) -> Tensor | None:
        """The images that are trained on after whitening, or None if they are too many."""
        if self.normaliser.matrix is None or 4 * self.x.numel() > WHITENED_AHEAD:
            return None
        used = [self.split.labelled, self.split.unlabelled] if self.unlabelled else [self.split.labelled]
        whitened = torch.empty(self.x.shape)  # rows that are not used take no memory
        for rows in torch.from_numpy(np.sort(np.concatenate(used))).split(4096):
            whitened[rows] = self.normaliser(take_rows(self.x, rows, self.device)).cpu()
        return keep_on_device(whitened, self.device)


@lru_cache(maxsize=8)
def permute(n: int, seed: int, stream: int, epoch: int) -> np.ndarray:
    """Return the order of n images in an epoch."""
    return np.random.default_rng([seed, stream, epoch]).permutation(n)


def draw_positions(n: int, size: int, step: int, *, seed: int, stream: int) -> np.ndarray:
    """Return `size` positions out of n. Over the steps every position comes up once before any comes up again."""
    places = np.arange(step * size, (step + 1) * size)
    epochs, offsets = places // n, places % n
    return np.concatenate([permute(n, seed, stream, int(e))[offsets[epochs == e]] for e in np.unique(epochs)])


def draw_weighted(weights: np.ndarray, size: int, step: int, *, seed: int, stream: int) -> np.ndarray:
    """Return `size` positions, each as often as its weight says; equal weights give those of `draw_positions`.

    The line from 0 to the sum of the weights is divided among the positions. An epoch takes evenly spaced points of it,
    with a random offset, in random order.
    """
    n = len(weights)
    places = np.arange(step * size, (step + 1) * size)
    ends = np.cumsum(weights)
    points = np.empty(size)
    for epoch in np.unique(places // n):
        inside = places // n == epoch
        offset = np.random.default_rng([seed, stream, int(epoch), 1]).random(dtype=np.float32)
        points[inside] = permute(n, seed, stream, int(epoch))[places[inside] % n] + float(offset)
    return np.searchsorted(ends, points * (ends[-1] / n), side="right").clip(max=n - 1)


permute_class = lru_cache(maxsize=4096)(permute.__wrapped__)
"""`permute` for the few labelled images of one of many classes."""


def draw_balanced(classes: list[np.ndarray], size: int, step: int, *, seed: int) -> np.ndarray:
    """Return `size` rows, drawn evenly from the classes, whose rows are given.

    Over the steps every class comes up once before any comes up again, and so do the rows of each class.
    """
    drawn = draw_positions(len(classes), size, step, seed=seed, stream=CLASSES)
    rows = np.empty(size, dtype=np.int64)
    for place, k in enumerate(drawn.tolist()):
        of_class = classes[k]
        epoch, offset = divmod((step * size + place) // len(classes), len(of_class))
        rows[place] = of_class[permute_class(len(of_class), seed, CLASSES + 1 + k, epoch)[offset]]
    return rows


def keep_on_device(x: Tensor, device: torch.device) -> Tensor:
    """Return training images on the device, if they leave half of its free memory to the net; else where they are."""
    if device.type == "cuda" and x.nbytes > torch.cuda.mem_get_info(device)[0] / 2:
        return x
    return x.to(device)


def take_rows(x: Tensor, rows: Tensor, device: torch.device | None = None) -> Tensor:
    """Return rows of what is kept, on the device.

    A GPU is not waited for: what goes there goes from memory that it can read by itself.
    """
    device = device or x.device
    if device.type != "cuda":
        return x[rows]
    if x.device.type != "cuda":
        return x[rows].pin_memory().to(device, non_blocking=True)
    return x[rows.pin_memory().to(device, non_blocking=True)]
