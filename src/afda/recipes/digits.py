"""The embedded digits: 1,797 images of 8x8 pixels, small enough for a laptop to train on in seconds."""

from afda.data.images import DataSet
from afda.recipe import Recipe
from afda.recipes import CONSISTENCY, TEACHER, methods, of_all_that_pass, of_data


def demo(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """A small net on the digits, 50 labels unless told otherwise; settings chosen on validation images."""
    return of_data(
        data,
        labels=labels or 50,
        net={"name": "small", "width": 0.5, "momentum": 0.05},
        method=methods(
            method, vat={"radius": 1.5, "xi": 1e-2, "on": "unlabelled"}, pi_model=CONSISTENCY, mean_teacher=TEACHER
        ),
        align=align if align != "adversarial" else {"name": align, "hidden": 256},
        steps=1200,
        labelled_batch=16,
        unlabelled_batch=64,
        statistics=of_all_that_pass(method, align),
        optimisation={"learning_rate": 4e-3, "tail": 1 / 3},
    )


RECIPES = (demo,)
DEFAULT_METHODS: dict[str, str] = {}
CPU: dict[str, tuple[str, ...]] = {}
