"""Alerts reach a webhook and a mail server on real sockets: signed, at least once, and past what fails."""

import base64
import hashlib
import hmac
import json
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from streamer.errors import UsageError
from streamer.settings.settings import AlertSettings
from streamer.wiring.alerting import Delivery, Mail, NotDelivered, Webhook
from tests.integration.store.conftest import START, World
from tests.integration.store.test_alerts import made
from tests.services.certificates import Authority, what_certificates_need
from tests.services.requirements import missing

SECRET = base64.b64encode(bytes(range(32))).decode()


class Hook(ThreadingHTTPServer):
    """Answers with the statuses that it is given, then with 204; keeps what came."""

    daemon_threads = True

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.statuses = list(statuses)
        self.came: list[tuple[dict[str, str], bytes]] = []
        self.settings = AlertSettings(
            webhook_url=f"http://127.0.0.1:{self.server_port}/hook",
            webhook_secret=f"whsec_{SECRET}",
            console_url="https://streamer.example/",
        )


class _Post(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.came.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 204)
        self.end_headers()

    def log_message(self, *_args: object) -> None: ...


class Post(socketserver.ThreadingTCPServer):
    """A mail server for tests: takes everything; or says its greeting a byte at a time and never ends."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None, *, drips: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Talk)
        self.context, self.drips, self.mails = context, drips, list[EmailMessage]()
        self.commands: list[str] = []

    def get_request(self):
        found, address = super().get_request()
        return (found if self.context is None else self.context.wrap_socket(found, server_side=True)), address


class _Talk(socketserver.StreamRequestHandler):
    server: Post

    def handle(self) -> None:
        ended = threading.Event()
        while self.server.drips and not ended.wait(0.05):
            try:
                self.wfile.write(b"2")
            except OSError:
                return
        self.wfile.write(b"220 here\r\n")
        for line in self.rfile:
            said = line.decode().strip()
            self.server.commands.append(said)
            match said[:4].upper():
                case "EHLO":
                    self.wfile.write(b"250-here\r\n250 AUTH PLAIN\r\n")
                case "DATA":
                    self.wfile.write(b"354 go on\r\n")
                    text = b"".join(iter(self.rfile.readline, b".\r\n"))
                    self.server.mails.append(message_from_bytes(text, policy=policy.default))  # type: ignore[arg-type]
                    self.wfile.write(b"250 taken\r\n")
                case "AUTH":
                    self.wfile.write(b"235 welcome\r\n")
                case "QUIT":
                    self.wfile.write(b"221 bye\r\n")
                    return
                case _:
                    self.wfile.write(b"250 well\r\n")


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


WAITING: list[int] = []
"""What was shown of how many wait."""


def sending(world: World, channel: Webhook | Mail, moment: list[float]) -> Delivery:
    return Delivery(
        world.store.alerts, channel, clock=lambda: world.clock.now, monotonic=lambda: moment[0],
        show=WAITING.append,
    )  # fmt: skip


@pytest.mark.expected_errors
def test_a_webhook_gets_each_alert_signed_and_again_until_it_takes_it(world: World):
    for number in (1, 2):
        world.store.alerts.raise_(made(f"alarm {number}"))
    moment, hook = [0.0], Hook(503)
    with serving(hook):
        delivery = sending(world, Webhook(hook.settings, clock=lambda: START), moment)
        assert delivery.once() == 0  # refused: the second one is not tried before the first
        assert delivery.once() == 0
        assert (len(hook.came), WAITING[-1]) == (1, 2)
        moment[0] = 60.0
        assert (delivery.once(), WAITING[-1]) == (2, 0)
        assert sending(world, Webhook(hook.settings, clock=lambda: START), moment).once() == 0  # a restart
    ids = [headers["webhook-id"] for headers, _ in hook.came]
    assert ids == [made(f"alarm {number}").alert_id for number in (1, 1, 2)]
    for headers, body in hook.came:  # as anybody who knows the secret verifies it
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        mac = hmac.new(base64.b64decode(SECRET), signed, hashlib.sha256).digest()
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(mac).decode()}"
        assert headers["webhook-timestamp"] == str(int(START.timestamp()))
    told = json.loads(hook.came[-1][1])
    assert (told["type"], told["data"]["gate"]) == ("alert.raised", "support-bot")
    assert told["data"]["incident"] == made("alarm 1").alert_id  # the same for both
    assert told["data"]["link"] == f"https://streamer.example/incident?alert={made('alarm 2').alert_id}"


@pytest.mark.expected_errors
def test_what_one_alert_has_that_is_refused_keeps_no_other_back_and_is_given_up_after_a_day(world: World):
    for number in (1, 2):
        world.store.alerts.raise_(made(f"alarm {number}"))
    moment, hook = [0.0], Hook(422, 204, 422)
    with serving(hook):
        delivery = sending(world, Webhook(hook.settings, clock=lambda: START), moment)
        assert (delivery.once(), WAITING[-1]) == (1, 1)
        world.clock.now = START + timedelta(days=1, minutes=1)
        moment[0] = 1_000.0
        assert delivery.once() == 0
        moment[0] = 9_000.0
        assert delivery.once() == 0
    assert (len(hook.came), WAITING[-1]) == (3, 0)


@pytest.mark.expected_errors
def test_mails_of_an_incident_are_one_conversation_over_tls(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if need := what_certificates_need():
        missing(*need)
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.sign("post", hosts="DNS:localhost").both)
    for number in (1, 2):
        world.store.alerts.raise_(made(f"alarm {number}", message="A\nlong\u202e story: " + "x" * 300))
    moment, post = [0.0], Post(context)
    with serving(post):
        settings = AlertSettings(
            smtp_url=f"smtps://ana%40team@localhost:{post.server_address[1]}",
            smtp_password="secret",
            mail_from="streamer@team.example",
            mail_to=("risk@team.example", "ben@team.example"),
        )
        delivery = sending(world, Mail(settings), moment)
        assert delivery.once() == 0  # nobody here trusts that certificate
        assert not post.mails
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        moment[0] = 60.0
        assert delivery.once() == 2
    first, second = post.mails
    assert first["To"] == "risk@team.example, ben@team.example"
    assert first["Message-ID"] == second["In-Reply-To"] == f"<{made('alarm 1').alert_id}@streamer.invalid>"
    assert first["Subject"].startswith("[page] A long\\u202e story: xxx")
    assert "streamer alert acknowledge support-bot" in first.get_content()
    login = base64.b64encode(b"\0ana@team\0secret").decode()
    assert f"AUTH PLAIN {login}" in post.commands


def test_a_mail_server_that_never_ends_its_greeting_is_cut_off(world: World):
    world.store.alerts.raise_(made())
    (raised,) = world.store.alerts.list()
    post = Post(drips=True)
    with serving(post):
        settings = AlertSettings(
            smtp_url=f"smtp://127.0.0.1:{post.server_address[1]}",
            mail_from="a@b.example",
            mail_to=("c@d.example",),
            timeout_seconds=0.5,
        )
        with pytest.raises(NotDelivered):
            Mail(settings).send(raised, world.store.alerts.incident(raised.alert.alert_id))


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"webhook_url": "http://hooks.example/x", "webhook_secret": "s" * 32}, "must be https"),
        ({"webhook_url": "ftp://hooks.example/x"}, "an address like https"),
        ({"webhook_url": "https://hooks.example/x", "webhook_secret": "short"}, "24 bytes"),
        ({"webhook_url": "https://hooks.example/x", "webhook_secret": "whsec_!"}, "not base64"),
    ],
)
def test_settings_of_a_webhook_that_cannot_be_are_refused(said: dict[str, str], what: str):
    with pytest.raises(UsageError, match=what):
        Webhook(AlertSettings(**said), clock=lambda: START)
