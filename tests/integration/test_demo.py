"""``landed demo``: ready with one line, gone without a trace, its money kept, each invoice charged once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from landed.demo.bank import ACCOUNTS
from tests.integration import payments_demo as payments
from tests.integration.accounts_process import Process
from tests.integration.demo_process import HTTP, until

PROCESSES = 6
"""The log, two replicas; the neighbours, the payments and their worker."""
READY = "demo ready at http://127.0.0.1:"
ADA = next(iter(ACCOUNTS))


def demo(folder: Path) -> Process:
    return Process("demo", ready=READY, cwd=folder, LANDED_DEMO_PORT="0")


def family(process: Process) -> list[psutil.Process]:
    return psutil.Process(process.process.pid).children(recursive=True)


def ask(process: Process, path: str, body: object = None, **headers: str) -> httpx.Response:
    url = process.url + path
    return HTTP.get(url) if body is None else HTTP.post(url, json=body, headers=headers)


def deposited(process: Process, path: str, key: str) -> httpx.Response | None:
    """The answer to a deposit of 50, if it was answered for good."""
    answer = ask(process, path, {"amountCents": 50}, **{"Idempotency-Key": key})
    if answer.status_code != 200:
        assert answer.json()["retryable"] is True, answer.text
        return None
    return answer


@pytest.mark.scenario("BC-13")
def test_a_demo_survives_lost_answers_and_kills_keeps_its_money_charges_once_and_leaves_nothing(
    tmp_path,
):
    path = f"/api/accounts/{ADA}/deposit"
    with demo(tmp_path) as running:
        assert running.line == f"{READY}{running.port}"
        children = family(running)
        assert len(children) == PROCESSES
        assert len(ask(running, "/api/accounts").json()["accounts"]) == len(ACCOUNTS)
        lost = {"Idempotency-Key": "K", "Demo-Lose-Answer": "1"}
        with pytest.raises(httpx.RemoteProtocolError):
            ask(running, path, {"amountCents": 50}, **lost)
        again = ask(running, path, {"amountCents": 50}, **{"Idempotency-Key": "K"})
        assert again.headers["idempotency-result"] == "original"

        killed = ask(running, "/demo/kill", {"replica": "replica-a"}).json()
        assert killed["done"] is True
        for _ in range(4):
            # One that the killed replica took with it is told as unknown, and is asked again.
            answer = until(lambda: deposited(running, path, "K"))
            assert answer.text == again.text
            assert answer.headers["service-replica"] == "replica-b"

        other_type = HTTP.post(running.url + "/demo/kill", content=b'{"replica":"replica-b"}')
        assert other_type.status_code == 415
        assert ask(running, "/demo/kill", {"replica": 5}).json()["done"] is False
        assert ask(running, "/demo/loss", {"rate": 2}).status_code == 400
        assert ask(running, "/demo/loss", {"rate": True}).status_code == 400
        assert ask(running, "/demo/nothing", {}).status_code == 404

        taken = run_to_end_in(tmp_path, running.port)
        assert (taken.returncode, taken.stderr.count("\n")) == (1, 1)
        assert "in use" in taken.stderr

        def came_back():
            replicas = ask(running, "/demo/state").json()["replicas"]
            return all(one["state"] == "running" for one in replicas) and replicas[0]["restarts"]

        assert until(came_back) == 1
        (log,) = [child for child in family(running) if "serve" in child.cmdline()]
        log.kill()
        log.wait(10)
        settled = until(lambda: deposited(running, path, "L"))
        assert settled.json()["balanceCents"] == again.json()["balanceCents"] + 50
        invoice = payments.live_at_first(running, tmp_path)
        children = family(running)
        code, errors = running.stop(signal.SIGINT)
        assert code == 0, errors
        assert [child for child in children if child.is_running()] == []

    with demo(tmp_path) as restarted:
        balance = ask(restarted, f"/api/accounts/{ADA}/balance").json()
        assert balance["balanceCents"] == ACCOUNTS[ADA][1] + 100
        payments.live_again(restarted, tmp_path, invoice)
        children = family(restarted)
        restarted.kill()
        # Even killed, the demo takes its children with it.
        gone, alive = psutil.wait_procs(children, timeout=15)
        assert alive == []
        assert len(gone) == PROCESSES


def test_a_demo_that_cannot_start_is_one_line_and_leaves_nothing(tmp_path):
    folder = tmp_path / ".landed-demo"
    folder.mkdir()
    (folder / "log.sqlite").write_bytes(b"this is no database" * 100)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    before = {child.pid for child in psutil.Process(os.getpid()).children(recursive=True)}
    ended = run_to_end_in(tmp_path, port)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr
    assert "the demo did not start" in ended.stderr
    after = {child.pid for child in psutil.Process(os.getpid()).children(recursive=True)}
    assert after <= before


def run_to_end_in(folder: Path, port: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "landed", "demo", "--port", str(port)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        check=False,
    )
