"""Where images come from, how they are split, augmented and normalised."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afda.errors import UserError, unknown

if TYPE_CHECKING:
    from afda.data.images import DataSet

OWN = "a folder of images, a .csv or .parquet table of them, or an .npz file of arrays"


def load(
    name_or_path: str,
    *,
    shape: tuple[int, ...] | None = None,
    side: int | None = None,
    to_train_on: bool = True,
    more_labels: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> "DataSet":
    """The data set of this name, or a person's own: a folder of images, a table of them, or an .npz file.

    `shape` and `side` are what image files are brought to; `more_labels` are tables of labels to add to the training
    images; `progress` is told how many of how many files are decoded.
    """
    from afda.choices import names, pick

    if name_or_path in names("data.sets"):
        from afda.data.download import data_folder

        data = replace(pick("data.sets", name_or_path).load(data_folder()), source=name_or_path)
    else:
        given = os.path.expanduser(name_or_path)
        path = Path(given)
        known = f"{OWN}, or one of: {', '.join(names('data.sets'))}"
        if not os.path.exists(given):
            if os.path.basename(given) == given and not path.suffix:
                folders = [entry.name for entry in os.scandir() if entry.is_dir() and not entry.name.startswith(".")]
                raise unknown("folder or data set", name_or_path, [*names("data.sets"), *folders], f"give {known}.")
            raise UserError(f"There is no file or folder {path}; give {known}.")
        if path.suffix.lower() == ".npz" and path.is_file():
            from afda.data.arrays import load as load_arrays

            data = load_arrays(path, to_train_on=to_train_on)
        elif path.is_dir() or path.suffix.lower() in (".csv", ".parquet"):
            from afda.data.own import load as load_files

            fitting = shape if shape is not None and len(shape) == 3 else None
            data = load_files(path, shape=fitting, side=side, to_train_on=to_train_on, progress=progress)
        else:
            raise UserError(f"{path} is none of these: {known}.")
        data = replace(data, source=os.path.abspath(path))
    if side is not None and data.train.paths is None:
        raise UserError(f"The images of {name_or_path} have a size already; --size is for a folder or table of files.")
    if more_labels:
        from afda.data.own import with_more_labels

        for table in more_labels:
            data = with_more_labels(data, Path(table))
    return data


def load_again(environment: dict[str, Any], **options: Any) -> "DataSet":
    """The data set of a run, as its environment.json describes it."""
    shape, more = environment.get("shape"), environment.get("more_labels") or ()
    return load(environment.get("source", ""), shape=tuple(shape) if shape else None, more_labels=more, **options)
