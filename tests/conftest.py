"""Fixtures that any test may use: real services, real data, and a watch over the log."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import pickle
import shutil
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hypothesis
import pytest
import structlog

from streamer.clouds.offline import ScoredCloud
from streamer.scoring.encoders.encoder import Encoder
from tests.machine import ASKED
from tests.pinned_draws import pin_draws
from tests.processes import RECORDER
from tests.run_folder import made_once, memory_folder, run_folder
from tests.services.error_log import ErrorLog
from tests.services.kafka import KafkaBroker, what_kafka_needs
from tests.services.pgbouncer import PgBouncer, what_pgbouncer_needs
from tests.services.postgres import PostgresServer, what_postgres_needs
from tests.services.prometheus import Prometheus, what_prometheus_needs
from tests.services.requirements import missing
from tests.statements import share_statements
from tests.times import SLOW_TESTS, Recorder, function_of
from tests.told import Told, telling

if TYPE_CHECKING:
    from streamer.research.experiments.stored_encoder import StoredEncoder
    from tests.services.browser import Browser

# The encoder's weights come in a package: a test that reaches for the network instead must fail at once.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

share_statements()

POOLED = ASKED.get("STREAMER_TEST_POOLER") == "pgbouncer"
"""Whether every PostgreSQL is reached through PgBouncer in transaction mode, whatever the test."""

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"


QUICK = "quick"
"""The profile of Hypothesis that `make check` takes."""

# How long an example takes is the machine's affair.
hypothesis.settings.register_profile(QUICK, max_examples=10, deadline=None)
# Where a change is judged, the examples are the same in each run; elsewhere each run looks at others.
hypothesis.settings.register_profile("full", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("full")


_running = pytest.StashKey[dict[str, Any]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_running] = {}
    pin_draws()
    for name in ("COLUMNS", "LINES"):
        # readline sets them in a process that loads it, as pytest does, and what tests start would inherit them
        os.environ.pop(name, None)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)
    if times := ASKED.get("STREAMER_TEST_TIMES"):
        leads = bool(getattr(config.option, "processes", 0))
        config.pluginmanager.register(Recorder(Path(times), leads=leads), RECORDER)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collecting makes a million objects that stay: no search for garbage looks at them, now or in any test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _interrupt(*_: object) -> NoReturn:
    """End the run as Ctrl-C does, so that services stop with it; the signal may come a second time (`timeout`)."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


_MARKS = {
    "browser": "browser",
    "second_browser": "browser",
    "kafka_broker": "kafka",
    "own_kafka_broker": "kafka",
    "postgres_server": "postgres",
    "own_postgres_server": "postgres",
    "prometheus": "prometheus",
    "real_encoder": "encoder",
    "trivia": "encoder",
    "typescript": "node",
    "triviaqa_path": "shared_data",
    "gsm8k_path": "shared_data",
    "tot_path": "shared_data",
    "claims_paths": "shared_data",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with what its fixtures need, so that ``-m "not kafka"`` is always true to its word.

    Those that were measured to take long are marked, too.
    """
    slow = set(SLOW_TESTS.read_text().split())
    quick = config.getoption("--hypothesis-profile", None) == QUICK
    for item in items:
        for name in getattr(item, "fixturenames", ()):
            if name in _MARKS:
                item.add_marker(_MARKS[name])
        if function_of(item.nodeid) in slow:
            item.add_marker("slow")
        if quick:
            _take_few_examples(item)
    _mix(items)


_COMPUTING = {"unit", "validity"}
"""The folders of tests whose time is the processor's; all others wait for services, two thirds of theirs."""


def _mix(items: list[pytest.Item]) -> None:
    """Spread the files that compute evenly among those that wait, so that several processes always have both at hand.

    Each kind keeps its order, but the wheel's file, which is long, comes early; each file keeps its own.
    """
    kinds: dict[bool, list[Path]] = {True: [], False: []}
    for file in dict.fromkeys(item.path for item in items):
        kinds[_folder(file) in _COMPUTING].append(file)
    kinds[False].sort(key=lambda file: _folder(file) != "packaging")
    place = {file: (number + 0.5) / len(kind) for kind in kinds.values() for number, file in enumerate(kind)}
    items.sort(key=lambda item: place[item.path])


def _folder(file: Path) -> str:
    return file.relative_to(ROOT / "tests").parts[0] if file.is_relative_to(ROOT / "tests") else ""


def _take_few_examples(item: pytest.Item) -> None:
    """Bound a test by the quick profile even where it has a number of examples of its own."""
    test = getattr(item, "obj", None)
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    most = hypothesis.settings.get_profile(QUICK).max_examples
    if own is not None and own.max_examples > most:
        test._hypothesis_internal_use_settings = hypothesis.settings(own, max_examples=most)  # type: ignore[union-attr]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own, with its fixtures made outside."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**given))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the end of a service's log beside the failure of a test that used it."""
    report: Any = yield
    if report.failed:
        for name, service in item.config.stash[_running].items():
            if name in getattr(item, "fixturenames", ()):
                report.sections.append((f"the end of the log of {name}", service.log_tail()))
    return report


# ---- services


def _new_kafka_broker(config: pytest.Config, name: str) -> Iterator[KafkaBroker]:
    if need := what_kafka_needs():
        missing(*need)
    broker = KafkaBroker(parent=memory_folder())
    config.stash[_running][name] = broker
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()


def _new_postgres_server(config: pytest.Config, name: str, *, durable: bool) -> Iterator[PostgresServer]:
    if need := what_postgres_needs():
        missing(*need)
    if POOLED and (need := what_pgbouncer_needs()):
        missing(*need)
    server = PostgresServer(durable=durable, parent=memory_folder())
    config.stash[_running][name] = server
    try:
        server.start()
        if POOLED:
            server.pooler = PgBouncer(server)
            server.pooler.wait()
        yield server
    finally:
        if server.pooler is not None:
            server.pooler.remove()
        server.remove()


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config) -> Iterator[KafkaBroker]:
    """Apache Kafka, shared by the whole run. Topics are the test's own: see `topic_prefix`. Leave it running."""
    yield from _new_kafka_broker(pytestconfig, "kafka_broker")


@pytest.fixture
def own_kafka_broker(pytestconfig: pytest.Config) -> Iterator[KafkaBroker]:
    """Apache Kafka for one test, which may stop, kill, pause and restart it (about three seconds)."""
    yield from _new_kafka_broker(pytestconfig, "own_kafka_broker")


@pytest.fixture
def topic_prefix() -> str:
    """A prefix for topic names and group ids that no other test uses, such as ``t3f9a1c2e.``."""
    return f"t{uuid.uuid4().hex[:8]}."


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[PostgresServer]:
    """PostgreSQL, shared by the whole run. Databases are the test's own: see `database_url`. Leave it running.

    It does not wait for the disk: what a crash leaves is for tests with a server of their own.
    """
    yield from _new_postgres_server(pytestconfig, "postgres_server", durable=False)


@pytest.fixture
def own_postgres_server(pytestconfig: pytest.Config) -> Iterator[PostgresServer]:
    """PostgreSQL for one test, which may stop, crash and restart it (a few seconds)."""
    yield from _new_postgres_server(pytestconfig, "own_postgres_server", durable=True)


@pytest.fixture
def standby(own_postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A hot standby of `own_postgres_server`, which a test may promote."""
    if POOLED:
        missing("no standby", "a pooler leads to one server; run without STREAMER_TEST_POOLER")
    server = PostgresServer(primary=own_postgres_server, parent=own_postgres_server.folder.parent)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def prometheus(pytestconfig: pytest.Config) -> Iterator[Prometheus]:
    """Prometheus for one test, which starts it with its targets and rules: `prometheus.start(...)`."""
    if need := what_prometheus_needs():
        missing(*need)
    server = Prometheus()
    pytestconfig.stash[_running]["prometheus"] = server
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_database_url(postgres_server: PostgresServer) -> Iterator[str]:
    """SQLAlchemy URL of a new, empty PostgreSQL database; it is dropped after the test."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def sqlite_database_url(tmp_path: Path) -> str:
    """SQLAlchemy URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'streamer.sqlite3'}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """SQLAlchemy URL of a new, empty database, unmigrated: the test runs once on each kind."""
    return request.getfixturevalue(
        "sqlite_database_url" if request.param == "sqlite" else "postgres_database_url"
    )


@pytest.fixture(scope="session")
def migrated_sqlite_file() -> Path:
    """An empty, migrated SQLite database, to be copied."""
    from tests.migrated import migrated_file

    return migrated_file()


@pytest.fixture
def migrated_sqlite_url(migrated_sqlite_file: Path, sqlite_database_url: str) -> str:
    """SQLAlchemy URL of a new SQLite database, migrated."""
    shutil.copy(migrated_sqlite_file, sqlite_database_url.removeprefix("sqlite:///"))
    return sqlite_database_url


@pytest.fixture
def migrated_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """SQLAlchemy URL of a new PostgreSQL database, migrated; it is dropped after the test."""
    url = postgres_server.create_migrated_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def migrated_database_url(request: pytest.FixtureRequest) -> str:
    """SQLAlchemy URL of a new, migrated database: the test runs once on each kind."""
    return request.getfixturevalue(
        "migrated_sqlite_url" if request.param == "sqlite" else "migrated_postgres_url"
    )


def _new_browser() -> Iterator[Browser]:
    from tests.services.browser import Browser, what_the_browser_needs

    if need := what_the_browser_needs():
        missing(*need)
    made = Browser()
    yield made
    made.close()


@pytest.fixture(scope="session")
def _first_browser() -> Iterator[Browser]:
    yield from _new_browser()


@pytest.fixture(scope="session")
def _other_browser() -> Iterator[Browser]:
    yield from _new_browser()


@pytest.fixture
def browser(_first_browser: Browser) -> Browser:
    """Chromium, with no page and no cookie. Each test serves its page on a port of its own."""
    _first_browser.forget()
    return _first_browser


@pytest.fixture
def second_browser(_other_browser: Browser) -> Browser:
    """Another Chromium, with a profile of its own: somebody else's."""
    _other_browser.forget()
    return _other_browser


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """A command in this process, and what it prints: `told("gate", "list", status=2).err`."""
    return telling(capsys)


# ---- the encoder and the response clouds


@pytest.fixture(scope="session")
def real_encoder() -> Encoder:
    """The default encoder, all-MiniLM-L6-v2, loaded once (seconds). On the CPU, whatever the machine has."""
    from streamer.scoring.encoders.registry import load_encoder

    return load_encoder("all-MiniLM-L6-v2", device="cpu")


@pytest.fixture(scope="session")
def evaluated_folder() -> Path:
    """The cache of `streamer evaluate` for all processes of a run: no text is encoded twice."""
    return run_folder() / "evaluated"


@pytest.fixture(scope="session")
def stored_encoder(real_encoder: Encoder, evaluated_folder: Path) -> StoredEncoder:
    """`real_encoder` with that cache: for tests of what is done with its vectors, which are the same to the last bit."""
    from streamer.research.experiments.stored_encoder import StoredEncoder

    return StoredEncoder(real_encoder, folder=evaluated_folder / "embeddings")


def _shared(name: str) -> Path:
    path = SHARED_DATA / name
    if not path.exists():
        missing(f"no {name}", f"put the response clouds into {SHARED_DATA}")
    return path


@pytest.fixture(scope="session")
def triviaqa_path() -> Path:
    """500 questions with 20 answers of one model each, lexical severity."""
    return _shared("triviaqa_llama13b_20x.jsonl.gz")


@pytest.fixture(scope="session")
def gsm8k_path() -> Path:
    """1,319 problems with the answers of four models each, exact severity."""
    return _shared("gsm8k_openai_4x.jsonl.gz")


@pytest.fixture(scope="session")
def tot_path() -> Path:
    """100 writing tasks with 20 texts each, severity by a judge."""
    return _shared("tot_text_gpt4_20x.jsonl.gz")


@pytest.fixture(scope="session")
def claims_paths() -> list[Path]:
    """Two files of 100 questions with answers of seven models, whose claims people labelled."""
    names = ("zero", "accurate")
    return [_shared(f"claims_refchecker_{name}_context_7llms.jsonl.gz") for name in names]


@pytest.fixture(scope="session")
def trivia(triviaqa_path: Path, request: pytest.FixtureRequest) -> list[ScoredCloud]:
    """The scored clouds of `triviaqa_path`, encoded once (half a minute) for all processes of a run."""

    def make(file: Path) -> None:
        file.write_bytes(pickle.dumps(_trivia(triviaqa_path, request.getfixturevalue("stored_encoder"))))

    return pickle.loads(made_once("trivia.pickle", make).read_bytes())


def _trivia(triviaqa_path: Path, stored_encoder: StoredEncoder) -> list[ScoredCloud]:
    from streamer.clouds.cloud import severity_kind
    from streamer.clouds.cloud_files import read_clouds
    from tests.offline import score_clouds

    clouds = list(read_clouds(triviaqa_path))
    assert severity_kind(clouds) == "lexical"
    return score_clouds(clouds, stored_encoder)  # type: ignore[arg-type]  # it embeds, which is all that is asked


# ---- the log


@pytest.fixture(autouse=True)
def error_log(request: pytest.FixtureRequest) -> Iterator[ErrorLog]:
    """Fail a test that logged at ERROR or above what it had not announced.

    A test announces by ``@pytest.mark.expected_errors(r"aiokafka: .*refused", ...)`` (without a pattern:
    anything), or takes the fixture `expected_errors` and looks at the records itself. Logging and structlog
    come back to what they were after the test, whatever it configured.
    """
    structlog.configure(
        processors=[structlog.stdlib.add_log_level, structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    log = ErrorLog()
    root.addHandler(log)
    yield log
    root.handlers[:], root.level = handlers, level
    _forget_what_was_left_out()
    marker = request.node.get_closest_marker("expected_errors")
    patterns = (marker.args or (".*",)) if marker else ()
    if unexpected := log.unexpected(patterns):
        pytest.fail("logged at ERROR, unannounced:\n" + "\n".join(unexpected[:20]), pytrace=False)


def _forget_what_was_left_out() -> None:
    """Take the worker's bound off the clients' loggers: it would hide, or count, what another test logs."""
    if limits := sys.modules.get("streamer.stream.log_limits"):
        for logger in list(logging.root.manager.loggerDict.values()):
            if isinstance(logger, logging.Logger):
                logger.filters[:] = [
                    one for one in logger.filters if not isinstance(one, limits.LogRateLimit)
                ]


@pytest.fixture
def expected_errors(error_log: ErrorLog) -> ErrorLog:
    """The ERROR records of this test, which it looks at itself: `.records`, `.lines`."""
    error_log.all_expected = True
    return error_log
