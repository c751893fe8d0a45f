"""The command line. Heavy imports wait inside the commands, so that --help answers at once."""

import os
import signal
import sys
from typing import Annotated, Any, NoReturn

import typer

from afda.cli import experiments, models, train
from afda.cli.shared import AsJson, print_json
from afda.errors import RunFailed, UserError, in_short, printable

Misused: Any = typer.BadParameter.__base__
"""A command line that typer cannot read; whether its classes are click's or its own depends on its version."""

app = typer.Typer(
    name="afda",
    help="Train an image classifier from a few labels and many unlabelled images.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def version(asked: bool) -> None:
    if asked:
        from afda import __version__

        typer.echo(f"afda {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="print the version")] = False,
) -> None:
    pass


def list_(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="methods, nets, alignments, data, recipes, settings, tables, or all")
    ] = "all",
    as_json: AsJson = False,
) -> None:
    """What there is, with one line each."""
    from afda.display import catalogue_tables, out
    from afda.errors import unknown
    from afda.listing import catalogue

    found = catalogue()
    if what != "all" and what not in found:
        raise unknown("list", what, [*found, "all"])
    shown = found if what == "all" else {what: found[what]}
    if as_json:
        print_json(shown)
    else:
        for table in catalogue_tables(shown):
            out.print(table)


for command in (
    *(experiments.demo, train.train, models.evaluate, experiments.reproduce, experiments.tune, train.check),
    *(models.predict, list_, models.report, models.export, experiments.bench),
):
    app.command(command.__name__.rstrip("_"))(command)


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Threads that spin while they wait make a step thirty times slower when other programs want the cores too.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except Misused as error:
        place = error.ctx.command_path if error.ctx is not None else "afda"
        said = error.format_message().rstrip(".?").replace(". Did you mean", ", did you mean")
        fail(2, f"{said}; see {place} --help.")
    except UserError as error:
        fail(2, error)
    except RunFailed as error:
        fail(1, error)
    except KeyboardInterrupt:
        fail(130, "interrupted.")
    except OSError as error:  # what no reader or writer has explained
        fail(1, f"{in_short(error)}.")
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        fail(
            1,
            "Out of memory; use smaller batches (--set unlabelled_batch=32) or a narrower net (--set net.width=0.25).",
        )

    if code == 130 and os.environ.get("RANK", "0") == "0":  # typer's for a Ctrl-C that no command has a word for
        fail(code, "interrupted.")
    sys.exit(code)


def fail(code: int, message: object) -> NoReturn:
    print(f"afda: {printable(str(message))}", file=sys.stderr)
    sys.exit(code)
