"""Which names a server answers to."""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from streamer_client.loopback import is_loopback

_PORTS: Final = {"http": 80, "https": 443}
_EVERY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - asked about, not listened on


def origin_of(address: str) -> str:
    """Return the origin that an address names, as a browser writes it: in lower case, without the port that its scheme has anyway.

    Raises ValueError for what names no origin, or more than one.
    """
    parts = urlsplit(address)
    host, port = parts.hostname, parts.port
    more = parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in _PORTS or not host or more or any(map(str.isspace, host)):
        raise ValueError(f"{address!r} is no origin")
    bare = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{bare}" + ("" if port in (None, _PORTS[parts.scheme]) else f":{port}")


def answers_to(header: str, listening: str) -> bool:
    """Report whether a request's Host may be answered by a server that listens on `listening`.

    A name that somebody else owns may be pointed at this machine at any moment (DNS rebinding), and a page under that
    name would then be of our origin: only the loopback, the address that was asked for, and numeric addresses where
    every address is listened on are answered. The port is left open: a tunnel has its own.
    """
    host = _without_port(header).lower()
    if is_loopback(listening):
        return is_loopback(host)
    if listening in _EVERY_ADDRESS:
        return is_loopback(host) or _is_address(host)
    return host == listening.strip("[]").lower()


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
