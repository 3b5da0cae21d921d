"""Kafka with SCRAM, TLS, client certificates and ACLs: everything works through it, and nothing past it."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from sqlalchemy.engine import make_url

from streamer.cli import main
from streamer.errors import Unavailable, UsageError
from streamer.events.topic import every
from streamer.store import create_roles, migrate
from streamer.stream.connection import KafkaConnection
from streamer.stream.handshake import shake_hands
from streamer.stream.publisher import Publisher
from streamer.stream.tail import Tail
from tests.faults.site import GATE, event
from tests.faults.worker_process import WorkerProcess
from tests.integration.security.conftest import TOPICS, SecuredKafka, token
from tests.integration.stream.memory_journal import MemoryJournal
from tests.integration.stream.relaying import MOST_BEHIND, a_relay

Act = Callable[..., str]

pytestmark = pytest.mark.kafka


@pytest.fixture
def act(
    secured_kafka: SecuredKafka,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Act:
    """Runs a command as somebody, and returns what it printed; it must end with the status that is given."""
    monkeypatch.chdir(tmp_path)

    def run(user: str, *words: str, way: str = "scram", status: int = 0, **changes: str) -> str:
        with monkeypatch.context() as patch:
            for name, value in (secured_kafka.environment(user, way) | changes).items():
                patch.setenv(name, value)
            found = main(words)
        printed = capsys.readouterr()
        assert found == status, printed.out + printed.err
        assert "-secret" not in printed.out + printed.err
        return printed.out + printed.err

    return run


COMMAND = "sasl.oauthbearer.token.command"


@pytest.fixture
def topics(act: Act) -> None:
    act("operator", "topics", "create")
    act("operator", "topics", "check")


@pytest.fixture
def app_url(postgres_database_url: str) -> Iterator[str]:
    """A migrated database as a user who is in the role of the app and in no other."""
    app = create_roles(postgres_database_url).app
    migrate(postgres_database_url)
    engine = sa.create_engine(postgres_database_url, isolation_level="AUTOCOMMIT")
    name = f"app_{make_url(postgres_database_url).database}"
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN IN ROLE {app}")
        yield make_url(postgres_database_url).set(username=name).render_as_string()
        connection.exec_driver_sql(f"DROP ROLE {name}")
    engine.dispose()


@pytest.mark.postgres
def test_everything_goes_through_clients_and_users_with_no_more_rights_than_they_need(
    topics: None, app_url: str, act: Act, secured_kafka: SecuredKafka, tmp_path: Path
):
    database = {"STREAMER_DATABASE_URL": app_url}
    act = partial(act, **database)
    created = act("worker", "gate", "create", GATE, "--scorer", "external", "--audit-probability", "1")
    assert "recorded" not in created, "the policy was not announced at once"
    responses = [{"id": name, "text": f"answer {name}", "score": 0.5} for name in "ab"]
    for number, way in enumerate(("scram", "mtls", "oauth"), 1):
        (tmp_path / "events.jsonl").write_bytes(event(7, batch_id=way, responses=responses))
        act("publisher", "publish", "events.jsonl", way=way)
        worker = WorkerProcess(secured_kafka.environment("worker", way) | database, tmp_path / "worker.log")
        with closing(worker):
            worker.wait_until_ready()
            words = (
                "tail", "actions", "--from-beginning", "--count", str(number), "--timeout", "30s",
                "--json",
            )  # fmt: skip
            actions = [json.loads(line) for line in act("consumer", *words, way=way).splitlines()]
            assert way in {action["batch_id"] for action in actions}
            assert worker.terminate() == 0
    act("worker", "label", "queue", "--gate", GATE, "--out", "queue.csv")
    queue = (tmp_path / "queue.csv").read_text().splitlines()
    column = queue[0].split(",").index("severity")
    rows = [line.split(",") for line in queue[1:]]
    filled = [",".join([*row[:column], "0", *row[column + 1 :]]) for row in rows]
    (tmp_path / "queue.csv").write_text("\n".join([queue[0], *filled, ""]))
    act("worker", "label", "import", "queue.csv", "--labeller", "ana")
    act("worker", "recalibrate", GATE, "--by", "ana")
    act("worker", "threshold", "show", GATE)
    act("worker", "gate", "set", GATE, "--alpha", "0.2", "--by", "ana")
    act("worker", "dead-letters", "list")
    report = json.loads(act("operator", "doctor", "--json"))
    assert report["ok"], report


def test_each_may_do_what_the_script_says_and_nothing_else(topics: None, secured_kafka: SecuredKafka):
    outputs = {TOPICS.of(one) for one in every().values() if not one.comes_in}
    everything = set(TOPICS.all())
    rights = {
        "publisher": {"WRITE": {TOPICS.responses}},
        "labeller": {"WRITE": {TOPICS.labels}},
        "worker": {"WRITE": outputs, "READ": {TOPICS.responses, TOPICS.labels, TOPICS.thresholds}},
        "consumer": {"READ": outputs - {TOPICS.dead_letters}},
        "operator": dict.fromkeys(("WRITE", "READ", "CREATE", "ALTER", "ALTER_CONFIGS"), everything),
    }
    for user, expected in rights.items():
        admin = KafkaAdminClient(**secured_kafka.connection(user).for_kafka_python(KafkaAdminClient))
        with closing(admin):
            described = admin.describe_topics(sorted(everything))
        found: dict[str, set[str]] = {}
        for topic in described:
            for operation in topic.get("authorized_operations") or ():
                found.setdefault(operation, set()).add(topic["name"])
        del found["DESCRIBE"]
        found.pop("DESCRIBE_CONFIGS", None)
        assert found == expected, user


@pytest.mark.expected_errors(r"kafka\.cluster: Topic .* is not authorized", r"kafka\.producer\.")
def test_what_is_not_permitted_fails_when_it_is_tried(topics: None, secured_kafka: SecuredKafka):
    for user, topic in (
        ("publisher", TOPICS.labels),
        ("publisher", TOPICS.thresholds),
        ("labeller", TOPICS.responses),
        ("consumer", TOPICS.actions),
        ("worker", TOPICS.labels),
    ):
        with (
            pytest.raises(UsageError, match="does not permit us to write"),
            Publisher(secured_kafka.connection(user), max_request_size=1000) as publisher,
        ):
            publisher.send(topic, b"{}")
    for user, topic in (("publisher", TOPICS.responses), ("worker", TOPICS.actions)):
        with (
            pytest.raises(UsageError, match="does not permit"),
            Tail(secured_kafka.connection(user), topic, from_beginning=True) as tail,
        ):
            list(tail.records(seconds=10))
    with pytest.raises(UsageError, match="or none that we may see"):
        Tail(secured_kafka.connection("consumer"), TOPICS.responses).__enter__()


@pytest.mark.expected_errors(r"aiokafka\.")
async def test_a_topic_that_workers_may_not_write_to_holds_up_no_other(
    topics: None, secured_kafka: SecuredKafka
):
    keys = [b"key-%d" % number for number in range(50)]

    connection = secured_kafka.connection("worker")
    async with (
        a_relay(connection, MemoryJournal()) as relaying,
        a_relay(connection, MemoryJournal()) as healthy,
    ):
        await relaying.most_behind(TOPICS.actions, keys[:2], healthy, TOPICS.actions, rounds=1)
        # Of the first they may know, of the second not even that.
        waiting = [relaying.put(topic, key) for topic in (TOPICS.labels, "unknown.topic") for key in keys]
        first = await relaying.most_behind(TOPICS.actions, keys, healthy, TOPICS.actions)
        await relaying.until(lambda: len(relaying.health.stuck()) == 2)
        assert all("TopicAuthorizationFailed" in line for line in relaying.health.stuck())
        again = await relaying.most_behind(TOPICS.actions, keys, healthy, TOPICS.actions)
        print(f"behind without two rights: {first:.0%}, then {again:.0%}")
        assert first <= MOST_BEHIND
        assert again <= MOST_BEHIND
        assert not any(relaying.published([row]) for row in waiting)


@pytest.mark.postgres
def test_a_worker_whose_group_is_not_permitted_says_so_and_reads_once_it_is(
    topics: None, app_url: str, secured_kafka: SecuredKafka, tmp_path: Path
):
    own = {"STREAMER_DATABASE_URL": app_url, "STREAMER_KAFKA_GROUP_ID": "another-group"}
    worker = WorkerProcess(secured_kafka.environment("worker") | own, tmp_path / "worker.log")
    with closing(worker):
        worker.wait_for_log("stream.group_refused")
        assert "permit this user to read the group" in worker.unready()
        may = ACL(
            "User:worker", "*", ACLOperation.READ, ACLPermissionType.ALLOW,
            ResourcePattern(ResourceType.GROUP, "another-group"),
        )  # fmt: skip
        with closing(secured_kafka.broker.admin()) as admin:
            admin.create_acls([may])
        worker.wait_until_ready()
        assert worker.terminate() == 0


def test_only_operators_make_topics(act: Act):
    assert "the broker refuses the topic" in act("worker", "topics", "create", status=2)


def test_a_refusal_says_what_is_wrong_and_waits_for_nothing(secured_kafka: SecuredKafka):
    scram, mtls = secured_kafka.bootstrap(), secured_kafka.bootstrap("mtls")
    plain = secured_kafka.broker.bootstrap
    known, own = secured_kafka.properties("worker"), secured_kafka.properties("worker", "mtls")
    oauth, bearer = secured_kafka.bootstrap("oauth"), secured_kafka.properties("worker", "oauth")
    forged = secured_kafka.strangers.sign("worker")
    other_authority = {"ssl.ca.location": str(secured_kafka.strangers.certificate)}
    for server, properties, complaint in (
        (scram, known | {"sasl.password": "hunter2"}, "refuses the user worker: .*invalid credentials"),
        (scram, known | {"sasl.username": "nobody"}, "refuses the user nobody"),
        (scram, known | {"sasl.mechanism": "PLAIN"}, "does not offer the sasl.mechanism PLAIN"),
        (scram, known | other_authority, "certificate of .* is not trusted: .*ssl.ca.location"),
        (scram, {}, "speaks TLS, and security.protocol is PLAINTEXT"),
        (plain, known, "speaks no TLS, and security.protocol is SASL_SSL"),
        (mtls, known, "may not be what this port is for"),
        (
            oauth,
            bearer | {COMMAND: f"printf %s {token('worker', seconds=-60)}"},
            "refuses the token: it has expired",
        ),
        (oauth, bearer | {COMMAND: "false"}, "the command false for a token ended with status 1"),
        (oauth, known, "does not offer the sasl.mechanism SCRAM-SHA-512"),
        (mtls, {"security.protocol": "SSL", "ssl.ca.location": own["ssl.ca.location"]}, "client certificate"),
        (
            mtls,
            own | {"ssl.certificate.location": str(forged.certificate), "ssl.key.location": str(forged.key)},
            "client certificate that it trusts",
        ),
    ):
        with pytest.raises(UsageError, match=complaint) as caught:
            shake_hands(KafkaConnection(server, properties))
        assert "hunter2" not in str(caught.value)
    # One server that lets us in is enough, and one that is away is not one that refuses.
    shake_hands(KafkaConnection(f"127.0.0.1:1,{scram}", known))
    with pytest.raises(Unavailable, match=r"no broker answers at 127\.0\.0\.1:1;"):
        shake_hands(KafkaConnection("127.0.0.1:1", known))


def test_a_certificate_for_another_host_is_not_trusted(secured_kafka: SecuredKafka):
    # The node's certificate names 127.0.0.1 only; localhost is the same machine under another name.
    server = f"localhost:{secured_kafka.security.scram_port}"
    with pytest.raises(UsageError, match="not trusted: Hostname mismatch"):
        shake_hands(KafkaConnection(server, secured_kafka.properties("worker")))
    anyway = {"ssl.endpoint.identification.algorithm": "none"}
    shake_hands(KafkaConnection(server, secured_kafka.properties("worker") | anyway))


@pytest.mark.expected_errors(r"streamer\.cli")
def test_a_worker_with_a_wrong_password_ends_with_the_reason(act: Act):
    act("worker", "db", "upgrade")
    wrong = {"STREAMER_KAFKA_PROPERTIES_SASL_PASSWORD": "hunter2"}
    said = act("worker", "worker", "--json", "--port", "0", status=2, **wrong)
    assert "refuses the user worker" in said
    assert "hunter2" not in said
