"""The pytest plugin: a user's own program, crashed at every commit and at every await of its own code."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A run within this process forgets what it imported; imported here, everything exists only once.
import landed.intake
import landed.testing.boundaries
import landed.workers.worker  # noqa: F401

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.real_loop

PROGRAM = """
import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest
from sqlalchemy import create_engine, text

from landed.ledger import Answers, Contract, Key, Ledger, SameKey, SigningKey, StandardWebhooks
from landed.testing import Boundary

KEYS = (SigningKey(id="k", secret=b"a secret of the shop"),)
PROMISES = Contract(
    key=Key(same_key=SameKey.REPLAYS, retention_s=86_400.0),
    answers=Answers(success=("200",), is_success_durable=True),
    series_max_s=3600.0,
)

class Bank:
    def __init__(self):
        self.charges = Counter()
        self.known = set()

    def charge(self, invoice, key=None):
        if key is None or key not in self.known:
            self.known.add(key)
            self.charges[invoice] += 1

@dataclass
class Invoice:
    id: str

class Program:
    def __init__(self, folder, handle, send):
        self.folder, self.handle, self.send = folder, handle, send
        self.bank = Bank()

    def open(self, note, number):
        ledger = Ledger(f"p{number}", self.folder / f"{number}.db", digest_key=b"k" * 16, note=note)
        acme = ledger.recipient("bank", PROMISES)
        collect = acme.effect("collect", Invoice)
        collect.send(lambda call: self.send(self.bank, number, call))
        collect.settled(self.paid)
        shop = ledger.producer(
            "shop", authentication=StandardWebhooks(keys=KEYS), types={"opened": Invoice}
        )
        ledger.on(shop, "opened")(lambda tx, event: self.handle(self, tx, collect, event.data))
        ledger.prepare()
        with ledger.engine.begin() as conn:
            conn.execute(text("CREATE TABLE IF NOT EXISTS bills (id TEXT, paid INT DEFAULT 0)"))
        self.collect, self.number = collect, number
        return ledger

    def paid(self, tx, done):
        tx.conn.execute(text("UPDATE bills SET paid = paid + 1"))

    async def begin(self, ledger):
        with ledger.begin() as tx:
            self.handle(self, tx, self.collect, Invoice("481"))

    async def check(self, ledger):
        with ledger.engine.connect() as conn:
            bills = conn.execute(text("SELECT id, paid FROM bills")).all()
        assert [tuple(b) for b in bills] == [("481", 1)], f"the bills are {bills}"
        self.charged_once()

    def charged_once(self):
        made = self.bank.charges[str(self.number)]
        assert made == 1, f"the bank made {made} charges"

async def keyed(bank, number, call):
    await asyncio.sleep(0)
    bank.charge(str(number), call.idempotency_key)
    await asyncio.sleep(0)
    return call.answer("200")

async def unkeyed(bank, number, call):
    bank.charge(str(number))
    await asyncio.sleep(0)
    return call.answer("200")

def careful(program, tx, collect, invoice):
    known = tx.conn.execute(text("SELECT id FROM bills")).first()
    if known is None:
        tx.conn.execute(text("INSERT INTO bills (id) VALUES (:id)"), {"id": invoice.id})
    tx.request(collect, f"invoice/{invoice.id}", invoice)
"""
WEBHOOK = """
import base64, hashlib, hmac, json

async def delivered(self, ledger):
    at = str(ledger.books.now_us() // 1_000_000)
    headers = {
        "content-type": "application/cloudevents+json", "webhook-id": "e1",
        "webhook-timestamp": at,
    }
    body = json.dumps(
        {"specversion": "1.0", "id": "e1", "source": "/s", "type": "opened", "data": {"id": "481"}}
    ).encode()
    digest = hmac.digest(KEYS[0].secret, f"e1.{at}.".encode() + body, hashlib.sha256)
    headers["webhook-signature"] = "v1," + base64.b64encode(digest).decode()
    shop = ledger.registry.producers["shop"]
    answer = await ledger.receive(shop, headers=headers, body=body)
    assert type(answer).__name__ == "Acknowledged", answer

Program.begin = delivered
"""


def run(pytester: pytest.Pytester, test: str, *, webhook: bool = False) -> pytest.RunResult:
    pytester.makepyfile(PROGRAM + (WEBHOOK if webhook else "") + test)
    return pytester.runpytest_inprocess("-q", "-p", "no:xdist", "-p", "no:cacheprovider")


def told(result: pytest.RunResult) -> str:
    """What a failed run says of the failure, without the lines around it."""
    lines = [line.strip() for line in result.outlines]
    start = next(n for n, line in enumerate(lines) if "this program" in line)
    return "\n".join(lines[start : start + 5])


def test_a_careful_program_survives_every_commit_and_await(pytester: pytest.Pytester):
    result = run(
        pytester,
        """
def test_it(landed_crashes, tmp_path):
    program = Program(tmp_path, careful, keyed)

    def begin(ledger):  # plain functions will do
        with ledger.begin() as tx:
            program.handle(program, tx, program.collect, Invoice("481"))

    def check(ledger):
        program.charged_once()

    survived = landed_crashes(program.open, begin, check)
    what = [boundary.what for boundary in survived]
    assert sum(name == "awaiting in <lambda>" for name in what) == 2, what
    assert any(name.startswith("before the commit of bills") for name in what), what
    assert any(name.startswith("after the commit of attempts, effects") for name in what), what
    assert [b.number for b in survived] == list(range(1, len(survived) + 1))
""",
    )
    result.assert_outcomes(passed=1)


@pytest.mark.long
def test_a_webhook_that_was_not_answered_is_delivered_again(pytester: pytest.Pytester):
    result = run(
        pytester,
        """
def test_it(landed_crashes, tmp_path):
    program = Program(tmp_path, careful, keyed)
    survived = landed_crashes(program.open, program.begin, program.check)
    what = " ".join(boundary.what for boundary in survived)
    assert "before the commit of outbox, payloads, receipts" in what, what
    assert "before the commit of bills" in what, what
""",
        webhook=True,
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("test", "expected", "webhook"),
    [
        (
            # It acts by itself, before its transaction commits.
            """
def handle(program, tx, collect, invoice):
    careful(program, tx, collect, invoice)
    program.bank.charge(str(program.number))

def test_it(landed_crashes, tmp_path):
    program = Program(tmp_path, handle, keyed)
    landed_crashes(program.open, program.begin, program.check)
""",
            ["without any crash", "invariant: your check", "the bank made 2 charges"],
            True,
        ),
        (
            # It commits on a connection of its own.
            """
def handle(program, tx, collect, invoice):
    own = create_engine(f"sqlite:///{program.folder}/own{program.number}.db")
    with own.begin() as conn:
        conn.execute(text("CREATE TABLE IF NOT EXISTS sent (id TEXT)"))
        conn.execute(text("INSERT INTO sent VALUES ('481')"))
    own.dispose()
    careful(program, tx, collect, invoice)

async def check(self, ledger):
    await checked(self, ledger)
    own = create_engine(f"sqlite:///{self.folder}/own{self.number}.db")
    with own.connect() as conn:
        sent = conn.execute(text("SELECT count(*) FROM sent")).scalar_one()
    own.dispose()
    assert sent == 1, f"it is written {sent} times"

checked, Program.check = Program.check, check

def test_it(landed_crashes, tmp_path):
    program = Program(tmp_path, handle, keyed)
    landed_crashes(program.open, program.begin, program.check)
""",
            ["after the commit of sent", "in handle", "it is written 2 times"],
            True,
        ),
        (
            # Its sender leaves the key out.
            """
def test_it(landed_crashes, tmp_path):
    program = Program(tmp_path, careful, unkeyed)
    landed_crashes(program.open, program.begin, program.check)
""",
            ["awaiting in", "invariant: your check", "the bank made 2 charges"],
            False,
        ),
        (
            # Its handler ends the transaction that it was given.
            """
def handle(program, tx, collect, invoice):
    tx.conn.commit()
    careful(program, tx, collect, invoice)

def test_it(landed_crashes, tmp_path):
    program = Program(tmp_path, handle, keyed)
    landed_crashes(program.open, program.begin, program.check)
""",
            ["without any crash", "the bills are []"],
            True,
        ),
        (
            # It calls the network within its transaction.
            """
import socket

def handle(program, tx, collect, invoice):
    socket.create_connection(("127.0.0.1", 9))

def test_it(landed_crashes, tmp_path):
    program = Program(tmp_path, handle, keyed)
    landed_crashes(program.open, program.begin, program.check)
""",
            [
                "invariant: a handler sends nothing (HN-1)",
                "opened a connection to ('127.0.0.1', 9)",
            ],
            True,
        ),
        (
            # It writes to the records by itself.
            """
def paid(self, tx, done):
    tx.conn.execute(text("UPDATE landed_effects SET state = 'retry'"))

Program.paid = paid

def test_it(landed_crashes, tmp_path):
    program = Program(tmp_path, careful, keyed)
    landed_crashes(program.open, program.begin, program.check)
""",
            ["without any crash", "invariant: I-9"],
            True,
        ),
    ],
    ids=["acts", "commits", "keyless", "ends", "calls", "writes"],
)
def test_the_first_crash_that_a_program_does_not_survive_is_told_in_five_lines(
    pytester: pytest.Pytester, test: str, expected: list[str], webhook: bool
):
    result = run(pytester, test, webhook=webhook)
    result.assert_outcomes(failed=1)
    seen = told(result)
    assert all(words in seen for words in expected), "\n".join(result.outlines)
    assert "Traceback" not in "\n".join(result.outlines)


def test_the_plugin_is_installed_and_costs_an_unused_run_nothing(pytester: pytest.Pytester):
    pytester.makepyfile(
        """
        import sys

        def test_it(pytestconfig):
            assert pytestconfig.pluginmanager.has_plugin("landed")
            heavy = {"sqlalchemy", "httpx", "landed.ledger", "landed.records"}
            assert not heavy & set(sys.modules)
        """
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=pytester.path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_async_test_is_told_what_to_await(pytester: pytest.Pytester):
    result = run(
        pytester,
        """
def test_it(landed_crashes, tmp_path):
    async def within():
        landed_crashes(None, None, None)
    asyncio.run(within())
""",
    )
    result.assert_outcomes(failed=1)
    assert "await landed.testing.crash_at_every_boundary" in "\n".join(result.outlines)
