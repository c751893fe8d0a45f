"""CIFAR-10: Tables 2, 3, 4 and 6 of the paper."""

from afda.data.images import DataSet
from afda.recipe import Recipe
from afda.recipes import SHORT, methods, of_all_that_pass, of_data


def ablation(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """The ablation on CIFAR-10: ConvLarge, ZCA, batches of 100, Adam, 150,000 updates (Tables 3 and 6)."""
    authors_way = align == "none" and method in ("pi-model", "mean-teacher")
    return of_data(
        data,
        labels=labels,
        net="conv-large",
        method=methods(method, vat={"radius": 8.0}),
        align=align,
        steps=150_000,
        labelled_batch=32,
        unlabelled_batch=68,
        optimisation={"learning_rate": 3e-3, "schedule": "ramps"} if authors_way else {"tail": 20 / 150},
    )


def headline(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """The headline run on CIFAR-10: Shake-Shake trained as Mean Teacher's authors did (Table 2).

    One process stands for their four GPUs: batch 512, learning rate 0.2. With up to 1,000 labels they train for 180
    epochs, with more for 300.
    """
    few = labels is not None and labels <= 1000
    epochs, cosine_epochs, decay = (180, 210, 0.97) if few else (300, 350, 0.99)
    updates_per_epoch = (50_000 - (labels or 4000)) // (512 - 124)
    return of_data(
        data,
        labels=labels,
        preparation={"normalise": "standard", "shift": 4, "padding": "reflect", "flip": True},
        net={"name": "shake-shake", "heads": 2},
        method=methods(method, mean_teacher={"weight": 100.0, "ramp": 5 / epochs, "decay": decay, "on": "all"}),
        # d is trained by Adam as elsewhere in the paper; the learning rate of SGD is not for it.
        align={"name": align, "learning_rate": 5e-4} if align == "adversarial" else align,
        steps=epochs * updates_per_epoch,
        labelled_batch=124,
        unlabelled_batch=512 - 124,
        optimisation={
            "optimizer": "sgd",
            "learning_rate": 0.2,
            "schedule": "cosine",
            "cosine_end": cosine_epochs / epochs,
            "weight_decay": 2e-4,
        },
        batchnorm="together",
        statistics=of_all_that_pass(method, align),
        supervised_mean="batch",
        progress_every=updates_per_epoch,
    )


def wide_resnet(data: DataSet, method: str, align: str, labels: int | None = None) -> Recipe:
    """The ablation on CIFAR-10 with WRN-28-2, which the paper does on SVHN only."""
    return ablation(data, method, align, labels).with_settings(["net=wrn-28-2"])


RECIPES = (ablation, headline, wide_resnet)
DEFAULT_METHODS = {"headline": "mean-teacher"}
CPU = {
    # Chosen on validation images (docs/experiments.md).
    "ablation": (
        "net.width=0.125",
        *SHORT,
        "net.dropout=0.25",
        "optimisation.learning_rate=0.003",
    ),
    "wide_resnet": ("net.width=0.25", *SHORT),
    "headline": (
        "net.width=0.125",
        "steps=3000",
        "labelled_batch=16",
        "unlabelled_batch=48",
        "optimisation.learning_rate=0.05",
        "progress_every=10",
    ),
}
