"""One client id for a service, and one event id for a key, on every replica."""

from __future__ import annotations

from uuid import UUID, uuid5

import pytest

from landed.commands import ServiceIdentity, fingerprint
from landed.errors import ConfigurationError

SERVICE = "0d9e9cd1-0000-4000-8000-000000000001"
OLD = "0d9e9cd1-0000-4000-8000-000000000002"


def test_the_identity_comes_from_configuration_and_from_nowhere_else() -> None:
    assert ServiceIdentity.from_config(SERVICE).client_id == UUID(SERVICE)
    with pytest.raises(TypeError):
        ServiceIdentity()


@pytest.mark.parametrize("text", ["", "nobody", str(UUID(int=0)), SERVICE[:-1]])
def test_nothing_but_a_real_uuid_is_an_identity(text: str) -> None:
    with pytest.raises(ConfigurationError):
        ServiceIdentity.from_config(text)
    with pytest.raises(ConfigurationError):
        ServiceIdentity.from_config(SERVICE, previous_client_ids=[text])


def test_previous_ids_count_as_own_work() -> None:
    identity = ServiceIdentity.from_config(SERVICE, previous_client_ids=[OLD, SERVICE])
    assert identity.own == {UUID(SERVICE), UUID(OLD)}
    assert identity.previous_client_ids == {UUID(OLD)}


@pytest.mark.scenario("SWA-79")
def test_a_dashed_uuid_is_taken_as_it_is_in_any_letter_case() -> None:
    identity = ServiceIdentity.from_config(SERVICE)
    key = "8e03978e-40d5-43e8-bc93-6894a57f9324"
    assert identity.event_id_of(key) == identity.event_id_of(key.upper()) == UUID(key)


@pytest.mark.scenario("SWA-79")
def test_any_other_text_becomes_one_uuid_below_the_client_id() -> None:
    identity = ServiceIdentity.from_config(SERVICE)
    namespace = uuid5(UUID(SERVICE), "landed/event-id")
    assert identity.event_id_of("abc") == uuid5(namespace, "\0abc")
    undashed = "8e03978e40d543e8bc936894a57f9324"
    assert identity.event_id_of(undashed) != UUID(undashed)
    assert ServiceIdentity.from_config(OLD).event_id_of("abc") != identity.event_id_of("abc")


def test_callers_with_a_scope_cannot_meet_in_one_event_id() -> None:
    identity = ServiceIdentity.from_config(SERVICE)
    key = "8e03978e-40d5-43e8-bc93-6894a57f9324"
    ids = {identity.event_id_of(key, scope=scope) for scope in ("", "alice", "bob")}
    assert len(ids) == 3
    assert identity.event_id_of(key.upper(), scope="bob") == identity.event_id_of(key, scope="bob")


@pytest.mark.parametrize("key", ["", str(UUID(int=0))])
def test_a_key_that_names_no_request_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="names no request"):
        ServiceIdentity.from_config(SERVICE).event_id_of(key)


def test_the_bytes_of_a_fingerprint_are_the_published_ones() -> None:
    account = UUID("8E03978E-40D5-43E8-BC93-6894A57F9324")
    made = fingerprint("deposit", ("account", account), ("cents", 50))
    assert made.hex() == ("b8b5296e9d268d92b64e7bcebda0765fbee436f38ae393dc5486489e6833cebf")


def test_a_line_feed_cannot_make_two_wishes_look_alike() -> None:
    with pytest.raises(ValueError, match="line feed"):
        fingerprint("deposit", ("note", "a\ncents:5"))
