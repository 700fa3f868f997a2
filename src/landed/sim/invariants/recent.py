"""Does a read begun after an answer see what was answered?"""

from __future__ import annotations

from collections.abc import Iterator

from landed.sim.history import History


def a_look_sees_what_was_answered_before(history: History) -> Iterator[str]:
    """A success is durable and readable: whoever looks later, on any replica, sees its version."""
    for look in history.looks:
        for call in history.calls:
            done = call.done
            if done is None or call.ended_at is None or call.ended_at > look.began_at:
                continue
            for key, version in zip(call.request.targets, done.versions, strict=True):
                if key == look.key and version > look.version:
                    yield (
                        f"call {call.number} was told version {version} of "
                        f"{history.names[key]}; {look.replica} then showed {look.version}"
                    )
