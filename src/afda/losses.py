"""The paper's losses as plain functions of logits: L_Sup, two divergences, the entropy, and L_Adv."""

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Return L_Sup (Eq. 1), the mean cross-entropy over labelled images."""
    return F.cross_entropy(logits, y)


def kl_divergence(target_logits: Tensor, logits: Tensor) -> Tensor:
    """Return the mean over images of KL(target || prediction), both given as logits."""
    log_p, log_q = F.log_softmax(target_logits, dim=1), F.log_softmax(logits, dim=1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=1).mean()


def squared_error(target_logits: Tensor, logits: Tensor) -> Tensor:
    """Return the squared difference of the softmax outputs, averaged over images and classes."""
    return (target_logits.softmax(dim=1) - logits.softmax(dim=1)).square().mean()


def entropy(logits: Tensor) -> Tensor:
    """Return the mean entropy of the predictions."""
    log_p = F.log_softmax(logits, dim=1)
    return -(log_p.exp() * log_p).sum(dim=1).mean()


def information(logits: Tensor, mean_prediction: Tensor, prior: Tensor) -> Tensor:
    """Return the mean over images of sum_k p_k log(m_k / prior_k), which keeps the mean prediction m near a prior.

    m is a running mean, and constant here. The gradient is that of KL(m || prior) as far as m depends on these images,
    undiminished by the slowness of m. With m the mean of the batch and a uniform prior, entropy plus this term is minus
    the mutual information of images and predictions, up to a constant (Krause et al., 2010).
    """
    return (logits.softmax(dim=1).mean(dim=0) * (mean_prediction / prior).log()).sum()


Labelled = Tensor | int
"""Which rows are labelled: a mask, or how many, if they are the first; then a GPU need not be waited for."""


def split_rows(rows: Tensor, labelled: Labelled) -> tuple[Tensor, Tensor]:
    """Return the labelled rows and the unlabelled ones."""
    if isinstance(labelled, int):
        return rows[:labelled], rows[labelled:]
    return rows[labelled], rows[~labelled]


def adversarial(scores: Tensor, labelled: Labelled, weights: Tensor | None = None) -> Tensor:
    """Return L_Adv (Eq. 2): mean log d over labelled plus mean log(1 - d) over unlabelled; `scores` are d's logits.

    d maximises it, f minimises it. A d that cannot tell the two apart has -2 log 2. A kind of images that the batch
    lacks adds nothing. `weights` are those of the labelled rows.
    """
    of_labelled, of_unlabelled = split_rows(scores, labelled)
    return mean(F.logsigmoid(of_labelled), weights) + mean(F.logsigmoid(-of_unlabelled))


def inverted_adversarial(scores: Tensor, labelled: Labelled, weights: Tensor | None = None) -> Tensor:
    """Return f's loss with the labels of d swapped (Tzeng et al., 2017): its gradient does not fade when d is sure."""
    of_labelled, of_unlabelled = split_rows(scores, labelled)
    return -mean(F.logsigmoid(-of_labelled), weights) - mean(F.logsigmoid(of_unlabelled))


def balanced_accuracy(scores: Tensor, labelled: Labelled) -> Tensor:
    """Return how often d is right, with labelled and unlabelled images counting the same.

    0.5 is chance; a kind of images that the batch lacks counts as 0.5.
    """
    of_labelled, of_unlabelled = split_rows(scores, labelled)
    right = (of_labelled > 0, of_unlabelled <= 0)
    return torch.stack([r.float().mean() if len(r) else scores.new_tensor(0.5) for r in right]).mean()


def mean(values: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean, by weights if given, or zero with no gradient if there are no values."""
    if not len(values):
        return values.sum()
    return values.mean() if weights is None else (weights * values).sum() / weights.sum()
