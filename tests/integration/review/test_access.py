"""Who the page lets in, tried as an attacker would: with plain HTTP."""

import http.client
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from streamer.errors import UsageError
from streamer.review.access import Access, labeller_name
from streamer.review.server import listen
from streamer.web.guard import answers_to
from tests.integration.review.conftest import SCORE, Site, answers, fill, severities
from tests.integration.store.conftest import World


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Somebody with a socket: whatever a browser would forbid, this one does."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.cookie = ""
        self.key = ""

    def send(
        self,
        path: str,
        body: object = None,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.site.port, timeout=240)
        sent = {"content-type": "application/json", "x-review-key": self.key, "cookie": self.cookie}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, None if method == "GET" else raw, {**sent, **(headers or {})})
        answer = connection.getresponse()
        found = Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())
        connection.close()
        return found

    def enter(self, token: str) -> Answer:
        answer = self.send("/api/enter", {"token": token})
        if answer.status == 200:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
            self.key = answer.json["key"]
        return answer


@pytest.fixture
def site(world: World, serve: Callable[..., Site]) -> Site:
    fill(world, [answers(world, n, ("one", "two")) for n in range(4)])
    return serve(world)


@pytest.fixture
def ana(site: Site) -> Client:
    client = Client(site)
    assert client.enter(site.access.invite("ana")).status == 200
    return client


HOLDER = {"holder": "h1"}


def test_whoever_has_no_token_gets_nothing(site: Site):
    stranger = Client(site)
    for token in ("", "x", site.access.invite()[:-1], "é" * 40):
        assert stranger.enter(token).status == 401
    for path in ("next", "progress", "others", "mark", "skip", "back", "renew", "leave", "name", "who"):
        answer = stranger.send(f"/api/{path}", HOLDER)
        assert (answer.status, answer.json["error"]) == (401, "no_session")
    for path in ("/", "/review.js", "/review.css", "/icon.svg"):
        assert "Question" not in stranger.send(path, method="GET").body
    assert stranger.send("/api/next", method="GET").status == 405
    assert stranger.send("/openapi.json", method="GET").status == 404


def test_the_cookie_alone_opens_nothing_and_neither_does_the_key(ana: Client, site: Site):
    assert ana.send("/api/next", HOLDER).json["item"]["prompt"] == "Question 0?"
    cookie, key = ana.cookie, ana.key
    ana.key = ""
    assert ana.send("/api/next", HOLDER).status == 401
    ana.cookie, ana.key = "", key
    assert ana.send("/api/next", HOLDER).status == 401
    other = Client(site)
    other.enter(site.access.invite("ben"))
    other.cookie = cookie
    assert other.send("/api/next", HOLDER).status == 401


def test_the_cookie_is_for_this_page_alone_and_no_script_reads_it(site: Site):
    answer = Client(site).enter(site.access.invite("ana"))
    attributes = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= attributes
    assert str(site.port) in answer.headers["set-cookie"].partition("=")[0]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "10.0.0.7:{port}", ""]
)
def test_another_host_name_is_refused_before_anything_else(ana: Client, site: Site, host: str):
    for method, path in (("GET", "/"), ("POST", "/api/next")):
        answer = ana.send(path, HOLDER, method=method, headers={"host": host.format(port=site.port)})
        assert answer.status in (400, 403)
        assert "Question" not in answer.body


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
    ],
)
def test_a_write_from_elsewhere_changes_nothing(ana: Client, world: World, headers: dict[str, str]):
    item = ana.send("/api/next", HOLDER).json["item"]["token"]
    mark = {**HOLDER, "item": item, "severity": 0, "mark": "m", "count": 1}
    assert ana.send("/api/mark", mark, headers=headers).status in (403, 415)
    assert severities(world) == {}
    assert ana.send("/api/mark", mark, headers={"origin": ana.site.base.rstrip("/")}).status == 200


def test_every_answer_tells_the_browser_to_be_strict_and_none_has_a_token(site: Site, ana: Client):
    token = site.access.invite("ben")
    seen = [
        ana.send("/", method="GET"), ana.send("/review.js", method="GET"),
        ana.send("/nowhere", method="GET"), ana.send("/api/next", HOLDER),
        ana.send("/api/next", {"holder": "h 1"}),
        ana.send("/", method="GET", headers={"host": "evil.example"}), Client(site).enter(token),
        Client(site).enter("wrong"),
    ]  # fmt: skip
    for answer in seen:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
        assert token not in str(answer)
    page = seen[0].body + seen[1].body
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", page), "nothing comes from elsewhere"
    assert "innerHTML" not in page


@pytest.mark.parametrize(
    "change",
    [
        {"severity": 1.0001},
        {"severity": -0.1},
        {"severity": None},
        {"severity": "0"},
        {"severity": True},
        {"count": 0},
        {"mark": "a b"},
        {"mark": ""},
        {"item": "x" * 65},
        {"kind": "lexical"},
        {"labeller": "ben"},
    ],
)
def test_a_severity_is_a_number_from_0_to_1_and_nothing_else_is_believed(
    ana: Client, world: World, change: dict[str, object]
):
    item = ana.send("/api/next", HOLDER).json["item"]["token"]
    mark = {**HOLDER, "item": item, "severity": 0.5, "mark": "m", "count": 1, **change}
    assert ana.send("/api/mark", mark).json["error"] == "bad_request"
    assert severities(world) == {}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"holder": "\xff"}', b'{"holder":NaN}', b" " * 10_000])
def test_what_cannot_be_read_is_refused(ana: Client, body: bytes):
    assert ana.send("/api/next", body).json["error"] == "bad_request"


def test_nobody_labels_what_was_not_shown_to_them(ana: Client, site: Site, world: World):
    ben = Client(site)
    ben.enter(site.access.invite("ben"))
    item = ana.send("/api/next", HOLDER).json["item"]["token"]
    for path, more in (
        ("mark", {"severity": 0, "mark": "m", "count": 1}),
        ("others", {}),
        ("skip", {}),
        ("renew", {}),
    ):
        answer = ben.send(f"/api/{path}", {"holder": "h2", "item": item, **more})
        assert (answer.status, answer.json["error"]) == (404, "unknown_item")
    assert severities(world) == {}


def test_the_score_comes_with_the_mark_and_not_before(ana: Client):
    digits = str(SCORE).removeprefix("0.")
    before = [ana.send("/api/next", HOLDER), ana.send("/api/progress", HOLDER), ana.send("/api/back", HOLDER)]
    item = before[0].json["item"]["token"]
    before.append(ana.send("/api/others", {**HOLDER, "item": item}))
    before.append(ana.send("/api/renew", {**HOLDER, "item": item}))
    for answer in before:
        assert answer.status == 200
        assert digits not in answer.body
        assert not set(re.findall(r"\w+", answer.body)) & {
            "score", "action", "abstain", "threshold", "decided",
        }  # fmt: skip
    marked = ana.send("/api/mark", {**HOLDER, "item": item, "severity": 1, "mark": "m", "count": 1})
    assert marked.json["decided"]["score"] == SCORE
    assert marked.json["decided"]["action"] == "abstain"


def test_people_name_themselves_unless_the_address_does(site: Site, ana: Client):
    assert ana.send("/api/name", {"name": "ben"}).status == 409
    assert ana.send("/api/who", HOLDER).json == {"name": "ana", "named": True}
    somebody = Client(site)
    somebody.enter(site.access.invite())
    assert somebody.send("/api/next", HOLDER).json["error"] == "no_name"
    for name in ("", "  ", "a\u202eb", "x" * 201, "a\x00b"):
        assert somebody.send("/api/name", {"name": name}).status == 400
    assert somebody.send("/api/name", {"name": " Jo  Ann "}).json["name"] == "Jo Ann"
    assert somebody.send("/api/next", HOLDER).status == 200


def test_an_address_for_one_use_is_used_once():
    access = Access()
    token = access.invite("ana", once=True)
    assert access.enter(token) is not None
    assert access.enter(token) is None


def test_names_are_recorded_in_one_form():
    assert labeller_name("Zoe\u0308 ") == "Zo\u00eb"
    with pytest.raises(UsageError, match="invisible"):
        labeller_name("a\u200bb")


@pytest.mark.parametrize(
    ("header", "listening", "expected"),
    [
        ("127.0.0.1:8470", "127.0.0.1", True),
        ("localhost:9000", "127.0.0.1", True),
        ("LOCALHOST", "localhost", True),
        ("[::1]:8470", "::1", True),
        ("localhost.evil.example", "127.0.0.1", False),
        ("evil.example", "localhost", False),
        ("review.lan:8470", "review.lan", True),
        ("evil.example:8470", "review.lan", False),
        ("10.1.2.3:8470", "0.0.0.0", True),
        ("evil.example:8470", "0.0.0.0", False),
        ("", "0.0.0.0", False),
    ],
)
def test_the_hosts_that_are_answered(header: str, listening: str, expected: bool):
    assert answers_to(header, listening) is expected


def test_other_machines_are_not_served_unless_somebody_insists():
    for host in ("0.0.0.0", "::", "192.0.2.7", "example.org"):
        with pytest.raises(UsageError, match="--insecure"):
            listen(host, 0)
    listening = listen("127.0.0.1", 0)
    with listening, pytest.raises(UsageError, match="--port"):
        listen("127.0.0.1", listening.getsockname()[1])
    listen("0.0.0.0", 0, insecure=True).close()
