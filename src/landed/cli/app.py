"""The list of subcommands, and what all of them have in common.

Exit codes: 0 done, 1 failed, 2 used wrongly; 130 interrupted. A user's mistake is one line, never a
traceback. Every option can also be given as ``LANDED_<OPTION>``.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Annotated, Any, Final

import typer

from landed import __version__
from landed.cli.accounts import accounts
from landed.cli.conform import conform
from landed.cli.copy import copy
from landed.cli.demo import demo
from landed.cli.doctor import doctor
from landed.cli.explain import explain
from landed.cli.explore import explore
from landed.cli.lane import lane
from landed.cli.migrate import migrate
from landed.cli.offline import offline
from landed.cli.projection import projection
from landed.cli.quarantine import quarantine
from landed.cli.receive import receive
from landed.cli.repair import log
from landed.cli.retention import retention
from landed.cli.run import run as run_
from landed.cli.schedule import schedule
from landed.cli.serve import serve
from landed.cli.unknown import unknown
from landed.cli.work import work
from landed.errors import ConfigurationError, LandedError

EXIT_FAILED: Final = 1
EXIT_MISUSED: Final = 2
EXIT_INTERRUPTED: Final = 130

app = typer.Typer(
    name="landed",
    help="Writes that are safe to retry, and effects that happen once. To begin: landed demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command()(accounts)
app.command()(conform)
app.command()(copy)
app.command()(demo)
app.command()(doctor)
app.command()(explain)
app.command()(explore)
app.command()(migrate)
app.command()(receive)
app.command()(serve)
app.command()(work)
app.add_typer(lane)
app.add_typer(log)
app.add_typer(offline)
app.add_typer(projection)
app.add_typer(quarantine)
app.add_typer(retention)
app.add_typer(run_)
app.add_typer(schedule)
app.add_typer(unknown)


@app.command()
def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the version.

    Example: landed version --json
    """
    typer.echo(json.dumps({"version": __version__}) if as_json else __version__)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code.

    Raises:
        SystemExit: always.
    """
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command. Returns its exit code; prints the reason of a failure in one line."""
    if not __debug__:
        return _failed("assertions are part of this program: run it without -O", EXIT_FAILED)
    if arguments == ["--version"]:
        arguments = ["version"]  # what a newcomer tries first
    try:
        _command(app).main(args=arguments, prog_name="landed")
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except ConfigurationError as error:
        return _failed(str(error), EXIT_MISUSED)
    except LandedError as error:
        return _failed(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


@functools.cache
def _command(of: typer.Typer) -> Any:
    """The whole tree of commands; building it takes longer than most of them run."""
    command = typer.main.get_command(of)
    read_environment(command)
    return command


def read_environment(command: Any) -> None:
    """Let every option of every command be given as ``LANDED_<OPTION>`` as well.

    In one place, so that no command can forget it; ``Any`` because the class of a command differs
    between the releases of typer.
    """
    for subcommand in getattr(command, "commands", {}).values():
        read_environment(subcommand)
    for parameter in command.params:
        flags = [flag for flag in parameter.opts if flag.startswith("--")]
        if parameter.param_type_name == "option" and flags and parameter.name != "help":
            parameter.envvar = parameter.envvar or environment_name(flags[0])
            parameter.show_envvar = True


def environment_name(flag: str) -> str:
    """Name the environment variable of an option: ``LANDED_API_KEYS`` for ``--api-keys``."""
    return "LANDED_" + flag.lstrip("-").replace("-", "_").upper()


def _failed(reason: str, code: int) -> int:
    line = " ".join(reason.split())
    print(f"landed: {line}", file=sys.stderr)  # noqa: T201  # the door's own voice
    return code
