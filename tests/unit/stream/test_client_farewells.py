"""Closing a Kafka client is no error, whatever its library says."""

import logging

import pytest
from kafka import KafkaProducer
from kafka.errors import Cancelled, NodeNotReadyError

from streamer.stream.connection import KafkaConnection


def test_a_refresh_that_a_close_cancelled_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    KafkaConnection("127.0.0.1:9092").for_kafka_python(KafkaProducer)
    logging.getLogger("kafka.cluster").warning("Metadata refresh: failed %s", Cancelled())
    assert caplog.records == []
    logging.getLogger("kafka.cluster").warning("Metadata refresh: failed %s", NodeNotReadyError())
    assert len(caplog.records) == 1


def test_a_task_that_waited_for_a_closed_socket_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    KafkaConnection("127.0.0.1:9092").for_kafka_python(KafkaProducer)
    for logged, fileno in ((0, -1), (1, 7)):
        caplog.clear()
        try:
            raise ValueError(f"Invalid file descriptor: {fileno}")
        except ValueError:
            logging.getLogger("kafka.net.selector").warning("Unhandled exception in task", exc_info=True)
        assert len(caplog.records) == logged


def test_a_read_from_a_closed_socket_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    KafkaConnection("127.0.0.1:9092").for_kafka_python(KafkaProducer)
    for logged, socket in ((0, None), (1, object())):
        caplog.clear()
        try:
            socket.recv(1)  # type: ignore[union-attr]
        except AttributeError:
            logging.getLogger("kafka.net.transport").warning("Error receiving network data", exc_info=True)
        assert len(caplog.records) == logged
