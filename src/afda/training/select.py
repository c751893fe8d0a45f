"""The automatic choice: candidates are compared by cross-validation on the labels, within the time given.

A trial trains a candidate without the labels of one fold; these images join the unlabelled ones, and are predicted.
Candidates on the labels alone come first, and estimate the class shares of the unlabelled images. The candidates of a
kind take turns, fold by fold, and one that is clearly worse is dropped (racing). The choice itself is made by
`afda.runs.selection`.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from afda.data.images import UNLABELLED, DataSet, Images
from afda.machine.runtime import Runtime
from afda.recipe import Recipe
from afda.runs.model import compute_outputs
from afda.runs.results import sample_rows
from afda.runs.selection import Candidate, Fold, Selection, Trial
from afda.training.baseline import make_baseline
from afda.training.folds import make_folds
from afda.training.loop import run_updates
from afda.training.outliers import PoolWeights, weigh_pool
from afda.training.state import begin

CLEARLY_WORSE = 2.0
"""Standard errors by which a candidate must be worse than the best to be dropped."""
FEWEST_STEPS = 50
DIFFERENT = 0.2
"""Total variation distance from which class shares count as different; estimates from few labels are off by a tenth."""
POOL_SAMPLE = 1000
"""The most unlabelled images that a trial predicts to estimate class shares."""
LABELS_ALONE_TIME = 0.3
"""Share of the time after which candidates on the labels alone begin no further fold."""


@dataclass(frozen=True)
class TrialDone:
    """A trial of the automatic choice that has ended, for a progress display."""

    done: int
    most: int
    """The number of trials if none is dropped."""
    candidate: str
    selection: Selection


OnTrial = Callable[[TrialDone], None]


def begin_selection(
    recipes: Sequence[tuple[str, str, Recipe]],
    data: DataSet,
    steps_share: float = 1.0,
    chosen: str | None = None,
    seconds: float | None = None,
    note: str | None = None,
) -> Selection:
    """Return the selection among recipes, each with its name and summary, before any trial.

    `chosen` is the one that the user has named; the others are then only compared with it. `seconds` limits the time;
    `note` is for the user.
    """
    labelled = recipes[0][2].split_of(data).labelled
    y = data.train.y.numpy()
    folds = make_folds(labelled, y, recipes[0][2].seed, data.train.groups)
    return Selection(
        folds=[Fold(rows=fold.tolist(), y=y[fold].tolist()) for fold in folds],
        automatic=chosen is None,
        steps_share=steps_share,
        seconds=seconds,
        note=note,
        labelled_shares=(np.bincount(y[labelled], minlength=len(data.classes)) / len(labelled)).tolist(),
        candidates=[
            Candidate(
                name=name, summary=summary, recipe=made.model_dump(), uses_unlabelled=made.uses_unlabelled, trials=[]
            )
            for name, summary, made in recipes
        ],
        chosen=chosen,
        reason=None if chosen is None else "it was asked for",
    )


def run_trials(
    selection: Selection,
    data: DataSet,
    runtime: Runtime,
    *,
    on_trial: OnTrial | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Run the trials that are not done yet, and choose unless the user has; the first fold is always completed.

    No further fold begins that would not end within the time of the selection, of which earlier trials took their part.
    When `stop` is set, KeyboardInterrupt is raised.
    """
    if selection.automatic and selection.chosen is not None:  # it was stopped after the choice
        return
    spent = sum(trial.seconds for candidate in selection.candidates for trial in candidate.trials)
    started = time.monotonic() - spent

    def run_kind(uses_unlabelled: bool, seconds: float | None) -> None:
        for number in range(len(selection.folds)):
            left = [c for c in list_racing(selection, number) if c.uses_unlabelled == uses_unlabelled]
            left = [candidate for candidate in left if len(candidate.trials) == number]
            expected = sum(candidate.trials[-1].seconds for candidate in left if candidate.trials)
            if seconds is not None and number and time.monotonic() - started + expected > seconds:
                break
            weights: dict[str, PoolWeights] = {}  # candidates with the same net share them
            for candidate in left:
                candidate.trials.append(run_trial(selection, candidate, number, data, runtime, stop, weights))
                if on_trial is not None:
                    done = sum(len(other.trials) for other in selection.candidates)
                    most = len(selection.folds) * len(selection.candidates)
                    on_trial(TrialDone(done, most, candidate.name, selection))

    seconds = selection.seconds
    if not any(candidate.trials for candidate in selection.candidates if candidate.uses_unlabelled):
        run_kind(False, None if seconds is None else LABELS_ALONE_TIME * seconds)
        use_shares(selection, data)
    run_kind(True, seconds)
    if selection.chosen is None:
        chosen, reason = selection.choose()
        selection.chosen, selection.reason = chosen.name, reason


def use_shares(selection: Selection, data: DataSet) -> None:
    """Estimate the class shares of the unlabelled images, and give them to the candidate that needs them.

    The candidate is dropped if the shares are nearly equal: `afda` has equal ones. Shares that are near those of the
    labels are noise as far as the weights of errors go.
    """
    waiting = [c for c in selection.candidates if c.recipe["shares_by"] == "given" and not c.recipe["pool_shares"]]
    found = selection.estimate_shares()
    if found is not None and measure_variation(found, selection.labelled_shares) >= DIFFERENT:
        selection.shares = found
    for candidate in waiting:
        equal = [1 / len(data.classes)] * len(data.classes)
        if found is None or measure_variation(found, equal) < DIFFERENT:
            selection.candidates.remove(candidate)
        else:
            candidate.recipe["pool_shares"] = found


def measure_variation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the total variation distance of two distributions."""
    return float(np.abs(np.array(one) - np.array(other)).sum()) / 2


def list_racing(selection: Selection, number: int) -> list[Candidate]:
    """Return the candidates that are not clearly worse than the best after the first `number` folds, nor were before.

    Later trials do not count, so a selection that is continued drops the same ones.
    """
    racing = [candidate for candidate in selection.candidates if len(candidate.trials) >= number]
    if number < 2 or not racing:
        return racing
    so_far = {c.name: c.model_copy(update={"trials": c.trials[:number]}) for c in racing}
    weight_of = selection.weigh_images()
    errors = {
        name: sum(weight_of[row] * wrong for row, wrong in selection.collect_mistakes(candidate).items())
        for name, candidate in so_far.items()
    }
    best = so_far[min(errors, key=lambda name: errors[name])]

    def is_in(candidate: Candidate) -> bool:
        excess, noise = selection.compare(so_far[candidate.name], best)
        return excess <= CLEARLY_WORSE * noise

    return [candidate for candidate in racing if is_in(candidate)]


def run_trial(
    selection: Selection,
    candidate: Candidate,
    number: int,
    data: DataSet,
    runtime: Runtime,
    stop: threading.Event | None = None,
    weights: dict[str, PoolWeights] | None = None,
) -> Trial:
    """Train a candidate without the labels of a fold, and predict the images of the fold.

    `weights` keeps those of the unlabelled images, which are found by training on the labels alone.
    """
    started = time.monotonic()
    recipe, fold = Recipe.of(candidate.recipe), selection.folds[number]
    steps = max(min(FEWEST_STEPS, recipe.steps), round(selection.steps_share * recipe.steps))
    split = recipe.split_of(data)
    y = torch.full_like(data.train.y, UNLABELLED)
    trained = torch.from_numpy(np.setdiff1d(split.labelled, fold.rows))
    y[trained] = data.train.y[trained]
    hidden = replace(data, train=replace(data.train, y=y), val=None, test=None)
    if len(split.validation):
        hidden = replace(hidden, train=without(hidden.train, split.validation))
    trial_recipe = recipe.with_settings([f"steps={steps}", "labels=null", "validation=false"])
    training = begin(trial_recipe, hidden, runtime)
    key, known = make_baseline(trial_recipe).to_json(), {} if weights is None else weights
    if key in known:
        training.set_pool_weights(known[key].weights, known[key].share)
    weigh_pool(training)
    if training.pool_weights is not None and training.outlier_share is not None:
        known[key] = PoolWeights(training.pool_weights, training.outlier_share)
    for _ in run_updates(training):
        if stop is not None and stop.is_set():
            raise KeyboardInterrupt
    pool = sample_rows(split.unlabelled, POOL_SAMPLE, recipe.seed)
    rows = torch.cat([torch.tensor(fold.rows), torch.from_numpy(pool)])
    logits = compute_outputs(training.make_model(), data.train.x, training.runtime, rows=rows).logits
    logits, of_pool = logits.nan_to_num(0.0, 1e4, -1e4).clamp(-1e4, 1e4).tensor_split([len(fold.rows)])
    mean = of_pool.softmax(dim=1).mean(dim=0) if len(of_pool) else of_pool.new_zeros(0)
    return Trial(
        fold=number,
        logits=[[round(value, 4) for value in row] for row in logits.tolist()],
        pool=[round(share, 6) for share in mean.tolist()],
        seconds=round(time.monotonic() - started, 3),
    )


def without(images: Images, rows: np.ndarray) -> Images:
    """Return the images without those in these rows."""
    return images[torch.from_numpy(np.setdiff1d(np.arange(len(images)), rows))]
