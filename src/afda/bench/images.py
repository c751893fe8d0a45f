"""How fast images are classified and decoded, against a bare forward pass and bare Pillow."""

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from afda.bench.steps import noise_images, recipe_for
from afda.bench.timing import Row, in_turns, ratio
from afda.data import cache
from afda.inference import Familiar, folded, outputs
from afda.predict import BATCH, Item, predicted
from afda.runtime import Runtime
from afda.training import begin

IMAGES, FILES, SIDE = 2048, 500, 256


def predict_efficiency(runtime: Runtime) -> Iterator[Row]:
    """`afda predict` from pixels to rows of the table, with the cpu profile's net, against its forward pass alone."""
    data = noise_images(IMAGES)
    training = begin(recipe_for("cpu", "supervised", "none", data), data, runtime)
    model, runtime = training.model().eval(), training.runtime
    model.familiar = Familiar.of(outputs(model, data.train.x, runtime))
    images = data.train.x.numpy()
    fixed, net = model.normaliser(data.train.x.to(runtime.device)).split(BATCH), folded(model).classifier

    def ours() -> None:
        todo = (Item(str(i), image) for i, image in enumerate(images))
        for _ in predicted(model, data.train.shape, todo, runtime, lambda *_: None):
            pass

    @torch.inference_mode()
    def bare() -> None:
        for part in fixed:
            with runtime.autocast():
                net(part).logits.cpu()

    taken = in_turns(ours=ours, bare=bare)
    yield ratio("predict_efficiency", taken["bare"], taken["ours"])


def decode_efficiency() -> Iterator[Row]:
    """A folder of JPEG files decoded, scaled to 32 pixels, fingerprinted and cached, against bare decoding."""
    with tempfile.TemporaryDirectory() as folder:
        root, kept = Path(folder) / "images", os.environ.get("AFDA_CACHE")
        root.mkdir()
        random = np.random.default_rng(0)
        paths = [f"{i}.jpg" for i in range(FILES)]
        for path in paths:  # smooth, as photographs are: noise would take longer to decode than anything real
            small = Image.fromarray(random.integers(0, 256, (12, 12, 3), dtype=np.uint8))
            small.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(root / path, quality=90)

        def bare(path: str) -> None:
            with Image.open(root / path) as image:
                image.convert("RGB").load()

        def all_bare() -> None:
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                list(pool.map(bare, paths))

        turn = 0

        def ours() -> None:
            nonlocal turn
            turn += 1
            os.environ["AFDA_CACHE"] = str(Path(folder) / f"cache{turn}")
            cache.decoded(root, paths, (3, 32, 32))

        try:
            taken = in_turns(ours=ours, bare=all_bare)
        finally:
            os.environ.pop("AFDA_CACHE")
            if kept is not None:
                os.environ["AFDA_CACHE"] = kept
    yield ratio("decode_efficiency", taken["bare"], taken["ours"])
