"""An alert is told once a cause, in its cause's transaction, and acknowledged once."""

from datetime import timedelta

import numpy as np
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from streamer.cli.app import app
from streamer.errors import UsageError
from streamer.events.alerts import AlertsV1, alert, decode_alert
from streamer.store.risk.alerts import change_began, raise_alert
from tests.integration.store.conftest import START, World


def made(cause: str = "alarm 1", **changes: object) -> AlertsV1:
    fields = {"message": "Look.", "raised_at": START, "details": {"evidence": 20.5, "alarm": 1, "why": None}}
    return alert("support-bot", "risk", cause, **(fields | changes))  # type: ignore[arg-type]


def test_the_same_cause_is_told_once(world: World) -> None:
    alerts = world.store.alerts
    assert alerts.raise_(made()) is True
    assert alerts.raise_(made(message="Other words for it.")) is False
    assert alerts.raise_(made("alarm 2", policy_version=1)) is True
    assert [raised.alert for raised in alerts.list()] == [made("alarm 2", policy_version=1), made()]
    assert alerts.list("nobody") == []
    assert alerts.list(limit=1)[0].alert.policy_version == 1
    assert alerts.counts() == {("support-bot", "risk"): 2}
    told = [m for m in world.store.unpublished([], limit=10) if m.topic == "streamer.alerts"]
    assert [decode_alert(message.value) for message in told] == [made(), made("alarm 2", policy_version=1)]
    headers = dict(told[0].headers)
    assert (told[0].key, headers["ce_id"]) == (b"support-bot", made().alert_id.encode())


def test_an_alert_stands_or_falls_with_its_transaction(world: World) -> None:
    def work(connection: sa.Connection) -> None:
        raise_alert(connection, made(), message=world.store.alerts._shared.alert_message, now=START)
        raise RuntimeError("the cause did not happen")

    with pytest.raises(RuntimeError):
        world.store._database.writing(work)
    assert world.store.alerts.list() == []
    assert not [m for m in world.store.unpublished([], limit=10) if m.topic == "streamer.alerts"]


def test_a_person_acknowledges_once_and_says_why(world: World) -> None:
    alerts = world.store.alerts
    alerts.raise_(made())
    alerts.raise_(made("alarm 2"))
    done = alerts.acknowledge(made().alert_id[:8], by="ana", reason="a bad prompt template")
    assert (done.acknowledged_by, done.acknowledged_reason) == ("ana", "a bad prompt template")
    assert [raised.alert for raised in alerts.list(unacknowledged=True)] == [made("alarm 2")]
    with pytest.raises(UsageError, match="by ana before"):
        alerts.acknowledge(made().alert_id, by="bo", reason="me too")
    for wrong in ("", "zzz", "%"):
        with pytest.raises(UsageError):
            alerts.acknowledge(wrong, by="bo", reason="")


def test_what_pages_comes_first_and_a_gate_is_acknowledged_as_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts = world.store.alerts
    for kind in ("risk", "gate_closed", "drift_scores"):
        alerts.raise_(alert("support-bot", kind, "1", message=f"{kind}.", raised_at=START, details={}))
    shown = [raised.alert.kind for raised in alerts.list(unacknowledged=True)]
    assert shown == ["risk", "drift_scores", "gate_closed"]
    monkeypatch.setenv("STREAMER_DATABASE_URL", world.url)
    command = ["alert", "acknowledge", "support-bot", "--reason", "seen", "--by", "ana"]
    said = CliRunner().invoke(app, command).stdout.splitlines()
    assert said == [f"Acknowledged by ana: {kind}." for kind in shown]
    assert alerts.list(unacknowledged=True) == []
    with pytest.raises(UsageError, match="no alert that nobody has acknowledged"):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_open_alerts_of_a_gate_and_cause_are_one_incident(world: World) -> None:
    alerts = world.store.alerts
    for number, (kind, minutes) in enumerate(
        [("drift_scores", 1), ("risk", 2), ("draws", 3), ("gate_closed", 4)]
    ):
        at = START + timedelta(minutes=minutes)
        alerts.raise_(alert("support-bot", kind, f"cause {number}", message="Look.", raised_at=at))  # type: ignore[arg-type]
    answers, draws = alerts.incidents()
    if answers.alerts[0].alert.kind == "draws":
        answers, draws = draws, answers
    assert [one.alert.kind for one in answers.alerts] == ["risk", "drift_scores", "gate_closed"]
    assert answers.first.alert.kind == "drift_scores"
    assert [one.alert.kind for one in draws.alerts] == ["draws"]
    alerts.assign(alerts.incident("support-bot"), "ana", by="ben")
    alerts.assign(answers, "ben", by="ana")
    assert alerts.incident(answers.alerts[0].alert.alert_id[:8]).assignee == "ben"
    for one in (*answers.alerts, *draws.alerts):
        alerts.acknowledge(one.alert.alert_id, by="ana", reason="mended", now=START + timedelta(hours=1))
    past = alerts.incident("support-bot")
    assert (past.first.alert.kind, past.open) == ("draws", [])
    with pytest.raises(UsageError, match="no alert that nobody has acknowledged"):
        alerts.assign(past, "ana", by="ben")
    later = START + timedelta(hours=2)
    alerts.raise_(alert("support-bot", "risk", "alarm 2", message="Again.", raised_at=later))
    found = alerts.incidents()
    assert [len(one.alerts) for one in found] == [1, 1, 3]  # what is open, then what is over
    with pytest.raises(UsageError, match="1 to 200"):
        alerts.assign(found[0], " ", by="ana")


def test_a_change_is_placed_where_it_began() -> None:
    rng = np.random.default_rng(3)
    places = []
    for _ in range(200):
        before, after = rng.random(120) < 0.1, rng.random(40) < 0.6
        found = change_began([*before, *after])
        assert found is not None
        places.append(found - 120)
    # Half within two draws, nine of ten within eight.
    half, most = np.quantile(np.abs(places), [0.5, 0.9])
    assert half <= 2
    assert most <= 8
    assert change_began([1.0, 0.0]) is None
    assert change_began([0.0]) is None
