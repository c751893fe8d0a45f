"""Data sets: loading, splitting, augmenting and normalising images."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from afda.data.hold_out import LOAD_RULES
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
    group_by: str | None = None,
    load_rules: int = LOAD_RULES,
    progress: Callable[[int, int], None] | None = None,
) -> "DataSet":
    """Load the data set of this name, or a user's own: a folder of images, a table of them, or an .npz file.

    Image files are resized to `shape` or `side`; `more_labels` are tables of labels to add to the training images;
    `group_by="folder"` keeps images of the same sub-folder on one side; `load_rules` are those of an earlier version
    for a run that was trained by it; `progress` is called with the number of decoded files and of all files.
    """
    from afda.registry import create, list_names

    if name_or_path in list_names("data"):
        from afda.data.download import find_data_folder

        if group_by is not None:
            raise UserError(f"--group-by is for folders of images; {name_or_path} is a built-in data set.")
        data: DataSet = replace(create("data", name_or_path).load(find_data_folder()), source=name_or_path)
    else:
        path = find_own(name_or_path)
        if path.suffix.lower() == ".npz" and path.is_file():
            from afda.data.arrays import load as load_arrays

            if group_by is not None:
                raise UserError(f"--group-by is for folders of images; give {path.name} an array 'group' instead.")
            data = load_arrays(path, to_train_on=to_train_on, load_rules=load_rules)
        else:
            from afda.data.own import load as load_files

            data = load_files(
                path,
                shape=shape if shape is not None and len(shape) == 3 else None,
                side=side,
                to_train_on=to_train_on,
                group_by=group_by,
                load_rules=load_rules,
                progress=progress,
            )
        data = replace(data, source=os.path.abspath(path))
    if side is not None and data.train.paths is None:
        raise UserError(
            f"The images of {name_or_path} have a fixed size; use --size only with a folder or table of image files."
        )
    if more_labels:
        from afda.data.copies import drop_copies
        from afda.data.own import add_labels

        for table in more_labels:
            data = add_labels(data, Path(table))
        if os.path.isabs(data.source) and data.load_rules > 1:
            data = drop_copies(data)  # copies that had no label may have one now
    return data


def find_own(name: str) -> Path:
    """Return the path of a user's own data, or raise a UserError if there is none or it is of no known kind."""
    from afda.registry import list_names

    given = os.path.expanduser(name)
    path = Path(given)
    known = f"{OWN}, or one of: {', '.join(list_names('data'))}"
    if not os.path.exists(given):
        if os.path.basename(given) == given and not path.suffix:
            folders = [entry.name for entry in os.scandir() if entry.is_dir() and not entry.name.startswith(".")]
            raise unknown("folder or data set", name, [*list_names("data"), *folders], f"give {known}.")
        raise UserError(f"There is no file or folder {path}; give {known}.")
    if not path.is_dir() and path.suffix.lower() not in (".npz", ".csv", ".parquet"):
        raise UserError(f"{path} is none of these: {known}.")
    return path
