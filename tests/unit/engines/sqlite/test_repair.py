"""An operator may lower a mark that an absurd sequence closed, and it stays on record."""

from pathlib import Path

import pytest

from landed.clock import WallMs
from landed.engines.sqlite.check import verify
from landed.engines.sqlite.repair import Change, Repair, lower_mark, raise_restore_epoch, repairs
from landed.errors import ConfigurationError, StorageInUseError
from landed.ids import ClientId
from tests.unit.engines.sqlite.logfile import A, B, key, opened

AT = WallMs(1_700_000_000_123)
POISON = 2**64 - 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Both pairs of aggregate 1 are closed, one in the head's row and one in the table of marks."""
    path = tmp_path / "log.db"
    with opened(path) as log:
        for client in (A, B):
            log.fill(key(1), seqs=range(1, 4), clients=(client,))
            log.write(key(1), POISON, client=client)
    return path


def lower(path: Path, client: ClientId, to: int, reason: str = "typo in a script") -> Change:
    return lower_mark(path, key=key(1), client_id=client, to=to, reason=reason, at_ms=AT)


def trim_poison(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 2, client=A, enforce=False)
        log.trim(key(1), 9)


def test_a_mark_is_not_lowered_below_a_sequence_that_is_still_readable(path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"sequence {POISON} .* is still readable"):
        lower(path, A, 3)
    trim_poison(path)
    with pytest.raises(ConfigurationError, match=r"sequence 2 .* is still readable"):
        lower(path, A, 1)
    with opened(path) as log:
        assert log.stored_mark(key(1), A) == POISON
    assert [] == repairs(path)


@pytest.mark.parametrize("is_reclaimed", [False, True])
def test_a_lowered_mark_frees_the_sequences_above_it(path: Path, is_reclaimed: bool) -> None:
    trim_poison(path)
    with opened(path) as log:
        while is_reclaimed and log.store.reclaim():
            pass
    assert Change(POISON, 3) == lower(path, A, 3)
    assert Change(POISON, 0) == lower(path, B, 0)
    with opened(path) as log:
        assert (log.stored_mark(key(1), A), log.stored_mark(key(1), B)) == (3, 0)
        log.write(key(1), 4, client=A)
        log.write(key(1), 1, client=B)
        assert (log.stored_mark(key(1), A), log.stored_mark(key(1), B)) == (4, 1)


def test_the_pair_that_wrote_last_can_be_as_if_it_had_never_written(path: Path) -> None:
    with opened(path) as log:
        log.delete(key(1))
    assert Change(POISON, 0) == lower(path, B, 0)
    with opened(path) as log:
        assert (log.stored_mark(key(1), A), log.stored_mark(key(1), B)) == (POISON, 0)
        log.write(key(1), 1, client=B)
        assert (log.stored_mark(key(1), A), log.stored_mark(key(1), B)) == (POISON, 1)


def test_repairs_are_on_record_with_their_reason(path: Path) -> None:
    trim_poison(path)
    lower(path, A, 3, reason="ticket 17")
    assert [Repair(AT, "lower-mark", f"{key(1)} {A}", str(POISON), "3", "ticket 17")] == repairs(
        path
    )


@pytest.mark.parametrize(
    ("to", "reason", "message"),
    [
        (POISON, "x", "it can only be lowered"),
        (-1, "x", "it can only be lowered"),
        (3, "  ", "say why"),
    ],
)
def test_what_makes_no_sense_is_refused(path: Path, to: int, reason: str, message: str) -> None:
    trim_poison(path)
    with pytest.raises(ConfigurationError, match=message):
        lower(path, A, to, reason)
    assert [] == repairs(path)


def test_a_pair_that_never_wrote_has_no_mark_to_lower(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is 0: it can only be lowered"):
        lower(path, ClientId(key(3).id), 0)
    with pytest.raises(ConfigurationError, match="was never written"):
        lower_mark(path, key=key(7), client_id=A, to=0, reason="x", at_ms=AT)


def test_a_repair_needs_the_log_closed(path: Path) -> None:
    with opened(path), pytest.raises(StorageInUseError):
        lower(path, A, 3)


def test_a_restored_log_says_so_to_every_projection(path: Path) -> None:
    with opened(path) as log:
        identity = log.store.identity
    assert Change(0, 1) == raise_restore_epoch(path, reason="backup of May", at_ms=AT)
    assert Change(1, 2) == raise_restore_epoch(path, reason="again", at_ms=AT)
    with opened(path) as log:
        assert identity._replace(restore_epoch=2) == log.store.identity
    assert ["restored", "restored"] == [repair.action for repair in repairs(path)]
    with pytest.raises(ConfigurationError, match="say why"):
        raise_restore_epoch(path, reason="", at_ms=AT)


def test_a_repaired_log_is_sound(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 2, client=A, enforce=False)
        log.trim(key(1), 9)
        while log.store.reclaim():
            pass
    lower(path, A, 3)
    lower(path, B, 0)
    raise_restore_epoch(path, reason="x", at_ms=AT)
    assert [] == verify(path).findings
