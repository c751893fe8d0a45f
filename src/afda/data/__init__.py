"""Where images come from, how they are split, augmented and normalised."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from afda.errors import UserError, unknown

if TYPE_CHECKING:
    from afda.data.images import DataSet


def load(name_or_path: str) -> "DataSet":
    """The data set of this name, or the one in this .npz file."""
    from afda.choices import names, pick

    if name_or_path in names("data.sets"):
        from afda.data.download import data_folder

        return replace(pick("data.sets", name_or_path).load(data_folder()), source=name_or_path)
    path = os.path.expanduser(name_or_path)
    is_path = os.path.exists(path) or os.path.basename(path) != path or os.path.splitext(path)[1]
    if not is_path:
        raise unknown("data set", name_or_path, names("data.sets"))
    if not os.path.exists(path):
        raise UserError(f"There is no file {path}; give an .npz file, or one of: {', '.join(names('data.sets'))}.")
    if not path.lower().endswith(".npz"):
        raise UserError(f"{path} is not an .npz file; give one, or one of: {', '.join(names('data.sets'))}.")
    from afda.data.arrays import load as load_arrays

    return replace(load_arrays(path), source=os.path.abspath(path))
