"""The pages that are made from tables say what the tables say."""

from __future__ import annotations

from tools import reference

from landed.wire import shapes
from landed.wire.codes import TABLE


def test_the_page_of_codes_is_up_to_date():
    assert reference.stale() == [], "run python tools/reference.py"


def test_the_page_of_codes_has_a_row_for_every_code():
    rows = [line for line in reference.codes_page().splitlines() if line.startswith("| ")][2:]
    assert [int(row.split("|")[1]) for row in rows] == sorted(TABLE)


def test_a_stale_page_is_noticed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reference, "PAGES", tmp_path)
    assert reference.main(["--check"]) == 1
    assert "codes.md is out of date" in capsys.readouterr().out
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0


def test_the_wire_page_names_every_message_that_is_spoken():
    page = (reference.PAGES / "wire.md").read_text()
    spoken = {
        shape.name for name, shape in vars(shapes).items() if name.endswith(("_REQUEST", "_ANSWER"))
    }
    assert spoken
    assert {name for name in spoken if f"**{name}**" not in page} == set()
