"""``landed offline`` from its command line."""

import json
from uuid import UUID

import pytest

from landed.cli.app import run
from landed.ids import AggregateKey
from landed.offline import Queue, QueueLimits, status_of
from landed.offline.entry import Run

KEY = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=3))

pytestmark = pytest.mark.real_loop


@pytest.fixture
def store(tmp_path):
    with Queue.open(tmp_path / "q.db", limits=QueueLimits(run_events_max=2)) as queue:
        for value in (b"a", b"b", b"c"):
            queue.enqueue(KEY, 1, value)
    return tmp_path / "q.db"


def block(store):
    with Queue.open(store) as queue:
        entries = tuple(entry for _, entry in queue.pending())
        queue._store.block(Run(1, KEY, entries, 0), code=2020, reason="no such kind")


def test_status_shows_what_is_queued_and_what_stands_still(store, capsys):
    assert run(["offline", "status", str(store)]) == 0
    shown = capsys.readouterr().out
    assert "3 queued (0 of them may be in the log)" in shown
    block(store)
    assert run(["offline", "status", str(store), "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert (fields["queued"], fields["next_seq"], fields["fault"]) == (3, 4, None)
    (blocked,) = fields["blocked"]
    assert (blocked["key"], blocked["client_seq"], blocked["code"]) == (str(KEY), 1, 2020)
    assert run(["offline", "status", str(store)]) == 0
    assert f"blocked: {KEY} at number 1, 3 waiting: no such kind (2020)" in capsys.readouterr().out


def test_sync_sends_what_is_queued_and_says_how_far_it_came(store, tmp_path, capsys):
    log = f"sqlite:///{tmp_path}/log.db"
    assert run(["offline", "sync", str(store), "--log", log, "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert fields == {
        "landed": 3, "left": 0, "blocked": [], "in_time": True, "last_trouble": None,
    }  # fmt: skip
    assert run(["offline", "sync", str(store), "--log", log]) == 0
    assert capsys.readouterr().out == "0 landed, 0 left\n"


def test_a_sync_that_leaves_something_says_why_and_fails(store, capsys):
    nobody = "landed://127.0.0.1:1"
    assert run(["offline", "sync", str(store), "--log", nobody, "--timeout", "0.1"]) == 1
    shown = capsys.readouterr().out
    assert "0 landed, 3 left" in shown
    assert "the time was up; last trouble:" in shown


def test_a_person_can_abandon_and_unblock(store, tmp_path, capsys):
    block(store)
    log = f"sqlite:///{tmp_path}/log.db"
    assert run(["offline", "sync", str(store), "--log", log]) == 1
    assert "blocked:" in capsys.readouterr().out
    assert run(["offline", "abandon", str(store), "--number", "1", "--reason", "old form"]) == 0
    assert run(["offline", "abandon", str(store), "--number", "1", "--reason", "again"]) == 1
    assert run(["offline", "unblock", str(store), "--key", str(KEY)]) == 0
    assert "it was not blocked" in capsys.readouterr().out
    assert run(["offline", "sync", str(store), "--log", log]) == 0
    status = status_of(store)
    assert (status.abandoned, status.queued, status.next_seq) == (1, 0, 4)


def test_recover_finds_nothing_to_do_in_a_sound_store(store, tmp_path, capsys):
    log = f"sqlite:///{tmp_path}/log.db"
    assert run(["offline", "recover", str(store), "--log", log]) == 0
    assert capsys.readouterr().out == "0 found in the log\n"


@pytest.mark.parametrize("command", [["status"], ["sync", "--log", "memory:"]])
def test_a_mistyped_path_makes_no_new_queue(command, tmp_path, capsys):
    path = tmp_path / "typo.db"
    assert run(["offline", command[0], str(path), *command[1:]]) == 2
    assert "there is no queue at" in capsys.readouterr().err
    assert not path.exists()


def test_a_malformed_key_is_a_misuse(store, capsys):
    assert run(["offline", "unblock", str(store), "--key", "x"]) == 2
