"""Canonical bytes of a payload, and digests that never confuse two lists of parts.

Floor 0. A fingerprint answers "is this the same payload?" across spellings: member order, white
space, escapes and number spelling of a JSON document do not matter (RFC 8785), anything else is
taken byte for byte. A number that a double cannot hold exactly is refused rather than rounded.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Final, NamedTuple

JCS: Final = "jcs-1"
RAW: Final = "raw-1"
EXACT_INTEGER_MAX: Final = 2**53 - 1
"""Up to here no two integers share a double (RFC 7493); beyond, write them as text."""
DEPTH_MAX: Final = 64
"""Nesting of a JSON document; deep enough for people, shallow enough for the parser's stack."""

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[\]{}]")

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


class Fingerprint(NamedTuple):
    """A digest and the name of the form it was taken over; comparable only under one form."""

    form: str
    digest: bytes
    """SHA-256, 32 bytes."""


class NotExactError(ValueError):
    """The document means something that canonical JSON cannot hold.

    ``reason`` is a fixed word: syntax, encoding, repeated_member, number_out_of_domain, too_deep.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


def parse_json(data: bytes, *, depth_max: int = DEPTH_MAX) -> Json:
    """Read a JSON document strictly.

    Raises:
        NotExactError: not UTF-8, not JSON, a member twice in one object, nested too deep, or a
            number that a double cannot hold exactly.
    """
    _check_depth(data, depth_max)
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        raise NotExactError("encoding", str(e)) from None
    try:
        document: Json = _DECODER.decode(text)
    except NotExactError:
        raise
    except (ValueError, RecursionError) as e:
        raise NotExactError("syntax", str(e)) from None
    return document


def canonical_json(value: Json) -> bytes:
    """Write the one canonical form of a JSON value (RFC 8785).

    Raises:
        NotExactError: a number outside the exact domain, a text that is not Unicode, or a value
            that JSON does not have.
    """
    try:
        pieces: list[str] = []
        _write(value, 0, pieces)
        return "".join(pieces).encode()
    except UnicodeEncodeError as e:
        raise NotExactError("encoding", str(e)) from None


def fingerprint_json(value: Json) -> Fingerprint:
    """Fingerprint a JSON value by its canonical form."""
    return fingerprint_canonical(canonical_json(value))


def fingerprint_canonical(data: bytes) -> Fingerprint:
    """Fingerprint a JSON value that was written by ``canonical_json``."""
    return Fingerprint(JCS, hashlib.sha256(data).digest())


def fingerprint_raw(data: bytes) -> Fingerprint:
    """Fingerprint bytes as they are."""
    return Fingerprint(RAW, hashlib.sha256(data).digest())


def join_parts(parts: Iterable[bytes]) -> bytes:
    """Join parts so that different lists never give the same bytes: each behind its length."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def digest_parts(*parts: bytes) -> bytes:
    """SHA-256 over length-prefixed parts."""
    return hashlib.sha256(join_parts(parts)).digest()


def keyed_digest(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA-256 under an installation's key, over length-prefixed parts."""
    return hmac.digest(key, join_parts(parts), "sha256")


def _check_depth(data: bytes, depth_max: int) -> None:
    """Bound the nesting before the parser recurses; brackets inside strings do not count."""
    if data.count(b"[") + data.count(b"{") <= depth_max:
        return  # as deep as all of them, and no deeper
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        if depth > depth_max:
            raise NotExactError("too_deep", f"more than {depth_max} levels")


def _unrepeated(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotExactError("repeated_member", "a member occurs twice in one object")
    return members


def _exact_int(text: str) -> int:
    # Sixteen digits and a sign hold every exact integer; a longer text is not even converted.
    if len(text) > 17 or abs(number := int(text)) > EXACT_INTEGER_MAX:
        raise NotExactError("number_out_of_domain", text[:20])
    return number


def _finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number) or (number.is_integer() and abs(number) > EXACT_INTEGER_MAX):
        raise NotExactError("number_out_of_domain", text[:20])
    return number


def _no_constant(text: str) -> Json:
    raise NotExactError("number_out_of_domain", text)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unrepeated,
    parse_int=_exact_int,
    parse_float=_finite_float,
    parse_constant=_no_constant,
)


def _write(value: Json, depth: int, pieces: list[str]) -> None:
    if depth > DEPTH_MAX:
        raise NotExactError("too_deep", f"more than {DEPTH_MAX} levels")
    if isinstance(value, str):
        pieces.append(encode_basestring(value))
    elif value is None or value is True or value is False:
        pieces.append(json.dumps(value))
    elif isinstance(value, int | float):
        pieces.append(_number(value))
    elif isinstance(value, Mapping):
        separator = "{"
        # RFC 8785 sorts by UTF-16 code units.
        for name in sorted(value, key=lambda text: text.encode("utf-16-be", "surrogatepass")):
            if not isinstance(name, str):
                raise NotExactError("syntax", "a member's name is not a text")
            pieces.append(f"{separator}{encode_basestring(name)}:")
            _write(value[name], depth + 1, pieces)
            separator = ","
        pieces.append("}" if separator == "," else "{}")
    elif isinstance(value, list | tuple):
        separator = "["
        for item in value:
            pieces.append(separator)
            _write(item, depth + 1, pieces)
            separator = ","
        pieces.append("]" if separator == "," else "[]")
    else:
        raise NotExactError("syntax", f"JSON has no {type(value).__name__}")


def _number(value: float) -> str:
    """A number as ECMAScript prints it, which RFC 8785 prescribes."""
    if isinstance(value, int) or (math.isfinite(value) and value.is_integer()):
        if abs(value) > EXACT_INTEGER_MAX:
            raise NotExactError("number_out_of_domain", str(value)[:20])
        return str(int(value))
    if not math.isfinite(value):
        raise NotExactError("number_out_of_domain", str(value))
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    # Only small numbers come here: large ones are integers. Python turns to exponents below 1e-4,
    # ECMAScript below 1e-6.
    power = int(exponent)
    digits = mantissa.replace("-", "").replace(".", "")
    sign = "-" if value < 0 else ""
    if power >= -6:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    digits = digits.rstrip("0") or "0"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{power}"
