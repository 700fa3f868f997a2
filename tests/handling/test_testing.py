"""What ``landed.testing`` gives to others does what it says."""

from __future__ import annotations

import socket
import subprocess
import sys

import httpx
import pytest
from sqlalchemy import delete

from landed.effects.contract import check_contract
from landed.errors import ConfigurationError
from landed.ledger import Ledger
from landed.records import effects
from landed.records.tables import schedule
from landed.testing import Clock, Crash, FaultyRecipient, crash_at, invariants, no_sockets
from tests.handling import lives
from tests.handling.conftest import DIGEST_KEY, LEDGER

pytestmark = pytest.mark.real_loop


@pytest.fixture
def far():
    with FaultyRecipient() as running:
        yield running


@pytest.fixture(scope="module")
def client():
    with httpx.Client(verify=False, timeout=10) as made:
        yield made


def act(client, far, key="k", body=b"1", **headers):
    sent = {"Idempotency-Key": key} | {n.replace("_", "-"): v for n, v in headers.items()}
    return client.post(f"{far.url}/effects", content=body, headers=sent)


def test_it_acts_once_per_key_and_counts_it(far, client):
    first, again = act(client, far), act(client, far)
    assert (first.status_code, first.content) == (200, b'{"acted":"k"}')
    assert again.content == first.content
    assert act(client, far, body=b"2").status_code == 422
    assert act(client, far, "k2", Landed_Fence="d/i/2").status_code == 200
    assert act(client, far, "k1", Landed_Fence="d/i/1").status_code == 412
    assert (far.acted, far.newest("i")) == ({"k": 1, "k2": 1}, (2, b"1"))
    assert [seen.key for seen in far.requests] == ["k", "k", "k", "k2", "k1"]
    assert (
        check_contract(far.contract(), recipient="f", is_ordered=True, is_commutative=False) == ()
    )


@pytest.mark.parametrize(
    ("fault", "n", "acted"),
    [("drop", 0, 0), ("lose", 0, 1), ("cut", 12, 1), ("cut", 60, 1)],
)
def test_a_connection_breaks_before_or_after_it_acted(far, client, fault, n, acted):
    far.next(fault, n=n)
    with pytest.raises(httpx.TransportError):
        act(client, far)
    assert far.effects == acted
    assert act(client, far).status_code == 200
    assert far.effects == 1


@pytest.mark.parametrize(("fault", "acted"), [("status", 0), ("act-and-status", 1)])
def test_an_answer_may_say_anything(far, client, fault, acted):
    far.next(fault, n=503)
    assert act(client, far).status_code == 503
    assert far.effects == acted


@pytest.mark.parametrize(("fault", "acted"), [("hang", 0), ("act-and-hang", 1)])
def test_a_request_hangs_until_it_is_let_go(far, client, fault, acted):
    far.next(fault)
    with pytest.raises(httpx.ReadTimeout):
        client.post(
            f"{far.url}/effects", content=b"1", headers={"Idempotency-Key": "k"}, timeout=0.1
        )
    assert far.effects == acted
    far.release()
    assert act(client, far).status_code == 200


def test_a_repeat_by_the_network_acts_twice_only_without_keys(far, client):
    far.next("twice")
    act(client, far)
    assert far.effects == 1
    with FaultyRecipient(has_keys=False) as careless:
        careless.next("twice")
        act(client, careless)
        assert careless.acted == {"k": 2}
        assert client.get(f"{careless.url}/effects/k").headers["landed-key-state"] == "acted"


def test_forgotten_keys_act_again(far, client):
    act(client, far)
    far.next("forget")
    act(client, far)
    assert far.acted == {"k": 2}


def test_it_can_be_asked_and_sealed_as_far_as_it_promises(far, client):
    def seal(at, key):
        return client.post(f"{at.url}/effects/{key}/seal").status_code

    assert client.get(f"{far.url}/effects/k").status_code == 404
    act(client, far)
    assert client.get(f"{far.url}/effects/k").content == b'{"acted":"k"}'
    assert (seal(far, "k"), seal(far, "never")) == (409, 200)
    assert act(client, far, "never").status_code == 410
    with FaultyRecipient(has_lookup=False, has_seal=False, has_fence=False) as plain:
        assert client.get(f"{plain.url}/effects/k").status_code == 501
        assert seal(plain, "k") == 501
        for version in (2, 1):
            fence = {"Landed_Fence": f"d/i/{version}"}
            assert act(client, plain, f"k{version}", **fence).status_code == 200


def test_a_crash_is_raised_where_it_was_asked_for():
    note = crash_at("KP-16", passes=1, kill=False)
    for _ in range(2):
        note("kp", {"point": "KP-17"})
        note("other", {"point": "KP-16"})
    note("kp", {"point": "KP-16"})
    with pytest.raises(Crash, match="KP-16"):
        note("kp", {"point": "KP-16"})
    assert not issubclass(Crash, Exception)
    with pytest.raises(ConfigurationError, match="KP-n"):
        crash_at("16")


def test_a_kill_is_a_kill():
    code = "from landed.testing import crash_at; crash_at('KP-1')('kp', {'point': 'KP-1'})"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == -9


def test_broken_invariants_are_told_in_words(ledger_db):
    ledger = Ledger(LEDGER, ledger_db.url, digest_key=DIGEST_KEY)
    ledger_db.transact(lambda conn: effects.request(conn, ledger_db.books, lives.intent("k")))
    invariants(ledger)
    ledger_db.transact(lambda conn: conn.execute(delete(schedule)))
    with pytest.raises(AssertionError, match=r"I-9"):
        invariants(ledger)
    ledger.close()


def test_a_connection_where_none_may_be_is_found(far, client):
    with socket.socket() as opened:
        with no_sockets(), pytest.raises(AssertionError, match="where none may be"):
            opened.connect(("127.0.0.1", far.port))
        opened.connect(("127.0.0.1", far.port))


def test_a_clock_moves_only_when_it_is_turned():
    clock = Clock(1_000)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1_000, 0)
    clock.turn(1.5)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (2_500, 1_500)
    with pytest.raises(ValueError, match="does not go back"):
        clock.turn(-1)
