"""The seeds at which broken rules were caught last: tests try them first, and search if they must.

A world is a function of its seed and of the explorer's code, so a change of the explorer may make a
seed useless. ``landed explore --ablations --json`` prints the present ones.
"""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[str, int]] = {
    "acknowledged-before-durable": 11,
    "age-by-wall-clock": 76,
    "answers-of-anyone": 5,
    "client-id-of-a-replica": 0,
    "conflict-consumes-its-sequence": 13,
    "decided-only-once": 44,
    "doubt-not-told": 21,
    "event-id-of-a-call": 0,
    "feed-steps-over-a-change": 13,
    "fingerprints-not-compared": 5,
    "flight-not-judged": 37,
    "fold-not-indexed": 2,
    "found-but-not-told": 1,
    "fresh-sequence-after-unknown": 3,
    "guard-after-sequence": 7,
    "guard-not-judged": 109,
    "half-a-transfer": 20,
    "half-shared": 1,
    "index-not-asked": 1,
    "marks-not-judged": 0,
    "marks-not-raised": 0,
    "nothing-rolled-back": 61,
    "ownership-of-anyone": 568,
    "pool-sends-again": 0,
    "rules-before-recognition": 14,
    "sibling-is-ours": 77,
    "taken-is-believed": 77,
    "unknown-is-not-sent": 21,
    "window-cut-short": 12,
    "write-not-indexed": 1,
    "writes-without-guard": 109,
}
