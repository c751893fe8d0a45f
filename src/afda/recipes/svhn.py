"""SVHN: Tables 1, 3, 4, 5 and 7 of the paper."""

from afda.data.images import DataSet
from afda.recipe import Recipe
from afda.recipes import SHORT, methods, of_data


def ablation(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """The ablation on SVHN: ConvLarge, batches of 100, Adam, 60,000 updates (Tables 3 and 5)."""
    # Without alignment the paper trains the Pi-model and Mean Teacher as their authors did; with it, everything alike.
    authors_way = align == "none" and method in ("pi-model", "mean-teacher")
    steps = 150_000 if authors_way else 60_000
    ramp = {"ramp": 40_000 / steps}
    return of_data(
        data,
        labels=labels,
        net="conv-large",
        method=methods(method, vat={"radius": 3.5}, pi_model=ramp, mean_teacher=ramp),
        align=align,
        steps=steps,
        labelled_batch=16,
        unlabelled_batch=84,
        optimisation={"learning_rate": 3e-3, "schedule": "ramps"} if authors_way else {"tail": 20_000 / steps},
    )


def headline(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """The headline run on SVHN: ConvLarge, 32 + 128 images, 150,000 updates, VAT with entropy (Table 1)."""
    return of_data(
        data,
        labels=labels,
        net="conv-large",
        method=methods(method, vat={"radius": 3.5}),
        align=align,
        steps=150_000,
        labelled_batch=32,
        unlabelled_batch=128,
        optimisation={"tail": 20_000 / 150_000},
    )


def wide_resnet(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """The ablation on SVHN with WRN-28-2 (Table 7)."""
    return ablation(data, method, align, labels).with_settings(["net=wrn-28-2"])


RECIPES = (ablation, headline, wide_resnet)
DEFAULT_METHODS: dict[str, str] = {}
CPU = {
    "ablation": ("net.width=0.125", *SHORT, "method.vat.radius=2.0"),
    "wide_resnet": ("net.width=0.25", *SHORT, "method.vat.radius=2.0"),
    "headline": ("net.width=0.125", *SHORT, "method.vat.radius=2.0"),
}
