"""How Faust and its consumer are set up here: what fits records whose progress lives in a database."""

from typing import Any

from streamer.stream.connection import KafkaConnection
from streamer.stream.faust_driver import LeasingTransport, ReaderApp
from streamer.stream.reader_limits import ReaderLimits


def consumer_defaults(limits: ReaderLimits) -> dict[str, Any]:
    """Return what the user's own client properties may replace."""
    return {
        "client_id": "streamer-worker",
        "fetch_max_wait_ms": 100,
        "max_partition_fetch_bytes": limits.max_fetch_bytes,
        "max_poll_records": limits.max_poll_records,
        "request_timeout_ms": int(limits.request_timeout * 1000),
        "session_timeout_ms": int(limits.session_timeout * 1000),
        "rebalance_timeout_ms": int(limits.request_timeout * 1000),
        "heartbeat_interval_ms": int(limits.heartbeat_interval * 1000),
        "max_poll_interval_ms": 1_000_000,
        "metadata_max_age_ms": 60_000,
    }


def reader_app(connection: KafkaConnection, group_id: str, limits: ReaderLimits) -> ReaderApp:
    """Return a Faust application that only reads, with our driver; its `hooks` are still to be set."""
    app = ReaderApp(
        group_id,
        broker=[f"kafka://{server}" for server in connection.servers],
        web_enabled=False,
        datadir="/nonexistent",
        store="memory://",
        topic_disable_leader=True,
        topic_allow_declare=False,
        stream_wait_empty=False,  # events without an outcome are read again, so there is no need to wait for them
        stream_recovery_delay=0,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=limits.max_fetch_bytes,
        broker_session_timeout=limits.session_timeout,
        broker_heartbeat_interval=limits.heartbeat_interval,
        broker_request_timeout=limits.request_timeout,
        broker_max_poll_records=limits.max_poll_records,
    )
    app.finalize()
    app.transport = LeasingTransport(app.conf.broker_consumer, app)
    return app
