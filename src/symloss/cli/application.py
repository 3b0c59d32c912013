"""The ``symloss`` program: all of its commands, and how it prints errors and warnings."""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Annotated

import typer

from symloss import __version__
from symloss.cli.atlas import atlas
from symloss.cli.audit_command import audit
from symloss.cli.cite import cite
from symloss.cli.data import data
from symloss.cli.fit_command import fit
from symloss.cli.lab import reproduce
from symloss.cli.losses import certify, losses
from symloss.cli.options import Trains
from symloss.cli.output import visible
from symloss.cli.recipe import recipe
from symloss.cli.report import report
from symloss.cli.training import compare, predict, train
from symloss.cli.tune import tune
from symloss.own_code import note_of

app = typer.Typer(
    name="symloss",
    help="Losses that stay right when the labels are wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"symloss {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Losses that stay right when the labels are wrong."""


app.command()(losses)
app.command()(certify)
app.command()(cite)
app.command()(atlas)
app.command(cls=Trains)(train)
app.command(cls=Trains)(compare)
app.command()(fit)
app.command()(predict)
app.command()(audit)
app.command(cls=Trains)(tune)
app.command()(recipe)
app.command()(reproduce)
app.command()(report)
app.add_typer(data, name="data")


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, without the file and line of the code."""
    _say(message)


def _say(trouble: object) -> None:
    """Print one line. Control characters in it are made visible."""
    typer.echo(f"symloss: {visible(str(trouble))}", err=True)


def main() -> None:
    """Run a command.

    Bad input is reported in one sentence, without a traceback. The exit code is 2. An error in the user's code is
    reported with its traceback, after a line that names the code. The exit code is 1.
    """
    warnings.showwarning = _show_warning
    try:
        app()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        note = note_of(error)
        if note is not None:
            _say(f"{note}:")
            traceback.print_exception(error)
            sys.exit(1)
        if not isinstance(error, (ValueError, TypeError, OSError)):
            raise
        _say(error)
        sys.exit(2)
