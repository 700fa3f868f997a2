"""Which node a request goes to, and when it may go to another one.

A change is sent to another node only after "not sent" or a definite "not applied"; after
"nobody knows" never, and there is no switch for it (pool rules CP-35, CP-36). A read changes
nothing, so it may try the next node after a lost connection.
"""

from __future__ import annotations

import asyncio
from typing import Final

from landed.client.call import Call
from landed.client.cluster import Cluster
from landed.client.exchange import Broken, Ended, Kind, NotSent
from landed.client.options import Address, Consistency, parse_address
from landed.client.walk import Walk
from landed.errors import (
    BusyError,
    ConfigurationError,
    ConnectionLostError,
    LandedError,
    LeaderNotFoundError,
    NotLeaderError,
    NotSentError,
    OutcomeUnknownError,
    PoolClosedError,
    PoolExhaustedError,
    PoolUnavailableError,
    ReadTimeoutError,
    RemoteProtocolError,
)
from landed.log import (
    Deleted,
    Details,
    FeedPage,
    GetDetails,
    Landed,
    Mutation,
    Page,
    Read,
    Trimmed,
)
from landed.log.read import FeedRead
from landed.wire.codes import error_of
from landed.wire.connection import Answered
from landed.wire.messages import EXTENSIONS, LogFacts, NotUnderstood, Probe, operation_of

BUSY_FIRST_S: Final = 0.025
BUSY_LAST_S: Final = 0.5
"""Waits before a busy node is asked again: doubling, drawn between 0 and that (CP-49)."""
SEARCH_FIRST_S: Final = 0.05
SEARCH_LAST_S: Final = 1.0
"""Waits between two walks in search of a leader: doubling, half of it drawn (CP-43)."""

_CHANGE: Final = Kind.CHANGE  # an enumeration's members are looked up slowly
_NO_USE_ELSEWHERE: Final = (PoolClosedError, PoolExhaustedError)
"""The leader is there and we are at our own bounds; another node would not help."""

Done = Landed | Trimmed | Deleted
_DONE: Final = (Landed, Trimmed, Deleted)
Seen = Page | Details | FeedPage | LogFacts
_SEEN: Final = (Page, Details, FeedPage, LogFacts)
Question = Read | GetDetails | FeedRead | Probe


# --- changes ------------------------------------------------------------------------------------


async def change(cluster: Cluster, request: Mutation, call: Call) -> Done:
    """Bring a change to the node that accepts it, handing it over for good at most once.

    Raises:
        NotSentError: no node took a byte of it, or each said that it is not the leader.
        OutcomeUnknownError: handed over, and nobody knows. Never sent again.
        RefusedError: a node's definite no.
    """
    first = cluster.book.leader
    ended = await cluster.exchange(first, request, _CHANGE, call)
    if type(ended) is Answered and isinstance(ended.answer, _DONE):
        return ended.answer  # nearly always, so nothing else is done before it is looked at
    walk = Walk(cluster.book, first)
    search_until = min(cluster.now() + cluster.options.leader_search_timeout_s, call.ends_at)
    wait_s = SEARCH_FIRST_S
    done = await _walk(cluster, walk, ended, request, call)
    while done is None:
        left_s = search_until - cluster.now()
        if left_s > 0:
            await asyncio.sleep(min(left_s, wait_s * (0.5 + 0.5 * cluster.jitter.random())))
        if left_s <= 0 or cluster.now() >= call.ends_at:
            raise _nobody_took_it(call)
        wait_s = min(2 * wait_s, SEARCH_LAST_S)
        call.tried.clear()
        walk = Walk(cluster.book, cluster.book.leader)
        ended = await cluster.exchange(walk.first, request, Kind.CHANGE, call)
        done = await _walk(cluster, walk, ended, request, call)
    return done


async def _walk(
    cluster: Cluster, walk: Walk, ended: Ended, request: Mutation, call: Call
) -> Done | None:
    """Go on from the first node's answer to the next nodes (CP-39). None if nobody took it."""
    address: Address | None = walk.first
    while address is not None:
        outcome = await _waited_out(cluster, address, ended, request, call)
        if not isinstance(outcome, LandedError):
            cluster.book.confirmed(address, guess=call.guess)
            return outcome
        if isinstance(outcome, NotLeaderError):
            leader = _reachable(cluster, outcome.leader_address)
            cluster.note("pool.redirected", {"from": str(address), "to": str(leader)})
            if leader is not None:
                walk.redirected(leader)
        elif isinstance(outcome, NotSentError) and not isinstance(outcome, _NO_USE_ELSEWHERE):
            leader = None
        else:
            raise outcome
        if leader is None:
            cluster.book.doubted(address)
        call.tried.append((str(address), outcome))
        if cluster.now() >= call.ends_at:
            return None
        address = walk.next()
        if address is not None:
            ended = await cluster.exchange(address, request, Kind.CHANGE, call)
    return None


async def _waited_out(
    cluster: Cluster, address: Address, ended: Ended, request: Mutation, call: Call
) -> Done | LandedError:
    """What one node says of a change; a busy one is asked again.

    It did not accept the change, and another node would only redirect to it (CP-49).
    """
    wait_s = BUSY_FIRST_S
    retries = call.policy.busy_retries
    while True:
        outcome = _judged(ended, request)
        if not isinstance(outcome, LandedError):
            return outcome
        call.blame(outcome)
        if isinstance(outcome, OutcomeUnknownError):
            cluster.note("pool.unknown", {"node": str(address), "reason": outcome.reason})
        if not isinstance(outcome, BusyError):
            return outcome
        delay_s = wait_s * cluster.jitter.random()
        if not retries or cluster.now() + delay_s >= call.ends_at:
            outcome.retry_after_s = wait_s
            return outcome
        retries -= 1
        wait_s = min(2 * wait_s, BUSY_LAST_S)
        await asyncio.sleep(delay_s)
        ended = await cluster.exchange(address, request, Kind.CHANGE, call)


def _judged(ended: Ended, request: Mutation) -> Done | LandedError:
    """What the end of an exchange says of a change: yes, no, not sent, or nobody knows."""
    if isinstance(ended, NotSent):
        return ended.error
    if isinstance(ended, Broken):
        error = OutcomeUnknownError(ended.reason, detail=ended.detail)
        if ended.is_culprit:
            error.__cause__ = RemoteProtocolError(ended.detail)
        return error
    if isinstance(ended.answer, _DONE):
        return ended.answer
    return error_of(operation_of(request), ended.answer)


def _nobody_took_it(call: Call) -> NotSentError:
    """The error of an exhausted walk (CP-42)."""
    last = call.tried[-1][1]
    error: NotSentError
    if len(call.tried) == 1 and isinstance(last, NotSentError):
        return last
    if all(isinstance(why, PoolUnavailableError) for _address, why in call.tried):
        names = ", ".join(address for address, _why in call.tried)
        error = PoolUnavailableError(f"every node failed a moment ago: {names}")
    else:
        error = LeaderNotFoundError(call.tried)
    error.__cause__ = last
    return call.blame(error)


def _reachable(cluster: Cluster, advertised: str | None) -> Address | None:
    """The address to dial for one that a node advertises; None if it cannot be one."""
    if not advertised:
        return None
    translate = cluster.options.address_translator
    try:
        return parse_address(advertised if translate is None else translate(advertised))
    except ConfigurationError:
        return None


# --- reads --------------------------------------------------------------------------------------


async def look(
    cluster: Cluster, request: Question, kind: Kind, call: Call, *, wait_s: float = 0.0
) -> Seen:
    """Ask the leader, and others only if it cannot be reached and the policy allows (CP-45, CP-47).

    Raises:
        ReadTimeoutError: no whole answer in time; not asked elsewhere.
        ConnectionLostError: the last node asked broke the connection.
        RemoteProtocolError: an answer that cannot be trusted.
        NotSentError: no node could be asked.
        RefusedError: a node's answer.
    """
    order = cluster.book.in_order()
    if call.policy.consistency is Consistency.LEADER_STRICT:
        order = order[:1]
    last: LandedError | None = None
    for address in order:
        if last is not None and cluster.now() >= call.ends_at:
            break
        ended = await _asked(cluster, address, request, kind, call, wait_s=wait_s)
        if isinstance(ended, Answered):
            if isinstance(ended.answer, _SEEN):
                return ended.answer
            raise call.blame(error_of(operation_of(request), ended.answer))
        if isinstance(ended, NotSent):
            last = call.blame(ended.error)
            if isinstance(last, _NO_USE_ELSEWHERE):
                raise last
            cluster.book.doubted(address)
        else:
            last = call.blame(_read_error(ended))
            if not isinstance(last, ConnectionLostError):
                raise last
    assert last is not None
    raise last


async def _asked(
    cluster: Cluster, address: Address, request: Question, kind: Kind, call: Call, *, wait_s: float
) -> Ended:
    """One question to one node. A node without extensions may close instead of saying so.

    Closing twice in a row on an extension that it never answered counts as saying so.
    """
    ended = await cluster.exchange(address, request, kind, call, wait_s=wait_s)
    if operation_of(request) not in EXTENSIONS:
        return ended
    node = cluster.node(address)
    if _is_hung_up(ended) and not node.has_extensions:
        ended = await cluster.exchange(address, request, kind, call, wait_s=wait_s)
        if _is_hung_up(ended):
            return Answered(NotUnderstood(), None)
    if isinstance(ended, Answered) and isinstance(ended.answer, FeedPage | LogFacts):
        node.has_extensions = True
    return ended


def _is_hung_up(ended: Ended) -> bool:
    return isinstance(ended, Broken) and ended.reason == "eof"


def _read_error(broken: Broken) -> LandedError:
    if broken.reason == "timeout":
        return ReadTimeoutError(broken.detail)
    if broken.is_culprit:
        return RemoteProtocolError(broken.detail)
    return ConnectionLostError(f"{broken.reason}: {broken.detail}")
