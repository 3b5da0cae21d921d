from collections.abc import Iterator

import pytest

from streamer.stream.embedded_broker import EmbeddedBroker
from tests.integration.stream.brokers import TestedBroker


@pytest.fixture
def embedded() -> Iterator[TestedBroker]:
    """The embedded broker, new for each test."""
    with EmbeddedBroker() as broker:
        yield TestedBroker.on(broker)


@pytest.fixture
def real(request: pytest.FixtureRequest) -> TestedBroker:
    """Apache Kafka."""
    return TestedBroker.on(request.getfixturevalue("kafka_broker"))


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kafka)])
def broker(request: pytest.FixtureRequest) -> TestedBroker:
    """Each of them."""
    return request.getfixturevalue(request.param)
