"""Speed of prediction and decoding relative to bare forward passes and bare Pillow."""

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from afda.data import cache
from afda.experiments.bench.steps import build_recipe, make_noise_images
from afda.experiments.bench.timing import Row, compute_ratio, measure_in_turns
from afda.machine.runtime import Runtime
from afda.runs.inputs import Item
from afda.runs.model import OutOfDistribution, compute_outputs, fold_batchnorm
from afda.runs.predict import BATCH, predict_items
from afda.training.state import begin

IMAGES, FILES, SIDE = 2048, 500, 256


def measure_predict_efficiency(runtime: Runtime) -> Iterator[Row]:
    """Compare `afda predict`, from pixels to rows of the table, with the forward passes of the cpu profile's net."""
    data = make_noise_images(IMAGES)
    training = begin(build_recipe("cpu", "supervised", "none", data), data, runtime)
    model, runtime = training.make_model().eval(), training.runtime
    model.out_of_distribution = OutOfDistribution.fit(compute_outputs(model, data.train.x, runtime))
    images = data.train.x.numpy()
    fixed, net = model.normaliser(data.train.x.to(runtime.device)).split(BATCH), fold_batchnorm(model).classifier

    def predict() -> None:
        items = (Item(str(i), image) for i, image in enumerate(images))
        for _ in predict_items(model, data.train.shape, items, runtime, lambda *_: None):
            pass

    @torch.inference_mode()
    def pass_forward() -> None:
        for part in fixed:
            with runtime.autocast():
                net(part).logits.cpu()

    times = measure_in_turns(ours=predict, bare=pass_forward)
    yield compute_ratio("predict_efficiency", times["bare"], times["ours"])


def measure_decode_efficiency() -> Iterator[Row]:
    """Compare reading a folder of JPEG files with decoding them by Pillow.

    Reading also scales them to 32 pixels, fingerprints and caches them.
    """
    with tempfile.TemporaryDirectory() as folder, restore_cache_variable():
        root = Path(folder) / "images"
        root.mkdir()
        paths = write_photographs(root)

        def decode(path: str) -> None:
            with Image.open(root / path) as image:
                image.convert("RGB").load()

        def decode_all() -> None:
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                list(pool.map(decode, paths))

        turn = 0

        def read() -> None:
            nonlocal turn
            turn += 1
            os.environ["AFDA_CACHE"] = str(Path(folder) / f"cache{turn}")  # an empty cache every time
            cache.decode_images(root, paths, (3, 32, 32))

        times = measure_in_turns(ours=read, bare=decode_all)
    yield compute_ratio("decode_efficiency", times["bare"], times["ours"])


@contextmanager
def restore_cache_variable() -> Iterator[None]:
    """Restore the environment variable AFDA_CACHE afterwards."""
    before = os.environ.get("AFDA_CACHE")
    try:
        yield
    finally:
        os.environ.pop("AFDA_CACHE", None)
        if before is not None:
            os.environ["AFDA_CACHE"] = before


def write_photographs(root: Path) -> list[str]:
    """Write JPEG files that are smooth like photographs, since noise takes longer to decode; return their names."""
    random = np.random.default_rng(0)
    names = [f"{i}.jpg" for i in range(FILES)]
    for name in names:
        small = Image.fromarray(random.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        small.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(root / name, quality=90)
    return names
