"""The executor over a real HTTP recipient: what an answer, a lost one, or none at all makes of an effect."""

from __future__ import annotations

import pytest

from landed.effects.state import State
from tests.handling import lives, works
from tests.handling.far_side import far_side

pytestmark = pytest.mark.real_loop


async def test_a_due_effect_is_sent_once_and_confirmed(ledger_db):
    with far_side() as far:
        async with works.acme(ledger_db, far) as acme:
            effect_id = acme.ask("k1")
            assert await acme.executor.run_once() == 1
            effect = acme.see(effect_id)
            assert effect.state is State.CONFIRMED
            assert effect.certainty == "proven"
            assert far.acted == {str(effect.idempotency_key): 1}
            assert effect.result == far.answers[str(effect.idempotency_key)]
            assert await acme.executor.run_once() == 0


@pytest.mark.scenario("AS-53")
async def test_a_lost_answer_is_found_by_a_lookup(ledger_db):
    with far_side(faults=__import__("collections").deque(["lose"])) as far:
        async with works.acme(ledger_db, far, contract=lives.LOOKUP_ONLY) as acme:
            effect_id = acme.ask("k1")
            await acme.executor.run_once()
            assert acme.see(effect_id).state is State.UNKNOWN
            assert acme.see(effect_id).doubt_from == 1
            await acme.reconciler.run_once()
            effect = acme.see(effect_id)
            assert (effect.state, effect.certainty) == (State.CONFIRMED, "proven")
            assert [row.method for row in acme.questions(effect_id)] == ["lookup"]
            assert far.effects == 1
