import base64
import io

import numpy as np
from PIL import Image

from afda.report.pictures import make_sprite_sheet


def decoded(made):
    content = base64.b64decode(made.url.removeprefix("data:image/webp;base64,"))
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def tile(made, number):
    down, across = divmod(number, made.columns)
    height, width = made.height, made.width
    return decoded(made)[down * height : (down + 1) * height, across * width : (across + 1) * width]


def test_a_small_set_is_kept_bit_for_bit():
    images = np.random.default_rng(0).integers(0, 256, (7, 5, 9, 3), dtype=np.uint8)
    made = make_sprite_sheet(images, 10**6)
    assert (made.width, made.height, made.count) == (9, 5, 7)
    for number, image in enumerate(images):
        assert (tile(made, number) == image).all()


def test_grey_and_transparent_pictures():
    grey = np.arange(64, dtype=np.uint8).reshape(1, 8, 8, 1)
    assert (tile(make_sprite_sheet(grey, 10**6), 0) == grey[0]).all()
    clear = np.zeros((1, 8, 8, 4), np.uint8)
    clear[0, :4, :, 3] = 255
    found = tile(make_sprite_sheet(clear, 10**6), 0)
    assert (found[:4] == 0).all()
    assert (found[4:] == 255).all()


def test_a_large_set_fits():
    images = np.random.default_rng(0).integers(0, 256, (300, 80, 100, 3), dtype=np.uint8)
    made = make_sprite_sheet(images, 150_000)
    assert len(made.url) <= 150_000
    assert (made.width, made.height) in ((64, 51), (48, 38), (32, 26), (24, 19))
