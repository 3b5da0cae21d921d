"""A Kafka node that asks who is there, with the ACLs of deploy/kafka/acls.sh in force."""

import json
import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from streamer.events.topics import Topics
from streamer.stream.connection import KafkaConnection
from tests import programs
from tests.services.certificates import Authority, Certificate, what_certificates_need
from tests.services.kafka import JARS, ROOT, BrokerSecurity, KafkaBroker, what_kafka_needs
from tests.services.requirements import missing

PRINCIPALS = {
    "publisher": "PUBLISHERS",
    "labeller": "LABELLERS",
    "worker": "WORKERS",
    "consumer": "CONSUMERS",
    "operator": "OPERATORS",
}
TOPICS = Topics("guarded.")
GROUP = "guarded-workers"


def token(user: str, *, seconds: float = 3600.0) -> str:
    """An unsigned token (RFC 7515, appendix A.5) that is good for so many seconds."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + seconds})
    return ".".join(
        [*(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), ""]
    )


@dataclass(frozen=True)
class SecuredKafka:
    """The node and everything that proves who one is."""

    broker: KafkaBroker
    security: BrokerSecurity
    clients: dict[str, Certificate]
    strangers: Authority

    def properties(self, user: str, way: str = "scram") -> dict[str, Any]:
        """What a user of this name configures, for SCRAM, for a certificate of its own, or for a token."""
        trusted = {"ssl.ca.location": str(self.security.authority.certificate)}
        if way == "mtls":
            own = self.clients[user]
            return trusted | {
                "security.protocol": "SSL",
                "ssl.certificate.location": str(own.certificate),
                "ssl.key.location": str(own.key),
            }
        if way == "oauth":
            return trusted | {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.command": f"printf %s {token(user)}",
            }
        return trusted | {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": self.security.users[user],
        }

    def bootstrap(self, way: str = "scram") -> str:
        security = self.security
        ports = {"scram": security.scram_port, "mtls": security.mtls_port, "oauth": security.oauth_port}
        return f"127.0.0.1:{ports[way]}"

    def connection(self, user: str, way: str = "scram", **changes: str) -> KafkaConnection:
        return KafkaConnection(self.bootstrap(way), self.properties(user, way) | changes)

    def environment(self, user: str, way: str = "scram") -> dict[str, str]:
        """The settings of a command that this user runs."""
        return {
            "STREAMER_KAFKA_BOOTSTRAP_SERVERS": self.bootstrap(way),
            "STREAMER_KAFKA_TOPIC_PREFIX": TOPICS.prefix,
            "STREAMER_KAFKA_GROUP_ID": GROUP,
            "STREAMER_KAFKA_PARTITIONS": "2",
            "STREAMER_KAFKA_REPLICATION_FACTOR": "1",
            "STREAMER_ENCODER_NAME": "none",
        } | {
            f"STREAMER_KAFKA_PROPERTIES_{name.replace('.', '_').upper()}": value
            for name, value in self.properties(user, way).items()
        }


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority of this run."""
    if need := what_certificates_need():
        missing(*need)
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory, certificates: Authority) -> Authority:
    """An authority that nobody here trusts."""
    return Authority(tmp_path_factory.mktemp("strangers"), "stranger")


@pytest.fixture(scope="session")
def secured_kafka(
    certificates: Authority, strangers: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredKafka]:
    """Apache Kafka behind SCRAM, TLS and ACLs, shared by the tests of this folder."""
    if need := what_kafka_needs():
        missing(*need)
    security = BrokerSecurity(
        certificates,
        certificates.sign("kafka", hosts="IP:127.0.0.1"),
        {name: f"{name}-secret" for name in PRINCIPALS},
    )
    broker = KafkaBroker(security=security)
    try:
        broker.start()
        tool = tmp_path_factory.mktemp("kafka") / "kafka-acls.sh"
        tool.write_text(
            "#!/bin/sh\nexec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
            f" -cp '{JARS}/*' org.apache.kafka.tools.AclCommand \"$@\"\n"
        )
        tool.chmod(0o755)
        programs.run(
            ROOT / "deploy" / "kafka" / "acls.sh",
            env=os.environ
            | {kind: f"User:{name}" for name, kind in PRINCIPALS.items()}
            | {"BOOTSTRAP": broker.bootstrap, "KAFKA_ACLS": str(tool)}
            | {"TOPIC_PREFIX": TOPICS.prefix, "GROUP_ID": GROUP},
        )
        clients = {name: certificates.sign(name) for name in PRINCIPALS}
        yield SecuredKafka(broker, security, clients, strangers)
    finally:
        broker.remove()
