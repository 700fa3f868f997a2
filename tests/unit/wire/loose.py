"""MessagePack written the way nobody writes it, to see what a reader takes.

``parse`` turns a canonical body into a tree, ``write`` turns a tree into bytes with whatever form a
``choose`` function picks. Neither uses the product's own reader or writer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Choose = Callable[[Sequence[Any]], Any]


class Node(NamedTuple):
    kind: str
    """nil, bool, int, float, bin, str, array, map"""
    value: Any


def first(options: Sequence[Any]) -> Any:
    """Choose the canonical form."""
    return options[0]


def parse(body: bytes) -> Node:
    node, end = _parse(body, 0)
    assert end == len(body)
    return node


def _parse(data: bytes, at: int) -> tuple[Node, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return Node("int", byte), at
    if byte in {0xC0, 0xC2, 0xC3}:
        return (Node("nil", None) if byte == 0xC0 else Node("bool", byte == 0xC3)), at
    if 0xCC <= byte <= 0xCF:
        size = 1 << (byte - 0xCC)
        return Node("int", int.from_bytes(data[at : at + size], "big")), at + size
    if byte in {0xC4, 0xC5, 0xC6} or byte in {0xD9, 0xDA, 0xDB} or 0xA0 <= byte <= 0xBF:
        kind = "bin" if byte in {0xC4, 0xC5, 0xC6} else "str"
        size = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}.get(byte, 0)
        length = int.from_bytes(data[at : at + size], "big") if size else byte & 0x1F
        at += size
        return Node(kind, data[at : at + length]), at + length
    is_map = byte in {0xDE, 0xDF} or 0x80 <= byte <= 0x8F
    size = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}.get(byte, 0)
    count = int.from_bytes(data[at : at + size], "big") if size else byte & 0x0F
    at += size
    items = []
    for _ in range(count * (2 if is_map else 1)):
        node, at = _parse(data, at)
        items.append(node)
    if is_map:
        return Node("map", list(zip(items[::2], items[1::2], strict=True))), at
    return Node("array", items), at


def write(node: Node, choose: Choose = first) -> bytes:
    match node:
        case Node("nil", _):
            return b"\xc0"
        case Node("bool", value):
            return b"\xc3" if value else b"\xc2"
        case Node("float", value):
            return b"\xcb" + struct.pack(">d", value)
        case Node("int", value):
            return choose(int_forms(value))
        case Node("str", value):
            return choose(headers(len(value), (0xA0, 31), (0xD9, 0xDA, 0xDB))) + value
        case Node("bin", value) if len(value) == 16:
            return choose(id_forms(value))
        case Node("bin", value):
            return choose(payload_forms(value))
        case Node("array", items):
            header = choose(headers(len(items), (0x90, 15), (None, 0xDC, 0xDD)))
            return header + b"".join(write(item, choose) for item in items)
        case Node("map", pairs):
            header = choose(headers(len(pairs), (0x80, 15), (None, 0xDE, 0xDF)))
            return header + b"".join(write(k, choose) + write(v, choose) for k, v in pairs)
    raise AssertionError(node)


def int_forms(value: int) -> list[bytes]:
    """Every way to write an integer, the shortest first."""
    forms = []
    if -32 <= value < 0x80:
        forms.append(struct.pack(">b", value))
    for marker, size in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
        if 0 <= value < 1 << (8 * size):
            forms.append(bytes([marker]) + value.to_bytes(size, "big"))
    for marker, size in ((0xD0, 1), (0xD1, 2), (0xD2, 4), (0xD3, 8)):
        if -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1):
            forms.append(bytes([marker]) + value.to_bytes(size, "big", signed=True))
    return forms


def headers(
    length: int, fixed: tuple[int, int] | None, markers: tuple[int | None, int, int]
) -> list[bytes]:
    """Every way to announce a length, the shortest first."""
    forms = []
    if fixed and length <= fixed[1]:
        forms.append(bytes([fixed[0] | length]))
    for marker, size in zip(markers, (1, 2, 4), strict=True):
        if marker is not None and length < 1 << (8 * size):
            forms.append(bytes([marker]) + length.to_bytes(size, "big"))
    return forms


def id_forms(value: bytes) -> list[bytes]:
    """A 128-bit number as bin8, or as an integer if it is small enough for one."""
    number = int.from_bytes(value, "big")
    return [b"\xc4\x10" + value, *(int_forms(number) if number < 1 << 64 else [])]


def payload_forms(value: bytes) -> list[bytes]:
    """Bytes as bin, as str or as an array of integers."""
    as_bin = headers(len(value), None, (0xC4, 0xC5, 0xC6))
    as_str = headers(len(value), (0xA0, 31), (0xD9, 0xDA, 0xDB))
    as_list = headers(len(value), (0x90, 15), (None, 0xDC, 0xDD))
    numbers = b"".join(int_forms(byte)[0] for byte in value)
    return [head + value for head in (*as_bin, *as_str)] + [head + numbers for head in as_list]
