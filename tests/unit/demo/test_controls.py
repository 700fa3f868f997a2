"""Whatever is sent to the demo's own controls gets an answer."""

from __future__ import annotations

import pytest

from landed.demo.balancer import Loss
from landed.demo.controls import Controls
from landed.demo.http import RequestHead

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("path", ["/demo/kill", "/demo/loss"])
@pytest.mark.parametrize("body", [b"[" * 100_000, b"", b"{}", b"5", b"\xff", b'{"rate":"x"}'])
async def test_a_body_that_no_control_takes_is_refused(path: str, body: bytes) -> None:
    head = RequestHead("POST", path, JSON, (), len(body))
    answered = await Controls([], Loss())(head, body)
    assert answered is not None
    assert answered.startswith(b"HTTP/1.1 400 ")
