"""URLs of databases: what passes to the driver, what is ours, and what is refused without a leak."""

from __future__ import annotations

import subprocess
import sys

import pytest
from psycopg.conninfo import conninfo_to_dict

from landed.errors import ConfigurationError
from landed.postgres.dsn import parse_dsn


def test_several_hosts_mean_the_one_that_takes_writes() -> None:
    params = conninfo_to_dict(parse_dsn("postgresql://me@a:5433,b/shop").conninfo)
    assert (params["host"], params["port"], params["dbname"]) == ("a,b", "5433,", "shop")
    assert params["target_session_attrs"] == "read-write"
    assert params["connect_timeout"] == "5"
    asked = parse_dsn("postgresql://me@a,b/shop?target_session_attrs=any&connect_timeout=1")
    params = conninfo_to_dict(asked.conninfo)
    assert (params["target_session_attrs"], params["connect_timeout"]) == ("any", "1")


def test_settings_of_a_session_join_those_of_the_url() -> None:
    dsn = parse_dsn("postgresql:///x?options=-csearch_path%3Da,b")
    told = conninfo_to_dict(dsn.with_settings({"lock_timeout": "5", "jit": "off"}).conninfo)
    assert told["options"] == "-csearch_path=a,b -c lock_timeout=5 -c jit=off"


def test_our_own_options_are_taken_off_and_libpqs_pass_through() -> None:
    dsn = parse_dsn("postgresql:///x?sslmode=require&colour=dark%20red", own=("colour",))
    assert dsn.options == {"colour": "dark red"}
    assert conninfo_to_dict(dsn.conninfo)["sslmode"] == "require"
    assert dsn.place == "x at the local server"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@db/x",
        "postgresql://me:s3cret@a,b/x",
        "postgresql://me:s3/cret@db/x",
        "postgresql://me:s3cret@db:port/x",
        "postgresql://db/x?password=s3cret",
        "postgresql://db/x?passw%6Frd=s3cret",
        "postgresql://db/x?sslpassword=s3cret",
    ],
)
def test_a_password_in_a_url_is_refused_and_never_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_dsn(url)
    assert "PGPASSFILE" in str(refused.value)
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("mysql://db/x", "postgresql://user@host"),
        ("postgresql://[::1/x", "cannot be read"),
        ("postgresql://db/x?colour=red", "'colour' is no option"),
        ("postgresql://db/x?sslmode", "name=value"),
    ],
)
def test_a_url_that_cannot_be_read_is_one_sentence(url: str, word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        parse_dsn(url)


def test_without_the_driver_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from landed.errors import ConfigurationError\n"
        "try:\n    import landed.projections.postgres\n"
        "except ConfigurationError as e:\n    print(e)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "pip install 'landed[postgres]'" in ran.stdout
    assert ran.stderr == ""
