"""Whether a broker accepts us, and if not, why: client libraries keep trying and only report a timeout."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaError, SaslAuthenticationFailed, UnsupportedSaslMechanismError
from aiokafka.protocol.admin import ApiVersionRequest

from streamer.errors import Unavailable, UsageError
from streamer.stream.connection import KafkaConnection, NoToken

SECONDS = 5.0
"""How long each server may take to let us in."""


def shake_hands(connection: KafkaConnection, *, seconds: float = SECONDS) -> None:
    """Return once one of the bootstrap servers has accepted us. Blocks; not for a thread that runs an event loop.

    Raises `UsageError` when a server is there and waiting would not help: a wrong password or
    mechanism, a certificate that one of the two sides does not trust, TLS on one side only;
    `Unavailable` when no server answers.
    """
    refusals: list[str] = []
    silent: list[str] = []
    for server in connection.servers:
        try:
            asyncio.run(_one(connection, server, seconds))
        except UsageError as error:
            refusals.append(str(error))
        except (OSError, TimeoutError, KafkaError, ValueError):
            silent.append(server)
        else:
            return
    if refusals:
        raise UsageError("; ".join(refusals))
    raise Unavailable(
        f"no broker answers at {', '.join(silent)}; start it, or correct kafka.bootstrap_servers"
    )


async def _one(connection: KafkaConnection, server: str, seconds: float) -> None:
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    arguments = connection.for_aiokafka(AIOKafkaConnection)
    del arguments["bootstrap_servers"]
    arguments["request_timeout_ms"] = int(seconds * 1000)
    client = AIOKafkaConnection(host, int(port), **arguments)
    try:
        async with asyncio.timeout(seconds), _left_closed(client):
            await client.connect()
            if "sasl_oauth_token_provider" in arguments:
                await _take_answer(client, server)
    except NoToken as error:
        raise UsageError(str(error)) from error
    except SaslAuthenticationFailed as error:
        user = connection.properties.get("sasl.username")
        who = "the token" if user is None else f"the user {user}"
        raise UsageError(f"{server} refuses {who}: {error.args[0]}") from error
    except UnsupportedSaslMechanismError as error:
        raise UsageError(
            f"{server} does not offer the sasl.mechanism {arguments['sasl_mechanism']}"
        ) from error
    except ssl.SSLCertVerificationError as error:
        raise UsageError(
            f"the certificate of {server} is not trusted: {error.verify_message};"
            " ssl.ca.location names the authorities to trust"
        ) from error
    except (ConnectionResetError, ssl.SSLEOFError, KafkaError) as error:
        reason = await _why_closed(connection, host, int(port), seconds)
        if reason is None:
            raise
        raise UsageError(f"{server} {reason}") from error
    except ssl.SSLError as error:
        raise UsageError(f"{server} and we agree on no TLS: {error.reason or error}") from error


async def _take_answer(client: AIOKafkaConnection, server: str) -> None:
    """Ask something: aiokafka takes every answer to a token for a yes, and who was told no is served nothing."""
    try:
        refused = (await client.send(ApiVersionRequest())).error_code != 0
    except KafkaError:
        refused = True
    if refused:
        raise UsageError(
            f"{server} refuses the token: it has expired, or is for somebody else; the broker's log says which"
        )


@contextlib.asynccontextmanager
async def _left_closed(client: AIOKafkaConnection) -> AsyncIterator[None]:
    """Close the connection, if there is one, and wait until its socket is."""
    try:
        yield
    except OSError:
        raise  # nothing was opened
    except BaseException:
        await client.close()
        raise
    await client.close()


async def _why_closed(connection: KafkaConnection, host: str, port: int, seconds: float) -> str | None:
    """Say why a server that accepted the connection closed it without an error; None where it is just unavailable."""
    speaks_tls = await _speaks_tls(host, port, seconds)
    if speaks_tls is None:
        return None
    wants_tls = connection.protocol.endswith("SSL")
    if speaks_tls and not wants_tls:
        return f"speaks TLS, and security.protocol is {connection.protocol}; set SSL or SASL_SSL"
    if wants_tls and not speaks_tls:
        return f"speaks no TLS, and security.protocol is {connection.protocol}"
    if not wants_tls:
        return None
    if connection.protocol == "SSL":
        return (
            "ends the connection: it requires a client certificate that it trusts"
            " (ssl.certificate.location, ssl.key.location), or SASL (security.protocol SASL_SSL)"
        )
    return f"ends the connection: security.protocol {connection.protocol} may not be what this port is for"


async def _speaks_tls(host: str, port: int, seconds: float) -> bool | None:
    """Whether the port begins a TLS handshake; None when nothing listens."""
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE  # a probe only: nothing is sent
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port, ssl=anyone)
    except (ssl.SSLError, ConnectionResetError):
        return False if await _still_there(host, port) else None
    except (OSError, TimeoutError):
        return None
    await _closed(writer)
    return True


async def _still_there(host: str, port: int) -> bool:
    """Whether connections are taken: a broker that is being stopped cuts them as well, and takes no new ones."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    await _closed(writer)
    return True


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
