"""What every command has in common: exit codes, one-line reasons, the environment."""

import json
from typing import Annotated

import pytest
import typer

from landed import __version__
from landed.cli import app as door
from landed.errors import ConfigurationError, StorageInUseError


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = door.run(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def scratch(monkeypatch):
    """A command line of the test's own, run through the same door."""
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(lambda: None)
    monkeypatch.setattr(door, "app", app)
    return app


def test_the_version_is_printed_and_as_json_too(capsys):
    for asked in ("version", "--version"):
        assert (0, f"{__version__}\n", "") == run(capsys, asked)
    code, out, _ = run(capsys, "version", "--json")
    assert (0, {"version": __version__}) == (code, json.loads(out))


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (ConfigurationError("this cannot\nwork"), 2),
        (StorageInUseError("in use by pid 7"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(capsys, scratch, raised, code):
    @scratch.command()
    def fail() -> None:
        raise raised

    left, out, err = run(capsys, "fail")
    assert (code, "") == (left, out)
    assert "Traceback" not in err
    if code != 130:
        assert [f"landed: {' '.join(str(raised).split())}"] == err.splitlines()


def test_wrong_usage_is_exit_code_2(capsys):
    for arguments in (["nonsense"], ["serve"], ["serve", "--engine"], ["serve", "--nonsense"]):
        code, out, err = run(capsys, *arguments)
        assert (2, "") == (code, out)
        assert err.splitlines()[-1].startswith("Error: ")


def test_a_bug_keeps_its_traceback(scratch):
    @scratch.command()
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        door.run(["fail"])


def test_every_option_of_every_command_has_an_environment_variable():
    command = typer.main.get_command(door.app)
    door.read_environment(command)
    for name, subcommand in command.commands.items():
        for parameter in subcommand.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                assert str(parameter.envvar).startswith("LANDED_"), name
    assert {
        "LANDED_LISTEN",
        "LANDED_ENGINE",
        "LANDED_ADMIN",
        "LANDED_INSECURE",
        "LANDED_SET",
        "LANDED_ACCEPT_DATA_LOSS",
        "LANDED_LOOP",
        "LANDED_LOG_FORMAT",
        "LANDED_VERBOSE",
    } == {parameter.envvar for parameter in command.commands["serve"].params} - {None}


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_default(
    capsys, scratch, monkeypatch
):
    @scratch.command()
    def show(
        page_size: Annotated[int, typer.Option("--page-size")] = 10,
        settings: Annotated[list[str] | None, typer.Option("--set")] = None,
    ) -> None:
        typer.echo(f"{page_size} {settings or []}")

    assert (0, "10 []\n", "") == run(capsys, "show")
    monkeypatch.setenv("LANDED_PAGE_SIZE", "20")
    monkeypatch.setenv("LANDED_SET", "a=1 b=2")
    assert (0, "20 ['a=1', 'b=2']\n", "") == run(capsys, "show")
    assert (0, "30 ['c=3']\n", "") == run(capsys, "show", "--page-size", "30", "--set", "c=3")


@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_the_demo_refuses_what_is_no_port(capsys, monkeypatch, tmp_path, port):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LANDED_DEMO_PORT", port)
    code, _, err = run(capsys, "demo")
    assert (2, True) == (code, "Invalid value" in err)
    assert list(tmp_path.iterdir()) == []
