"""The command line as its users meet it: exit statuses, what goes where, JSON shapes, messages that say what to do."""

import errno
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import sqlalchemy as sa
import typer

from streamer import cli
from streamer.cli import main
from streamer.cli.app import app, every_command
from streamer.cli.console import percent
from streamer.cli.help import WIDEST
from streamer.cli.services import _announce, _announce_json, worker
from streamer.errors import Unavailable
from streamer.gates.batch_key import BatchKey
from streamer.gates.settings import GateSettings
from streamer.scoring.encoders.identity import EncoderIdentity
from streamer.settings.settings import load_settings
from streamer.stream.ending import WorkerExit
from streamer.wiring import open_store
from tests.unit.cli.conftest import Run, refused

GATE_KEYS = {
    "model", "signals", "upstream", "loss", "left_out", "least_kept",
    "gate", "revision", "seed", "created_at", "by", "reason", "policy", "unit", "scorer", "encoder", "embeddings", "dimension", "severity_kind",
    "alpha", "method", "eta", "draws", "delta", "rho", "shape", "width", "segment_by", "group_by", "judged",
    "segment_fallback", "label_floor", "keep_texts", "hold_action", "desk_deadline_seconds", "max_attempts", "mode", "audit_probability",
    "audit_draws", "audit_boost", "audit_boost_most", "label_deadline_seconds", "decision_deadline_seconds", "recalibrate",
    "recalibrate_every_seconds",
    "recalibrate_after_groups", "max_lambda_step", "max_ship_rate_step", "least_groups", "on_alarm", "monitor_delta",
    "alarm_delta", "alarm_tolerance", "monitor_deadline_seconds", "budget_period_days", "drift_delta", "judge_kind",
    "labellers", "signed_labels", "two_people", "parameters", "pending", "window", "on_selective_alarm", "on_missing", "early", "alarm_false_every",
}  # fmt: skip


@pytest.fixture(autouse=True)
def empty_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def database(empty_directory: None, migrated_sqlite_file: Path) -> None:
    Path(".streamer").mkdir()
    shutil.copy(migrated_sqlite_file, ".streamer/audit.db")


def objects(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


# -- the whole -----------------------------------------------------------------------------------------------


def commands() -> list[list[str]]:
    return [path.split()[1:] for path, _ in every_command(typer.main.get_command(app), "streamer")]


def test_the_list_says_of_each_command_what_its_own_help_begins_with():
    for name, listed in typer.main.get_command(app).commands.items():
        assert listed.name == listed.command.name == name
        assert listed.help == " ".join(listed.command.help.split("\n\n")[0].split())


def goes_on_too_late(lines: list[str], indent: int, width: int) -> list[str]:
    """Lines of a text at `indent` whose first word had room on the line before."""
    return [
        after
        for line, after in pairwise(lines)
        if line[:indent].endswith("  ")
        and re.match(rf" {{{indent}}}[^ \[]", after)
        and len(line) + 1 + len(after.split()[0]) <= width
    ]


@pytest.mark.parametrize("columns", [80, 300])
def test_every_command_has_a_help_that_is_wrapped_once_and_breaks_no_word(
    columns: int, run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", str(columns))
    width = min(columns, WIDEST) - 2
    for words in [[], ["gate"], ["console", "user"], *commands()]:
        status, shown, _ = run(*words, "--help")
        lines = shown.splitlines()
        assert status == 0
        assert shown.startswith(" ".join(["Usage: streamer", *words]))
        assert [line for line in lines if len(line) > width and "--" not in line] == [], words
        first = next(place for place, line in enumerate(lines) if re.match(r"\w.*:$", line))
        column = next(line.index("Show this message") for line in lines if "Show this message" in line)
        assert goes_on_too_late(lines[:first], 2, width) == [], words
        assert goes_on_too_late(lines[first:], column, width) == [], words
        assert not re.search(
            r"<\w+>|\[\[|\.\.\.[\]}]|[{}│╭]|\d<=|[Dd]efault: [^\]]*\.$", shown, re.MULTILINE
        ), words


def test_a_help_says_defaults_and_bounds_in_brackets_at_the_end(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "100")

    def shown(*words: str) -> str:
        _, out, _ = run(*words, "--help")
        return " ".join(out.split())

    assert "(0.05 or 5%). [new gates: 0.05]" in shown("gate", "create")
    assert "--mode shadow|enforce shadow:" in shown("gate", "create")
    plan = shown("plan")
    assert "the share of bad ones. [default: 0.3]" in plan
    assert "[1 to 1000; default: 1]" in plan
    assert "[default: 10; with --data: what most clouds have]" in plan
    assert "[default: .01 .05 .10 .15 .20]" in shown("evaluate")
    assert "Usage: streamer gpso [OPTIONS] FILE... " in shown("gpso")
    assert "Usage: streamer recalibrate [OPTIONS] [GATE] " in shown("recalibrate")
    assert "[default: --activate]" in shown("recalibrate")


def test_ten_options_make_a_gate_and_the_rest_is_asked_for(run: Run):
    def options(word: str) -> list[str]:
        _, shown, _ = run("gate", "create", word)
        return [
            one for one in re.findall(r"^  (--[\w-]+)", shown, re.MULTILINE) if not one.startswith("--help")
        ]

    few, all_of_them = options("--help"), options("--help-all")
    assert len(few) == 10
    assert set(few) < set(all_of_them)
    assert {"--scorer", "--by", "--reason", "--delta"} <= set(all_of_them)


@pytest.mark.parametrize(
    "words", [["gpso", "--help"], ["config", "show"], ["config", "show", "--json"]], ids=" ".join
)
def test_output_that_nobody_reads_any_more_ends_a_command_quietly(words: list[str]):
    child = subprocess.Popen(
        [sys.executable, "-m", "streamer", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stderr is not None
    with child:
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 0


def test_a_connection_that_breaks_is_a_failure_although_output_is_read():
    script = (
        "import streamer.cli.config, sys\nfrom streamer.cli import main\n"
        "def breaks(*_, **__): raise BrokenPipeError(32, 'Broken pipe')\n"
        "import streamer.settings.settings\nstreamer.settings.settings.load_settings = breaks\n"
        "sys.exit(main(['config', 'show']))\n"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=240).returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("words", [["--help"], ["gate", "list"], ["label", "queue"]], ids=" ".join)
def test_a_full_disk_is_one_plain_line(words: list[str], run: Run):
    assert run("db", "upgrade")[0] == cli.DONE
    assert run("gate", "create", "support-bot")[0] == cli.DONE
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "streamer", *words], stdout=full, stderr=subprocess.PIPE,
            text=True, check=False,
        )  # fmt: skip
    assert done.returncode == cli.FAILED
    assert "cannot write a file or standard output: No space left on device" in done.stderr
    assert "STREAMER_DEBUG" not in done.stderr


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EDQUOT, "cannot write settings.toml: Disk quota exceeded"),
        (errno.EROFS, "cannot write settings.toml: Read-only file system"),
        (errno.EACCES, "cannot read or write settings.toml: Permission denied"),
        (errno.EIO, "cannot read or write settings.toml: Input/output error"),
        (errno.ENAMETOOLONG, "cannot read or write settings.toml: File name too long"),
    ],
)
def test_what_a_disk_refuses_names_the_file(
    number: int, says: str, run: Run, monkeypatch: pytest.MonkeyPatch
):
    def refuses() -> None:
        raise OSError(number, os.strerror(number), "settings.toml")

    monkeypatch.setattr("streamer.wiring.load_settings", refuses)
    status, _, err = run("config", "show")
    assert (status, err) == (cli.FAILED, f"streamer: {says}\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "first.jsonl"),
        ("", "first.jsonl is empty"),
        ('{"question_id": "q", "responses": [{"te', "first.jsonl"),
        ("prompt,text\n", "it looks like CSV"),
        ('{"prompt": "why?"}\n', "first.jsonl"),
        ("a,b\n1,2\n", "first.jsonl"),
    ],
    ids=["missing", "empty", "cut off", "CSV", "no answer", "other columns"],
)
def test_a_wrong_first_line_is_told_before_the_broker_is_asked(text: str | None, says: str, run: Run):
    if text is not None:
        Path("first.jsonl").write_text(text)
    err = refused(run, "publish", "first.jsonl", "--gate", "support-bot")
    assert says in err
    assert "KAFKA" not in err


@pytest.mark.parametrize(
    "words",
    [["nonsense"], ["gate", "create"], ["publish"], ["tail", "nothing"], ["demo", "--alpha", "much"]],
    ids=" ".join,
)
def test_wrong_words_are_wrong_usage(words: list[str], run: Run):
    assert "Usage: streamer" in refused(run, *words)


@pytest.mark.parametrize(
    "words", [["publish", "-"], ["tail"], ["topics", "create"], ["topics", "check"], ["worker"]], ids=" ".join
)
def test_without_a_broker_one_line_says_what_to_do(
    words: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("STREAMER_LOGGING_FORMAT", "console")
    status, out, err = run(*words)
    assert (status, out) == (cli.WRONG_USAGE, "")
    assert len(err.splitlines()) == 1
    assert "start `streamer dev`, or set STREAMER_KAFKA_BOOTSTRAP_SERVERS" in err


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (
            Unavailable("postgresql://u:hunter2@h/x: away"),
            cli.FAILED,
            "streamer: postgresql://u:********@h/x: away",
        ),
        (KeyError("x"), cli.FAILED, "unexpected KeyError: 'x'; run it again with STREAMER_DEBUG=1"),
        (KeyboardInterrupt(), cli.INTERRUPTED, ""),
    ],
    ids=["away", "unexpected", "ctrl-c"],
)
def test_errors_are_one_line_without_traceback(
    error: BaseException, status: int, says: str, monkeypatch: pytest.MonkeyPatch, run: Run
):
    def fail(**_overrides: object) -> None:
        raise error

    monkeypatch.setattr("streamer.wiring.load_settings", fail)
    found, out, err = run("config", "show")
    assert (found, out) == (status, "")
    assert says in err
    assert len(err.splitlines()) <= 1
    if isinstance(error, Exception):
        monkeypatch.setenv("STREAMER_DEBUG", "1")
        with pytest.raises(type(error)):
            main(["config", "show"])


def test_version(run: Run):
    assert run("--version")[1].startswith("streamer ")


# -- config ----------------------------------------------------------------------------------------------------


def test_config_shows_origins_and_hides_secrets(monkeypatch: pytest.MonkeyPatch, run: Run):
    monkeypatch.setenv("STREAMER_DATABASE_URL", "postgresql+psycopg://me:hunter2@db/x")
    monkeypatch.setenv("STREAMER_KAFKA_PROPERTIES_SASL_PASSWORD", "hunter2")
    monkeypatch.setenv("STREAMER_KAFKA_PROPERTIES_SASL_USERNAME", "me")
    monkeypatch.setenv("STREAMER_HTTP_PROT", "1")
    status, out, err = run("config", "show")
    assert status == 0
    assert "hunter2" not in out + err
    assert "environment STREAMER_DATABASE_URL" in out
    assert "STREAMER_HTTP_PROT is set but is not a setting" in err
    status, out, _ = run("config", "show", "--json")
    (found,) = objects(out)
    rows = {row["setting"]: row for row in found["settings"]}
    assert found["unknown_variables"] == ["STREAMER_HTTP_PROT"]
    assert rows["database.url"] == {
        "setting": "database.url",
        "variable": "STREAMER_DATABASE_URL",
        "value": "postgresql+psycopg://me:********@db/x",
        "origin": "environment STREAMER_DATABASE_URL",
    }
    assert rows["kafka.properties.sasl.password"]["value"] == "********"
    assert rows["kafka.properties.sasl.username"]["value"] == "me"
    assert rows["http.port"]["origin"] == "default"


# -- db --------------------------------------------------------------------------------------------------------


def test_a_missing_database_is_named_with_what_makes_it(run: Run):
    assert "`streamer db upgrade`" in refused(run, "gate", "list")
    status, out, _ = run("db", "check", "--json")
    assert status == cli.FOUND
    assert objects(out)[0]["ok"] is False


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, "0 %"), (1.47e-8, "under 0.001 %"), (2.29e-5, "0.00229 %"), (0.05, "5 %"), (0.1163, "11.6 %"),
        (1.0, "100 %"), (12.344, "1234 %"),
    ],
)  # fmt: skip
def test_a_percentage_has_three_digits_and_no_exponent(share: float, said: str):
    assert percent(share) == said


def test_db_upgrade_may_be_repeated(run: Run):
    status, out, _ = run("db", "upgrade")
    assert status == 0
    assert out.startswith("Created the tables of sqlite:///.streamer/audit.db: revision ")
    status, out, _ = run("db", "upgrade")
    assert status == 0
    assert "up to date" in out
    status, out, _ = run("db", "check", "--json")
    assert (status, objects(out)[0]) == (
        0, {"database": "sqlite:///.streamer/audit.db", "ok": True, "problem": None}
    )  # fmt: skip


# -- gates and thresholds --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("database")
def test_a_gate_from_creation_to_change(run: Run):
    status, out, err = run(
        "gate", "create", "bot", "--alpha", "0.1", "--label-deadline", "7d", "--decision-deadline", "30s",
        "--seed", "5", "--by", "ann", "--reason", "pilot", "--json",
    )  # fmt: skip
    assert status == 0
    (gate,) = objects(out)
    assert set(gate) == GATE_KEYS
    found = (gate["alpha"], gate["label_deadline_seconds"], gate["decision_deadline_seconds"])
    assert found == (0.1, 604800.0, 30.0)
    assert (gate["seed"], gate["by"], gate["reason"]) == (5, "ann", "pilot")
    assert gate["encoder"].startswith("all-MiniLM-L6-v2@")
    wanted = gate["policy"] | {"version": 1, "state": "closed", "lambda": None, "calibrated": False}
    assert gate["policy"] == wanted
    assert "salt" not in out
    assert "the next worker announces it" in err

    status, out, _ = run("gate", "set", "bot", "--mode", "enforce", "--decision-deadline", "none", "--json")
    (changed,) = objects(out)
    assert changed["changes"] == {"mode": ["shadow", "enforce"], "decision_deadline_seconds": [30.0, None]}
    assert (changed["closes"], changed["revision"], changed["policy"]["version"]) == (False, 2, 2)

    status, out, _ = run("gate", "set", "bot", "--alpha", "0.2", "--dry-run", "--json")
    (dry,) = objects(out)
    assert (dry["closes"], dry["dry_run"], dry["revision"]) == (True, True, 2)

    status, out, _ = run("gate", "set", "bot", "--mode", "enforce")
    assert "has these settings already" in out

    status, out, _ = run("gate", "list", "--json")
    assert [one["gate"] for one in objects(out)] == ["bot"]
    status, out, _ = run("gate", "show", "bot")
    assert "closed, holds everything" in out
    assert "label deadline" in out

    status, out, _ = run("threshold", "list", "bot", "--json")
    assert [one["version"] for one in objects(out)] == [2, 1]
    assert {"lambda", "guarantee", "by", "reason", "valid_from", "state"} <= set(objects(out)[0])
    status, out, _ = run("threshold", "show", "bot", "--version", "1")
    assert "superseded" in out
    assert "ann" in out
    assert run("threshold", "show", "bot", "--version", "9")[0] == cli.WRONG_USAGE


@pytest.mark.usefixtures("database")
def test_a_change_is_done_even_where_the_broker_may_not_be_talked_to(
    monkeypatch: pytest.MonkeyPatch, run: Run
):
    monkeypatch.setenv("STREAMER_KAFKA_BOOTSTRAP_SERVERS", "kafka.example.invalid:9092")
    status, out, err = run("gate", "create", "bot", "--scorer", "external")
    assert status == cli.DONE
    assert "Gate bot is created" in out
    assert "It is recorded" in err
    assert "without TLS" in err


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["a table", "JSON"])
def test_gates_are_listed_by_as_many_queries_however_many_there_are(run: Run, form: list[str]):
    def queries() -> list[str]:
        asked: list[str] = []

        def listen(*given: object) -> None:
            asked.append(str(given[2]))

        sa.event.listen(sa.Engine, "before_cursor_execute", listen)
        try:
            assert run("gate", "list", *form)[0] == cli.DONE
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", listen)
        return asked

    counts = []
    for number in (1, 2, 20):
        with open_store(load_settings()) as store:
            for name in range(number):
                settings = GateSettings(scorer="external", encoder="none")
                store.gates.create(f"gate-{number}-{name}", settings, by="ann", reason="test")
        counts.append(len(queries()))
    assert counts[0] == counts[1] == counts[2] > 0


@pytest.mark.usefixtures("database")
def test_an_external_scorer_and_a_judge_need_no_encoder(run: Run, monkeypatch: pytest.MonkeyPatch):
    _, out, _ = run("gate", "create", "x", "--scorer", "external", "--json")
    assert objects(out)[0]["encoder"] == "none"
    _, out, _ = run("gate", "set", "x", "--scorer", "gram", "--json")
    assert objects(out)[0]["encoder"].startswith("all-MiniLM")
    _, out, _ = run("gate", "set", "x", "--scorer", "external", "--json")
    assert objects(out)[0]["encoder"] == "none"
    monkeypatch.setenv("STREAMER_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("STREAMER_JUDGE_MODEL", "grader")
    _, out, _ = run("gate", "create", "j", "--scorer", "judge", "--json")
    assert objects(out)[0]["encoder"].startswith("judge:grader/rubric-")


@pytest.mark.usefixtures("database")
def test_a_worker_without_an_encoder_is_fine_for_external_scores(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STREAMER_ENCODER_NAME", "none")
    assert "give --encoder NAME, or --scorer external" in refused(run, "gate", "create", "x")
    assert run("gate", "create", "x", "--scorer", "external")[0] == 0
    assert run("gate", "create", "y", "--encoder", "all-MiniLM-L6-v2")[0] == 0
    _, out, _ = run("doctor", "--json")
    assert {"encoder": "ok", "gate x": "warn", "gate y": "warn"}.items() <= {
        finding["subject"]: finding["level"] for finding in objects(out)[0]["findings"]
    }.items()


@pytest.mark.usefixtures("database")
def test_a_gate_takes_its_upstream_by_name_as_it_is_set_now(run: Run, monkeypatch: pytest.MonkeyPatch):
    def set_to(**settings: object) -> None:
        table = {
            "base_url": "http://127.0.0.1:9/v1",
            "model": "small",
            "key_variable": "NO_SUCH_KEY",
        } | settings
        monkeypatch.setenv("STREAMER_UPSTREAMS", json.dumps({"x": table}))

    def pinned(*words: str) -> tuple[object, bool]:
        status, out, err = run("gate", "set", "x", *words, "--json")
        assert status == 0, err
        (said,) = objects(out)
        return said["upstream"], said["closes"]

    assert run("gate", "create", "x")[0] == 0
    set_to(steps=[3, 6], stop_above=0.9)
    first, closes = pinned("--upstream", "x")
    assert str(first).startswith("small@")
    assert closes
    assert pinned("--upstream", "x") == (first, False)
    set_to(steps=[3, 6], stop_above=0.8)
    other, closes = pinned("--upstream", "x")
    assert closes
    assert other != first
    assert pinned("--upstream", str(first)) == (first, True)
    assert pinned("--upstream", "none") == (None, True)
    found = refused(run, "gate", "set", "x", "--upstream", "y")
    assert "[upstreams.NAME] of the settings here (x), not 'y'" in found
    assert "`streamer serve` asks [upstreams.y] for the answers of gate y, and not [upstreams.x]" in refused(
        run, "gate", "create", "y", "--upstream", "x"
    )


PINNED, SEGMENTED = ("--upstream", "x"), ("--segment-by", "upstream", "--method", "mean")


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("origin", "table", "words", "mended", "says"),
    [
        (PINNED, {}, ("--unit", "response"), ("--unit", "best"), "--unit best"),
        (SEGMENTED, {}, ("--scorer", "external"), ("--scorer", "gram"), "sampled answers bring none"),
        (
            PINNED,
            {},
            ("--encoder", "external:mine", "--dimension", "8"),
            ("--encoder", "all-MiniLM-L6-v2"),
            "sampled answers bring none",
        ),
        (SEGMENTED, {}, ("--hashes-only",), ("--keep-texts",), "--keep-texts"),
        (PINNED, {"then": "y"}, (), ("--label-floor", "0.5"), "--label-floor"),
        (
            SEGMENTED,
            {"then": "y"},
            ("--label-floor", "0.5", "--desk-deadline", "15m", "--hold-action", "escalate"),
            ("--desk-deadline", "none"),
            "give the last gate a desk",
        ),
    ],
)
def test_no_gate_is_made_that_the_endpoint_would_refuse(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    origin: tuple[str, ...],
    table: dict[str, object],
    words: tuple[str, ...],
    mended: tuple[str, ...],
    says: str,
):
    small = {"base_url": "http://127.0.0.1:9/v1", "model": "small"}
    monkeypatch.setenv("STREAMER_UPSTREAMS", json.dumps({"x": small | table, "y": small}))
    status, _, err = run("gate", "create", "x", *origin, "--method", "mean", *words)
    assert (status, says in err, "gate x" in err) == (cli.WRONG_USAGE, True, True), err
    assert run("gate", "list", "--json")[1] == "", "nothing was created"
    # One that answers may come from anywhere for is not refused, nor one that other settings have no upstream for.
    assert run("gate", "create", "x", "--method", "mean", *words)[0] == 0
    status, _, err = run("gate", "set", "x", *origin)
    assert (status, says in err) == (cli.WRONG_USAGE, True), err
    assert run("gate", "set", "x", *origin, *mended)[0] == 0
    if words:
        status, _, err = run("gate", "set", "x", *words)
        assert (status, says in err) == (cli.WRONG_USAGE, True), err
    assert run("gate", "set", "x", "--alpha", "0.2")[0] == 0
    monkeypatch.delenv("STREAMER_UPSTREAMS")
    assert run("gate", "set", "x", "--unit", "response", "--label-floor", "none")[0] == 0


def created(run: Run, *words: str) -> tuple[str, str, int | None]:
    status, out, err = run("gate", *words, "--json")
    assert status == 0, err
    (gate,) = objects(out)
    return gate["encoder"], gate["embeddings"], gate["dimension"]


@pytest.mark.usefixtures("database")
def test_a_gate_says_whose_embeddings_it_takes(run: Run, monkeypatch: pytest.MonkeyPatch):
    usual = "all-MiniLM-L6-v2@53aa5117+ctranslate2"
    outer, external = "external:text-embedding-3-small", ("--encoder", "external:text-embedding-3-small")
    assert created(run, "create", "a") == (usual, "refuse", None)
    assert created(run, "create", "b", "--embeddings", "accept") == (usual, "accept", 384)
    assert created(run, "create", "c", *external, "--dimension", "1536") == (outer, "accept", 1536)
    # What a worker has run is known, wherever it ran.
    with open_store(load_settings()) as store:
        store.encoders.register(EncoderIdentity("other", "1", "12345678" * 8, 96))
    other = "other@12345678"
    assert created(run, "create", "d", "--encoder", other, "--embeddings", "accept") == (other, "accept", 96)
    assert created(run, "set", "a", "--embeddings", "accept") == (usual, "accept", 384)
    assert created(run, "set", "a", *external, "--dimension", "8") == (outer, "accept", 8)
    assert created(run, "set", "a", "--encoder", usual) == (usual, "refuse", None)
    monkeypatch.setenv("STREAMER_ENCODER_NAME", "none")
    assert created(run, "create", "e", *external, "--dimension", "1536") == (outer, "accept", 1536)
    assert created(run, "create", "f", "--encoder", usual) == (usual, "accept", 384)
    wanted = (usual, "refuse", None)
    assert created(run, "create", "g", "--encoder", usual, "--embeddings", "refuse") == wanted
    assert created(run, "create", "h", "--scorer", "external") == ("none", "refuse", None)
    for words, says in (
        (["create", "x"], "--encoder external:NAME --dimension D"),
        (["create", "x", *external], f"give --dimension D, that of the embeddings of {outer}"),
        (["create", "x", *external, "--dimension", "1"], "--dimension must be in 2..4096"),
        (["create", "x", *external, "--dimension", "0"], "--dimension must be in 2..4096"),
        (["create", "x", *external, "--embeddings", "refuse"], "--embeddings must be accept"),
        (["create", "x", "--encoder", "external:"], "--dimension"),
        (
            ["create", "x", "--encoder", "new@12345678"],
            "give --dimension D, that of the embeddings of new@12345678",
        ),
        (
            ["create", "x", "--encoder", usual, "--dimension", "9"],
            f"--dimension must be 384, that of {usual}",
        ),
        (["create", "x", "--scorer", "external", "--embeddings", "accept"], "--embeddings must be refuse"),
        (
            ["create", "x", "--encoder", usual, "--embeddings", "ask"],
            "--embeddings must be one of refuse, accept",
        ),
        (["set", "c", "--embeddings", "refuse"], "--embeddings must be accept"),
    ):
        status, _, err = run("gate", *words)
        assert status == cli.WRONG_USAGE, words
        assert says in " ".join(err.split()), words
    _, out, _ = run("gate", "show", "c")
    assert "accept" in out
    assert "1536" in out
    _, _, err = run("gate", "create", "k", *external, "--dimension", "64")
    assert "embeddings of dimension 64 from events whose embedding_encoder is text-embedding-3-small" in err


@pytest.mark.parametrize(("encoder", "loads"), [("all-MiniLM-L6-v2", True), ("none", False)])
def test_dev_says_that_it_loads_an_encoder_if_it_has_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, encoder: str, loads: bool
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_ENCODER_NAME", encoder)
    monkeypatch.setattr("streamer.cli.dev.embedded_step.run_dev", lambda *_args, **_kwargs: 0)
    monkeypatch.setattr("streamer.cli.services.end_on_sigterm", lambda: None)
    status, _, err = run("dev", "--no-view")
    assert status == 0
    assert err.startswith(
        "Starting an embedded broker, a worker, the endpoint, a recalibrator and the console"
    )
    assert ("; loading the encoder takes some seconds." in err) is loads


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["create", "Bad"], "no name for a gate"),
        (["create", "x", "--alpha", "2"], "--alpha must be at least 1e-09 and less than 1"),
        (["create", "x", "--unit", "worst"], "--unit must be one of best, response, batch"),
        (["create", "x", "--label-deadline", "soon"], "--label-deadline must be a time like 90s"),
        (["set", "nobody", "--alpha", "0.1"], "there is no gate 'nobody'"),
        (["set", "nobody"], "nothing to change"),
        (["show", "nobody"], "there is no gate 'nobody'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_no_gate_can_have_is_said(words: list[str], says: str, run: Run):
    status, out, err = run("gate", *words)
    assert (status, out) == (cli.WRONG_USAGE, "")
    assert says in err
    assert len(err.splitlines()) == 1


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("written", "alpha"), [("5%", 0.05), ("0.7%", 0.007), ("2.5 %", 0.025), (".05", 0.05), ("5e-2", 0.05)]
)
def test_a_share_may_be_written_as_a_percentage(run: Run, written: str, alpha: float):
    status, out, err = run("gate", "create", "x", "--scorer", "external", "--alpha", written, "--json")
    assert (status, json.loads(out)["alpha"]) == (0, alpha), err


def test_what_is_no_share_is_said(run: Run):
    for option, written in (("--severity", "130%"), ("--severity", "-1%"), ("--auc", "2")):
        status, _, err = run("plan", "--alpha", "10%", option, written)
        assert (status, f"'{written}' is not from 0 (or 0%) to 1" in err) == (2, True)
    for written in ("5%%", "%", "five", ""):
        assert "write a share like 0.05 or 5%" in refused(run, "gate", "create", "x", "--alpha", written)


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("kind", "meant"), [("humn", "human"), ("bert-score", "bertscore"), ("human", None), ("toxicity", None)]
)
def test_a_kind_of_severity_that_looks_like_a_typing_mistake_is_refused(
    run: Run, kind: str, meant: str | None
):
    create = ("gate", "create", "x", "--scorer", "external", "--severity-kind", kind)
    status, _, err = run(*create)
    if meant is not None:
        said = f"it looks like {meant!r}: give --severity-kind {meant}, or --new-kind"
        assert (status, said in " ".join(err.split())) == (cli.WRONG_USAGE, True)
        status = run(*create, "--new-kind")[0]
    assert status == 0, err
    assert run("gate", "set", "x", "--severity-kind", "jugde")[0] == cli.WRONG_USAGE
    assert json.loads(run("gate", "show", "x", "--json")[1])["severity_kind"] == kind


def test_a_choice_that_is_none_is_answered_by_those_there_are(run: Run):
    found = refused(run, "plan", "--alpha", "0.1", "--unit", "all")
    assert "'--unit': 'all' is not one of 'best', 'response', 'batch'" in found


@pytest.mark.usefixtures("database")
def test_recalibration_without_a_sample_says_what_is_missing(run: Run):
    run("gate", "create", "x")
    assert "no audit-sampled batch" in refused(run, "recalibrate", "x")
    assert run("recalibrate")[0] == cli.FAILED


# -- labels and dead letters -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("database")
def test_labels_are_imported_all_or_none(run: Run):
    run("gate", "create", "x")
    head = "gate,batch_id,response_id,severity,kind,labeller\n"
    Path("bad.csv").write_text(head + "x,b,a,0,human,ann\nx,b,c,7,human,ann\n")
    assert "bad.csv, line 3, column severity" in refused(run, "label", "import", "bad.csv")
    Path("good.csv").write_text(head + "x,b,a,0,human,\nx,b,c,,human,\n")
    _, out, _ = run("label", "import", "good.csv", "--json")
    assert objects(out) == [
        {
            "file": "good.csv", "read": 1, "stored": 1, "repeated": 0, "signed": 0, "unread": {},
            "without_severity": 1, "unmatched": 0, "unrecorded": 1, "other_kind": 0,
        }
    ]  # fmt: skip
    assert run("label", "import", "absent.csv")[0] == cli.WRONG_USAGE


@pytest.mark.usefixtures("database")
def test_who_is_logged_in_labels_only_what_nobody_is_named_for(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOGNAME", "olga")
    run("gate", "create", "x")
    head = "gate,batch_id,response_id,severity,kind,labeller\n"
    Path("unseen.csv").write_text(head + "x,b,a,0,human,ann\nx,b,c,1,human,a\u200bnn\n")
    for words in ((), ("--labeller", "ann")):
        status, _, err = run("label", "import", "unseen.csv", *words)
        err = " ".join(err.split())
        assert status == cli.WRONG_USAGE
        assert "unseen.csv, line 3, column labeller: " in err
        assert "invisible character" in err
        assert "--labeller" not in err
    for option, value in (("--labeller", "a\u200bnn"), ("--gate", "X!"), ("--kind", "")):
        err = refused(run, "label", "import", "unseen.csv", option, value)
        assert option in err
        assert "unseen.csv" not in err
    Path("mixed.csv").write_text(head + "x,b,a,0,human,ann\nx,b,c,1,human,\n")
    assert run("label", "import", "mixed.csv")[0] == 0
    with open_store(load_settings()) as store:
        assert store.labels.severities("x", "human").get(BatchKey("x", "b", 1), "c") == 1.0
    with sqlite3.connect(load_settings().database.url.removeprefix("sqlite:///")) as database:
        labelled = database.execute("SELECT response_id, labeller FROM label_revisions").fetchall()
    assert sorted(labelled) == [("a", "ann"), ("c", "olga")]


@pytest.mark.usefixtures("database")
def test_a_file_is_as_old_as_its_last_change(run: Run):
    run("gate", "create", "x")
    for name, severity, changed in (("new.csv", 1, 2000), ("old.csv", 0, 1000)):
        Path(name).write_text(
            f"gate,batch_id,response_id,severity,kind,labeller\nx,b,a,{severity},human,ann\n"
        )
        os.utime(name, (changed, changed))
        assert "imported 1 label " in run("label", "import", name)[1]
        status, out, err = run("label", "import", name)
        assert (status, out) == (0, f"imported 0 labels from {name}\n")
        assert "1 label was known already" in err
    with open_store(load_settings()) as store:
        assert store.labels.severities("x", "human").get(BatchKey("x", "b", 1), "a") == 1.0


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("given", [(), ("--json",)])
def test_an_import_without_a_label_fails_and_names_the_columns(given: tuple[str, ...], run: Run):
    run("gate", "create", "x")
    row = {"gate": "x", "batch_id": "b", "response_id": "a", "kind": "human", "verdict": {"stars": 4}}
    Path("labels.jsonl").write_text(json.dumps(row) + "\n")
    status, _, err = run("label", "import", "labels.jsonl", *given)
    assert status == 1
    if not given:
        found = " ".join(err.split())
        assert "its columns are gate, batch_id, response_id, kind, verdict, verdict.stars" in found
    column = ("--column", "severity=verdict.stars")
    assert run("label", "import", "labels.jsonl", *column, *given)[0] == 2
    assert run("label", "import", "labels.jsonl", *column, "--scale", "1:5", *given)[0] == 0
    with open_store(load_settings()) as store:
        assert store.labels.severities("x", "human").get(BatchKey("x", "b", 1), "a") == 0.25


@pytest.mark.usefixtures("database")
def test_labels_that_change_nothing_are_told_apart(run: Run):
    run("gate", "create", "x", "--severity-kind", "human")
    Path("labels.csv").write_text(
        "gate,batch_id,response_id,severity,kind,labeller\nx,b,a,0,lexical,ann\nx,b,b,0,human,ann\n"
    )
    status, _, err = run("label", "import", "labels.csv")
    assert status == 0
    assert "2 labels name a batch, attempt or response that is not in the record" in err
    assert "1 label is of the kind 'lexical', and gate x is controlled by 'human'" in err


@pytest.mark.usefixtures("database")
def test_an_empty_queue_is_a_file_with_its_columns(run: Run):
    run("gate", "create", "x")
    status, out, err = run("label", "queue", "--gate", "x")
    assert status == 0
    assert out.startswith("gate,batch_id,attempt,response_id,severity")
    assert "0 responses wait" in err
    assert run("label", "queue", "--gate", "y")[0] == cli.WRONG_USAGE
    assert run("label", "queue", "--out", "queue.pdf")[0] == cli.WRONG_USAGE
    assert run("label", "queue", "--out", "queue.jsonl")[0] == 0
    assert Path("queue.jsonl").read_text() == ""


@pytest.mark.usefixtures("database")
def test_no_dead_letters(run: Run):
    assert run("dead-letters", "list", "--json") == (0, "", "")
    assert "No message was refused.\n" in run("dead-letters", "list")[2]
    chosen = run("dead-letters", "list", "--code", "not_json")[2]
    assert "No message was refused with the code not_json.\n" in chosen


# -- doctor ----------------------------------------------------------------------------------------------------


def test_doctor_finds_what_is_missing_and_goes_on(run: Run):
    status, out, _ = run("doctor", "--json")
    assert status == cli.FOUND
    (found,) = objects(out)
    levels = {finding["subject"]: finding["level"] for finding in found["findings"]}
    assert found["ok"] is False
    assert levels["python"] == levels["encoder"] == "ok"
    assert (levels["database"], levels["broker"]) == ("fail", "ok")
    assert {frozenset(finding) for finding in found["findings"]} == {
        frozenset({"level", "subject", "text", "todo"})
    }


@pytest.mark.usefixtures("database")
def test_doctor_finds_no_fault_with_an_installation_without_kafka(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STREAMER_ENCODER_NAME", "none")
    assert run("gate", "create", "x", "--scorer", "external")[0] == 0
    status, out, _ = run("doctor", "--json")
    (found,) = objects(out)
    findings = {one["subject"]: (one["level"], one["text"]) for one in found["findings"]}
    assert (status, found["ok"]) == (0, True)
    assert findings["broker"][0] == "ok"
    assert "`streamer serve --no-kafka` needs none" in findings["broker"][1]
    assert "outbox" not in findings  # the new gate's policy waits there, for a broker that may never come
    monkeypatch.setenv("STREAMER_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9")
    status, out, _ = run("doctor", "--json")
    levels = {one["subject"]: one["level"] for one in objects(out)[0]["findings"]}
    assert (status, levels["broker"], levels["outbox"]) == (cli.FOUND, "fail", "warn")


@pytest.mark.usefixtures("database")
def test_doctor_tells_why_a_gate_holds(run: Run, monkeypatch: pytest.MonkeyPatch):
    run("gate", "create", "x")
    run("gate", "create", "y", "--encoder", "other@12345678")
    monkeypatch.setenv("STREAMER_HTTP_PROT", "1")
    _, out, _ = run("doctor")
    assert "gate x: closed, holds everything: not calibrated" in out
    assert "gate y: needs encoder other@12345678" in out
    assert "STREAMER_HTTP_PROT" in out
    assert "the Merkle log verifies" in out
    assert "reads texts of up to 256 tokens" in out
    assert "the encoder reads Latin, Greek, Cyrillic, Hebrew, Arabic, Korean, not Armenian, " in out

    monkeypatch.setenv("STREAMER_ENCODER_NAME", "all-MiniLM-L6-v2+sentence-transformers")
    assert "gate x: needs encoder all-MiniLM-L6-v2@53aa5117+ctranslate2" in run("doctor")[1]
    monkeypatch.setenv("STREAMER_ENCODER_CANDIDATE", "all-MiniLM-L6-v2")
    _, out, _ = run("doctor")
    assert "gate x: needs encoder" not in out, "workers run it beside their own"
    assert (
        "gate y: needs encoder other@12345678, workers with these settings run all-MiniLM-L6-v2@53aa5117 "
        "and all-MiniLM-L6-v2@53aa5117+ctranslate2" in out
    )


# -- services --------------------------------------------------------------------------------------------------


def test_the_worker_names_its_exit_statuses():
    said = worker.__doc__.partition("Exit status:")[2]
    assert {int(word) for word in said.split() if word.isdigit()} == {int(status) for status in WorkerExit}


def test_addresses_are_shown_without_passwords(capsys: pytest.CaptureFixture[str]):
    facts = {"http": "http://127.0.0.1:1", "database": "postgresql://u:hunter2@h/x"}
    _announce(facts)
    _announce_json(facts)
    out = capsys.readouterr().out
    assert "hunter2" not in out
    assert json.loads(out.splitlines()[-1])["http"] == "http://127.0.0.1:1"


def test_a_worker_stops_when_its_standard_input_closes(monkeypatch: pytest.MonkeyPatch):
    script = (
        "import sys, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "from streamer.cli.services import stop_when_stdin_closes\n"
        "stop_when_stdin_closes()\n"
        "time.sleep(600)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    assert child.stdin is not None
    assert child.poll() is None
    child.stdin.close()
    assert child.wait(timeout=240) == 7


def test_watching_standard_input_does_not_disturb_the_end():
    script = "from streamer.cli.services import stop_when_stdin_closes\nstop_when_stdin_closes()\n"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.wait(timeout=240) == 0
    _, err = child.communicate()
    assert err == b""


@pytest.mark.parametrize("name", ["monitor", "recalibrator"])
def test_nobody_acts_under_a_name_of_the_program(name: str, database: None, run: Run):
    assert run("gate", "create", "bot", "--scorer", "external")[0] == 0
    found = refused(run, "threshold", "close", "bot", "--reason", "x", "--by", name)
    assert f"the program itself acts as '{name}'" in found


@pytest.mark.usefixtures("database")
def test_a_promise_names_the_method(run: Run):
    external = ("--scorer", "external")
    for promise, method in (
        ("among-shipped", "selective"),
        ("among-shipped-on-average", "selective-mean"),
        ("per-prompt", "mean"),
    ):
        status, out, _ = run("gate", "create", promise, *external, "--promise", promise, "--json")
        assert (status, objects(out)[0]["method"]) == (cli.DONE, method)
    found = refused(run, "gate", "create", "x", *external, "--promise", "all-right")
    assert "--promise must be one of per-prompt" in found
    assert "--promise among-shipped is --method selective" in refused(
        run, "gate", "set", "per-prompt", "--promise", "among-shipped", "--method", "hb"
    )
    status, out, _ = run("gate", "set", "per-prompt", "--promise", "among-shipped", "--json")
    assert objects(out)[0]["changes"] == {"method": ["mean", "selective"]}


@pytest.mark.usefixtures("database")
def test_a_floor_from_history_needs_prompts_that_were_not_drawn(monkeypatch: pytest.MonkeyPatch, run: Run):
    run("gate", "create", "x", "--scorer", "external", "--promise", "among-shipped")
    found = refused(run, "gate", "set", "x", "--label-above", "0.5")
    assert "needs 30 scored prompts that were not drawn" in found
    err = refused(run, "gate", "set", "x", "--label-above", "0.5", "--label-floor", "0.2")
    scores = [[n / 100] for n in range(100)]
    monkeypatch.setattr(
        "streamer.store.calibration.audit_sample.AuditSamples.undrawn_scores",
        lambda _, query, **__: scores if query.settings.scorer == "external" else [],
    )
    status, _, err = run("gate", "set", "x", "--label-above", "0.25", "--scorer", "gram")
    assert status == cli.WRONG_USAGE, "a share of other scores says nothing of these"
    assert "has 0 of the scorer gram" in " ".join(err.split())
    status, out, err = run("gate", "set", "x", "--label-above", "0.25", "--json")
    assert objects(out)[0]["changes"] == {"label_floor": [None, 0.74]}
    assert "100 prompts that were not drawn, 25 % or more score above" in " ".join(err.split())
    external = ("--encoder", "external:e", "--embeddings", "accept", "--dimension", "3")
    run("gate", "create", "all", *external)
    for option in ("--label-above", "--label-floor"):
        assert f"{option} does not go with method full" in refused(run, "gate", "set", "all", option, "0.5")


def test_a_file_in_place_of_the_folder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run):
    (tmp_path / ".streamer").write_text("")
    for command in (["db", "upgrade"], ["demo"]):
        err = refused(run, *command)
        assert "a file stands where a folder should be" in err
    assert "cannot make the folder" in err
    assert "that you may write to" in err
    monkeypatch.setenv("STREAMER_DATABASE_URL", f"sqlite:///{tmp_path / 'elsewhere.db'}")
    status, _, err = run("dev", "--no-view")
    assert status == 2
    assert err.splitlines()[-1].endswith(
        "a file stands where a folder should be; run this in a folder that you may write to"
    )
