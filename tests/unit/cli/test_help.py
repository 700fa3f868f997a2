"""What `--help` shows to somebody who sees a command for the first time."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from landed.cli import app as door


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, by its words."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inner in sorted(command.commands.items()):
        yield from commands(inner, (*path, name))


ALL = dict(commands(get_command(door.app)))


def test_there_are_commands_to_look_at():
    assert len(ALL) > 35  # groups are none of them


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_shows_an_example_that_it_would_take(path: tuple[str, ...]):
    command = ALL[path]
    _, _, example = (command.help or "").partition("Example: ")
    words = shlex.split(example.partition("\n\n")[0])
    assert words[: len(path) + 1] == ["landed", *path]
    # It is parsed as it stands, and nothing is run.
    context = command.make_context("landed", words[len(path) + 1 :], resilient_parsing=True)
    assert not context.args
    given = {word for word in words if word.startswith("--")}
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    assert given <= known
    needed = {param.opts[0] for param in command.params if param.required and param.opts}
    assert {name for name in needed if name.startswith("--")} <= given, (
        "it leaves out what it needs"
    )


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_option_says_what_it_is_for(path: tuple[str, ...]):
    for param in ALL[path].params:
        assert getattr(param, "help", None), f"{param.name} says nothing"
