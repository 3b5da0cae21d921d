"""Tokens for SASL OAUTHBEARER: read anew for each connection, from a file that something else renews or from a command."""

import asyncio
import re
import shlex
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

SECONDS: Final = 10.0
"""How long the command may take."""

_REUSED_SECONDS: Final = 5.0
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_MOST_CHARACTERS: Final = 1_000_000


class NoToken(OSError):
    """There is no token now. Clients take it for a lost connection and try again."""


class Tokens(Protocol):
    """Where tokens come from."""

    def token(self) -> str:
        """The token for a new connection. Blocks; raises `NoToken`."""
        ...


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file that always holds a token which is good for a while."""

    path: Path

    def token(self) -> str:
        """Read the file."""
        try:
            with self.path.open(encoding="ascii", errors="replace") as file:
                text = file.read(_MOST_CHARACTERS)
        except OSError as error:
            raise NoToken(f"cannot read the token in {self.path}: {error.strerror}") from None
        return _checked(text, f"the file {self.path}")


class TokenCommand:
    """A command that prints a token. Connections that are opened together share one run.

    Parameters
    ----------
    command : words as a shell would part them; it is run without a shell.

    Raises
    ------
    ValueError : it has no words, or a quote without its end.
    """

    def __init__(self, command: str) -> None:
        self._words = shlex.split(command)
        if not self._words:
            raise ValueError("it is empty")
        self._turn = threading.Lock()
        self._newest: tuple[float, str] | None = None

    def token(self) -> str:
        """Run the command, or return what it printed within the last few seconds."""
        with self._turn:
            if self._newest is None or time.monotonic() - self._newest[0] > _REUSED_SECONDS:
                found = self._run()
                self._newest = time.monotonic(), found
            return self._newest[1]

    def _run(self) -> str:
        name = f"the command {self._words[0]} for a token"
        try:
            done = subprocess.run(  # noqa: S603 - the operator's own setting, and without a shell
                self._words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NoToken(f"{name} took longer than {SECONDS:g} s") from None
        except OSError as error:
            raise NoToken(f"{name} cannot be run: {error.strerror}") from None
        if done.returncode:
            # Its last line alone: nobody knows what a command prints before.
            said = done.stderr.strip().splitlines()[-1:]
            raise NoToken(
                f"{name} ended with status {done.returncode}" + "".join(f": {line[:200]}" for line in said)
            )
        return _checked(done.stdout, f"the output of {self._words[0]}")


def _checked(text: str, where: str) -> str:
    token = text.strip()
    if _TOKEN.fullmatch(token) is None:
        raise NoToken(f"{where} is no token: it must have the characters of RFC 6750 alone, on one line")
    return token


def aiokafka_provider(tokens: Tokens) -> Any:
    """Return tokens as aiokafka asks for them: on its event loop, which must not wait."""
    from aiokafka.abc import AbstractTokenProvider

    class AiokafkaProvider(AbstractTokenProvider):
        async def token(self) -> str:
            return await asyncio.get_running_loop().run_in_executor(None, tokens.token)

    return AiokafkaProvider()


def kafka_python_provider(tokens: Tokens) -> Any:
    """Return tokens as kafka-python asks for them: in its own thread."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class KafkaPythonProvider(AbstractTokenProvider):
        def token(self) -> str:
            return tokens.token()

    return KafkaPythonProvider()  # type: ignore[no-untyped-call]
