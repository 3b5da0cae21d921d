"""Sign-in at an issuer of OpenID Connect (Core 1.0), by the code flow with PKCE, state and nonce.

The client's proof and the claims' checks are Authlib's, signatures joserfc's. Nothing is kept between the two halves of a sign-in:
what the second needs travels in the browser, sealed by `Sealed`.
"""

import base64
import hashlib
import hmac
import json
import secrets
import threading
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from streamer.console.doors import IssuerAway, NotIdentified
from streamer.errors import StreamerError, UsageError
from streamer.extras import needed_by
from streamer.gates import labeller_names
from streamer.security.accounts import ROLES
from streamer_client import door
from streamer_client.loopback import is_loopback

with needed_by("sign-in with OpenID Connect", "oidc"):
    from authlib.common.errors import AuthlibBaseError
    from authlib.oauth2.auth import ClientAuth
    from authlib.oauth2.rfc7636 import create_s256_code_challenge
    from authlib.oidc.core import CodeIDToken
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

METADATA: Final = "/.well-known/openid-configuration"
PATIENCE_SECONDS: Final = 5.0
"""For each request to the issuer: somebody waits at a page meanwhile."""

BEGUN_SECONDS: Final = 600.0
"""How long somebody may take at the issuer."""

_FRESH_SECONDS: Final = 600.0
_MOST_BYTES: Final = 1_000_000
# Signatures that only the issuer can make: with an HMAC the client's secret could, and `none` is nobody's.
_ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
_NEEDED: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The console as an issuer's client, and how it reads the issuer's claims.

    Without `client_secret` it is a public client, which PKCE alone protects. `name_claim` has the
    person's name here; of ``email`` only a verified one. `roles_claim` has values that are, or by
    `roles` mean, roles; None: people have the roles of their accounts. Dots lead into objects.
    `clock_skew_seconds` : by how much the two clocks may differ. `insecure` : permit an issuer on another
    machine without TLS.
    """

    issuer: str
    client_id: str | None
    client_secret: str | None = field(default=None, repr=False)
    name_claim: str = "email"
    roles_claim: str | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    scopes: str = "openid email profile"
    clock_skew_seconds: float = 60.0
    insecure: bool = False

    def __post_init__(self) -> None:
        """Raise `UsageError` for settings that contradict each other."""
        _check_address(self.issuer, "the issuer", insecure=self.insecure)
        if not self.client_id:
            raise UsageError(f"{self.issuer} knows the console by a client id; set STREAMER_OIDC_CLIENT_ID")
        if "openid" not in self.scopes.split():
            raise UsageError("the scopes of OpenID Connect have `openid` among them (STREAMER_OIDC_SCOPES)")
        unknown = sorted(set(self.roles.values()) - set(ROLES))
        if unknown:
            raise UsageError(f"STREAMER_OIDC_ROLES: a role is one of {', '.join(ROLES)}, not {unknown[0]!r}")
        if self.roles and self.roles_claim is None:
            raise UsageError(
                "STREAMER_OIDC_ROLES says what values mean; STREAMER_OIDC_ROLES_CLAIM says of which claim"
            )


class Begun(NamedTuple):
    """A sign-in that was begun: where the browser goes, and what `Issuer.finish` needs."""

    url: str
    state: str
    nonce: str
    verifier: str


class Person(NamedTuple):
    """Whom an issuer identified, `subject` its identifier of them, `id_token` what its sign-out
    asks for.

    `roles` None: it says nothing of roles. Empty: it says that there are none here.
    """

    name: str
    subject: str
    roles: tuple[str, ...] | None
    id_token: str


class Issuer:
    """One issuer. Calls block; from any thread. `redirect` : the address of ours to which it sends
    people back; `monotonic` : seconds that only grow.
    """

    def __init__(
        self,
        registration: Registration,
        *,
        redirect: str,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self.registration = registration
        self.redirect = redirect
        self._clock = clock
        self._monotonic = monotonic
        self._metadata: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Its name for people: its host."""
        return urlsplit(self.registration.issuer).netloc

    def metadata(self) -> dict[str, Any]:
        """The issuer's metadata, at most ten minutes old. Raises `IssuerAway`."""
        with self._lock:
            if self._metadata is not None and self._monotonic() - self._metadata[0] < _FRESH_SECONDS:
                return self._metadata[1]
        found = self._get_json(self.registration.issuer.rstrip("/") + METADATA)
        if found.get("issuer") != self.registration.issuer:
            raise IssuerAway(
                f"{self.registration.issuer} calls itself {found.get('issuer')!r}; set STREAMER_OIDC_ISSUER to exactly that"
            )
        for name in _NEEDED:
            _check_address(
                found.get(name), f"its {name}", insecure=self.registration.insecure, error=IssuerAway
            )
        with self._lock:
            self._metadata = (self._monotonic(), found)
        return found

    def begin(self) -> Begun:
        """Begin a sign-in. Raises `IssuerAway`."""
        metadata = self.metadata()
        state, nonce, verifier = (secrets.token_urlsafe(size) for size in (32, 32, 48))
        query = {
            "response_type": "code",
            "client_id": self.registration.client_id,
            "redirect_uri": self.redirect,
            "scope": self.registration.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": create_s256_code_challenge(verifier),
            "code_challenge_method": "S256",
        }
        return Begun(f"{metadata['authorization_endpoint']}?{urlencode(query)}", state, nonce, verifier)

    def finish(self, query: Mapping[str, str], *, state: str, nonce: str, verifier: str) -> Person:
        """Finish a sign-in by what the issuer sent back with the browser.

        Raises `NotIdentified` where it is of another sign-in, the issuer refused, or what it says
        does not hold; `IssuerAway` where it cannot be asked.
        """
        if not hmac.compare_digest(query.get("state", "").encode(), state.encode()):
            raise NotIdentified("this is not the sign-in that was begun last in this browser; begin again")
        metadata = self.metadata()
        said = query.get("iss")
        if said != self.registration.issuer and (
            said is not None or metadata.get("authorization_response_iss_parameter_supported") is True
        ):
            raise NotIdentified(f"this answer is not of {self.name}; begin again")
        if "error" in query or not query.get("code"):
            raise NotIdentified(
                f"{self.name} did not sign you in: {query.get('error_description') or query.get('error') or 'it says no more'}"
            )
        token = self._exchange(metadata, query["code"], verifier)
        written = token.get("id_token")
        if not isinstance(written, str):
            raise NotIdentified(
                f"{self.name} sent no ID token; is `openid` among the scopes it allows this client?"
            )
        claims = self._verified(metadata, written, nonce, token.get("access_token"))
        return self._person(self._completed(metadata, claims, token), written)

    def sign_out(self, id_token: str, back: str) -> str | None:
        """The address at the issuer where somebody signs out there too; None where it has none, or is unavailable."""
        try:
            address = self.metadata().get("end_session_endpoint")
        except IssuerAway:
            return None
        if not isinstance(address, str):
            return None
        query = {
            "id_token_hint": id_token,
            "client_id": self.registration.client_id,
            "post_logout_redirect_uri": back,
        }
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"

    # -- what is asked of the issuer ------------------------------------------------------------------------

    def _how_to_prove(self) -> str:
        methods = (self._metadata[1] if self._metadata else {}).get("token_endpoint_auth_methods_supported")
        basic = not isinstance(methods, list) or "client_secret_basic" in methods
        return "client_secret_basic" if basic else "client_secret_post"

    def _exchange(self, metadata: Mapping[str, Any], code: str, verifier: str) -> dict[str, Any]:
        registration, address = self.registration, metadata["token_endpoint"]
        secret = registration.client_secret or None  # an empty file, as in compose: a public client
        proof = ClientAuth(registration.client_id, secret, "none" if secret is None else self._how_to_prove())
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect,
            "code_verifier": verifier,
        }
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        _, headers, body = proof.prepare("POST", address, kind, urlencode(form))
        reply, token = self._ask("POST", address, headers, body.encode())
        if "error" in token:
            # Its words: `invalid_client` where the secret is wrong, `invalid_grant` for a code that was used or is too old.
            raise NotIdentified(
                f"{self.name} did not accept the sign-in: {token.get('error_description') or token['error']}"
            )
        if reply.status != 200:
            raise IssuerAway(f"{address} answered with status {reply.status}")
        return token

    def _get_json(self, address: str, bearer: str | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json"}
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        reply, found = self._ask("GET", address, headers)
        if reply.status != 200:
            raise IssuerAway(f"{address} answered with status {reply.status}")
        return found

    def _ask(
        self, method: str, address: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> tuple[door.Reply, dict[str, Any]]:
        """The reply and the object in it; an empty one in that of an error which holds none."""
        try:
            reply = door.ask(
                method, address, seconds=PATIENCE_SECONDS, most=_MOST_BYTES, headers=headers, content=content
            )
        except door.ReplyFailed as failed:
            raise IssuerAway(f"{address} does not answer: {failed}") from None
        try:
            return reply, door.read_object(reply.content)
        except door.ReplyFailed:
            if reply.status != 200:
                return reply, {}
            raise IssuerAway(f"{address} sent no JSON object") from None

    # -- what it says ---------------------------------------------------------------------------------------

    def _verified(
        self, metadata: Mapping[str, Any], written: str, nonce: str, access_token: Any
    ) -> CodeIDToken:
        offered = metadata.get("id_token_signing_alg_values_supported")
        algorithms = [one for one in _ALGORITHMS if not isinstance(offered, list) or one in offered]
        if not algorithms:
            raise NotIdentified(f"{self.name} signs ID tokens by {offered}, of which none can be trusted")
        try:
            try:
                token = jwt.decode(written, self._key_set(metadata), algorithms=algorithms)
            except (JoseError, ValueError, RecursionError):
                # Keys are replaced from time to time, and a new one is not known yet.
                token = jwt.decode(written, self._key_set(metadata, anew=True), algorithms=algorithms)
            registration = self.registration
            claims = CodeIDToken(
                token.claims,
                token.header,
                options={
                    "iss": {"essential": True, "value": registration.issuer},
                    "aud": {"essential": True, "value": str(registration.client_id)},
                    "sub": {"essential": True},
                },
                params={"nonce": nonce, "client_id": registration.client_id, "access_token": access_token},
            )
            claims.validate(now=int(self._clock().timestamp()), leeway=int(registration.clock_skew_seconds))
        except (JoseError, AuthlibBaseError, ValueError, TypeError, RecursionError) as error:
            hint = (
                f"; do the clocks differ by more than {registration.clock_skew_seconds:.0f} seconds?"
                if any(
                    word in str(error).lower() for word in ("expire", "iat", "nbf", "future", "not yet valid")
                )
                else ""
            )
            raise NotIdentified(f"the ID token of {self.name} does not hold: {error}{hint}") from None
        return claims

    def _key_set(self, metadata: Mapping[str, Any], *, anew: bool = False) -> KeySet:
        with self._lock:
            kept = self._keys
        if kept is not None and not anew and self._monotonic() - kept[0] < _FRESH_SECONDS:
            return kept[1]
        found = self._get_json(metadata["jwks_uri"])
        keys = found.get("keys")
        listed = keys if isinstance(keys, list) else []
        usable = [one for one in listed if isinstance(one, dict) and one.get("use", "sig") == "sig"]
        if not usable:
            raise IssuerAway(f"{self.name} publishes no keys")
        made = KeySet.import_key_set({"keys": usable})
        with self._lock:
            self._keys = (self._monotonic(), made)
        return made

    def _completed(
        self, metadata: Mapping[str, Any], claims: Mapping[str, Any], token: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The claims, with those of its userinfo where the ID token lacks one that is wanted."""
        registration = self.registration
        wanted = [registration.name_claim, *([registration.roles_claim] if registration.roles_claim else [])]
        address, bearer = metadata.get("userinfo_endpoint"), token.get("access_token")
        if (
            all(_claim(claims, one) is not None for one in wanted)
            or not isinstance(bearer, str)
            or address is None
        ):
            return dict(claims)
        _check_address(address, "its userinfo_endpoint", insecure=registration.insecure, error=IssuerAway)
        more = self._get_json(address, bearer)
        if more.get("sub") != claims["sub"]:
            raise NotIdentified(f"{self.name} speaks of two people at once")
        return more | dict(claims)

    def _person(self, claims: Mapping[str, Any], written: str) -> Person:
        registration = self.registration
        name = _claim(claims, registration.name_claim)
        if not isinstance(name, str) or not name.strip():
            raise NotIdentified(
                f"{self.name} does not say your `{registration.name_claim}`; it must be among what it tells this client, "
                "or STREAMER_OIDC_NAME_CLAIM names another claim"
            )
        if registration.name_claim == "email":
            if claims.get("email_verified") is not True:
                raise NotIdentified(f"{self.name} has not verified that {name} is yours")
            name = name.lower()
        name = labeller_names.normalised(name)
        if (wrong := labeller_names.fault(name)) is not None:
            raise NotIdentified(f"the name that {self.name} gives you {wrong}")
        return Person(name, str(claims["sub"]), self._roles(claims), written)

    def _roles(self, claims: Mapping[str, Any]) -> tuple[str, ...] | None:
        registration = self.registration
        if registration.roles_claim is None:
            return None
        values = _claim(claims, registration.roles_claim)
        said = [values] if isinstance(values, str) else values if isinstance(values, list) else []
        meant: Sequence[str] = [
            (registration.roles.get(one, "") if registration.roles else one)
            for one in said
            if isinstance(one, str)
        ]
        return tuple(role for role in ROLES if role in meant)


class Sealed:
    """Texts that travel through a browser and come back as they were, for a while. One key a process."""

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._key = secrets.token_bytes(32)
        self._monotonic = monotonic

    def close(self, values: Mapping[str, str]) -> str:
        """Seal values for `BEGUN_SECONDS`."""
        until = self._monotonic() + BEGUN_SECONDS
        body = base64.urlsafe_b64encode(
            json.dumps({"until": until, "values": dict(values)}).encode()
        ).decode()
        return f"{body}.{self._seal(body)}"

    def open(self, text: str) -> dict[str, str] | None:
        """Return the values; None where they are not ours, or too old."""
        body, _, seal = text.partition(".")
        if not hmac.compare_digest(seal.encode(), self._seal(body).encode()):
            return None
        found = json.loads(base64.urlsafe_b64decode(body))
        return found["values"] if self._monotonic() < found["until"] else None

    def _seal(self, body: str) -> str:
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """The value of a claim by its name, or, where there is none, by the path that its dots make."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _check_address(
    address: Any, what: str, *, insecure: bool, error: type[StreamerError] = UsageError
) -> None:
    parts = urlsplit(address) if isinstance(address, str) else None
    if (
        parts is None
        or parts.scheme not in ("https", "http")
        or not parts.hostname
        or parts.query
        or parts.fragment
    ):
        raise error(f"{what} is an address like https://login.example, not {address!r}")
    if parts.scheme == "http" and not insecure and not is_loopback(parts.hostname):
        raise error(
            f"{what} is {address}: without TLS anybody between could sign in as anybody; with https, or, if that network is "
            "trusted, `streamer --insecure console ...`"
        )
