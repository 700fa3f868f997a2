"""House rules that a machine can check; the numbers may only go down."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src/landed").rglob("*.py"))
REFUSED_MODULES = {
    "utils", "helpers", "common", "misc", "base", "manager", "processor", "models", "core", "types",
}  # fmt: skip
MODULE_LINES_MAX = 560
"""Only the table definitions of the records are that long; everything else stays below 450."""
FUNCTION_LINES_MAX = 90


def test_modules_have_names_that_say_something() -> None:
    assert [] == [path for path in SOURCES if path.stem in REFUSED_MODULES]


def test_every_room_has_a_door_plate() -> None:
    plates = [path for path in SOURCES if path.name == "__init__.py"]
    assert [] == [path for path in plates if not ast.get_docstring(ast.parse(path.read_text()))]


def test_modules_and_functions_stay_readable() -> None:
    long = [
        f"{p.name}: {n}"
        for p in SOURCES
        if (n := len(p.read_text().splitlines())) > MODULE_LINES_MAX
    ]
    assert [] == long
    assert [] == [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {length}"
        for path, node in functions()
        if (length := (node.end_lineno or 0) - node.lineno - docstring_lines(node))
        > FUNCTION_LINES_MAX
    ]


def functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return len((ast.get_docstring(node) or "").splitlines())


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    ).stdout.split("\n")
    files = [ROOT / name for name in listed if name]
    if not files:
        pytest.skip("not a git checkout: nothing is tracked")
    return [path for path in files if path.is_file() and path.suffix not in (".png", ".json")]


def test_no_file_names_a_package_registry() -> None:
    parts = (("py", "pi.org"), ("python", "hosted"), ("npm", "js.org"), ("deb.", "debian"))
    hosts = re.compile("|".join(re.escape(head + tail) for head, tail in parts))
    assert [] == [path for path in tracked() if hosts.search(path.read_text(errors="replace"))]


def test_the_law_needs_no_extra() -> None:
    """The bare install imports and opens a log with every optional library blocked."""
    blocked = [
        "fastapi",
        "starlette",
        "uvicorn",
        "sqlalchemy",
        "psycopg",
        "httpx",
        "nats",
        "uvloop",
    ]
    code = (
        "import sys\n"
        f"for name in {blocked!r}: sys.modules[name] = None\n"
        "import landed, landed.commands, landed.server, landed.client.pool, landed.sim, landed.cli\n"
        "import asyncio\n"
        "async def main():\n"
        "    log = await landed.connect('memory:')\n"
        "    await log.close()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "" == done.stderr
    assert 0 == done.returncode


def test_the_readme_s_code_runs(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "" == done.stderr
    assert ["fresh", "original"] == re.findall(r"How\.\w+: '(\w+)'", done.stdout)


def test_no_test_waits_for_a_process_without_a_bound() -> None:
    unbounded = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            waits = called == "subprocess.run" or called.endswith(".communicate")
            if waits and "timeout" not in {keyword.arg for keyword in node.keywords}:
                unbounded.append(f"{path}:{node.lineno}: {called} has no timeout")
    assert [] == unbounded
