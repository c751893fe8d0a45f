"""Compare settings for photos on validation images, at equal CPU time on one core.

    AFDA_DATA=... python results/photos.py settings.jsonl results/photos.jsonl

Each line of the first file is one training; its result is appended to the second, which is not repeated:
{"data": "cifar-5", "labels": 20, "seed": 0, "seconds": 90, "method": "vat+entropy", "align": "none", "set": [...]}

Every problem is cut out of a TRAINING split as a user's folder would be: labelled images, a few thousand unlabelled
ones, and 2,000 for validation. The test sets stay closed. `cifar-5` has the first five classes, `cifar-10` and `svhn`
ten; `-48` enlarges the images to 96 pixels and resizes them to 48, as the loader does with large photos. `folder` is
$PHOTOS, with one folder of photos per class, read at 32 pixels, or 48 with `-48`.
"""

import json
import os
import sys
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from afda.data.decode import decode_image
from afda.data.download import find_data_folder
from afda.data.images import UNLABELLED, DataSet, Images, Preparation
from afda.data.sets.cifar10 import TRAIN, _find, _read
from afda.data.sets.svhn import SVHN
from afda.machine.runtime import select_runtime
from afda.measures import error_rate, mmd2
from afda.recipe import Recipe
from afda.recipes import recipe as named_recipe
from afda.runs.model import compute_outputs
from afda.training.loop import run_updates
from afda.training.state import begin

VALIDATION = 2000
POOL = {5: 3500, 10: 5000}


@lru_cache(maxsize=2)
def load_training_images(name: str) -> Images:
    if name.startswith("folder"):
        side = 48 if name.endswith("48") else 32
        paths = sorted(Path(os.environ["PHOTOS"]).glob("*/*.jpg"))
        names = sorted({path.parent.name for path in paths})
        x = torch.from_numpy(np.stack([decode_image(path, (3, side, side)) for path in paths]))
        return Images(x, torch.tensor([names.index(path.parent.name) for path in paths]))
    if name == "svhn":
        return SVHN().load(find_data_folder()).train
    home, _ = _find(find_data_folder())
    parts = [_read(home / file) for file in TRAIN]
    return Images(torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts]))


def resize(x: torch.Tensor, side: int) -> torch.Tensor:
    images = [Image.fromarray(one.permute(1, 2, 0).numpy()).resize((96, 96), Image.Resampling.BICUBIC) for one in x]
    small = [np.asarray(one.resize((side, side), Image.Resampling.BOX)) for one in images]
    return torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2).contiguous()


@lru_cache(maxsize=4)
def make_problem(name: str, labels: int, seed: int) -> DataSet:
    family, *rest = name.split("-")
    is_folder = family == "folder"
    images = load_training_images(name if is_folder else family)
    classes = int(images.y.max()) + 1 if is_folder else 5 if "5" in rest else 10
    random = np.random.default_rng(seed)
    order = random.permutation(np.flatnonzero(images.y.numpy() < classes))
    y = images.y.numpy()[order]
    labelled = np.concatenate([order[y == k][:labels] for k in range(classes)])
    others = order[~np.isin(order, labelled)]
    size = POOL.get(classes, 3 * len(others) // 5)
    pool, validation = others[:size], others[size : size + VALIDATION]

    def take(rows: np.ndarray) -> torch.Tensor:
        x = images.x[torch.from_numpy(rows)]
        return resize(x, 48) if "48" in rest and not is_folder else x

    x = torch.cat([take(labelled), take(pool)])
    known = torch.cat([images.y[torch.from_numpy(labelled)], torch.full((len(pool),), UNLABELLED)])
    val = Images(take(validation), images.y[torch.from_numpy(validation)])
    names = tuple(map(str, range(classes)))
    return DataSet(name, names, Images(x, known), val=val, preparation=Preparation(shift=2))


def run(setting: dict) -> dict:
    data = make_problem(setting["data"], setting["labels"], setting["seed"])
    made = named_recipe("own-images", data, setting.get("method", "supervised"), setting.get("align", "none"))
    made = made.with_settings([f"seed={setting['seed']}", *setting.get("set", [])])
    per_step, runtime = measure(made, data)
    steps = setting.get("steps") or max(20, int(setting["seconds"] / per_step))
    training = begin(made.with_settings([f"steps={steps}"]), data, runtime)
    started, curve = time.process_time(), {}
    spent = 0.0
    for step in run_updates(training):
        if (step % max(1, steps // 5) == 0 and step <= 0.9 * steps) or step == steps:
            spent += time.process_time() - started
            outputs = compute_outputs(training.make_model(), data.val.x, runtime)
            curve[step] = round(error_rate(outputs.logits.argmax(dim=1), data.val.y), 2)
            started = time.process_time()
    model = training.make_model()
    few = [
        compute_outputs(model, data.train.x, runtime, rows=torch.from_numpy(r[:1000])).features
        for r in (training.split.labelled, training.split.unlabelled)
    ]
    return {
        "error": curve[steps], "curve": curve, "steps": steps, "cpu_seconds": round(spent, 1),
        "mmd2": round(float(mmd2(*few)), 5), "precision": training.runtime.precision,
        "weights": sum(p.numel() for p in training.nets.student.parameters()),
    }  # fmt: skip


def measure(made: Recipe, data: DataSet) -> tuple[float, object]:
    """Return the CPU seconds per update, and the runtime."""
    training = begin(made.with_settings(["steps=1000"]), data, select_runtime("cpu", "auto", 1))
    updates = run_updates(training)
    for _ in range(3):
        next(updates)
    started, count = time.process_time(), 0
    while time.process_time() - started < 2 and count < 100:
        next(updates)
        count += 1
    return (time.process_time() - started) / count, training.runtime


def main(settings: Path, results: Path) -> None:
    while True:
        done = {json.dumps(json.loads(line)["setting"]) for line in results.open()} if results.exists() else set()
        lines = [json.loads(line) for line in settings.read_text().splitlines() if line.strip()]
        todo = [one for one in lines if json.dumps(one) not in done]
        if not todo:
            if "WAIT" not in os.environ:
                return
            time.sleep(3)
            continue
        started = time.monotonic()
        try:
            found = run(todo[0])
        except Exception as error:  # one bad line must not end the others
            found = {"failed": repr(error)[:300]}
        with results.open("a") as file:
            line = {"setting": todo[0], **found, "wall_seconds": round(time.monotonic() - started, 1)}
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
