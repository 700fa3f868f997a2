"""A late answer that meets another worker's move of the same effect, on two connections."""

from __future__ import annotations

import pytest

from landed.effects.answer import Ambiguous, Success
from landed.effects.state import State
from landed.records import attempts, late
from landed.records.effects import view
from tests.handling import lives, works

pytestmark = pytest.mark.real_loop


@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)
async def test_a_late_success_that_meets_the_begin_of_another_attempt_is_not_lost(
    ledger_db, monkeypatch
):
    async with works.acme(ledger_db) as acme:
        books, contract = acme.desk.books, acme.contract
        effect_id = acme.ask("k")

        def begin(worker):
            return ledger_db.transact(
                lambda c: attempts.begin(c, books, view(c, effect_id), contract, worker=worker)
            )

        def end(effect, answer, **which):
            return ledger_db.transact(
                lambda c: attempts.end(
                    c, books, effect, contract, answer, delays=lives.DELAYS, **which
                )
            )

        first = begin("w1")
        acme.outdate(effect_id)
        assert ledger_db.transact(
            lambda c: attempts.reap(c, books, view(c, effect_id), contract, delays=lives.DELAYS)
        )
        assert acme.see(effect_id).state is State.UNKNOWN
        begun = []

        def view_and_then(conn, wanted):
            found = view(conn, wanted)
            if not begun:  # another worker, on another connection, right after the look
                begun.append(begin("w2"))
            return found

        monkeypatch.setattr(late, "view", view_and_then)
        end(first.effect, Success(b"ok"), attempt_no=1)
        assert acme.see(effect_id).has_late_success
        end(begun[0].effect, Ambiguous("no answer"))
        assert acme.see(effect_id).state is State.CONFIRMED
