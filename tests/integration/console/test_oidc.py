"""Sign-in at an issuer of OpenID Connect: a certified one, in a browser and without; and one that cheats."""

import base64
import hmac
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from streamer.cli import main
from streamer.console.doors import IssuerAway, NotIdentified
from streamer.console.oidc import BEGUN_SECONDS, Issuer, Registration
from streamer.errors import UsageError
from tests.integration.console.conftest import PASSWORD, ROLES, Client, Site
from tests.integration.console.test_access import PAGES, routes_of
from tests.integration.store.conftest import World
from tests.integration.store.labelled_gate import GATE
from tests.services.browser import Browser
from tests.services.loopback import Asked, Loopback
from tests.services.node import oidc_issuer, what_node_needs
from tests.services.ports import free_port
from tests.services.requirements import missing
from tests.told import Told

CLIENT, SECRET = "console", "a secret between the two"
PEOPLE: dict[str, dict[str, object]] = {
    # By the issuer's own identifier, as in life: the names that people know are claims.
    "u1": {"email": "Ana@team.example", "email_verified": True, "groups": ["risk-team"]},
    "u2": {"email": "ben@team.example", "email_verified": True, "groups": ["sales"]},
    "u3": {"email": "ana@team.example", "email_verified": True, "groups": ["risk-team"]},
    "u4": {"email": "viewer", "email_verified": True, "groups": ["risk-team"]},
    "u5": {"email": "cyd@team.example", "email_verified": False, "groups": ["risk-team"]},
}
BY_GROUPS: dict[str, Any] = {
    "roles_claim": "groups",
    "roles": {"risk-team": "approver", "root": "administrator"},
}


# -- a certified issuer ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port() -> int:
    """The console's: the issuer knows its address beforehand."""
    return free_port()


@pytest.fixture(scope="module")
def certified(port: int) -> Iterator[str]:
    if need := what_node_needs():
        missing(*need)
    base = f"http://127.0.0.1:{port}"
    client = {
        "client_id": CLIENT, "client_secret": SECRET, "redirect_uris": [f"{base}/oidc/callback"],
        "post_logout_redirect_uris": [f"{base}/login"],
    }  # fmt: skip
    with oidc_issuer(client, PEOPLE) as address:
        yield address


@pytest.fixture
def at(certified: str, port: int, peopled_file: Path, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Makes a console whose people sign in at the certified issuer, with one local person of each role."""
    shutil.copy(peopled_file, tmp_path / "console.db")
    world = World(f"sqlite:///{tmp_path / 'console.db'}")
    sites: list[Site] = []

    def made(**registration: Any) -> Site:
        said = Registration(issuer=certified, client_id=CLIENT, client_secret=SECRET, **registration)
        site = Site(
            world,
            port=port,
            issuer=lambda redirect: Issuer(
                said, redirect=redirect, clock=lambda: datetime.now(UTC), monotonic=time.monotonic
            ),
        )
        sites.append(site)
        return site

    yield made
    for site in sites:
        site.stop()
    world.close()


class Traveller(Client):
    """Somebody who goes to the issuer and comes back, as a browser does."""

    def comes_back(self, name: str, start: str = "/oidc/start") -> tuple[str, str]:
        """Sign in at the issuer under its identifier; return where it sends the browser, and the cookie of the way."""
        begun = self.get(start)
        assert begun.status == 303
        way = begun.headers["set-cookie"].partition(";")[0]
        where = begun.headers["location"]
        with httpx2.Client() as there:
            while not where.startswith(self.site.base):
                answer = there.get(where)
                if answer.status_code in (302, 303):
                    where = urljoin(where, answer.headers["location"])
                    continue
                assert answer.status_code == 200, answer.text
                action = re.search(r'action="([^"]+)"', answer.text)
                prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)
                assert action is not None
                form = {"prompt": prompt[1]} | (
                    {"login": name, "password": "x"} if prompt[1] == "login" else {}
                )
                answer = there.post(urljoin(where, action[1]), data=form)
                where = urljoin(where, answer.headers["location"])
        return where.removeprefix(self.site.base.rstrip("/")), way

    def enters(self, name: str, start: str = "/oidc/start") -> Any:
        """Sign in, as far as it goes."""
        path, way = self.comes_back(name, start)
        return self._let_in(self.get(path, cookie=way))


def test_whoever_the_issuer_gives_a_role_is_in_under_the_name_it_vouches_for(at: Callable[..., Site]):
    site = at(**BY_GROUPS)
    client = Traveller(site)
    answer = client.enters("u1", "/oidc/start?next=/proposals")
    assert (answer.status, answer.headers["location"]) == (303, "/proposals")
    assert client.get("/people").status == 403, "an approver"
    assert client.act("/gates/close", gate=GATE, reason="complaints").status == 303
    assert site.store.policies.newest(GATE).created_by == "account:ana@team.example"
    account = site.store.accounts.get("ana@team.example")
    assert (account.roles, account.created_by) == (("approver",), "account:ana@team.example")
    # On record once, not with each sign-in; and no password fits it.
    assert Traveller(site).enters("u1").status == 303
    assert site.store.accounts.get("ana@team.example").revision == 1
    assert site.client().sign_in("ana@team.example", "").status == 403
    assert site.client().sign_in("ana@team.example", account.password or "").status == 403
    assert "at an issuer" not in client.get("/you").body
    assert "your password is changed there" in client.get("/you").body
    # An administrator here ends it at once, whatever the issuer says.
    site.store.accounts.close("ana@team.example", by="root", reason="left")
    assert client.get("/").status == 303
    closed = Traveller(site).enters("u1")
    assert closed.status == 403
    assert "is closed" in closed.body


@pytest.mark.parametrize(
    ("person", "says"),
    [
        ("u2", "gives you no role at this console"),
        ("u4", "signs in here, with a password"),
        ("u5", "has not verified that cyd@team.example is yours"),
    ],
)
def test_whoever_is_not_known_is_told_so_and_is_not_in(at: Callable[..., Site], person: str, says: str):
    site = at(**BY_GROUPS)
    before = site.store.accounts.list()
    client = Traveller(site)
    answer = client.enters(person)
    assert answer.status == 403
    assert says in answer.body
    assert client.get("/").status == 303
    assert site.store.accounts.list() == before


def test_a_name_stays_with_the_person_who_first_signed_in_under_it(at: Callable[..., Site]):
    site = at()
    unknown = Traveller(site).enters("u1")
    assert unknown.status == 403
    assert "has no account here; an administrator can add it" in unknown.body
    root = site.client("administrator")
    assert root.act("/people/add", name="ana@team.example", role="viewer", issued="yes").status == 303
    ana = Traveller(site)
    assert ana.enters("u1").status == 303
    assert ana.get("/decisions").status == 200
    # The address was given to somebody else.
    other = Traveller(site).enters("u3")
    assert other.status == 403
    assert "was another person when that name first signed in" in other.body
    assert root.act("/people/close", name="ana@team.example").status == 303
    assert root.act("/people/add", name="ana@team.example", role="viewer", issued="yes").status == 303
    assert Traveller(site).enters("u3").status == 303


def test_an_answer_of_the_issuer_is_of_one_browser_one_use_and_a_while(at: Callable[..., Site]):
    site = at(**BY_GROUPS)
    client = Traveller(site)
    path, way = client.comes_back("u1")
    # Somebody has me follow the end of their own sign-in: my browser has begun none, or another one.
    assert "was not begun in this browser" in site.client().get(path).body
    _, mine = Traveller(site).comes_back("u2")
    crossed = site.client().get(path, cookie=mine)
    assert crossed.status == 403
    assert "begin again" in crossed.body
    name, _, value = way.partition("=")
    body = base64.urlsafe_b64encode(base64.urlsafe_b64decode(value.partition(".")[0])).decode()
    for forged in (f"{name}=", f"{name}={body}.{'0' * 64}", f"{name}=x.y", f"{name}=.", f"{name}=ü.ü"):
        assert site.client().get(path, cookie=forged.encode().decode("latin-1")).status == 403
    assert client._let_in(client.get(path, cookie=way)).status == 303
    assert "did not accept the sign-in" in site.client().get(path, cookie=way).body, "a code is good once"
    path, way = client.comes_back("u1")
    site.moment += BEGUN_SECONDS
    assert "more than ten minutes ago" in site.client().get(path, cookie=way).body
    denied = re.sub(r"code=[^&]*", "error=access_denied&error_description=You+said+no", path)
    path, way = client.comes_back("u1")
    state = re.search(r"state=[^&]*", path)
    denied = re.sub(r"state=[^&]*", state[0], denied)
    assert "You said no" in site.client().get(denied, cookie=way).body


def test_by_another_name_of_this_machine_the_way_is_begun_where_it_ends(at: Callable[..., Site]):
    site = at()
    answer = site.client().get("/oidc/start?next=/alerts", host=f"localhost:{site.port}")
    assert answer.headers["location"] == f"{site.base}oidc/start?next=/alerts"


def test_in_a_browser_somebody_signs_in_and_out_there(at: Callable[..., Site], browser: Browser):
    site = at(**BY_GROUPS)
    driver = browser.driver
    driver.set_window_size(1100, 900)

    def until(text: str) -> None:
        end = time.monotonic() + 60
        while text not in (shown := driver.execute_script("return document.body?.innerText ?? ''")):
            assert time.monotonic() < end, shown
            time.sleep(0.05)

    driver.get(site.base + "alerts")
    until("Or with a password of this console")
    driver.find_element(By.PARTIAL_LINK_TEXT, "Sign in at").send_keys(Keys.ENTER)
    until("Sign-in")
    driver.find_element(By.NAME, "login").send_keys("u1", Keys.TAB, "x", Keys.ENTER)
    until("Continue")
    driver.find_element(By.CSS_SELECTOR, "button[type=submit]").send_keys(Keys.ENTER)
    until("ana@team.example")
    assert driver.current_url == site.base + "alerts"
    driver.find_element(By.XPATH, "//button[.='Sign out']").send_keys(Keys.ENTER)
    until("You have signed out here")
    driver.find_element(By.PARTIAL_LINK_TEXT, "Sign out at").send_keys(Keys.ENTER)
    until("Do you want to sign-out")
    driver.find_element(By.CSS_SELECTOR, "button[value=yes]").send_keys(Keys.ENTER)
    until("Or with a password of this console")
    driver.get(site.base + "oidc/start")
    until("Sign-in")  # it asks who this is


# -- an issuer that cheats -------------------------------------------------------------------------------------

KEY, OTHER_KEY = (ECKey.generate_key("P-256", {"kid": kid, "use": "sig"}) for kid in ("one", "two"))
NOW = datetime(2026, 6, 1, tzinfo=UTC)
NOW_SECONDS = int(NOW.timestamp())


class Cheat(Loopback):
    """An issuer that says what a test wants it to."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata: dict[str, Any] = {
            "issuer": self.address, "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token", "jwks_uri": f"{self.address}/keys",
            "userinfo_endpoint": f"{self.address}/me",
        }  # fmt: skip
        self.keys: list[Any] = [KEY]
        self.userinfo: dict[str, Any] = {}
        self.token: Any = None
        self.status = 200
        self.asked: list[tuple[str, str]] = []

    def respond(self, asked: Asked, body: bytes) -> None:
        self.asked.append((asked.path, body.decode()))
        said = {
            "/.well-known/openid-configuration": self.metadata,
            "/keys": {"keys": [key.as_dict(private=False) for key in self.keys]},
            "/token": self.token,
            "/me": self.userinfo,
        }[asked.path]
        asked.answer(said, self.status)


@pytest.fixture
def cheat() -> Iterator[Cheat]:
    with Cheat() as made:
        yield made


def issuer(cheat: Cheat, redirect: str = "http://127.0.0.1:1/oidc/callback", **registration: Any) -> Issuer:
    said = {"issuer": cheat.address, "client_id": CLIENT, "client_secret": SECRET} | registration
    return Issuer(Registration(**said), redirect=redirect, clock=lambda: NOW, monotonic=lambda: 0.0)


def claims(cheat: Cheat, **other: Any) -> dict[str, Any]:
    said = {
        "iss": cheat.address, "aud": CLIENT, "sub": "u1", "nonce": "n", "email": "ana@team.example",
        "email_verified": True, "iat": NOW_SECONDS, "exp": NOW_SECONDS + 300,
    } | other  # fmt: skip
    return {name: value for name, value in said.items() if value is not None}


def signed(said: dict[str, Any], key: Any = KEY, **header: Any) -> str:
    return jwt.encode({"alg": "ES256", "kid": key.kid} | header, said, key)


def finished(one: Issuer, cheat: Cheat, token: str, **query: str) -> Any:
    cheat.token = {"access_token": "at", "token_type": "Bearer", "id_token": token}
    return one.finish({"code": "c", "state": "s"} | query, state="s", nonce="n", verifier="v" * 64)


def unsigned(said: dict[str, Any], algorithm: str = "none") -> str:
    return (
        ".".join(_base64(json.dumps(one).encode()) for one in ({"alg": algorithm, "kid": "one"}, said)) + "."
    )


def by_hmac(said: dict[str, Any], secret: bytes) -> str:
    body = unsigned(said, "HS256").removesuffix(".")
    return f"{body}.{_base64(hmac.digest(secret, body.encode(), 'sha256'))}"


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def test_a_token_that_holds_is_taken_and_the_exchange_proves_who_began(cheat: Cheat):
    one = issuer(cheat)
    begun = one.begin()
    asked = parse_qs(urlsplit(begun.url).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["nonce"] == [begun.nonce]
    assert begun.verifier not in begun.url
    person = finished(one, cheat, signed(claims(cheat)), iss=cheat.address)
    assert (person.name, person.subject, person.roles) == ("ana@team.example", "u1", None)
    (exchange,) = [body for path, body in cheat.asked if path == "/token"]
    assert parse_qs(exchange)["code_verifier"] == ["v" * 64]
    # Clocks differ, and keys are replaced.
    finished(one, cheat, signed(claims(cheat, iat=NOW_SECONDS + 59, exp=NOW_SECONDS - 59)))
    cheat.keys = [OTHER_KEY]
    finished(one, cheat, signed(claims(cheat), OTHER_KEY))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"nonce": "another"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"aud": "another client"}, "aud"),
        ({"aud": [CLIENT, "another"], "azp": "another"}, "azp"),
        ({"aud": [CLIENT, "another"]}, "azp"),
        ({"iss": "https://another.example"}, "iss"),
        ({"exp": NOW_SECONDS - 61}, "do the clocks differ by more than 60 seconds"),
        ({"exp": None}, "exp"),
        ({"iat": NOW_SECONDS + 61, "exp": NOW_SECONDS + 600}, "do the clocks differ"),
        ({"nbf": NOW_SECONDS + 61}, "do the clocks differ"),
        ({"sub": None}, "sub"),
        ({"sub": 7}, "sub"),
        ({"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}, "at_hash"),
        ({"email": None}, "does not say your `email`"),
        ({"email_verified": "true"}, "has not verified"),
        ({"email_verified": None}, "has not verified"),
        ({"email": "ana\u202e@team.example"}, "invisible character"),
        ({"email": ["ana@team.example"]}, "does not say your `email`"),
    ],
)
def test_a_token_that_does_not_hold_identifies_nobody(cheat: Cheat, other: dict[str, Any], says: str):
    cheat.userinfo = {"sub": "u1"}
    with pytest.raises(NotIdentified, match=re.escape(says)):
        finished(issuer(cheat), cheat, signed(claims(cheat, **other)))


def test_a_signature_of_anybody_else_identifies_nobody(cheat: Cheat):
    one = issuer(cheat)
    said = claims(cheat)
    for token in (
        signed(said, OTHER_KEY),
        signed(said, OTHER_KEY, kid="one"),
        unsigned(said),
        # What is public, or the client's, is no secret of the issuer.
        by_hmac(said, SECRET.encode()),
        by_hmac(said, KEY.as_pem(private=False)),
        signed(said) + "x",
        "x",
        "",
    ):
        with pytest.raises(NotIdentified):
            finished(one, cheat, token)
    finished(one, cheat, signed(said))
    with pytest.raises(NotIdentified, match="begun last in this browser"):
        finished(one, cheat, signed(said), state="another")
    with pytest.raises(NotIdentified, match="not of"):
        finished(one, cheat, signed(said), iss="https://another.example")
    cheat.token = {"error": "invalid_grant"}
    cheat.status = 400
    with pytest.raises(NotIdentified, match="invalid_grant"):
        one.finish({"code": "c", "state": "s"}, state="s", nonce="n", verifier="v")


def test_userinfo_of_another_person_is_not_taken(cheat: Cheat):
    cheat.userinfo = {"sub": "u2", "email": "root@team.example", "email_verified": True}
    with pytest.raises(NotIdentified, match="two people"):
        finished(issuer(cheat), cheat, signed(claims(cheat, email=None)))
    cheat.userinfo = {"sub": "u1", "email": "ana@team.example", "email_verified": True}
    assert finished(issuer(cheat), cheat, signed(claims(cheat, email=None))).name == "ana@team.example"


@pytest.mark.parametrize(
    ("claim", "means", "said", "roles"),
    [
        ("groups", {"risk": "approver"}, {"groups": ["risk", "administrator"]}, ("approver",)),
        ("groups", {}, {"groups": ["approver", "viewer", "nothing"]}, ("viewer", "approver")),
        ("groups", {"risk": "approver"}, {"groups": "risk"}, ("approver",)),
        ("groups", {}, {"groups": {"approver": True}}, ()),
        ("groups", {}, {"groups": [["approver"]]}, ()),
        ("realm_access.roles", {}, {"realm_access": {"roles": ["viewer"]}}, ("viewer",)),
        ("https://team.example/roles", {}, {"https://team.example/roles": ["viewer"]}, ("viewer",)),
        ("groups", {}, {}, ()),
    ],
)
def test_roles_are_those_of_the_claim_and_no_others(
    cheat: Cheat, claim: str, means: dict[str, str], said: dict[str, Any], roles: tuple[str, ...]
):
    cheat.userinfo = {"sub": "u1"}
    one = issuer(cheat, roles_claim=claim, roles=means)
    assert finished(one, cheat, signed(claims(cheat, **said))).roles == roles


def test_an_issuer_that_is_away_or_another_says_so_and_passwords_go_on(cheat: Cheat, peopled_world: World):
    cheat.metadata["issuer"] = "https://another.example"
    with pytest.raises(IssuerAway, match=r"calls itself 'https://another\.example'"):
        issuer(cheat).begin()
    cheat.metadata |= {"issuer": cheat.address, "token_endpoint": "http://login.example/token"}
    with pytest.raises(IssuerAway, match="without TLS"):
        issuer(cheat).begin()
    del cheat.metadata["jwks_uri"]
    with pytest.raises(IssuerAway):
        issuer(cheat).begin()
    for metadata in (b"<html>", b"[1]", b"x" * 2_000_000):
        cheat.metadata = metadata  # type: ignore[assignment]
        with pytest.raises(IssuerAway):
            issuer(cheat).begin()
    cheat.metadata, cheat.status = {}, 500
    with Site(peopled_world, issuer=lambda redirect: issuer(cheat, redirect)) as site:
        answer = site.client().get("/oidc/start")
        assert answer.status == 503
        assert "answered with status 500. Whoever has a password here can sign in meanwhile." in answer.body
        for role in ROLES:
            assert site.client().sign_in(role, PASSWORD).status == 303


@pytest.mark.parametrize("role", [None, *ROLES])
def test_the_issuers_routes_give_no_role_more_than_it_has(
    cheat: Cheat, peopled_world: World, role: str | None
):
    """With an issuer there are two routes more, which everybody may ask for: what comes of it, role by role."""
    with Site(peopled_world, issuer=lambda redirect: issuer(cheat, redirect)) as site:
        assert routes_of(site) >= {"/oidc/start", "/oidc/callback"}
        client = site.client(role)
        accounts, doors = site.store.accounts.list(), [client.get(path).status for path in PAGES]
        began = client.get("/oidc/start?next=//evil.example")
        found = (began.status, began.headers["location"].partition("?")[0])
        assert found == (303, f"{cheat.address}/authorize")
        for path in (
            "/oidc/callback",
            "/oidc/callback?code=c&state=s",
            "/oidc/callback?error=denied&state=s",
        ):
            assert client.get(path).status == 403, path
            assert (
                client.get(
                    path, cookie=f"{client.cookie}; {began.headers['set-cookie'].partition(';')[0]}"
                ).status
                == 403
            )
        for path in ("/oidc/start", "/oidc/callback"):
            assert client.post(path, {}).status == 405
        # Nobody is in who was not, under another name, or with more.
        assert [client.get(path).status for path in PAGES] == doors
        assert site.store.accounts.list() == accounts


@pytest.mark.parametrize(
    ("registration", "says"),
    [
        ({"issuer": "http://login.example"}, "without TLS"),
        ({"issuer": "login.example"}, "is an address like"),
        ({"client_id": ""}, "STREAMER_OIDC_CLIENT_ID"),
        ({"roles": {"risk": "boss"}, "roles_claim": "groups"}, "not 'boss'"),
        ({"roles": {"risk": "viewer"}}, "STREAMER_OIDC_ROLES_CLAIM"),
        ({"scopes": "email"}, "`openid`"),
    ],
)
def test_settings_that_cannot_be_say_what_is_wrong(registration: dict[str, Any], says: str):
    with pytest.raises(UsageError, match=re.escape(says)):
        Registration(**({"issuer": "https://login.example", "client_id": CLIENT} | registration))


def test_the_command_line_makes_accounts_without_passwords(
    migrated_sqlite_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told
):
    shutil.copy(migrated_sqlite_file, tmp_path / "audit.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_DATABASE_URL", f"sqlite:///{tmp_path / 'audit.db'}")
    add = ["console", "user", "add", "ana@team.example", "--role", "viewer", "--oidc"]
    assert "STREAMER_OIDC_ISSUER" in told(*add, status=2).err
    monkeypatch.setenv("STREAMER_OIDC_ISSUER", "https://login.example")
    assert main(add) == 0
    assert "at https://login.example" in told("console", "user", "list").out
    assert "STREAMER_OIDC_CLIENT_ID" in told("console", "--port", "0", status=2).err
