"""What a refused sender is told, as RFC 9457 problems. Statuses are those of rule AU-7, and no others.

Never a redirect and never 410, which senders take for an order to stop for ever (AU-8); never 500.
"""

from __future__ import annotations

import json
from typing import Final

from landed.deliveries.event import Rejected

MEDIA_TYPE: Final = b"application/problem+json"

TITLES: Final = {
    400: "The delivery is malformed",
    401: "The delivery is not authenticated",
    403: "The sender may not deliver here",
    404: "Nothing is here",
    405: "Deliveries are sent with POST",
    413: "The delivery is too large",
    415: "The media type is not read here",
    429: "Deliveries come too fast",
    503: "It cannot be kept durably now; send it again",
}
STATUSES: Final = frozenset({400, 401, 403, 413, 415, 429, 503})
"""What a refused delivery can be answered with; 404 and 405 answer what is none."""


def problem(rejected: Rejected) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body of a refusal."""
    body = json.dumps(
        {
            "type": f"urn:landed:problem:{rejected.reason}",
            "title": TITLES[rejected.status],
            "status": rejected.status,
            "detail": rejected.detail,
            "reason": rejected.reason,
        }
    ).encode()
    headers = [(b"content-type", MEDIA_TYPE)]
    if rejected.status in (429, 503):
        wait_s = 1 if rejected.retry_after_s is None else rejected.retry_after_s
        headers.append((b"retry-after", str(wait_s).encode()))
    if rejected.status == 401:
        headers.append((b"www-authenticate", b"Signature"))
    if rejected.status == 405:
        headers.append((b"allow", b"POST, OPTIONS"))
    return rejected.status, headers, body
