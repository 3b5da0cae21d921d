"""Keeps what an adopted candidate made of batches that had been decided by other scores or signals."""

from collections.abc import Callable, Mapping
from datetime import datetime

import sqlalchemy as sa

from streamer.store.audit import control
from streamer.store.db import bulk_insert
from streamer.store.db.engine import Database
from streamer.store.db.schema import carried_scores, carried_signals, decisions


class CarriedScores:
    """Scores of earlier batches, sealed; a batch has one set of them a scorer."""

    def __init__(self, database: Database, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def keep(self, scorer: str, scores: Mapping[int, Mapping[str, float]]) -> None:
        def work(connection: sa.Connection) -> None:
            there = set(
                connection.execute(
                    sa.select(carried_scores.c.batch)
                    .where(carried_scores.c.scorer == scorer, carried_scores.c.batch.in_(list(scores)))
                    .union(
                        sa.select(decisions.c.batch).where(
                            decisions.c.scorer == scorer, decisions.c.batch.in_(list(scores))
                        )
                    )
                ).scalars()
            )
            rows = [
                {"batch": batch, "scorer": scorer, "response_id": response, "score": score}
                for batch, found in scores.items()
                if batch not in there
                for response, score in found.items()
            ]
            if rows:
                bulk_insert.append(connection, carried_scores, rows)
                keys = [(row["scorer"], row["batch"], row["response_id"]) for row in rows]
                control.append(connection, carried_scores, keys, now=self._clock())

        self._database.writing(work)

    def keep_signals(self, listed: str, signals: Mapping[int, bytes]) -> None:
        """Keep the rows of batches by the list with this hash."""

        def work(connection: sa.Connection) -> None:
            known = sa.select(carried_signals.c.batch).where(
                carried_signals.c.list == listed, carried_signals.c.batch.in_(list(signals))
            )
            there = set(connection.execute(known).scalars())
            rows = [
                {"list": listed, "batch": batch, "signals": row}
                for batch, row in signals.items()
                if batch not in there
            ]
            if rows:
                bulk_insert.append(connection, carried_signals, rows)
                keys = [(listed, row["batch"]) for row in rows]
                control.append(connection, carried_signals, keys, now=self._clock())

        self._database.writing(work)
