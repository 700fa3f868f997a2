"""The list of subcommands."""

from __future__ import annotations

import typer

from landed import __version__

app = typer.Typer(
    name="landed",
    help="Writes that are safe to retry, and effects that happen once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Run the command line."""
    app()
