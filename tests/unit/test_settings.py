"""Where settings come from, which source wins, what is refused, and that no secret is shown."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from streamer.cli import main
from streamer.cli.config import setting_rows
from streamer.errors import UsageError
from streamer.security.visible import HIDDEN, redact, redact_text
from streamer.settings.settings import Settings, load_settings
from streamer.settings.sources import (
    DEV_SESSION_FILE,
    DevSession,
    find_dev_session,
    leaves,
    misspelt_variables,
    remove_dev_session,
    unknown_variables,
    variable_name,
    write_dev_session,
)
from tests.told import Told

AUDIT_PAGE = Path(__file__).parents[2] / "docs" / "audit.md"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def session(pid: int) -> DevSession:
    return DevSession(
        bootstrap_servers="127.0.0.1:4711", log_id="embedded-1", database_url="sqlite:///dev.db",
        metrics_url="http://127.0.0.1:9", pid=pid,
    )  # fmt: skip


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_defaults_need_nothing():
    settings = load_settings()
    assert settings.database.url == "sqlite:///.streamer/audit.db"
    assert settings.http.host == "127.0.0.1"
    assert settings.origins == {}


def test_the_stronger_source_wins(monkeypatch: pytest.MonkeyPatch):
    Path("streamer.toml").write_text('[kafka]\ngroup_id = "toml"\npartitions = 2\n[http]\nport = 1\n')
    Path(".env").write_text("STREAMER_KAFKA_GROUP_ID=dotenv\nSTREAMER_HTTP_PORT=2\n")
    monkeypatch.setenv("STREAMER_HTTP_PORT", "3")
    settings = load_settings()
    assert (settings.kafka.partitions, settings.kafka.group_id, settings.http.port) == (2, "dotenv", 3)
    assert settings.origins == {
        "kafka.partitions": "streamer.toml [kafka]",
        "kafka.group_id": ".env STREAMER_KAFKA_GROUP_ID",
        "http.port": "environment STREAMER_HTTP_PORT",
    }
    assert load_settings(http={"port": 4}).http.port == 4


def test_a_named_settings_file_replaces_the_default_one(monkeypatch: pytest.MonkeyPatch):
    Path("streamer.toml").write_text("[http]\nport = 1\n")
    Path("other.toml").write_text("[http]\nport = 2\n")
    monkeypatch.setenv("STREAMER_CONFIG", "other.toml")
    assert load_settings().http.port == 2
    monkeypatch.setenv("STREAMER_CONFIG", "absent.toml")
    with pytest.raises(UsageError, match=r"absent\.toml, which is not a file"):
        load_settings()


def test_a_secret_comes_from_a_file(monkeypatch: pytest.MonkeyPatch):
    Path("url").write_text("postgresql+psycopg://u:p@h/x\n")
    monkeypatch.setenv("STREAMER_DATABASE_URL_FILE", "url")
    settings = load_settings()
    assert settings.database.url == "postgresql+psycopg://u:p@h/x"
    assert settings.origins["database.url"] == "environment STREAMER_DATABASE_URL_FILE"
    assert "p@h" not in repr(settings)
    monkeypatch.setenv("STREAMER_DATABASE_URL", "sqlite:///x.db")
    with pytest.raises(UsageError, match="both STREAMER_DATABASE_URL and STREAMER_DATABASE_URL_FILE"):
        load_settings()
    monkeypatch.delenv("STREAMER_DATABASE_URL")
    monkeypatch.setenv("STREAMER_DATABASE_URL_FILE", "absent")
    with pytest.raises(UsageError, match="cannot read the file absent"):
        load_settings()


def test_client_properties_are_named_as_kafka_names_them(monkeypatch: pytest.MonkeyPatch):
    Path("password").write_text("007\n")
    Path("streamer.toml").write_text(
        '[kafka.properties]\n"security.protocol" = "SASL_SSL"\nrequest_timeout_ms = 5000\nreconnect = true\n'
    )
    monkeypatch.setenv("STREAMER_KAFKA_PROPERTIES", '{"client.id": "me"}')
    monkeypatch.setenv("STREAMER_KAFKA_PROPERTIES_SASL_PASSWORD_FILE", "password")
    settings = load_settings()
    assert settings.kafka.properties == {
        "security.protocol": "SASL_SSL", "request.timeout.ms": "5000", "reconnect": "true",
        "client.id": "me", "sasl.password": "007",
    }  # fmt: skip
    assert "007" not in repr(settings)
    assert settings.origins["kafka.properties.request.timeout.ms"] == "streamer.toml [kafka.properties]"
    wanted = "environment STREAMER_KAFKA_PROPERTIES_SASL_PASSWORD_FILE"
    assert settings.origins["kafka.properties.sasl.password"] == wanted
    monkeypatch.setenv("STREAMER_KAFKA_PROPERTIES", "[1]")
    with pytest.raises(UsageError, match="must hold a JSON object"):
        load_settings()


def test_a_list_is_a_json_array(monkeypatch: pytest.MonkeyPatch):
    """As docs/audit.md sets the witnesses."""
    (line,) = re.findall(
        r"^export STREAMER_AUDIT_WITNESSES='(.*)'$", AUDIT_PAGE.read_text("utf-8"), re.MULTILINE
    )
    monkeypatch.setenv("STREAMER_AUDIT_WITNESSES", line)
    settings = load_settings()
    assert settings.audit.witnesses == tuple(json.loads(line))
    assert settings.origins["audit.witnesses"] == "environment STREAMER_AUDIT_WITNESSES"
    for wrong in ("witness.jsonl", '{"a": 1}', '"a"'):
        monkeypatch.setenv("STREAMER_AUDIT_WITNESSES", wrong)
        with pytest.raises(UsageError, match="STREAMER_AUDIT_WITNESSES must hold a JSON array"):
            load_settings()
    monkeypatch.setenv("STREAMER_AUDIT_WITNESSES", "[1]")
    with pytest.raises(UsageError, match=r"audit\.witnesses"):
        load_settings()


def test_groups_at_an_issuer_keep_their_names(monkeypatch: pytest.MonkeyPatch):
    """As docs/console.md sets them: a claim beside what its values mean, which are written in more ways than properties."""
    monkeypatch.setenv("STREAMER_OIDC_ROLES_CLAIM", "groups")
    settings = load_settings()
    assert (settings.oidc.roles_claim, settings.oidc.roles) == ("groups", {})
    monkeypatch.setenv("STREAMER_OIDC_ROLES", '{"Risk_Team": "approver", "/staff": "viewer"}')
    settings = load_settings()
    assert settings.oidc.roles == {"Risk_Team": "approver", "/staff": "viewer"}
    assert settings.oidc.roles_claim == "groups"
    assert settings.origins["oidc.roles.Risk_Team"] == "environment STREAMER_OIDC_ROLES"
    assert main(["config", "show"]) == 0
    monkeypatch.delenv("STREAMER_OIDC_ROLES")
    Path("streamer.toml").write_text('[oidc.roles]\n"Risk_Team" = "approver"\n')
    settings = load_settings()
    assert settings.oidc.roles == {"Risk_Team": "approver"}
    assert settings.origins["oidc.roles.Risk_Team"] == "streamer.toml [oidc.roles]"


def test_every_setting_is_taken_from_its_variable(monkeypatch: pytest.MonkeyPatch):
    """Whatever its type is: each gets its own default as a text."""
    plain, tried = load_settings(), 0
    for group, field, leaf in leaves(Settings):
        held = getattr(getattr(plain, group) if group else plain, field)
        if leaf.default in (None, PydanticUndefined) or held != leaf.default:
            continue
        text = json.dumps(held) if isinstance(held, tuple) else str(held)
        monkeypatch.setenv(variable_name(group, field), text)
        tried += text != ""
    loaded = load_settings()
    for group, field, leaf in leaves(Settings):
        read, before = ((getattr(one, group) if group else one) for one in (loaded, plain))
        assert getattr(read, field) == getattr(before, field), (group, field, leaf)
    assert tried > 50


def test_an_empty_variable_is_absent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STREAMER_KAFKA_BOOTSTRAP_SERVERS", "")
    monkeypatch.setenv("STREAMER_DATABASE_URL_FILE", "")
    assert load_settings().origins == {}


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("[htp]\nport = 1\n", r"no settings group \[htp\]"),
        ("port = 1\n", r"no settings group \[port\]"),
        ("[http]\nprt = 1\n", r"\[http\] has no setting 'prt'"),
        ("[http\n", "is not TOML"),
        ("[http]\nport = 70000\n", r"http.port \(streamer.toml \[http\]\)"),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("kafka = [1, 2]\n", r"kafka is a group of settings: write \[kafka\]"),
        (
            "[upstreams.bot]\nbase_url = 'https://a/v1'\nmodel = 'm'\nansers = 3\n",
            r"upstreams\.bot\.ansers \(streamer\.toml\): there is no such setting; known are base_url, model, .*answers,",
        ),
        ("[kafka]\npartitions = 2147483648\n", "kafka.partitions"),
        ("[kafka]\nreplication_factor = 32768\n", "kafka.replication_factor"),
        (f"[kafka]\ntopic_prefix = '{'a' * 201}'\n", "kafka.topic_prefix"),
    ],
    ids=str,
)
def test_a_wrong_settings_file_is_named_with_its_fault(toml: str, says: str):
    Path("streamer.toml").write_text(toml)
    with pytest.raises(UsageError, match=says):
        load_settings()


@pytest.mark.parametrize("made", ["a folder", "a link to nothing", "a pipe"])
def test_a_settings_file_that_is_no_file_is_not_passed_over(made: str):
    """A container runtime makes a folder where the file that it is to mount is missing."""
    match made:
        case "a folder":
            Path("streamer.toml").mkdir()
        case "a link to nothing":
            Path("streamer.toml").symlink_to("nothing")
        case _:
            os.mkfifo("streamer.toml")
    with pytest.raises(UsageError, match=r"^streamer\.toml is not a file"):
        load_settings()


def test_a_file_without_an_end_is_no_secret(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STREAMER_JUDGE_API_KEY_FILE", "/dev/zero")
    with pytest.raises(UsageError, match=r"cannot read the file /dev/zero .*: File too large"):
        load_settings()


def test_a_wrong_value_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STREAMER_KAFKA_PARTITIONS", "hunter2")
    with pytest.raises(UsageError, match="environment STREAMER_KAFKA_PARTITIONS") as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)


def test_misspelt_variables_are_found():
    known = {variable_name(group, field): "" for group, field, _ in leaves(Settings)}
    assert (
        unknown_variables(
            Settings,
            known | {"STREAMER_DEBUG": "1", "STREAMER_FAILPOINTS": "", "STREAMER_KAFKA_PROPERTIES_X_Y": ""},
        )
        == []
    )
    assert unknown_variables(Settings, {"STREAMER_HTTP_PROT": "1", "PATH": ""}) == ["STREAMER_HTTP_PROT"]


def test_without_a_broker_the_error_says_what_to_do():
    with pytest.raises(UsageError, match=r"start `streamer dev`, or set STREAMER_KAFKA_BOOTSTRAP_SERVERS"):
        _ = load_settings().bootstrap_servers


def test_a_running_dev_session_is_found():
    write_dev_session(session(os.getpid()))
    settings = load_settings()
    assert settings.bootstrap_servers == "127.0.0.1:4711"
    assert settings.kafka.log_id == "embedded-1"
    assert settings.database.url == "sqlite:///dev.db"
    assert "running `streamer dev`" in settings.origins["kafka.bootstrap_servers"]
    assert DEV_SESSION_FILE.stat().st_mode & 0o077 == 0


def test_a_dead_dev_session_is_not_used():
    write_dev_session(session(dead_pid()))
    assert find_dev_session() is None
    assert load_settings().kafka.bootstrap_servers is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"pid": 1}', "\x00", json.dumps({"pid": "1"})])
def test_a_broken_dev_session_is_not_used(content: str):
    DEV_SESSION_FILE.parent.mkdir()
    DEV_SESSION_FILE.write_text(content)
    assert find_dev_session() is None


def test_what_is_configured_wins_over_a_dev_session(monkeypatch: pytest.MonkeyPatch):
    write_dev_session(session(os.getpid()))
    monkeypatch.setenv("STREAMER_DATABASE_URL", "sqlite:///mine.db")
    assert load_settings().database.url == "sqlite:///mine.db"
    monkeypatch.setenv("STREAMER_KAFKA_BOOTSTRAP_SERVERS", "kafka:9092")
    settings = load_settings()
    assert (settings.bootstrap_servers, settings.kafka.log_id) == ("kafka:9092", None)


def test_only_its_owner_takes_the_dev_session_away():
    write_dev_session(session(os.getpid()))
    remove_dev_session(1)
    assert DEV_SESSION_FILE.exists()
    remove_dev_session(os.getpid())
    assert not DEV_SESSION_FILE.exists()
    remove_dev_session(os.getpid())


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cret@h:5432/x",
        "postgresql://u:s3c@ret/s3cret@h/x",
        "postgresql://:s3cret@h/x",
        "postgresql:///x?user=u&password=s3cret",
        "postgresql://h/x?sslpassword=s3cret&sslmode=require",
    ],
)
def test_passwords_in_urls_are_hidden(url: str):
    shown = redact_text(f"cannot open {url} now")
    assert "s3cret" not in shown
    assert HIDDEN in shown
    assert shown.endswith("now")


def test_secrets_are_hidden_by_name_and_the_rest_is_shown():
    assert redact("kafka.properties.sasl.password", "x") == HIDDEN
    assert redact("kafka.properties.ssl.key.password", "x") == HIDDEN
    assert redact("judge.api_key", "x") == HIDDEN
    assert redact("judge.max_tokens", 200) == 200
    assert redact("kafka.properties.sasl.username", "x") == "x"
    assert redact("database.url", "sqlite:///x.db") == "sqlite:///x.db"
    assert redact("kafka.bootstrap_servers", None) is None


def test_prices_come_in_pairs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STREAMER_JUDGE_PRICE_PER_MILLION_INPUT", "0.15")
    with pytest.raises(UsageError, match="price_per_million_output, or neither"):
        load_settings()
    monkeypatch.setenv("STREAMER_JUDGE_PRICE_PER_MILLION_OUTPUT", "0.60")
    assert str(load_settings().judge.price_per_million_output) == "0.60"


def test_a_dotenv_file_that_is_no_text_is_named():
    Path(".env").write_text("STREAMER_HTTP_PORT=1\n", encoding="utf-16")
    with pytest.raises(UsageError, match=r"cannot read the file \.env: it is not UTF-8"):
        load_settings()


def test_misspelt_names_are_found_in_dotenv_too(monkeypatch: pytest.MonkeyPatch):
    Path(".env").write_text("STREAMER_HTTP_PORTT=1\nOTHER=1\n")
    monkeypatch.setenv("STREAMER_HTTP_PROT", "1")
    assert misspelt_variables(Settings) == ["STREAMER_HTTP_PORTT", "STREAMER_HTTP_PROT"]


def test_insecure_stands_by_itself_in_every_source(monkeypatch: pytest.MonkeyPatch):
    assert load_settings().insecure is False
    Path("streamer.toml").write_text("insecure = true\n[http]\nport = 1\n")
    settings = load_settings()
    assert (settings.insecure, settings.http.port) == (True, 1)
    assert settings.origins["insecure"] == "streamer.toml"
    monkeypatch.setenv("STREAMER_INSECURE", "false")
    settings = load_settings()
    assert (settings.insecure, settings.origins["insecure"]) == (False, "environment STREAMER_INSECURE")
    monkeypatch.setenv("STREAMER_INSECURE", "perhaps")
    with pytest.raises(UsageError, match=r"insecure \(environment STREAMER_INSECURE\)"):
        load_settings()


def test_insecure_is_said_for_one_command(monkeypatch: pytest.MonkeyPatch, told: Told):
    monkeypatch.setenv("STREAMER_DATABASE_URL", "postgresql://ana:hunter2@db.invalid/d?sslmode=prefer")
    monkeypatch.setenv("STREAMER_KAFKA_BOOTSTRAP_SERVERS", "kafka.invalid:9092")
    for words, complaint in (
        (["db", "upgrade"], "refusing to talk to the database at db.invalid with sslmode=prefer"),
        (["topics", "check"], "refusing to talk to kafka.invalid:9092 without TLS"),
    ):
        assert complaint in told(*words, status=2).err
        error = told("--insecure", *words, status=1).err
        assert ".invalid" in error
        assert "hunter2" not in error
    assert "STREAMER_INSECURE" not in os.environ


def test_tables_by_name_come_from_toml_or_one_variable(monkeypatch: pytest.MonkeyPatch):
    upstream = {"base_url": "https://models.example/v1", "model": "small"}
    Path("streamer.toml").write_text(
        '[upstreams."bot.1_a"]\nbase_url = "https://models.example/v1"\nmodel = "small"\nanswers = 5\n'
    )
    assert load_settings().upstreams["bot.1_a"].answers == 5
    monkeypatch.setenv("STREAMER_UPSTREAMS", json.dumps({"bot.1_a": {"answers": 6}, "faq": upstream}))
    settings = load_settings()
    assert {name: one.answers for name, one in settings.upstreams.items()} == {"bot.1_a": 6, "faq": 10}
    shown = {row["setting"]: (row["value"], row["origin"]) for row in setting_rows(settings)}
    assert shown["upstreams.faq.model"] == ("small", "environment STREAMER_UPSTREAMS")
    assert shown["upstreams.faq.answers"] == (10, "default")
    monkeypatch.setenv("STREAMER_UPSTREAMS", json.dumps({"faq": upstream | {"answers": 0}}))
    with pytest.raises(
        UsageError, match=r"upstreams\.faq\.answers \(environment STREAMER_UPSTREAMS\): .* than or equal to 1"
    ):
        load_settings()
    monkeypatch.setenv("STREAMER_UPSTREAMS", "small")
    with pytest.raises(UsageError, match="STREAMER_UPSTREAMS must hold a JSON object"):
        load_settings()
