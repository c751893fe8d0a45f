"""Every reader of what comes from outside: a few good files, and a function that reads such a file."""

import gzip
import hashlib
import io
import json
import pickle
import shutil
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from PIL import Image

from afda.data import arrays, download, load
from afda.data.decode import Unreadable, decode_image, read_header
from afda.data.files import list_table
from afda.data.own import add_labels
from afda.data.own import load as load_images
from afda.data.sets import cifar10, svhn
from afda.experiments.quality.cells import Score, open_results
from afda.experiments.quality.tables import render_page as render_quality
from afda.experiments.sweep import Job, seconds_left
from afda.machine.runtime import select_runtime
from afda.recipe import Recipe
from afda.recipes import recipe
from afda.report.collect import collect_report
from afda.report.page import render_page
from afda.runs.directory import CHECKPOINT, Run
from afda.runs.evaluate import evaluate_run
from afda.runs.model import load_model
from afda.runs.predict import find_items, predict_items
from afda.runs.selection import Trial
from afda.training.run import load_checkpoint, train
from afda.training.select import begin_selection
from afda.training.state import begin


class Target(NamedTuple):
    """`read` is given a folder of its own and the content of a file; `seeds` are contents to begin with."""

    seeds: Callable[[], list[bytes]]
    read: Callable[[Path, bytes], object]


TARGETS: dict[str, Target] = {}
DAMAGE = (Unreadable,)
"""How a single image is refused: the command line goes on with the others."""


def target(seeds: Callable[[], list[bytes]]) -> Callable[[Callable[[Path, bytes], object]], None]:
    def add(read: Callable[[Path, bytes], object]) -> None:
        TARGETS[read.__name__.replace("_", "-")] = Target(seeds, read)

    return add


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# SVHN and CIFAR-10


def element(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def matrix(name: bytes, values: np.ndarray, kind: int) -> bytes:
    shape = np.array(values.shape, "<i4").tobytes()
    parts = (6, bytes([9]) + bytes(7)), (5, shape), (1, name), (kind, values.tobytes(order="F"))
    return element(14, b"".join(element(k, d) for k, d in parts))


def mat_files() -> list[bytes]:
    x, y = np.arange(6144, dtype=np.uint8).reshape(32, 32, 3, 2), np.array([[1], [10]], np.uint8)
    plain = [matrix(b"X", x, 2), matrix(b"y", y, 2)]
    small = [struct.pack("<II", 15, len(z)) + z for z in map(zlib.compress, plain)]
    begin = b"MATLAB 5.0".ljust(124) + b"\x00\x01IM"
    return [begin + b"".join(plain), begin + b"".join(small)]


@target(mat_files)
def svhn_mat(folder: Path, content: bytes) -> object:
    return svhn._read(written(folder / "train_32x32.mat", content))


@target(lambda: [(bytes([label]) + bytes(range(256)) * 12) * 2 for label in (0, 9)])
def cifar10_bin(folder: Path, content: bytes) -> object:
    with mock.patch.object(cifar10, "ROWS", 2):
        return cifar10._read(written(folder / "data_batch_1.bin", content))


def tar_files() -> list[bytes]:
    found = []
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
            for name in ("cifar/a.bin", "../../b.bin", "/c.bin", "long" * 30 + "/d.bin"):
                member = tarfile.TarInfo(name)
                member.size = 600
                tar.addfile(member, io.BytesIO(b"x" * 600))
            link = tarfile.TarInfo("e.bin")
            link.type, link.linkname = tarfile.SYMTYPE, "../../secret"
            tar.addfile(link)
        found.append(buffer.getvalue())
    return found


@target(tar_files)
def archive(folder: Path, content: bytes) -> object:
    """Packed here, so that what is changed is the archive and not its checksum."""
    path = written(folder / "a.tar.gz", gzip.compress(content, 1))
    download.unpack(path, folder / "into", ("a.bin", "b.bin", "c.bin", "d.bin"), limit=1000)
    assert all(p.stat().st_size <= 1000 and not p.is_symlink() for p in (folder / "into").iterdir())
    return None


@target(lambda: [gzip.compress(tar, 1) for tar in tar_files()])
def packed_archive(folder: Path, content: bytes) -> object:
    download.unpack(written(folder / "a.tar.gz", content), folder / "into", ("a.bin",), limit=1000)
    return None


# Arrays


def npz(save: Callable[..., None] = np.savez, **held: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **held)
    return buffer.getvalue()


def npz_files() -> list[bytes]:
    images, y = np.arange(4 * 8 * 8, dtype=np.uint8).reshape(4, 8, 8), np.array([0, 1, -1, 1])
    names = np.array(["cat", "dog", "", "dog"])
    return [
        npz(x=images, y=y, x_test=images, y_test=np.array([0, 1, 1, 1]), classes=np.array(["a", "b"])),
        npz(np.savez_compressed, x=np.linspace(0, 1, 12).reshape(4, 3), y=names),
        npz(x=np.array([object()]), y=y),
    ]


@target(npz_files)
def npz_file(folder: Path, content: bytes) -> object:
    path = written(folder / "a.npz", content)
    arrays.load(path)
    return arrays.load_images(path)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


ARRAYS = (np.arange(256, dtype=np.uint8).reshape(4, 8, 8), np.eye(4), np.array(["a", "b", "", "a"]))


@target(lambda: [kind + npy(array) for array in ARRAYS for kind in (b"0", b"1", b"2", b"3")])
def array_in_npz(folder: Path, content: bytes) -> object:
    """The first byte says whether it is the images, the labels, the names of classes or the groups."""
    key = ("x", "y", "classes", "group")[content[0] % 4 if content else 0]
    with zipfile.ZipFile(folder / "a.npz", "w") as file:
        for name, array in {"x": npy(np.eye(4)), "y": npy(np.array([0, 1, -1, 1])), key: content[1:]}.items():
            file.writestr(f"{name}.npy", array)
    return arrays.load(folder / "a.npz")


# Images


def image(kind: str, mode: str, seed: int = 0, **how: object) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(buffer, kind, **how)
    return buffer.getvalue()


def image_files() -> list[bytes]:
    exif = Image.Exif()
    exif[0x0112] = 6
    return [
        *(image("PNG", mode) for mode in ("L", "RGBA", "P", "I;16")),
        *(image("JPEG", mode, exif=exif) for mode in ("RGB", "CMYK")),
        *(image(kind, "RGB") for kind in ("BMP", "GIF", "TIFF", "WEBP", "PPM", "TGA", "ICO", "JPEG2000", "EPS")),
        image("TIFF", "F"),
        image("TIFF", "RGB", compression="tiff_lzw"),
    ]


@target(image_files)
def image_file(folder: Path, content: bytes) -> object:
    path = written(folder / "a.png", content)
    read_header(path)
    for channels in (1, 3, 4):
        assert decode_image(path, (channels, 8, 9)).shape == (channels, 8, 9)
    return None


# Tables and lists


CSV = "path,label,split,group\na/1.png,cat,train,v\nb/2.png,dog,,v\nc/3.png,,test,\n"


def parquet(columns: dict[str, list[object]]) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def read_table(path: Path) -> object:
    list(find_items([str(path)], lambda *_: None))
    return list_table(path)


@target(lambda: [CSV.encode(), CSV.replace(",", ";").encode(), CSV.encode("utf-8-sig"), b'path,label\n"a\n""b",c\n'])
def csv_table(folder: Path, content: bytes) -> object:
    return read_table(written(folder / "a.csv", content))


@target(
    lambda: [
        parquet({"path": ["a.png", "b.png"], "label": ["cat", None], "split": ["train", "test"]}),
        parquet({"path": ["a.png", "b.png"], "label": [1.0, 2.5]}),
    ]
)
def parquet_table(folder: Path, content: bytes) -> object:
    return read_table(written(folder / "a.parquet", content))


@cache
def tiny() -> Path:
    """Nine small images of two classes, five of them labelled, and as many to test on."""
    x = np.random.default_rng(0).integers(0, 256, (9, 8, 8), dtype=np.uint8)
    y = np.array([0, 1] * 5)[:9]
    folder = Path(tempfile.mkdtemp(prefix="afda-fuzz-"))
    np.savez(folder / "tiny.npz", x=x, y=np.where(np.arange(9) < 5, y, -1), x_test=255 - x, y_test=y)
    return folder / "tiny.npz"


@target(lambda: [b"row,label,suggested\n5,1,0\n6,,1\n", b"label,row\n0,8\n1,7\n"])
def more_labels(folder: Path, content: bytes) -> object:
    return add_labels(load(str(tiny())), written(folder / "a.csv", content))


@target(lambda: [b"a.png\nb/c.png\n", "ä.png\r\n/etc/passwd\n".encode()])
def list_of_images(folder: Path, content: bytes) -> object:
    model, shape = load_model(finished())
    todo = find_items([str(written(folder / "a.txt", content))], lambda *_: None)
    return list(predict_items(model, shape, todo, select_runtime("cpu"), lambda *_: None))


def quality_scores() -> list[bytes]:
    scores = [Score("iris", 2, seed, method, 5.0, 6.0, 0.1, "1") for seed in (0, 1) for method in ("ours", "logistic")]
    return ["".join(json.dumps(asdict(score)) + "\n" for score in scores).encode()]


@target(quality_scores)
def quality_jsonl(folder: Path, content: bytes) -> object:
    return render_quality("quality", open_results(written(folder / "quality.jsonl", content)))


# Recipes, runs and models


@cache
def recipe_of_tiny() -> Recipe:
    return recipe("own-images", load(str(tiny()))).with_settings(
        [
            "steps=4",
            "net=mlp",
            "net.hidden=8",
            "net.features=4",
            "align.hidden=4",
            "labelled_batch=2",
            "unlabelled_batch=2",
        ]
    )


def recipes() -> list[bytes]:
    plain = ["align=none", "method=supervised", "statistics=labelled"]
    return [made.to_json().encode() for made in (recipe_of_tiny(), recipe_of_tiny().with_settings(plain))]


@target(recipes)
def recipe_json(folder: Path, content: bytes) -> object:
    made = Recipe.read(written(folder / "recipe.json", content))
    assert Recipe.of(json.loads(made.to_json())) == made
    return begin(made, load(str(tiny())), select_runtime("cpu"))


@cache
def finished() -> Path:
    """A run on the tiny data."""
    folder = tiny().parent / "run"
    train(recipe_of_tiny(), load(str(tiny())), folder, on=select_runtime("cpu"))
    return folder


def read_run_with(folder: Path, name: str, content: bytes) -> object:
    """All that a report, an evaluation and a sweep make of a run of which one file has this content."""
    run = folder / "run"
    shutil.copytree(finished(), run)
    written(run / name, content)
    job = Job(recipe_of_tiny(), Run(run), "tiny")
    seconds_left([job])
    _ = job.latest
    made = render_page(collect_report([run], select_runtime("cpu")))
    evaluate_run(run, None, select_runtime("cpu"))
    return made


def seed_of_run(name: str) -> Callable[[], list[bytes]]:
    return lambda: [(finished() / name).read_bytes()]


@target(seed_of_run("result.json"))
def result_json(folder: Path, content: bytes) -> object:
    return read_run_with(folder, "result.json", content)


@target(seed_of_run("environment.json"))
def environment_json(folder: Path, content: bytes) -> object:
    return read_run_with(folder, "environment.json", content)


def selections() -> list[bytes]:
    """A choice among two candidates, as if all their trials gave the first class."""
    data = load(str(tiny()))
    selection = begin_selection([("a", "one", recipe_of_tiny()), ("b", "two", recipe_of_tiny())], data, chosen="a")
    logits = [1.0] + [0.0] * (len(data.classes) - 1)
    for candidate in selection.candidates:
        candidate.trials = [
            Trial(fold=k, logits=[logits] * len(fold.y), seconds=1.0) for k, fold in enumerate(selection.folds)
        ]
    return [json.dumps(selection.to_dict()).encode()]


@target(selections)
def selection_json(folder: Path, content: bytes) -> object:
    return read_run_with(folder, "selection.json", content)


@target(seed_of_run("split.json"))
def split_json(folder: Path, content: bytes) -> object:
    return read_run_with(folder, "split.json", content)


@target(seed_of_run("log.jsonl"))
def log_jsonl(folder: Path, content: bytes) -> object:
    return read_run_with(folder, "log.jsonl", content)


def model_read(folder: Path, name: str, content: bytes, checksum: bool = True) -> object:
    run = folder / "run"
    shutil.copytree(finished(), run)
    if not checksum:  # which a stranger can make fit
        card = json.loads((run / "model.json").read_text())
        (run / "model.json").write_text(json.dumps(card | {"sha256": None}))
    written(run / name, content)
    model, shape = load_model(run)
    items = find_items([str(tiny())], lambda *_: None)
    rows = list(predict_items(model, shape, items, select_runtime("cpu"), lambda *_: None))
    assert all(0 <= row.confidence <= 1 for row in rows)
    return rows


@target(seed_of_run("model.json"))
def model_json(folder: Path, content: bytes) -> object:
    return model_read(folder, "model.json", content)


@target(seed_of_run("model.safetensors"))
def model_safetensors(folder: Path, content: bytes) -> object:
    return model_read(folder, "model.safetensors", content, checksum=False)


# Checkpoints


@cache
def state() -> bytes:
    buffer = io.BytesIO()
    torch.save(begin(recipe_of_tiny(), load(str(tiny())), select_runtime("cpu")).save_state(), buffer)
    return buffer.getvalue()


def restored(folder: Path, content: bytes) -> object:
    """With a checksum that fits, as one who means harm would write it."""
    run = folder / "run"
    shutil.copytree(finished(), run)
    written(run / CHECKPOINT, hashlib.sha256(content).digest() + content)
    training = begin(recipe_of_tiny(), load(str(tiny())), select_runtime("cpu"))
    load_checkpoint(training, Run(run))
    return training


@target(lambda: [state()])
def checkpoint(folder: Path, content: bytes) -> object:
    return restored(folder, content)


class Harm:
    """What a pickle can do to whoever opens it."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, ("echo harm > harm",)


def pickles() -> list[bytes]:
    with zipfile.ZipFile(io.BytesIO(state())) as file:
        (name,) = (n for n in file.namelist() if n.endswith("data.pkl"))
        return [file.read(name), pickle.dumps({"step": 1}, 2), pickle.dumps(Harm(), 2)]


@target(pickles)
def pickle_in_checkpoint(folder: Path, content: bytes) -> object:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(state())) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            new.writestr(name, content if name.endswith("data.pkl") else old.read(name))
    return restored(folder, buffer.getvalue())


# The cache of decoded images


@cache
def pictures() -> Path:
    root = tiny().parent / "pictures"
    for i in range(4):
        written(root / "ab"[i % 2] / f"{i}.png", image("PNG", "L", i))
    return root


@cache
def cached(name: str) -> tuple[Path, bytes]:
    """Where in a cache the file of this name lies, and what is in it."""
    folder = tiny().parent / "cache"
    with mock.patch.dict("os.environ", AFDA_CACHE=str(folder)):
        load_images(pictures())
    (path,) = folder.rglob(name)
    return path.relative_to(folder), path.read_bytes()


def from_cache(folder: Path, name: str, content: bytes) -> object:
    place, _ = cached(name)
    shutil.copytree(tiny().parent / "cache", folder / "cache")
    written(folder / "cache" / place, content)
    with mock.patch.dict("os.environ", AFDA_CACHE=str(folder / "cache")):
        return load_images(pictures())


@target(lambda: [cached("about.json")[1]])
def cache_about(folder: Path, content: bytes) -> object:
    return from_cache(folder, "about.json", content)


@target(lambda: [cached("headers.json")[1]])
def cache_headers(folder: Path, content: bytes) -> object:
    return from_cache(folder, "headers.json", content)


@target(lambda: [cached("pixels")[1]])
def cache_pixels(folder: Path, content: bytes) -> object:
    return from_cache(folder, "pixels", content)
