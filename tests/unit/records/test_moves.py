"""Nobody but the table of an effect's life names a state that an effect moves to."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import landed
from landed.effects.state import State

SOURCE = Path(landed.__file__).parent
ROOMS = ("records", "workers", "ledger", "relay", "intake", "outbound", "bridge")
CREATES = ("records/effects.py", State.PENDING)
"""E1: an effect begins life pending."""


def _named(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") == "literal":
        node = node.args[0]
    if isinstance(node, ast.Attribute) and node.attr == "value":
        node = node.value
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "State" else None
    return None


def _written(tree: ast.AST) -> list[str]:
    """States named where an effect is written: a move's target, or a value of the column."""
    found: list[str | None] = []
    for node in ast.walk(tree):
        # A Standing says where an effect is, to ask the table where it goes.
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") != "Standing":
            found += [_named(k.value) for k in node.keywords if k.arg == "state"]
            if isinstance(node.func, ast.Name) and node.func.id in ("moved", "_move"):
                found += [_named(argument) for argument in node.args]
        if isinstance(node, ast.Dict):
            found += [
                _named(value)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and key.value == "state"
            ]
    return [name for name in found if name is not None]


@pytest.mark.scenario("SM-1", "OP-5")
def test_no_room_names_the_state_an_effect_moves_to():
    named = {
        (str(path.relative_to(SOURCE)), name)
        for room in ROOMS
        for path in (SOURCE / room).rglob("*.py")
        for name in _written(ast.parse(path.read_text()))
    }
    assert named == {(CREATES[0], CREATES[1].name)}


def test_the_search_finds_what_it_looks_for():
    tree = ast.parse(
        "moved(c, e, State.CONFIRMED, {}); q.values(state=State.PARKED.value); "
        "{'state': State.RETRY}; q.insert(e, state=literal(State.SENDING.value, TEXT))"
    )
    assert sorted(_written(tree)) == ["CONFIRMED", "PARKED", "RETRY", "SENDING"]
