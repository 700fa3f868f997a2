"""The metrics page, in Prometheus' text form, and the books it is printed from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from landed.server.admin import PLAIN, PROMETHEUS, Page, Reply

if TYPE_CHECKING:
    from landed.server.listener import Server


class FactCounts:
    """A ``Note`` that counts facts by name and hands them on."""

    def __init__(self, note: Callable[[str, Mapping[str, object]], None]) -> None:
        self._note = note
        self.counts: Counter[str] = Counter()

    def __call__(self, name: str, fields: Mapping[str, object]) -> None:
        self.counts[name] += 1
        self._note(name, fields)


def pages(server: Server, facts: FactCounts) -> Mapping[str, Page]:
    """The pages of the operator's port."""

    def metrics() -> Reply:
        return Reply(HTTPStatus.OK, "".join(_lines(server, facts)), PROMETHEUS)

    def healthz() -> Reply:
        return Reply(HTTPStatus.OK, "ok\n", PLAIN)

    def readyz() -> Reply:
        if server.is_ready:
            return Reply(HTTPStatus.OK, "ready\n", PLAIN)
        return Reply(HTTPStatus.SERVICE_UNAVAILABLE, "not ready\n", PLAIN)

    return {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz}


def _lines(server: Server, facts: FactCounts) -> Iterator[str]:
    counters = server.counters
    gauge, total = _gauge, _total
    yield gauge("start_time_seconds", server.started_at / 1000, "Start, seconds since 1970.")
    yield gauge("connections", server.connections, "Connections now.")
    yield gauge("ready", int(server.is_ready), "1 if it accepts connections and changes.")
    yield gauge("log_position", server.log_position, "Position of the newest feed entry.")
    yield gauge("admitted_bytes", server.admission.held, "Request bytes in memory.")
    yield gauge("readers_waiting", server.admission.waiting, "Connections waiting for room.")
    yield gauge("unsent_bytes", server.unsent_bytes, "Answer bytes not taken yet.")
    yield total("connections_opened", counters.connections_opened, "Connections accepted.")
    yield total("connections_refused", counters.connections_refused, "Closed: too many.")
    yield total("answers", counters.answers, "Answers sent.")
    yield total("writes_to_sockets", counters.writes, "Writes that carried them.")
    yield total("received_bytes", counters.received_bytes, "Bytes read.")
    yield total("sent_bytes", counters.sent_bytes, "Bytes of answers.")
    yield total("protocol_violations", counters.violations, "Connections that broke the protocol.")
    yield total("dropped_slow", counters.dropped_slow, "Clients that did not take their answers.")
    yield total("dropped_idle", counters.dropped_idle, "Connections without a request in time.")
    yield _help("requests_total", "counter", "Requests received whole.")
    for operation, count in counters.requests.items():
        yield f'landed_requests_total{{operation="{operation.name.lower()}"}} {count}\n'
    yield _help("facts_total", "counter", "Facts noted, by name.")
    for name, count in sorted(facts.counts.items()):
        yield f'landed_facts_total{{name="{name}"}} {count}\n'


def _help(name: str, kind: str, text: str) -> str:
    return f"# HELP landed_{name} {text}\n# TYPE landed_{name} {kind}\n"


def _gauge(name: str, value: float, text: str) -> str:
    return f"{_help(name, 'gauge', text)}landed_{name} {value}\n"


def _total(name: str, value: int, text: str) -> str:
    return f"{_help(name + '_total', 'counter', text)}landed_{name}_total {value}\n"
