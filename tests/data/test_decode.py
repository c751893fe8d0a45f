"""Any image file becomes pixels of the shape asked for, or a reason why not."""

import numpy as np
import pytest
from PIL import Image

from afda.data.decode import Unreadable, decode_image, is_image, read_header

RANDOM = np.random.default_rng(0)


def noise(height, width, channels=3):
    return RANDOM.integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I", "F", "HSV", "LAB"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode(tmp_path, mode, channels):
    image = Image.fromarray(noise(20, 30))
    if mode == "I;16":
        image = Image.fromarray(RANDOM.integers(0, 65536, (20, 30)).astype(np.uint16))
    else:
        image = image.convert("L").convert(mode) if mode in ("I", "F") else image.convert(mode)
        if mode == "I":  # whole numbers are taken to be of 16 bits
            image = image.point(lambda value: value * 257)
    path = tmp_path / f"x.{'png' if mode in ('1', 'L', 'LA', 'P', 'RGB', 'RGBA', 'I;16') else 'tif'}"
    try:
        image.save(path)
    except OSError:  # HSV and the like cannot be saved everywhere
        pytest.skip(f"Pillow cannot write {mode}")
    found = decode_image(path, (channels, 16, 16))
    assert found.shape == (channels, 16, 16)
    assert found.dtype == np.uint8
    assert found.std() > 5


def test_pixels_of_the_right_size_are_untouched(tmp_path):
    x = noise(8, 12)
    Image.fromarray(x).save(tmp_path / "x.png")
    assert (decode_image(tmp_path / "x.png", (3, 8, 12)) == x.transpose(2, 0, 1)).all()


def test_sixteen_bits_keep_the_high_ones(tmp_path):
    deep = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    Image.fromarray(deep).save(tmp_path / "x.png")
    assert (decode_image(tmp_path / "x.png", (1, 8, 8))[0] == deep >> 8).all()


def test_transparent_parts_are_white(tmp_path):
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "x.png")
    assert (decode_image(tmp_path / "x.png", (3, 8, 8)) == 255).all()


def test_the_camera_was_held_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    x = np.zeros((20, 40), dtype=np.uint8)
    x[:10] = 255  # the upper half, which is the right half when turned
    Image.fromarray(x).save(tmp_path / "x.jpg", exif=exif, quality=95)
    assert read_header(tmp_path / "x.jpg")[:2] == (20, 40)
    found = decode_image(tmp_path / "x.jpg", (1, 40, 20))[0]
    assert found[:, :9].mean() < 10
    assert found[:, 11:].mean() > 245


def test_a_large_jpeg_is_cut_around_its_centre(tmp_path):
    x = np.zeros((300, 900, 3), dtype=np.uint8)
    x[:, 300:600] = 200
    Image.fromarray(x).save(tmp_path / "x.jpg", quality=95)
    assert abs(decode_image(tmp_path / "x.jpg", (3, 32, 32)).mean() - 200) < 8


def test_the_first_frame_of_an_animation(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ((250, 0, 0), (0, 250, 0))]
    frames[0].save(tmp_path / "x.gif", save_all=True, append_images=frames[1:])
    assert decode_image(tmp_path / "x.gif", (3, 8, 8))[0].min() > 200


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0" + bytes(50), b"GIF89a"])
def test_what_is_no_image(tmp_path, content):
    (tmp_path / "x.jpg").write_bytes(content)
    with pytest.raises(Unreadable):
        decode_image(tmp_path / "x.jpg", (3, 8, 8))


def test_a_cut_off_file(tmp_path):
    Image.fromarray(noise(64, 64)).save(tmp_path / "x.png")
    whole = (tmp_path / "x.png").read_bytes()
    (tmp_path / "x.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Unreadable, match="damaged"):
        decode_image(tmp_path / "x.png", (3, 8, 8))


def test_a_decompression_bomb(tmp_path):
    Image.new("1", (20_000, 20_000)).save(tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size < 100_000
    with pytest.raises(Unreadable, match="million pixels"):
        read_header(tmp_path / "x.png")
    with pytest.raises(Unreadable, match="million pixels"):
        decode_image(tmp_path / "x.png", (3, 8, 8))


def test_names_of_images(tmp_path):
    assert is_image(tmp_path / "a.JPG")
    assert not is_image(tmp_path / ".a.jpg")
    assert not is_image(tmp_path / "a.txt")
