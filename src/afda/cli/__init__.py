"""The command line. Commands import what they need when they run, so that --help answers at once."""

import os
import signal
import sys
from typing import Annotated, Any, NoReturn

import typer

from afda.cli import experiments, models, train
from afda.cli.options import AsJson
from afda.errors import RunFailed, UserError, describe, printable

UsageError: Any = typer.BadParameter.__base__
"""A command line that typer cannot read; whether its classes are click's or its own depends on its version."""

app = typer.Typer(
    name="afda",
    help="Train an image classifier from a few labels and many unlabelled images.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def print_version(requested: bool) -> None:
    """Print the version and exit."""
    if requested:
        from afda import __version__

        typer.echo(f"afda {__version__}")
        raise typer.Exit


@app.callback()
def read_options(
    _: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Read the options of the program itself."""


def list_(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="methods, nets, alignments, data, recipes, settings, tables, or all.")
    ] = "all",
    as_json: AsJson = False,
) -> None:
    """List available methods, networks, data sets and recipes."""
    from afda.cli import console, tables
    from afda.errors import unknown
    from afda.experiments.catalogue import list_choices

    found = list_choices()
    if what != "all" and what not in found:
        raise unknown("list", what, [*found, "all"])
    chosen = found if what == "all" else {what: found[what]}
    if as_json:
        console.print_json(chosen)
    else:
        for table in tables.build_catalogue_tables(chosen):
            console.out.print(table)


for command in (
    *(experiments.demo, train.train, models.evaluate, experiments.reproduce, experiments.tune, train.check),
    *(models.predict, list_, models.report, models.export),
):
    app.command(command.__name__.rstrip("_"))(command)

benchmarks = typer.Typer(rich_markup_mode=None)
benchmarks.callback(invoke_without_command=True)(experiments.bench)
benchmarks.command("quality")(experiments.quality)
app.add_typer(benchmarks, name="bench")


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Threads that spin while they wait make a step thirty times slower when other programs want the cores too.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "afda"
        message = error.format_message().rstrip(".?").replace(". Did you mean", ", did you mean")
        fail(2, f"{message}; see {path} --help.")
    except UserError as error:
        fail(2, error)
    except RunFailed as error:
        fail(1, error)
    except KeyboardInterrupt:
        stop_interrupted()
    except OSError as error:  # one that no reader or writer has explained
        fail(1, f"{describe(error)}.")
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        fail(
            1,
            "Out of memory; use smaller batches (--set unlabelled_batch=32) or a narrower net (--set net.width=0.25).",
        )
    if code == 130:  # typer's code for a Ctrl-C that no command has handled
        stop_interrupted()
    sys.exit(code)


def fail(code: int, message: object) -> NoReturn:
    """Print why the command failed on one line, and exit."""
    print(f"Error: {printable(str(message))}", file=sys.stderr)
    sys.exit(code)


def stop_interrupted() -> NoReturn:
    """Exit after Ctrl-C or SIGTERM; of several processes only the first prints."""
    if os.environ.get("RANK", "0") == "0":
        print("Note: interrupted.", file=sys.stderr)
    sys.exit(130)
