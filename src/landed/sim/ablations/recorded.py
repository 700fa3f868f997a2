"""The seeds at which broken rules were caught last: tests try them first, and search if they must.

A world is a function of its seed and of the explorer's code, so a change of the explorer may make a
seed useless. ``landed explore --ablations --json`` prints the present ones.
"""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[str, int]] = {
    "abandoned-is-retried": 23,
    "absence-is-proof": 0,
    "acknowledged-before-commit": 1,
    "acknowledged-before-durable": 5,
    "age-by-wall-clock": 29,
    "answers-of-anyone": 3,
    "changed-wish-passes": 9,
    "client-id-of-a-replica": 0,
    "conflict-consumes-its-sequence": 1,
    "decided-only-once": 82,
    "delivery-is-the-identity": 0,
    "done-mark-left-out": 0,
    "doubt-not-told": 67,
    "effect-of-an-event": 9,
    "event-id-of-a-call": 0,
    "feed-steps-over-a-change": 16,
    "fence-not-sent": 26,
    "fingerprints-not-compared": 39,
    "flight-not-judged": 36,
    "fold-not-indexed": 10,
    "found-but-not-told": 2,
    "fresh-key": 1,
    "fresh-sequence-after-unknown": 3,
    "guard-after-sequence": 5,
    "guard-not-judged": 186,
    "half-a-transfer": 16,
    "half-shared": 10,
    "handed-on-without-proof": 0,
    "identity-without-producer": 2,
    "index-not-asked": 2,
    "late-answer-dropped": 1,
    "marks-not-judged": 4,
    "marks-not-raised": 4,
    "nobody-is-told": 5,
    "nothing-rolled-back": 16,
    "ownership-of-anyone": 84,
    "pool-sends-again": 1,
    "rebuild-forgets-effects": 1,
    "receipt-without-outbox": 0,
    "repeats-not-compared": 7,
    "resent-regardless": 0,
    "rules-before-recognition": 3,
    "sibling-is-ours": 81,
    "signature-not-compared": 11,
    "taken-is-believed": 81,
    "timeout-is-failure": 0,
    "unknown-is-not-sent": 67,
    "unsupported-is-ignored": 5,
    "window-cut-short": 16,
    "write-not-indexed": 2,
    "writes-without-guard": 186,
}
