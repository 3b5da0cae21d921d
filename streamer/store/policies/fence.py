"""The fence between decisions and policies: once a policy is written, nothing is committed that an older one decided.

A commit takes its gates' locks, shared, as the last thing it does, and then reads which policies are the newest. Writing
takes its gate's lock alone, and lets go of it with its own transaction. So a commit either ends before the new policy is
there, or waits for it and sees it; a commit that is stuck on something else holds no lock that a policy writer waits for. Only
where policies keep coming does a commit take the locks first (`firm`): else policies that come faster than a
group is written would keep that group from ever being committed. It then waits for other locks a second at most. The locks are advisory ones because these queue: a row
that commits keep locking in shared mode is never free for a policy writer.

SQLite has one writer at a time, and needs no lock.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from streamer.errors import Outdated
from streamer.journal import BatchDecision
from streamer.store.db.bulk_insert import Statement, execute_all
from streamer.store.db.engine import BUSY_SECONDS, FROZEN_SECONDS
from streamer.store.policies.policy_rows import newest

_LOCKS = 64
"""Gates share so many locks: PostgreSQL's table of locks has few places, and a commit may have a thousand gates."""

_FIRM_SECONDS = 1
"""What a commit may wait for a lock that has taken those of its gates first: so long may a policy writer wait for it."""

_OF = "(CAST(:space AS integer), number) FROM unnest(CAST(:numbers AS integer[])) AS number"
_SHARED = sa.text("SELECT pg_advisory_xact_lock_shared" + _OF)
_ALONE = sa.text("SELECT pg_advisory_xact_lock" + _OF)
_SPACE = int.from_bytes(hashlib.sha256(b"streamer.fence.v1").digest()[:4], "big", signed=True)


def asking(connection: sa.Connection, decided: Collection[BatchDecision]) -> list[Statement]:
    """What to run before `check_current`, whose rows the last of it brings; nothing where nothing was decided.

    It waits for policies of these gates that are being written, and lets no further one in before this transaction ends.
    """
    gates = sorted({one.key.gate for one in decided})
    if not gates:
        return []
    locks = [_taking(_SHARED, gates)] if connection.dialect.name != "sqlite" else []
    return [*locks, newest(connection, gates)]


def keep_out_newer(
    connection: sa.Connection, decided: Collection[BatchDecision], clock: Callable[[], datetime]
) -> None:
    """Do what `asking` and `check_current` do, before anything is written: no newer policy can come in between."""
    if asked := asking(connection, decided):
        check_current(execute_all(connection, asked)[-1], decided, clock)
        if connection.dialect.name != "sqlite":
            _wait_at_most(connection, _FIRM_SECONDS)


def newest_version(connection: sa.Connection, gate: str) -> int:
    """Wait for policies of a gate that are being written, let no further one in, and return the newest's version."""
    locks = [_taking(_SHARED, [gate])] if connection.dialect.name != "sqlite" else []
    ((_, version),) = execute_all(connection, [*locks, newest(connection, [gate])])[-1]
    return int(version)


def check_current(
    newest_keys: Iterable[Sequence[Any]], decided: Collection[BatchDecision], clock: Callable[[], datetime]
) -> None:
    """Check whether new decisions may be made, by gate and version of each gate's newest policy.

    Raises `Outdated` when a gate has a newer policy than its decider looked at, or a decision ships
    past its deadline.
    """
    seen: dict[str, int] = {}
    for one in decided:
        looked_at = max(one.policy.version, one.newest_seen)
        seen[one.key.gate] = min(looked_at, seen.get(one.key.gate, looked_at))
    if not seen:
        return
    outdated = {
        gate: f"gate {gate} got policy {version} after its batches were decided by {seen[gate]}"
        for gate, version in sorted(map(tuple, newest_keys))
        if version > seen[gate]
    }
    now = clock()
    for one in decided:
        is_late, dates = one.policy.settings.is_late, (one.created_at, one.record.timestamp_ms)
        if one.outcome in ("ship", "mixed") and any(
            one.record.is_overdue(at) or is_late(*dates, at) for at in (one.decided_at, now)
        ):
            passed = f"the deadline of batch {one.key.batch_id} of gate {one.key.gate} passed"
            outdated.setdefault(one.key.gate, passed)
    if outdated:
        raise Outdated("; ".join(outdated.values()), outdated)


def close_to_older(connection: sa.Connection, gate: str) -> None:
    """Wait for commits that have passed the fence, and keep others before it until this transaction ends."""
    if connection.dialect.name == "sqlite":
        return
    # A process that was stopped between its check and its commit is ended by the server: it is worth waiting for.
    _wait_at_most(connection, FROZEN_SECONDS + BUSY_SECONDS)
    execute_all(connection, [_taking(_ALONE, [gate])])
    _wait_at_most(connection, BUSY_SECONDS)


def _taking(lock: sa.TextClause, gates: Iterable[str]) -> Statement:
    # Always in the same order, against deadlocks.
    numbers = sorted({hashlib.sha256(gate.encode()).digest()[0] % _LOCKS for gate in gates})
    return Statement(lock, {"space": _SPACE, "numbers": numbers})


def _wait_at_most(connection: sa.Connection, seconds: float) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{int(seconds * 1000)}ms'")
