"""Random shifts and flips of a whole batch at once, on whatever device it is, one draw per image."""

import torch
from torch import Tensor

from afda import processes
from afda.data.images import Preparation


def augmented(x: Tensor, how: Preparation) -> Tensor:
    """A random view of each image; vectors come back as they are."""
    if x.dim() < 4 or not (how.shift or how.flip):
        return x
    n, _, height, width = x.shape
    of_all = processes.count() * n
    shifts = torch.randint(-how.shift, how.shift + 1, (2, of_all, 1), device=x.device)
    down, right = processes.mine(shifts, dim=1)
    rows = torch.arange(height, device=x.device) - down
    columns = torch.arange(width, device=x.device) - right
    if how.flip:
        flipped = processes.mine(torch.rand(of_all, 1, device=x.device) < 0.5)
        columns = torch.where(flipped, columns.flip(1), columns)
    # One list of places, and the channels last: the fast way to pick pixels, and the layout that is fast afterwards.
    image = torch.arange(n, device=x.device)[:, None, None]
    place = (image * height + reflected(rows, height)[:, :, None]) * width + reflected(columns, width)[:, None, :]
    pixels = x.permute(0, 2, 3, 1).flatten(0, 2)
    view = pixels.index_select(0, place.flatten()).view(n, height, width, x.shape[1])
    if how.padding == "zero":
        inside = inside_image(rows, height)[:, :, None] & inside_image(columns, width)[:, None, :]
        view = view * inside[..., None]
    return view.permute(0, 3, 1, 2)


def reflected(index: Tensor, size: int) -> Tensor:
    """Indices outside [0, size) mirrored at the border, which itself is not repeated."""
    index = index.abs()
    return torch.where(index >= size, 2 * (size - 1) - index, index).clamp_(0, size - 1)


def inside_image(index: Tensor, size: int) -> Tensor:
    return (index >= 0) & (index < size)
