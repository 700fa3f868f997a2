"""The operators' commands: what they print, what they refuse, and how they leave."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select, text, update

from landed.cli import app as door_of_cli
from landed.ledger import Ledger
from landed.records import contracts, effects, lanes
from landed.records.tables import actions
from landed.records.tables import effects as effect_rows
from landed.records.tables import quarantine as quarantined
from tests.handling import lives
from tests.handling.conftest import LEDGER, LedgerDb
from tests.handling.doors import SECRET, TYPE, sign
from tests.lines import next_line

pytestmark = pytest.mark.real_loop

MODULE = """
from dataclasses import dataclass
from landed.ledger import (
    Answers, Contract, IdentityRule, Key, Ledger, Lookup, SigningKey, StandardWebhooks,
)
from tests.handling.conftest import DIGEST_KEY
from tests.handling.lives import REPLAYS

ledger = Ledger("{name}", "{url}", digest_key=DIGEST_KEY)
shop = ledger.producer(
    "shop",
    authentication=StandardWebhooks(keys=(SigningKey(id="k1", secret={secret!r}),)),
    types={{"invoice.finalized": None, {more}}},
    identity=IdentityRule.WEBHOOK_ID,
    retry_s=3 * 86400.0,
)
acme = ledger.recipient("acme", REPLAYS)
collect = acme.effect("collect", dict)

@collect.send
async def send(call): raise AssertionError

@collect.lookup
async def lookup(ask): raise AssertionError

for event_type in shop.types:
    @ledger.on(shop, event_type, name="on " + event_type)
    def handle(tx, event): pass
"""


class Cli:
    """Runs commands as a user does."""

    def __init__(self, capsys, db: LedgerDb, module: str) -> None:
        self._capsys = capsys
        self.url = db.url
        self.target = f"{module}:ledger"

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = door_of_cli.run([str(argument) for argument in arguments])
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    def json(self, *arguments: str) -> Any:
        code, out, err = self(*arguments, "--json")
        assert code in (0, 1), err
        return json.loads(out)


def write_module(tmp_path: Path, db: LedgerDb, name: str, *, more: str = "") -> None:
    made = MODULE.format(name=LEDGER, url=db.url, secret=SECRET, more=more)
    (tmp_path / f"{name}.py").write_text(made)


@pytest.fixture
def cli(capsys, ledger_db: LedgerDb, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"shop_{random.randrange(10**12)}"
    write_module(tmp_path, ledger_db, name)
    yield Cli(capsys, ledger_db, name)
    for made in [module for module in sys.modules if module.startswith("shop_")]:
        found = getattr(sys.modules.pop(made), "ledger", None)
        if isinstance(found, Ledger):
            found.close()


def stored(id: str, event_type: str = TYPE, cents: int = 1200) -> str:
    body = json.dumps({"type": event_type, "id": id, "cents": cents})
    at_s = time.time_ns() // 10**9
    headers = {
        "webhook-id": id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": sign(body.encode(), id=id, at_s=at_s),
    }
    return json.dumps({"headers": headers, "body": body})


def backfilled(cli: Cli, path: Path, *lines: str, **options: str) -> dict[str, Any]:
    """A run from its draft to its end, as people do it."""
    path.write_text("\n".join(lines))
    more = [word for name, value in options.items() for word in (f"--{name}", value)]
    made = cli.json(
        *["run", "create", "shop", "--ledger", cli.target, "--source", str(path)],
        *["--why", "an outage", "--by", "bob", *more],
    )
    run_id, digest = made["run"], made["plan_digest"]
    code, out, _ = cli(
        *["run", "approve", run_id, "--plan", digest, "--database", cli.url, "--by", "ann"]
    )
    assert (code, out) == (0, f"run {run_id} is approved\n")
    return cli.json("run", "start", run_id, "--ledger", cli.target)


@pytest.mark.scenario("AS-102")
def test_a_run_is_planned_approved_done_and_reported_with_its_gap(cli: Cli, tmp_path: Path):
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text("\n".join(json.dumps(["shop", f"i{n}"]) for n in range(4)))
    report = backfilled(
        cli, tmp_path / "a.jsonl", *(stored(f"i{n}") for n in range(3)), manifest=str(manifest)
    )
    assert (report["state"], report["accepted"]) == ("completed", 3)
    assert [gap["verdict"] for gap in report["gaps"]] == ["4 of 4 missing", "1 of 4 missing"]
    assert report["gaps"][1]["recovered"] == 3
    assert report["gaps"][1]["missing"] == [["shop", "i3"]]
    unmeasured = backfilled(cli, tmp_path / "b.jsonl", stored("i9"))
    assert {gap["verdict"] for gap in unmeasured["gaps"]} == {"gap not measured"}
    code, out, _ = cli("run", "report", "--database", cli.url)
    assert (code, len(out.splitlines())) == (0, 2)


@pytest.mark.scenario("AS-97")
def test_another_file_than_the_one_that_was_approved_is_refused(cli: Cli, tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text(stored("i1"))
    words = ["run", "create", "shop", "--ledger", cli.target, "--source", str(path)]
    made = cli.json(*words, "--why", "x", "--by", "bob", "--sensitive")
    run_id, plan = made["run"], made["plan_digest"]
    approve = ["run", "approve", run_id, "--database", cli.url]
    assert cli(*approve, "--plan", plan, "--by", "bob")[0] == 1
    assert cli(*approve, "--plan", "00" * 32, "--by", "ann")[0] == 1
    assert cli(*approve, "--plan", "zz", "--by", "ann")[0] == 2
    assert cli(*approve, "--plan", plan, "--by", "ann")[0] == 0
    path.write_text(stored("i2"))
    code, _, err = cli("run", "start", run_id, "--ledger", cli.target)
    assert (code, "not the file that was planned" in err) == (1, True)


def test_an_event_that_was_set_aside_is_shown_released_and_explained(
    cli: Cli, ledger_db: LedgerDb, tmp_path: Path
):
    backfilled(cli, tmp_path / "a.jsonl", stored("i1", "new.type"), stored("i2", "odd.type"))
    waiting = cli.json("quarantine", "list", "--database", cli.url)
    assert [row["reason"] for row in waiting] == ["unsupported_type"] * 2
    first, second = (row["receipt_id"] for row in waiting)
    code, out, _ = cli("quarantine", "show", first, "--database", cli.url)
    assert (code, "unsupported_type" in out, "payload" in out) == (0, True, False)
    reveal = ["quarantine", "show", first, "--database", cli.url, "--reveal"]
    assert cli(*reveal)[0] == 1, "why?"
    assert '"id": "i1"' in cli.json(*reveal, "--why", "ticket 7")["payload"]
    early = ["quarantine", "release", first, "--why", "x", "--ledger"]
    code, _, err = cli(*early, cli.target)
    assert (code, "still not acceptable" in err) == (1, True)
    write_module(tmp_path, ledger_db, "shop_newer", more='"new.type": None')
    act = "00000000-0000-4000-8000-000000000001"
    newer = [*early, "shop_newer:ledger", "--action-id", act]
    assert cli.json(*newer)["is_repeat"] is False
    assert cli.json(*newer)["is_repeat"] is True
    rejected = cli("quarantine", "reject", second, "--database", cli.url, "--why", "a test")
    assert rejected[0] == 0
    code, _, err = cli("quarantine", "reject", first, "--database", cli.url, "--why", "late")
    assert (code, "a decision stands" in err) == (1, True)
    story = cli.json("explain", first, "--database", cli.url)
    words = [line["what"] for line in story["lines"]]
    assert words[:2] == ["received", "quarantined"]
    assert {"released", "handle queued", "quarantine.release"} <= set(words)
    assert cli("quarantine", "list", "--database", cli.url)[1] == "nothing waits\n"


@pytest.mark.scenario("AS-109")
def test_doubt_is_listed_asked_about_and_attested(cli: Cli, ledger_db: LedgerDb):
    def doubt(conn):
        contracts.register(conn, ledger_db.books, lives.RECIPIENT, lives.REPLAYS)
        made = effects.request(conn, ledger_db.books, lives.intent("k1")).effect_id
        conn.execute(
            update(effect_rows)
            .where(effect_rows.c.effect_id == made)
            .values(state="unknown", reason="timeout", attempt_no=1, doubt_from=1)
        )
        return str(made)

    effect_id = ledger_db.transact(doubt)
    listed = cli.json("unknown", "list", "--database", cli.url)
    assert [(row["effect"], row["state"]) for row in listed] == [(effect_id, "unknown")]
    assert cli("unknown", "list", "--database", cli.url, "--recipient", "b")[1] == (
        "nothing is in doubt\n"
    )
    assert cli("unknown", "ask", effect_id, "--database", cli.url)[0] == 0
    told = cli.json("explain", effect_id, "--database", cli.url)
    assert "effect.attest acted" in told["allowed"]
    assert any("look-up" in way for way in told["would_settle"])
    attest = ["unknown", "attest", effect_id, "--ledger", cli.target, "--acted", "--why", "x"]
    attest += ["--evidence", "statement 12", "--by", "bob"]
    assert cli(*attest)[0] == 1, "a second person"
    assert cli(*attest, "--approved-by", "bob")[0] == 1, "another one"
    assert cli.json(*attest, "--approved-by", "ann")["state"] == "confirmed"
    assert cli("unknown", "ask", effect_id, "--database", cli.url)[0] == 1


def test_doctor_finds_what_is_broken_and_changes_nothing(
    cli: Cli, ledger_db: LedgerDb, tmp_path: Path
):
    backfilled(cli, tmp_path / "a.jsonl", stored("i1"))
    code, out, _ = cli("doctor", "--database", cli.url)
    assert (code, out.splitlines()[-1]) == (0, "every invariant holds")
    with ledger_db.engine.begin() as conn:
        conn.execute(text("DELETE FROM landed_schedule"))
    found = cli.json("doctor", "--ledger", cli.target)
    assert {item["rule"] for item in found["broken"]} == {"I-9"}
    assert cli("doctor", "--database", cli.url)[0] == 1
    assert cli.json("schedule", "rebuild", "--database", cli.url)["put"] == 1
    assert cli("doctor", "--database", cli.url)[0] == 0
    with ledger_db.engine.begin() as conn:
        conn.execute(text("UPDATE landed_outbox SET destination = 'handler:gone'"))
    assert cli.json("doctor", "--ledger", cli.target)["stranded"] == ["gone"]


def test_doctor_knows_a_handler_by_the_names_it_had(
    cli: Cli, ledger_db: LedgerDb, tmp_path: Path, monkeypatch
):
    backfilled(cli, tmp_path / "a.jsonl", stored("i1"))
    with ledger_db.engine.begin() as conn:
        conn.execute(text("UPDATE landed_outbox SET destination = 'handler:its old name'"))
    assert cli.json("doctor", "--ledger", cli.target)["stranded"] == ["its old name"]
    module = sys.modules[cli.target.partition(":")[0]]
    handler = next(iter(module.ledger.registry.handlers.values()))
    renamed = replace(handler, aliases=("its old name",))
    monkeypatch.setitem(module.ledger.registry.handlers, handler.name, renamed)
    assert cli.json("doctor", "--ledger", cli.target)["stranded"] == []


@pytest.mark.scenario("AS-122", "SQ-13")
@pytest.mark.parametrize("ledger_db", ["postgres"], indirect=True)
def test_doctor_names_a_session_whose_transaction_stays_open(cli: Cli, ledger_db: LedgerDb):
    cli("schedule", "rebuild", "--ledger", cli.target)  # the ledger has started
    with ledger_db.engine.connect() as held:
        pid = held.execute(text("SELECT pg_backend_pid()")).scalar_one()
        (told,) = cli.json("doctor", "--database", cli.url, "--open-seconds", "0")["settings"]
        assert told.startswith(f"session {pid} of ")
        assert "is idle in transaction" in told
        assert cli.json("doctor", "--database", cli.url)["settings"] == [], "a minute is not over"
    told = cli.json("doctor", "--database", cli.url, "--open-seconds", "0")["settings"]
    assert told == []


@pytest.mark.scenario("BF-6")
def test_a_paused_run_is_resumed_with_a_reason_and_goes_on(cli: Cli, tmp_path: Path, ledger_db):
    path = tmp_path / "held.jsonl"
    backfilled(cli, path, stored("i1"))
    lines = [stored("i1", cents=7), stored("i2")]
    paused = backfilled(cli, path, *lines, label="again")
    assert (paused["state"], "another payload" in paused["paused_because"]) == ("paused", True)
    resume = ["run", "resume", paused["run_id"], "--ledger", cli.target, "--by", "ann"]
    assert cli(*resume)[0] == 2, "a reason is part of it"
    assert cli.json(*resume, "--why", "the conflict is looked into")["state"] == "completed"
    code, _, err = cli(*resume, "--why", "again")
    assert (code, "only a paused run is resumed" in err) == (1, True)
    with ledger_db.engine.connect() as conn:
        (kept,) = conn.execute(select(actions).where(actions.c.verb == "run.resume")).all()
    assert (kept.actor, kept.reason) == ("ann", "the conflict is looked into")


@pytest.mark.scenario("AS-105", "OP-3")
def test_a_set_that_changed_since_it_was_looked_at_is_not_released(
    cli: Cli, ledger_db: LedgerDb, tmp_path: Path
):
    def aside(*ids: str) -> None:
        backfilled(cli, tmp_path / "a.jsonl", *[stored(id, "later.v1") for id in ids])

    def decisions() -> list[str]:
        with ledger_db.engine.connect() as conn:
            return sorted(conn.execute(select(quarantined.c.decision)).scalars())

    aside("i1", "i2")
    write_module(tmp_path, ledger_db, "shop_later", more='"later.v1": None')
    release = ["quarantine", "release-all", "shop", "--ledger", "shop_later:ledger"]
    seen = cli.json(*release)
    assert (seen["count"], len(seen["sample"])) == (2, 2)
    aside("i3")
    chosen = ["--preview", seen["digest"], "--why", "it is declared now", "--by", "ann"]
    code, _, err = cli(*release, *chosen)
    assert (code, "it has 3 events now; look at it again" in err) == (1, True)
    assert decisions() == ["open"] * 3, "nothing runs"

    again = ["--preview", cli.json(*release)["digest"], "--by", "ann"]
    assert cli(*release, *again)[0] == 1, "nobody says why"
    act = ["--why", "it is declared now", "--action-id", "00000000-0000-4000-8000-000000000007"]
    assert cli.json(*release, *again, *act) == {"is_repeat": False, "released": 3}
    assert decisions() == ["released"] * 3
    assert cli.json(*release, *again, *act)["is_repeat"] is True
    with ledger_db.engine.connect() as conn:
        kept = conn.execute(select(actions).where(actions.c.verb.like("quarantine.%"))).all()
    assert [(row.verb, row.actor) for row in kept] == [("quarantine.release_all", "ann")]


@pytest.mark.scenario("OP-2")
def test_a_stopped_lane_is_listed_and_resumed_once_with_a_reason(cli: Cli, ledger_db: LedgerDb):
    cli("schedule", "rebuild", "--ledger", cli.target)
    ledger_db.transact(
        lambda conn: lanes.stop(conn, ledger_db.books, "effect:acme", by="relay", why="410 Gone")
    )
    (found,) = cli.json("lane", "list", "--database", cli.url)
    assert (found["lane"], found["reason"]) == ("effect:acme", "410 Gone")
    resume = ["lane", "resume", "effect:acme", "--database", cli.url, "--by", "ann"]
    assert cli(*resume)[0] == 2, "a reason is part of it"
    action = ["--why", "it is back", "--action-id", "00000000-0000-4000-8000-000000000007"]
    assert cli(*resume, *action)[:2] == (0, "lane effect:acme goes on\n")
    assert cli.json(*resume, *action)["is_repeat"] is True
    code, _, err = cli(*resume, "--why", "again")
    assert (code, "it is not stopped" in err) == (1, True)
    assert cli.json("lane", "list", "--database", cli.url) == []
    with ledger_db.engine.connect() as conn:
        (kept,) = conn.execute(select(actions).where(actions.c.verb == "lane.resume")).all()
    assert (kept.actor, kept.reason) == ("ann", "it is back")
    assert json.loads(kept.before) == {"stopped_because": "410 Gone"}


@pytest.mark.scenario("AS-90")
@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)
def test_limits_that_forget_too_early_are_refused_with_the_numbers(cli: Cli):
    told = cli.json("retention", "explain", cli.target)
    assert told["receipts"]["shop"]["binding"] == "backfilled"
    assert told["effects"]["acme"]["length_s"] >= told["receipts"]["shop"]["length_s"]
    code, out, _ = cli("retention", "check", cli.target, "--receipts-days", "2")
    assert code == 1
    assert "shop retries for 3.00 days, longer than the 2.00 days" in out
    assert "'backfilled' needs 44.05 days" in out
    assert cli("retention", "check", cli.target, "--receipts-days", "45")[:2] == (0, "safe\n")
    code, out, _ = cli("retention", "check", cli.target, "--payloads-days", "1")
    assert (code, "14.00 days" in out) == (1, True)


@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)
def test_a_users_mistake_is_one_line(cli: Cli, tmp_path: Path):
    nowhere = f"sqlite:///{tmp_path}/nowhere.db"
    for code, *arguments in (
        (2, "doctor"),
        (2, "doctor", "--database", nowhere),
        (2, "doctor", "--database", "mysql://x"),
        (2, "explain", "not an id", "--database", cli.url),
        (1, "explain", "00000000-0000-4000-8000-000000000001", "--database", cli.url),
        (1, "quarantine", "show", "00000000-0000-4000-8000-000000000001", "--database", cli.url),
        (2, "retention", "explain", "nothing:ledger"),
        (2, "receive", cli.target, "--listen", "0.0.0.0:0"),
        (2, "receive", cli.target, "--listen", "here"),
        (1, "run", "report", "00000000-0000-4000-8000-000000000001", "--database", cli.url),
        (2, "run", "create", "nobody", "--ledger", cli.target, "--why", "x", "--kind", "reprocess"),
    ):
        left, out, err = cli(*arguments)
        assert (left, out) == (code, ""), arguments
        assert err.startswith("landed: "), arguments
        assert len(err.splitlines()) == 1
    assert not (tmp_path / "nowhere.db").exists()


@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)
def test_every_command_has_help_with_an_example(cli: Cli):
    for words in (
        "receive",
        "quarantine list",
        "quarantine show",
        "quarantine release",
        "quarantine reject",
        "quarantine release-all",
        "unknown list",
        "unknown ask",
        "unknown attest",
        "run create",
        "run approve",
        "run start",
        "run pause",
        "run resume",
        "run report",
        "explain",
        "doctor",
        "retention explain",
        "retention check",
        "schedule rebuild",
        "lane list",
        "lane resume",
    ):
        code, out, _ = cli(*words.split(), "--help")
        assert (code, "Example: landed" in out) == (0, True), words


@pytest.mark.parametrize("ledger_db", ["sqlite"], indirect=True)
def test_a_receiving_process_says_where_and_ends_cleanly(cli: Cli, tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-m", "landed", "receive", cli.target, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        assert process.stdout is not None
        line = next_line(process)
        found = re.fullmatch(r"landed receive: listening on (http://127\.0\.0\.1:\d+)\n", line)
        assert found, line
        delivery = json.loads(stored("i1"))
        with httpx.Client(base_url=found[1]) as client:
            answers = [
                client.post("/shop", content=delivery["body"], headers=delivery["headers"])
                for _ in range(2)
            ]
            unsigned = client.post("/shop", content=b"{}")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(30)
    assert [answer.headers["landed-disposition"] for answer in answers] == ["accepted", "duplicate"]
    assert unsigned.status_code == 400
    assert process.returncode == 0, err
    assert "Traceback" not in err
