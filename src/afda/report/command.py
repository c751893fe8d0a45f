"""The command that trains a run again."""

import shlex

from afda.report.load_runs import LoadedRun


def format_train_command(run: LoadedRun) -> str:
    """Return the `afda train` command that repeats a run, quoted for a shell."""
    environment = run.environment
    options = ["--precision", environment.precision] if environment.precision else []
    if environment.device == "cpu" and environment.threads:
        options += ["--device", "cpu", "--threads", str(environment.threads)]
    for table in environment.more_labels or ():
        options += ["--more-labels", table]
    if environment.group_by is not None:
        options += ["--group-by", environment.group_by]
    shape = environment.shape or []
    if len(shape) == 3 and shape[1] == shape[2] and run.data is not None and run.data.train.paths is not None:
        options += ["--size", str(shape[1])]
    if environment.no_test:
        options.append("--no-test")
    if environment.snapshots:
        options.append("--snapshots")
    if environment.baseline is not None and not run.supervised_only:
        options.append("--baseline" if environment.baseline else "--no-baseline")
    recipe = str(run.path / "recipe.json")
    return shlex.join(["afda", "train", environment.source, "--recipe", recipe, "--out", "again", *options])
