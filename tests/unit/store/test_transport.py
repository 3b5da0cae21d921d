"""The way to PostgreSQL: what leaves this machine is encrypted, to a server that proves who it is."""

import pytest

from streamer.errors import UsageError
from streamer.store.db.engine import parse_url
from streamer.store.db.transport import protected

VARIABLES = ("PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGSERVICE")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def mode_of(url: str, *, insecure: bool = False) -> object:
    return protected(parse_url(url), insecure=insecure).query.get("sslmode")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///streamer",
        "postgresql://ana@/streamer?host=/run/postgresql",
        "postgresql://ana@localhost:5432/streamer",
        "postgresql://ana@127.0.0.1/streamer",
        "postgresql://ana@[::1]:5432/streamer",
        "postgresql://ana@/streamer?host=localhost:5432&host=127.0.0.2:5433",
        "postgresql://ana@db.example/streamer?hostaddr=127.0.0.1",
    ],
)
def test_what_stays_here_is_left_as_it_is(url: str) -> None:
    assert mode_of(url) is None
    assert mode_of(url + ("&" if "?" in url else "?") + "sslmode=disable") == "disable"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ana@db.example/streamer",
        "postgresql://ana@10.0.0.7/streamer",
        "postgresql://ana@/streamer?host=localhost:5432&host=db.example:5433",
        "postgresql://ana@/streamer?host=localhost,db.example",
        "postgresql://ana@localhost/streamer?hostaddr=10.0.0.7",
        "postgresql://ana@localhost/streamer?service=there",
    ],
)
def test_what_leaves_it_is_verified_unless_somebody_says_otherwise(url: str) -> None:
    assert mode_of(url) == "verify-full"
    assert mode_of(url, insecure=True) is None
    more = url + ("&" if "?" in url else "?")
    for mode in ("verify-full", "verify-ca"):
        assert mode_of(f"{more}sslmode={mode}") == mode
    for mode in ("disable", "allow", "prefer", "require"):
        with pytest.raises(UsageError, match=f"sslmode={mode}.*--insecure"):
            mode_of(f"{more}sslmode={mode}")
        assert mode_of(f"{more}sslmode={mode}", insecure=True) == mode


def test_what_the_url_leaves_open_libpq_reads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.example")
    assert mode_of("postgresql:///streamer") == "verify-full"
    assert mode_of("postgresql://localhost/streamer") is None
    monkeypatch.setenv("PGSSLMODE", "prefer")
    with pytest.raises(UsageError, match=r"db\.example with sslmode=prefer"):
        mode_of("postgresql:///streamer")
    monkeypatch.setenv("PGSERVICE", "there")
    with pytest.raises(UsageError, match="its service"):
        mode_of("postgresql://localhost/streamer")
