"""The store: one object over one database, made of small parts, and the journal that the stream writes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from streamer.errors import BadData, UnfitText
from streamer.events.alerts import alert_message
from streamer.events.desk import desk_message
from streamer.events.topics import Topics
from streamer.failpoints import Failpoint, disarmed
from streamer.gates.batch_key import BatchKey
from streamer.journal import (
    NO_IDS,
    DataGap,
    Lease,
    Linked,
    OutboxMessage,
    OutcomeKind,
    Partition,
    Queued,
    RecordedAction,
    RecordedBatch,
    Slice,
)
from streamer.labels.signing import NO_LABEL_KEYS, LabelKeys
from streamer.signing.policies import NO_KEYS, PolicyKeys
from streamer.store.audit.heads import Heads
from streamer.store.calibration.encoders import Encoders
from streamer.store.db.engine import Database, bad_data
from streamer.store.db.leases import Leases, ProcessLease
from streamer.store.db.migrate import require_migrated
from streamer.store.labels.read_labels import ReadLabels
from streamer.store.labels.revisions import Labels
from streamer.store.log import commit, outbox, progress
from streamer.store.log.dead_letters import DeadLetters
from streamer.store.log.reports import Reports
from streamer.store.log.resolve_outcomes import DeadLetterMessage, recorded_batch, stored_decisions
from streamer.store.part import AlertMessage, DeskMessage, Part, Shared
from streamer.store.policies.gates import Gates
from streamer.store.policies.policies import Policies
from streamer.store.policies.policy_writer import PolicyMessage, PolicyWriter
from streamer.store.risk.alerts import Alerts

if TYPE_CHECKING:
    from streamer.store.audit.chained_rows import ChainedRows
    from streamer.store.calibration.calibration_runs import Calibrations, CarriedScores
    from streamer.store.calibration.recalibration_status import RecalibrationStatus
    from streamer.store.desk.release_desk import ReleaseDesk
    from streamer.store.labels.answers import SqlAnswers
    from streamer.store.labels.judgements import Judgements
    from streamer.store.labels.reviews import Reviews
    from streamer.store.log.decision_search import DecisionSearch
    from streamer.store.people.accounts import Accounts
    from streamer.store.people.api_keys import ApiKeys
    from streamer.store.policies.candidates import Candidates
    from streamer.store.risk.monitoring_state import Monitoring
    from streamer.store.risk.past_decisions import PastDecisions


_ALERT_MESSAGE: AlertMessage = partial(alert_message, topic=Topics().alerts)
_DESK_MESSAGE: DeskMessage = partial(desk_message, topic=Topics().desk)


def _later(module: str, name: str) -> Any:
    """A part that workers do not need, and that is imported on first use."""
    return cached_property(
        lambda store: getattr(import_module(f"streamer.store.{module}"), name)(store._shared)
    )


class Store(Part):
    """Everything that the product remembers, in parts by subject. Calls block and may come from any
    thread.

    It is the `streamer.journal.Journal` of the stream; its parts serve the other packages.
    """

    accounts: cached_property[Accounts] = _later("people.accounts", "Accounts")
    answers: cached_property[SqlAnswers] = _later("labels.answers", "SqlAnswers")
    api_keys: cached_property[ApiKeys] = _later("people.api_keys", "ApiKeys")
    calibration: cached_property[Calibrations] = _later("calibration.calibration_runs", "Calibrations")
    candidates: cached_property[Candidates] = _later("policies.candidates", "Candidates")
    carried_scores: cached_property[CarriedScores] = _later("calibration.calibration_runs", "CarriedScores")
    decision_search: cached_property[DecisionSearch] = _later("log.decision_search", "DecisionSearch")
    desk: cached_property[ReleaseDesk] = _later("desk.release_desk", "ReleaseDesk")
    judgements: cached_property[Judgements] = _later("labels.judgements", "Judgements")
    monitoring: cached_property[Monitoring] = _later("risk.monitoring_state", "Monitoring")
    past: cached_property[PastDecisions] = _later("risk.past_decisions", "PastDecisions")
    recalibration_status: cached_property[RecalibrationStatus] = _later(
        "calibration.recalibration_status", "RecalibrationStatus"
    )
    reviews: cached_property[Reviews] = _later("labels.reviews", "Reviews")

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self.gates = Gates(shared)
        self.policies = Policies(shared)
        self.encoders = Encoders(shared)
        self.labels = Labels(shared)
        self.dead_letters = DeadLetters(shared)
        self.reports = Reports(shared)
        self.heads = Heads(shared.database)
        self.leases = Leases(shared.database)
        self.alerts = Alerts(shared)

    @cached_property
    def evidence(self) -> ChainedRows:
        """The rows that chains cover."""
        from streamer.store.audit.chained_rows import ChainedRows

        return ChainedRows(self._database, self._shared.read)

    def under(self, lease: ProcessLease) -> Store:
        """The same store for the holder of this lease: each transaction that writes raises `LeaseLost` once it is lost.

        It has no connections of its own to close.
        """
        return Store(replace(self._shared, database=self._database.under(lease.check)))

    def lease(
        self, partitions: Sequence[Partition], *, topic_ids: Mapping[str, str] = NO_IDS
    ) -> dict[Partition, Lease]:
        return self._database.writing(progress.take_leases, partitions, self._clock(), topic_ids=topic_ids)

    def record_gap(self, lease: Lease, gap: DataGap) -> None:
        self._database.writing(progress.record_gap, lease, gap, self._clock())

    def commit(
        self,
        slices: Sequence[Slice],
        *,
        now: datetime,
        firm: bool = False,
        linked: Linked | None = None,
        queued: Queued | None = None,
    ) -> list[list[OutcomeKind]]:
        """Do as `streamer.journal.Journal.commit` says; `linked` is called with each outcome's link.

        Raises `Unavailable`, too, and `ValueError` for slices that contradict themselves.
        """
        commit.check_slices(slices)
        queue: list[OutboxMessage] = []

        def write(connection: sa.Connection) -> list[list[OutcomeKind]]:
            queue.clear()
            return commit.commit_slices(
                connection,
                slices,
                now=now,
                firm=firm,
                clock=self._clock,
                dead_letter_message=self._shared.dead_letter_message,
                publish=self._shared.publish,
                linked=linked,
                queue=None if queued is None else queue,
            )

        try:
            kinds = self._database.writing(write)
        except IntegrityError as error:
            raise bad_data(error) from None
        except UnfitText as error:
            raise BadData(f"the database refuses a row: {error}") from None
        if queued is not None:
            queued(queue)
        return kinds

    def known(self, keys: Sequence[BatchKey]) -> dict[BatchKey, bytes]:
        return self._database.read(commit.known_content, keys)

    def action(self, key: BatchKey) -> RecordedAction | None:
        """The action event that was recorded for a batch, and its receipt; None where it is not decided."""
        with self._database.reading(snapshot=True) as connection:
            found = stored_decisions(connection, [key]).get(key)
            batch, message = found or ({}, None)
            if message is None or message.value is None:
                return None
            return RecordedAction(
                message.value, outbox.receipts_of(connection, [batch["id"]]).get(batch["id"])
            )

    def recorded(self, key: BatchKey) -> RecordedBatch | None:
        """The same with the batch's metadata and its responses' texts, as far as they are kept."""
        return self._database.read_at_once(recorded_batch, key)

    def waiting_partitions(self, log_id: str) -> list[int]:
        """The numbers of this log's partitions whose messages wait to be published."""
        return self._database.read(outbox.waiting_partitions, log_id)

    def unpublished_topics(
        self, sources: Sequence[Partition], *, ownerless: timedelta | None = timedelta(0)
    ) -> list[str]:
        return self._database.read(
            outbox.unpublished_topics,
            queued=bool(sources),
            ownerless=ownerless is not None,
            before=self._before(ownerless),
        )

    def unpublished(
        self,
        sources: Sequence[Partition],
        *,
        limit: int,
        ownerless: timedelta | None = timedelta(0),
        topic: str | None = None,
        after: int = 0,
        max_bytes: int | None = None,
    ) -> list[OutboxMessage]:
        with self._database.reading() as connection:
            found: list[OutboxMessage] = []
            if ownerless is not None:
                found = outbox.unpublished(connection, limit, before=self._before(ownerless), topic=topic)
            if sources and len(found) < limit:
                found += outbox.queued(
                    connection, sources, limit - len(found), topic=topic, after=after, max_bytes=max_bytes
                )
            return found

    def _before(self, ownerless: timedelta | None) -> datetime | None:
        # No clock where there is nothing to wait for: another machine's clock may be ahead.
        return self._clock() - ownerless if ownerless else None

    def newer(self, messages: Sequence[OutboxMessage]) -> list[OutboxMessage]:
        """Of each topic and key of these the newest message of no partition, if it is newer than all of these."""
        return self._database.read(outbox.newer, messages)

    def mark_published(self, messages: Sequence[OutboxMessage]) -> None:
        self._database.writing(outbox.mark_published, messages, self._clock())

    def park(self, message: OutboxMessage, error: str) -> None:
        self._database.writing(outbox.park, message, error, self._clock())

    def close(self) -> None:
        """Close every connection."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_store(
    url: str,
    *,
    insecure: bool = False,
    clock: Callable[[], datetime],
    policy_message: PolicyMessage,
    dead_letter_message: DeadLetterMessage,
    alert_message: AlertMessage = _ALERT_MESSAGE,
    desk_message: DeskMessage = _DESK_MESSAGE,
    policy_keys: PolicyKeys = NO_KEYS,
    label_keys: LabelKeys = NO_LABEL_KEYS,
    publish: bool = True,
    failpoint: Failpoint = disarmed,
) -> Store:
    """Open a migrated database: ``sqlite:///file`` or ``postgresql://user:password@host/database``.

    `insecure` permits a connection to another machine that is not encrypted, or to a server that
    proves nothing. `clock` gives the present moment, timezone-aware. `policy_message` makes the
    event of a new policy; `dead_letter_message` that of a record, refused with this code and
    detail, that the store itself has to dead-letter: a batch that conflicts with a decided one, a
    label of no known gate; `alert_message` and `desk_message` those of an alert and of what becomes
    of a batch at the desk, by default with the default names of the topics. `policy_keys` sign new
    policies, and decide which policies may be built on; `label_keys` sign labels that are stored
    here, and verify those that are read of gates that demand signatures. `publish`: what is
    committed is also put into the queue of messages for Kafka; decisions keep their actions either
    way. `failpoint` is called where a test may want to break a transaction.

    Raises `UsageError` when the URL cannot be read, or the database is not at this version's
    revision; `Unavailable` when the server cannot be reached.
    """
    database = Database(url, insecure=insecure, failpoint=failpoint)
    try:
        require_migrated(database)
    except BaseException:
        database.close()
        raise
    writer = PolicyWriter(policy_message, policy_keys)
    return Store(
        Shared(
            database=database,
            clock=clock,
            writer=writer,
            read=ReadLabels(writer.trusts, label_keys),
            dead_letter_message=dead_letter_message,
            alert_message=alert_message,
            desk_message=desk_message,
            publish=publish,
        )
    )
