"""The one door for replies that come in by HTTP: bytes on the wire, unpacked bytes, nesting and time are bounded.

Whoever answers may send anything, for as long as it likes. No redirect is followed and no cookie kept: what is asked goes to the
address that was named, and nothing of a reply outlives it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

import msgspec

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

MOST_BYTES: Final = 4 * 2**20
"""Of a reply, packed and unpacked, unless its reader allows more."""

_MOST_ERROR_BYTES: Final = 2**16
"""Of a reply whose status is an error; the status alone is taken of a larger one."""

_SMALL: Final = 2**16
"""A reply that is larger waits until no other large one of its door is read: many at once are not larger than one."""

_MOST_VALUES: Final = 2**18
"""Of JSON that is read without a type: an empty list takes thirty times its three bytes."""

Failure = Literal["unreachable", "timed_out", "too_large", "unreadable"]


class ReplyFailed(Exception):
    """No reply, or none that can be taken; `code` says which."""

    def __init__(self, code: Failure, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class Reply(NamedTuple):
    """What came back. `content` is empty for an error whose body cannot be taken: its status says enough."""

    status: int
    headers: httpx2.Headers
    content: bytes


class Door:
    """Asks by HTTP, in one event loop. Close it, or use it in an ``async with`` block.

    Parameters
    ----------
    most : bytes of a reply.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        import httpx2

        self._most = most
        self._failures = httpx2.HTTPError, httpx2.InvalidURL
        self._http = httpx2.AsyncClient(**options())
        self._large = asyncio.Semaphore()

    async def ask(
        self,
        method: str,
        url: str,
        *,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Reply:
        """Send one request and read its reply, whatever its status. Raises `ReplyFailed`.

        `seconds` : from the start to the last byte of the reply, > 0.
        """
        found = b""
        try:
            async with asyncio.timeout(seconds), AsyncExitStack() as stack:
                request = self._http.build_request(method, url, content=content, headers=headers)
                response = await self._http.send(request, stream=True)
                stack.push_async_callback(response.aclose)
                if 200 <= response.status_code < 300:
                    found = await content_of(response, self._most, large=self._large)
                else:
                    with suppress(ReplyFailed):
                        found = await content_of(response, _MOST_ERROR_BYTES)
        except TimeoutError:
            raise ReplyFailed("timed_out", f"no reply within {seconds:g} s") from None
        except self._failures as error:
            raise ReplyFailed("unreachable", str(error) or type(error).__name__) from None
        return Reply(response.status_code, response.headers, found)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._http.aclose()


def ask(
    method: str,
    url: str,
    *,
    seconds: float,
    most: int = MOST_BYTES,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
) -> Reply:
    """The same, once, from a thread without an event loop: only an event loop can bound everything."""

    async def once() -> Reply:
        door = Door(most)
        try:
            return await door.ask(method, url, seconds=seconds, headers=headers, content=content)
        finally:
            await door.aclose()

    return asyncio.run(once())


def options(*, keep_alive: float = 5.0, **headers: str) -> dict[str, Any]:
    """Return how every client of httpx is made here: whoever uses it bounds the time, and reads by `content_of`.

    `keep_alive` : seconds that a connection may be idle.
    """
    import httpx2

    return {
        "headers": {"Accept-Encoding": "identity", "User-Agent": "streamer", **headers},
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=())),
        "follow_redirects": False,
        "timeout": None,
        "limits": httpx2.Limits(
            max_connections=None, max_keepalive_connections=100, keepalive_expiry=keep_alive
        ),
    }


async def content_of(
    response: httpx2.Response, most: int, *, large: asyncio.Semaphore | None = None
) -> bytes:
    """Read what a response holds, unpacked if somebody packed it though nobody asked for that.

    Parameters
    ----------
    response : whose content nobody has read yet.
    most : bytes, on the wire and unpacked.
    large : held from `_SMALL` bytes on.

    Raises
    ------
    ReplyFailed
        ``too_large`` or ``unreadable``.
    """
    blocks: list[bytes] = []
    block = bytearray()  # one that grows by a byte at a time up to `most` would leave holes in memory
    wire = size = 0
    unpack = _unpacker(response.headers.get("content-encoding", ""))
    async with AsyncExitStack() as slot, aclosing(response.aiter_raw()) as pieces:
        async for piece in pieces:
            wire += len(piece)
            for unpacked in unpack(piece):
                size += len(unpacked)
                if max(wire, size) > most:
                    raise ReplyFailed("too_large", f"the reply has more than {most:,} bytes")
                block += unpacked
                if len(block) > _SMALL:
                    blocks.append(bytes(block))
                    block.clear()
                    if large is not None:
                        await slot.enter_async_context(large)
                        slot.callback(
                            blocks.clear
                        )  # before the next one begins: an error's traceback keeps them
                        large = None
        return b"".join([*blocks, block])


def read_object(content: bytes) -> dict[str, Any]:
    """Read a JSON object of any members, as `read_json` does."""
    if sum(map(content.count, (b"[", b"{", b","))) > _MOST_VALUES:
        raise ReplyFailed("unreadable", f"it has more than {_MOST_VALUES:,} values")
    return read_json(content, dict[str, Any])


def read_json(content: bytes | msgspec.Raw, kind: type[T] | Any) -> T:
    """Read JSON of some type. Raises `ReplyFailed` (``unreadable``) for anything else, however deep it is nested."""
    try:
        found: T = msgspec.json.decode(content, type=kind)
    except RecursionError:
        raise ReplyFailed("unreadable", "its arrays and objects are nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ReplyFailed("unreadable", f"it is not the JSON that was asked for: {error}") from None
    return found


def _unpacker(encoding: str) -> Callable[[bytes], Iterable[bytes]]:
    """What makes of each piece on the wire unpacked ones of `_SMALL` bytes at most."""
    if encoding.strip().lower() in ("", "identity"):
        return lambda piece: (piece,)
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        raise ReplyFailed("unreadable", f"the reply is packed by {encoding[:40]!r}, which nobody asked for")
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)

    def unpack(piece: bytes) -> Iterator[bytes]:
        try:
            while piece:
                yield unpacking.decompress(piece, _SMALL)
                piece = unpacking.unconsumed_tail
        except zlib.error as error:
            raise ReplyFailed("unreadable", f"the reply cannot be unpacked: {error}") from None

    return unpack
