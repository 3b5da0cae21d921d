"""Alerts beside their topic: a signed webhook and e-mail. At least once each, nearly in the order in which they were raised."""

import base64
import binascii
import hmac
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import msgspec
import structlog

from streamer.errors import StreamerError, UsageError
from streamer.security.visible import visible
from streamer.settings.settings import AlertSettings, Settings
from streamer.store.risk.alerts import Alerts, Incident, RaisedAlert
from streamer_client.door import ReplyFailed, ask
from streamer_client.loopback import is_loopback

log = structlog.get_logger(__name__)

EVERY_SECONDS: Final = 2.0
LONGEST_WAIT_SECONDS: Final = 300.0
GIVEN_UP_AFTER: Final = timedelta(days=1)
_LEAST_SECRET_BYTES: Final = 24
_OWN_FAULT: Final = (401, 403, 404, 408, 425, 429)
"""Client errors that say nothing of the one message that got them."""


class NotDelivered(StreamerError):
    """A channel did not take an alert; `alone` : because of what is in it, so that others may be taken."""

    def __init__(self, detail: str, *, alone: bool = False) -> None:
        super().__init__(detail)
        self.alone = alone


class Webhook:
    """Posts alerts as JSON, signed as https://www.standardwebhooks.com says, so that its libraries verify them.

    Raises `UsageError` for an address or a secret that cannot be.
    """

    name = "webhook"

    def __init__(
        self, settings: AlertSettings, *, clock: Callable[[], datetime], insecure: bool = False
    ) -> None:
        url = urlsplit(settings.webhook_url or "")
        _require_tls("alerts.webhook_url", url.hostname, url.scheme, ("https", "http"), insecure)
        secret = (settings.webhook_secret or "").strip()
        try:
            packed = secret.removeprefix("whsec_")
            self._key = secret.encode() if packed == secret else base64.b64decode(packed, validate=True)
        except binascii.Error:
            raise UsageError(
                "alerts.webhook_secret begins with whsec_, and what follows is not base64"
            ) from None
        if len(self._key) < _LEAST_SECRET_BYTES:
            raise UsageError(
                f"alerts.webhook_secret needs {_LEAST_SECRET_BYTES} bytes or more: "
                "`echo whsec_$(openssl rand -base64 32)` makes one"
            )
        self._settings = settings
        self._clock = clock

    def send(self, raised: RaisedAlert, incident: Incident) -> None:
        """Post one; its `webhook-id` is the alert's, however often it is posted."""
        event = raised.alert
        body = msgspec.json.encode(
            {
                "type": "alert.raised",
                "timestamp": event.raised_at,
                "data": {
                    **msgspec.to_builtins(event),
                    "incident": incident.first.alert.alert_id,
                    "link": _link(self._settings, event.alert_id),
                },
            }
        )
        at = f"{self._clock().timestamp():.0f}"
        signed = hmac.digest(self._key, f"{event.alert_id}.{at}.".encode() + body, "sha256")
        headers = {
            "content-type": "application/json",
            "webhook-id": event.alert_id,
            "webhook-timestamp": at,
            "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
        }
        url, seconds = self._settings.webhook_url or "", self._settings.timeout_seconds
        try:
            status = ask("POST", url, seconds=seconds, headers=headers, content=body).status
        except ReplyFailed as error:
            if error.code not in ("too_large", "unreadable"):
                raise NotDelivered(str(error)) from None
            status = 200  # it answered with success, and what it says besides is nothing to us
        if not 200 <= status < 300:
            raise NotDelivered(
                f"it answered {status}", alone=400 <= status < 500 and status not in _OWN_FAULT
            )


class Mail:
    """Sends alerts by SMTP: those of an incident as one conversation. Raises `UsageError` for settings that cannot be."""

    name = "mail"

    def __init__(self, settings: AlertSettings, *, insecure: bool = False) -> None:
        url = urlsplit(settings.smtp_url or "")
        _require_tls("alerts.smtp_url", url.hostname, url.scheme, ("smtps", "smtp"), insecure)
        if settings.mail_from is None or not settings.mail_to:
            raise UsageError("alerts.smtp_url needs alerts.mail_from and alerts.mail_to")
        self._settings, self._url = settings, url
        self._plain = insecure or is_loopback(url.hostname or "")

    def send(self, raised: RaisedAlert, incident: Incident) -> None:
        """Send one; its `Message-ID` is made of the alert's id, however often it is sent."""
        settings, event = self._settings, raised.alert
        link = _link(settings, event.alert_id)
        message = EmailMessage()
        message["From"], message["To"] = settings.mail_from, ", ".join(settings.mail_to)
        message["Subject"] = visible(f"[{event.level}] {' '.join(event.message.split())}"[:150])
        message["Date"] = format_datetime(event.raised_at)
        message["Message-ID"] = f"<{event.alert_id}@streamer.invalid>"
        message["Auto-Submitted"] = "auto-generated"
        if (first := incident.first.alert.alert_id) != event.alert_id:
            message["References"] = message["In-Reply-To"] = f"<{first}@streamer.invalid>"
        message.set_content(
            f"{visible(event.message)}\n\n"
            f"What to do:   streamer alert show {first}\n"
            f'Once it is known: streamer alert acknowledge {event.gate} --reason "..."\n'
            + ("" if link is None else f"{link}\n")
        )
        try:
            with self._connected() as smtp:
                smtp.send_message(message)
        except smtplib.SMTPDataError as error:
            raise NotDelivered(_said(error), alone=error.smtp_code >= 500) from None
        except (smtplib.SMTPException, OSError) as error:
            raise NotDelivered(_said(error)) from None

    def _connected(self) -> smtplib.SMTP:
        settings, url = self._settings, self._url
        seconds, context = settings.timeout_seconds, ssl.create_default_context()
        host = url.hostname or ""
        smtp: smtplib.SMTP = (
            smtplib.SMTP_SSL(timeout=seconds, context=context)
            if url.scheme == "smtps"
            else smtplib.SMTP(timeout=seconds)
        )
        # The name in the certificate. A constructor that is given it connects at once, before the limit below.
        smtp._host = host  # type: ignore[attr-defined]

        def cut() -> None:
            if smtp.sock is not None:
                with suppress(OSError):
                    smtp.sock.shutdown(socket.SHUT_RDWR)

        # The timeout is of each read: whoever answers a byte at a time is cut off.
        limit = threading.Timer(4 * seconds, cut)
        limit.daemon = True
        limit.start()
        try:
            smtp.connect(host, url.port or (465 if url.scheme == "smtps" else 587))
            smtp.ehlo()
            if url.scheme == "smtp" and (smtp.has_extn("starttls") or not self._plain):
                smtp.starttls(context=context)
            if url.username is not None:
                smtp.login(unquote(url.username), settings.smtp_password or "")
        except BaseException:
            smtp.close()
            raise
        return smtp


class Delivery:
    """Sends over one channel whatever it has not taken yet; `show` gets how many alerts wait for
    it, whenever that is counted.
    """

    def __init__(
        self,
        alerts: Alerts,
        channel: Webhook | Mail,
        *,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
        show: Callable[[int], object],
    ) -> None:
        self._alerts, self._channel = alerts, channel
        self._clock, self._monotonic, self._show = clock, monotonic, show
        self._failures, self._next = 0, float("-inf")

    def once(self) -> int:
        """Send what waits and return how many were taken; after a failure nothing until a growing while has passed."""
        if self._monotonic() < self._next:
            return 0
        taken, failed, now, name = 0, False, self._clock(), self._channel.name
        waiting = self._alerts.undelivered(name, since=now - 2 * GIVEN_UP_AFTER)
        left = len(waiting)
        for raised in waiting:
            try:
                self._channel.send(raised, self._alerts.incident(raised.alert.alert_id))
            except NotDelivered as error:
                failed, old = True, raised.alert.raised_at < now - GIVEN_UP_AFTER
                log.warning(
                    "alerts.not_delivered",
                    channel=name,
                    alert=raised.alert.alert_id,
                    why=str(error),
                    given_up=old,
                )
                if old:
                    self._alerts.delivered(raised, name, error=str(error)[:500] or "unknown")
                    left -= 1
                elif not error.alone:
                    break
            else:
                self._alerts.delivered(raised, name)
                taken, left = taken + 1, left - 1
        self._show(left)
        self._failures = self._failures + 1 if failed else 0
        wait = EVERY_SECONDS * 2 ** min(self._failures, 10) if failed else 0.0
        self._next = self._monotonic() + min(wait, LONGEST_WAIT_SECONDS)
        return taken

    def run(self, stop: threading.Event, *, leads: Callable[[], bool]) -> None:
        """Repeat `once` until `stop` is set, while this process leads."""
        while not stop.wait(EVERY_SECONDS):
            try:
                if leads():
                    self.once()
                else:
                    self._show(0)
            except StreamerError as error:  # the database does not answer, or another process leads by now
                log.warning("alerts.not_read", channel=self._channel.name, why=str(error))


def channels(settings: Settings, *, clock: Callable[[], datetime]) -> list[Webhook | Mail]:
    """The channels that are configured. Raises `UsageError` for one that cannot be."""
    said, found = settings.alerts, list[Webhook | Mail]()
    if said.webhook_url is not None:
        found.append(Webhook(said, clock=clock, insecure=settings.insecure))
    if said.smtp_url is not None:
        found.append(Mail(said, insecure=settings.insecure))
    return found


def _require_tls(
    setting: str, host: str | None, scheme: str, allowed: tuple[str, str], insecure: bool
) -> None:
    if not host or scheme not in allowed:
        raise UsageError(f"{setting} must be an address like {allowed[0]}://host.example")
    if scheme == "http" and not insecure and not is_loopback(host):
        raise UsageError(
            f"{setting} must be https, or the alerts can be read on the way; `--insecure` permits it"
        )


def _link(settings: AlertSettings, alert_id: str) -> str | None:
    base = settings.console_url
    return None if base is None else f"{base.rstrip('/')}/incident?alert={quote(alert_id)}"


def _said(error: Any) -> str:
    return " ".join(str(error).split()) or type(error).__name__
