"""Data sets: loading, splitting, augmenting and normalising images."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

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
    """Load the data set of this name, or a user's own: a folder of images, a table of them, or an .npz file.

    Image files are resized to `shape` or `side`; `more_labels` are tables of labels to add to the training images;
    `progress` is called with the number of decoded files and of all files.
    """
    from afda.registry import create, list_names

    if name_or_path in list_names("data"):
        from afda.data.download import find_data_folder

        data: DataSet = replace(create("data", name_or_path).load(find_data_folder()), source=name_or_path)
    else:
        given = os.path.expanduser(name_or_path)
        path = Path(given)
        known = f"{OWN}, or one of: {', '.join(list_names('data'))}"
        if not os.path.exists(given):
            if os.path.basename(given) == given and not path.suffix:
                folders = [entry.name for entry in os.scandir() if entry.is_dir() and not entry.name.startswith(".")]
                raise unknown("folder or data set", name_or_path, [*list_names("data"), *folders], f"give {known}.")
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
        raise UserError(
            f"The images of {name_or_path} have a fixed size; use --size only with a folder or table of image files."
        )
    if more_labels:
        from afda.data.own import add_labels

        for table in more_labels:
            data = add_labels(data, Path(table))
    return data
