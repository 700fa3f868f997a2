"""The life of one effect in the records, answer by answer, on both databases."""

from __future__ import annotations

import pytest

from landed.effects.answer import (
    Abandoned,
    Accepted,
    Ambiguous,
    Fenced,
    InFlight,
    KeyConflict,
    NotExecuted,
    NotSent,
    Present,
    Refused,
    Success,
)
from landed.effects.state import Method, State
from landed.records import attempts, effects, outbox, receipts, reconcile, schedule
from tests.handling import lives


@pytest.mark.parametrize(
    ("answer", "state", "reason", "doubt"),
    [
        (Success(b"ok", "r", "200"), State.CONFIRMED, None, None),
        (Accepted("r", "202"), State.ACCEPTED, None, None),
        (Refused(b"no", "402"), State.REFUSED, None, None),
        (Fenced("412"), State.FENCED, None, None),
        (NotExecuted(3.0, "429"), State.RETRY, None, None),
        (NotSent("refused"), State.RETRY, None, None),
        (InFlight(None, "409"), State.UNKNOWN, "in_flight", 1),
        (KeyConflict("422"), State.UNKNOWN, "key_conflict", 1),
        (Ambiguous("reset"), State.UNKNOWN, "no_answer", 1),
        (Ambiguous("?", "503"), State.UNKNOWN, "ambiguous_answer", 1),
        (Abandoned(), State.UNKNOWN, "abandoned", 1),
    ],
)
@pytest.mark.scenario("AS-57", "AS-58", "AS-59", "AS-60", "AS-61")
def test_the_answer_to_a_first_attempt_decides_the_state(ledger_db, answer, state, reason, doubt):
    books = ledger_db.books

    def work(conn):
        asked = effects.request(conn, books, lives.intent("invoice/1"))
        return lives.attempted(conn, books, asked.effect_id, answer)

    effect = ledger_db.transact(work)
    assert (effect.state, effect.reason, effect.doubt_from) == (state, reason, doubt)
    assert effect.attempt_no == 1


def test_smoke_of_claims_and_receipts(ledger_db):
    books = ledger_db.books
    taken = ledger_db.transact(
        lambda conn: receipts.keep(conn, books, [lives.arrival("e1"), lives.arrival("e2")])
    )
    assert [type(t).__name__ for t in taken] == ["Kept", "Kept"]
    again = ledger_db.transact(
        lambda conn: receipts.keep(conn, books, [lives.arrival("e1"), lives.arrival("e2", b"{}")])
    )
    assert [type(t).__name__ for t in again] == ["Seen", "Conflicting"]
    claims = ledger_db.transact(
        lambda conn: schedule.claim(conn, books, lane="handle", owner="w", limit=10)
    )
    assert len(claims) == 2
    rows = ledger_db.transact(lambda conn: outbox.rows(conn, [c.subject_id for c in claims]))
    assert {row.kind for row in rows} == {"handle"}
    assert ledger_db.transact(lambda conn: schedule.renew(conn, books, claims[:1]))
    assert ledger_db.transact(lambda conn: schedule.rearm(conn, books, claims[0], delay_us=0))
    assert ledger_db.transact(lambda conn: schedule.finish(conn, claims)) == 1
    effect = ledger_db.transact(lambda conn: lives.doubted(conn, books, "k"))
    asked = ledger_db.transact(
        lambda conn: reconcile.record_lookup(
            conn,
            books,
            effect,
            lives.REPLAYS,
            Present(b"ok"),
            evidence=reconcile.Evidence(method=Method.LOOKUP),
            delays=lives.DELAYS,
        )
    )
    assert asked.state is State.CONFIRMED
    assert ledger_db.transact(lambda conn: attempts.overdue(conn, books, limit=5)) == []
