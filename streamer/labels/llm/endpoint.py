"""Where a language model is and how patiently it is asked: any endpoint that speaks OpenAI's chat protocol."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from streamer.errors import UsageError
from streamer_client.loopback import is_loopback

TokenLimitName = Literal["max_tokens", "max_completion_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpoint:
    """How a model is reached, and how often it is asked again.

    `base_url` goes up to and with the version, for example ``https://api.together.xyz/v1``.
    `api_key` is empty for an endpoint that asks for none, and never shown. At most `concurrency` >=
    1 requests are in flight. A question is put at most `tries` >= 1 times to an endpoint that is
    busy, failing or unavailable, with `first_delay` seconds between, doubled after each further
    failure up to `longest_delay`; an endpoint that says how long to wait is obeyed up to that.
    `timeout` has seconds for one request, from its start to the last byte of its reply.
    `allow_plaintext` permits ``http`` to a host that is not this machine.

    Raises `UsageError` when a value is out of its range.
    """

    whose: ClassVar[str] = "the endpoint's"
    """Begins what is said about a value that is out of its range."""

    model: str = "gpt-4o-mini"
    base_url: str = field(default="https://api.openai.com/v1", repr=False)
    api_key: str = field(default="", repr=False)
    concurrency: int = 8
    tries: int = 6
    timeout: float = 60.0
    first_delay: float = 0.5
    longest_delay: float = 60.0
    allow_plaintext: bool = False

    def __post_init__(self) -> None:
        self._require(
            ("model", self.model, bool(self.model.strip())),
            ("concurrency", self.concurrency, self.concurrency >= 1),
            ("tries", self.tries, self.tries >= 1),
            ("timeout", self.timeout, 0.0 < self.timeout < math.inf),
            ("first_delay", self.first_delay, 0.0 <= self.first_delay <= self.longest_delay),
            ("longest_delay", self.longest_delay, self.longest_delay < math.inf),
        )
        self._check_url()
        self._check_key()

    @property
    def host(self) -> str:
        """The host that is asked, with its port where the address names one; in small letters."""
        return urlsplit(self.base_url).netloc.lower()

    def _require(self, *fields: tuple[str, object, bool]) -> None:
        for name, value, in_range in fields:
            if not in_range:
                raise UsageError(f"{self.whose} {name} cannot be {value!r}")

    def _check_url(self) -> None:
        try:
            parts = urlsplit(self.base_url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            parts, host = None, None
        if parts is None or parts.scheme not in ("http", "https") or not host:
            raise UsageError(f"{self.whose} base_url must look like https://HOST/v1")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise UsageError(
                f"{self.whose} base_url must be without user, password, query and fragment: use api_key"
            )
        if parts.scheme == "http" and not (self.allow_plaintext or is_loopback(host)):
            raise UsageError(
                f"prompts, answers and the key would be sent unencrypted to {host}: use https, or allow it with "
                "`streamer --insecure` (in Python: allow_plaintext)"
            )

    def _check_key(self) -> None:
        """A key goes into a header: what none can hold is reported here, and not by a client that quotes it."""
        if not all("!" <= character <= "~" for character in self.api_key):
            raise UsageError(
                f"{self.whose} api_key holds a space, a line end or a character that no key has; look into its file"
            )
