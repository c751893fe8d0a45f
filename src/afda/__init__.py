"""Train an image classifier from a few labels and many unlabelled images, with features aligned between the two."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

# Where the public names live. They are imported when first used, so that `afda --help` need not wait for torch.
_HOME = {
    "AFDAClassifier": "afda.estimator",
    "AdversarialAlignment": "afda.align.adversarial",
    "Recipe": "afda.recipe",
    "UserError": "afda.errors",
    "mmd2": "afda.measures",
    "risk_bound": "afda.measures",
    "train": "afda.training.run",
}

__all__ = [
    "AFDAClassifier",
    "AdversarialAlignment",
    "Recipe",
    "UserError",
    "__version__",
    "mmd2",
    "risk_bound",
    "train",
]

if TYPE_CHECKING:
    from afda.align.adversarial import AdversarialAlignment
    from afda.errors import UserError
    from afda.estimator import AFDAClassifier
    from afda.measures import mmd2, risk_bound
    from afda.recipe import Recipe
    from afda.training.run import train


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'afda' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
