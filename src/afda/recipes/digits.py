"""The embedded digits: 1,797 images of 8x8 pixels, small enough for a laptop to train on in seconds."""

from afda.data.images import DataSet
from afda.recipe import Recipe
from afda.recipes import methods, of_data


def demo(data: DataSet, method: str, align: str) -> Recipe:
    """A small net on the digits, 50 labels unless told otherwise; settings chosen on validation images."""
    consistency = {"weight": 10.0, "ramp": 0.3}
    return of_data(
        data,
        labels=50,
        net={"name": "small", "width": 0.5, "momentum": 0.05},
        method=methods(
            method, vat={"radius": 1.5, "xi": 1e-2, "on": "unlabelled"}, pi_model=consistency, mean_teacher=consistency
        ),
        align=align if align != "adversarial" else {"name": align, "hidden": 256},
        steps=1200,
        labelled_batch=16,
        unlabelled_batch=64,
        optimisation={"learning_rate": 4e-3, "tail": 1 / 3},
    )


RECIPES = (demo,)
CPU: dict[str, tuple[str, ...]] = {}
