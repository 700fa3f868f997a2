"""Rules broken on purpose: a simulator that finds nothing proves nothing unless it finds these."""

from __future__ import annotations

from collections import Counter

import pytest

from landed.sim.ablations.breaking import Ablation, Swap, Wing
from landed.sim.ablations.hunting import hunt, hunt_again
from landed.sim.ablations.recorded import SEEDS
from landed.sim.ablations.table import ABLATIONS

each = pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.name)
pytestmark = pytest.mark.real_loop  # worlds bring a loop of their own


@each
def test_a_broken_rule_is_caught(ablation: Ablation):
    caught = hunt_again(ablation)
    assert caught.seed is not None, f"{ablation.rule}: broken in {caught.worlds} worlds, unnoticed"


@each
def test_nothing_is_caught_at_its_seed_while_the_rule_holds(ablation: Ablation):
    assert ablation.ground.look(SEEDS[ablation.name]) == ()


@pytest.mark.long
@each
def test_a_broken_rule_is_caught_from_the_first_seed_on(ablation: Ablation):
    assert hunt(ablation).seed is not None


def test_every_rule_has_a_name_and_a_seed_of_its_own_and_both_missions_are_there():
    assert set(SEEDS) == {ablation.name for ablation in ABLATIONS}
    assert len(SEEDS) == len(ABLATIONS)
    wings = Counter(ablation.wing for ablation in ABLATIONS)
    assert wings[Wing.LOG] >= 24


def test_what_was_swapped_is_put_back():
    class Owner:
        word = "sound"

    table = {"row": "sound"}

    def breaks(swap: Swap) -> None:
        swap(Owner, "word", "broken")
        swap.entry(table, "row", "broken")

    one = ABLATIONS[0]
    broken = Ablation(
        **{name: getattr(one, name) for name in one.__slots__ if name != "breaks"}, breaks=breaks
    )
    with broken.broken():
        assert (Owner.word, table["row"]) == ("broken", "broken")
    assert (Owner.word, table["row"]) == ("sound", "sound")
