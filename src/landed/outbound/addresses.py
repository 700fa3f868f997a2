"""Addresses that somebody else chose: resolved once, and refused where they point inside (SE-3)."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import NamedTuple

import httpx


class Checked(NamedTuple):
    """Where to connect, so that nothing is resolved a second time."""

    url: str
    host: str
    """For the Host header."""
    name: str
    """For TLS."""


async def check_address(url: str) -> Checked | str:
    """Resolve a URL's host once; a text says why it is refused."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as e:
        return f"not a URL: {e}"
    if parsed.scheme not in ("http", "https") or not parsed.host:
        return "only http and https addresses are called"
    port = parsed.port or (443 if parsed.scheme == "https" else 80)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            parsed.host, port, type=socket.SOCK_STREAM
        )
    except OSError as e:
        return f"the name cannot be resolved: {e}"
    addresses = [str(entry[4][0]) for entry in found]
    refused = [address for address in addresses if not is_public(address)]
    if refused or not addresses:
        return f"{parsed.host} points to {', '.join(refused) or 'nothing'}, which is not public"
    first = addresses[0]
    return Checked(str(parsed.copy_with(host=first)), parsed.netloc.decode("ascii"), parsed.host)


def is_public(address: str) -> bool:
    """Say whether an address lies outside: no private, loopback, link-local or reserved one."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    ip = ip if mapped is None else mapped
    return ip.is_global and not ip.is_multicast
