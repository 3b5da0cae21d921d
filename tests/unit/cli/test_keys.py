"""`streamer key` as its users meet it."""

import json
import shutil
from pathlib import Path

import pytest

from streamer import cli, wiring
from streamer.gates.settings import GateSettings
from streamer.security.api_keys import TOKEN, digest_of
from streamer.settings.settings import load_settings
from tests.unit.cli.conftest import Run


@pytest.fixture(scope="module")
def with_gates(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite_file: Path) -> Path:
    """A database with two gates, to be copied."""
    file = Path(shutil.copy(migrated_sqlite_file, tmp_path_factory.mktemp("gates")))
    with wiring.open_store(load_settings(database={"url": f"sqlite:///{file}"})) as store:
        for gate in ("bot", "other"):
            store.gates.create(gate, GateSettings(scorer="external", encoder="none"), by="ana", reason="test")
    return file


@pytest.fixture(autouse=True)
def database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_gates: Path) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    Path(".streamer").mkdir()
    shutil.copy(with_gates, ".streamer/audit.db")


def test_a_key_is_printed_once_and_alone(run: Run):
    words = (
        "--gate", "bot", "--may", "decide", "--rate", "50/s", "--expires", "90d", "--note",
        "shop", "--by", "ana",
    )  # fmt: skip
    status, out, err = run("key", "create", *words)
    assert status == cli.DONE
    token = out.removesuffix("\n")
    match = TOKEN.fullmatch(token)
    assert f"streamer key revoke {match[1]}" in err
    with wiring.open_store(load_settings()) as store:
        (key,) = store.api_keys.list()
    assert key.digest == digest_of(token)
    assert (key.id, key.gates, key.may, str(key.rate), key.note, key.created_by) == (
        match[1], ("bot",), ("decide",), "50/s", "shop", "ana",
    )  # fmt: skip
    assert key.expires_at is not None
    assert (key.expires_at - key.created_at).days == 90
    _, listed, _ = run("key", "list")
    _, objects, _ = run("key", "list", "--json")
    for text in (listed, objects):
        assert key.id in text
        assert token[-64:] not in text
        assert key.digest.hex() not in text


def test_keys_are_listed_by_gate_and_revoked(run: Run):
    made = [
        json.loads(run("key", "create", "--json", "--by", "ana", *words)[1])
        for words in (
            ("--gate", "bot", "--gate", "other", "--may", "label", "--may", "decide"),
            ("--all-gates", "--may", "read"),
            ("--gate", "other", "--may", "read"),
        )
    ]
    assert [one["gates"] for one in made] == [["bot", "other"], None, ["other"]]
    assert made[0]["may"] == ["decide", "label"]
    assert all(TOKEN.fullmatch(one.pop("token")) for one in made)
    _, out, _ = run("key", "list", "bot", "--json")
    assert [json.loads(line) for line in out.splitlines()] == made[:2]
    status, out, _ = run("key", "revoke", made[0]["id"], "--reason", "laptop lost", "--by", "ben")
    assert (status, out) == (cli.DONE, f"Revoked key {made[0]['id']}: laptop lost\n")
    _, out, _ = run("key", "list", "--json")
    first = json.loads(out.splitlines()[0])
    assert (first["in_force"], first["revoked_by"], first["revoked_reason"]) == (False, "ben", "laptop lost")
    assert "revoked 20" in run("key", "list")[1]


@pytest.mark.parametrize(
    "words",
    [
        ("create", "--may", "decide"),
        ("create", "--gate", "bot", "--all-gates", "--may", "decide"),
        ("create", "--gate", "bot"),
        ("create", "--gate", "bot", "--may", "write"),
        ("create", "--gate", "no-bot", "--may", "decide"),
        ("create", "--gate", "bot", "--may", "decide", "--rate", "50"),
        ("create", "--gate", "bot", "--may", "decide", "--expires", "soon"),
        ("create", "--gate", "bot", "--may", "decide", "--expires", "0s"),
        ("revoke", "ffffffffffff"),
        ("list", "no-bot"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_makes_no_key(words: tuple[str, ...], run: Run):
    status, out, err = run("key", *words)
    assert (status, out) == (cli.WRONG_USAGE, "")
    assert err
    with wiring.open_store(load_settings()) as store:
        assert store.api_keys.list() == []


def test_without_a_key_the_list_says_what_that_means(run: Run):
    status, out, err = run("key", "list")
    assert (status, out) == (cli.DONE, "")
    assert "this machine alone" in err
