"""The list of obligations itself."""

from __future__ import annotations

from landed.conformance import Lever, all_obligations

OUT_OF_PROCESS = {
    "SC-36": "a benchmark: cost against age",
    "SC-44": "kill -9",
    "SC-70": "kill -9",
    "SC-72": "a torn file",
    "SC-73": "a damaged file",
}
"""Scenarios of the sections covered here that one engine in one process cannot show."""


def test_every_scenario_of_the_log_is_shown_by_an_obligation_or_named_as_not() -> None:
    shown = {scenario for each in all_obligations() for scenario in each.scenarios}
    wanted = {f"SC-{n:02}" for n in range(1, 76)} - OUT_OF_PROCESS.keys()
    assert wanted - shown == set()


def test_an_obligation_reads_as_a_sentence_and_says_why_it_exists() -> None:
    obligations = all_obligations()
    assert len({each.name for each in obligations}) == len(obligations) > 100
    for each in obligations:
        assert each.sentence == each.name.replace("_", " ")
        assert len(each.sentence.split()) >= 3, each.name
        assert each.scenarios, each.name


def test_obligations_say_which_levers_they_pull() -> None:
    pulled = {lever for each in all_obligations() for lever in each.levers}
    assert pulled == set(Lever)
