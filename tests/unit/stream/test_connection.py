from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaAdminClient, KafkaProducer

from streamer.errors import UsageError
from streamer.stream.connection import KafkaConnection

SASL = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "worker",
    "sasl.password": "hunter2",
}
TOKENS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "oauthbearer"}
LOCATION, COMMAND = "sasl.oauthbearer.token.location", "sasl.oauthbearer.token.command"


def test_a_plain_loopback_connection_needs_nothing() -> None:
    for server in ("localhost:9092", "127.0.0.1:9092", "[::1]:9092"):
        arguments = KafkaConnection(server).for_aiokafka(AIOKafkaConsumer)
        assert arguments == {"bootstrap_servers": [server], "security_protocol": "PLAINTEXT"}


def test_a_plain_connection_elsewhere_must_be_allowed() -> None:
    with pytest.raises(UsageError, match="refusing to talk to kafka:9092 without TLS"):
        KafkaConnection("127.0.0.1:1,kafka:9092")
    with pytest.raises(UsageError, match="without TLS"):
        KafkaConnection("kafka:9092", SASL | {"security.protocol": "SASL_PLAINTEXT"})
    assert KafkaConnection("kafka:9092", insecure=True).servers == ["kafka:9092"]


@pytest.mark.parametrize(
    "server",
    [
        "http://h:1",
        "h:1:2",
        "[::1",
        ":9092",
        "h:0",
        "h:65536",
        "127.0.0.1:-1",
        "127.0.0.1:x",
        "a b:1",
        "h:",
        "h/x",
    ],
)
def test_what_is_no_address_is_named_and_nobody_is_asked_to_trust_it(server: str) -> None:
    with pytest.raises(UsageError, match=r"is no Kafka bootstrap address: give host:port$") as caught:
        KafkaConnection(f"127.0.0.1:9092,{server}")
    assert repr(server) in str(caught.value)


@pytest.mark.parametrize("server", ["localhost", "[::1]", "127.0.0.1:65535", "LOCALHOST:1"])
def test_a_port_may_be_left_out(server: str) -> None:
    assert KafkaConnection(server).servers == [server]


def test_credentials_reach_every_client_and_no_log() -> None:
    connection = KafkaConnection("kafka:9093", SASL)
    for arguments in (
        connection.for_aiokafka(AIOKafkaConsumer),
        connection.for_aiokafka(AIOKafkaProducer),
        connection.for_kafka_python(KafkaProducer),
        connection.for_kafka_python(KafkaAdminClient),
    ):
        assert arguments["security_protocol"] == "SASL_SSL"
        assert arguments["sasl_mechanism"] == "SCRAM-SHA-512"
        assert arguments["sasl_plain_username"] == "worker"
        assert arguments["sasl_plain_password"] == "hunter2"
        assert arguments["ssl_context"].check_hostname
    assert "hunter2" not in repr(connection)


def test_other_properties_go_to_the_clients_that_know_them() -> None:
    connection = KafkaConnection(
        "localhost:1", {"client.id": "me", "fetch.max.bytes": "1000", "linger.ms": "3"}
    )
    assert (
        connection.for_aiokafka(AIOKafkaConsumer).items()
        >= {"client_id": "me", "fetch_max_bytes": 1000}.items()
    )
    producer = connection.for_aiokafka(AIOKafkaProducer)
    assert producer["linger_ms"] == 3
    assert "fetch_max_bytes" not in producer


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"no.such.thing": "1"}, "no Kafka client of ours takes the property no.such.thing"),
        ({"enable.idempotence": "false"}, "no Kafka client of ours takes"),
        ({"ssl.cafile": "ca.pem"}, "no Kafka client of ours takes the property ssl.cafile"),
        ({"partition.assignment.strategy": "range"}, "no Kafka client of ours takes"),
        ({"security.protocol": "TELNET"}, "security.protocol must be one of"),
        (SASL | {"sasl.mechanism": "MAGIC"}, "sasl.mechanism must be one of"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl.username"),
        (TOKENS, "OAUTHBEARER needs sasl.oauthbearer.token.location or sasl.oauthbearer.token.command"),
        (TOKENS | {LOCATION: "token", COMMAND: "print"}, "one of them"),
        (TOKENS | {COMMAND: ""}, "is no command: it is empty"),
        (TOKENS | {COMMAND: "print 'a"}, "is no command: No closing quotation"),
        ({"sasl.username": "x"}, "security.protocol is PLAINTEXT"),
    ],
)
def test_what_cannot_be_is_refused_at_once(properties: dict[str, str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        KafkaConnection("localhost:1", properties)


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="'soon' is no value"):
        KafkaConnection("localhost:1", {"request.timeout.ms": "soon"}).for_aiokafka(AIOKafkaConsumer)


def test_kafka_python_can_be_told_the_protocol_level() -> None:
    assert KafkaConnection("localhost:1", api_version=(2, 3)).for_kafka_python(KafkaProducer)[
        "api_version"
    ] == (2, 3)


def test_certificates_and_keys_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    secure = {"security.protocol": "SSL"}
    for properties, complaint in (
        ({"ssl.ca.location": "/no/such.pem"}, r"ssl\.ca\.location: cannot read /no/such\.pem: No such file"),
        ({"ssl.ca.location": str(empty)}, r"empty\.pem hold nothing that TLS can use"),
        ({"ssl.certificate.location": "/no/such.pem"}, r"cannot read /no/such\.pem and None"),
        ({"ssl.key.location": "key.pem"}, r"without ssl\.certificate\.location"),
    ):
        with pytest.raises(UsageError, match=complaint):
            KafkaConnection("kafka:9093", secure | properties).for_kafka_python(KafkaProducer)
