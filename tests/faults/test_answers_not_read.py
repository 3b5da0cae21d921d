"""What the encoder does not read, through a real worker: no gate ships it that was calibrated on other answers."""

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from streamer.events.actions import decode_action
from streamer.scoring.encoders.encoder import Encoder
from streamer.scoring.unread_answers import RULES, SAYS
from streamer.store.db.schema import batches, decisions
from streamer.wording.numbers import percent
from tests.e2e.test_gates_in_service import answered, publish, publish_labels, taken_up
from tests.faults.site import Site, empty_site, wait_until
from tests.services.kafka import KafkaBroker
from tests.unit.scoring.test_unread_answers import HELD, READ

pytestmark = pytest.mark.encoder

GATES: dict[str, tuple[str, ...]] = {"usual": (), "cut": ("--method", "crc", "--judged", "raw")}
"""The default, which judges what follows the reasoning alone, and one that cuts one score of answers as they are."""
LABELLED = 60


def about(gate: str, texts: dict[int, tuple[str, ...]], number: int) -> bytes:
    """A batch with other answers."""
    told = json.loads(answered(gate, 1)) | {"batch_id": f"batch-{number}"}
    told["responses"] = [{"id": f"r{i}", "text": text} for i, text in enumerate(texts[number])]
    return json.dumps(told).encode()


def test_a_gate_that_ships_everything_else_holds_what_is_not_read(
    kafka_broker: KafkaBroker,
    migrated_postgres_url: str,
    topic_prefix: str,
    tmp_path: Path,
    real_encoder: Encoder,
) -> None:
    with (
        ExitStack() as stack,
        empty_site(kafka_broker, migrated_postgres_url, topic_prefix, tmp_path, stack) as site,
    ):
        site.environment["STREAMER_ENCODER_NAME"] = real_encoder.identity.id.partition("@")[0]
        of_gates(site)


def of_gates(site: Site) -> None:
    every = [texts for texts, _ in HELD.values()] + list(READ.values())
    texts = dict(enumerate(every, LABELLED))
    for gate, asked in GATES.items():
        site.command(
            *("gate", "create", gate, *asked, "--mode", "enforce", "--audit-probability", "1"),
            *("--alpha", "0.1", "--recalibrate", "propose"),
        )  # fmt: skip
    worker = site.start_worker()
    for gate in GATES:
        publish(site, gate, partial(answered, gate), range(LABELLED))
        publish_labels(site, gate, lambda _: False, range(LABELLED), 3)  # all are good: what is read ships
        site.command("recalibrate", gate, "--by", "ana")
        taken_up(site, worker, gate)
        publish(site, gate, partial(about, gate, texts), range(LABELLED, LABELLED + len(texts)))
        query = (
            sa.select(batches.c.batch_id, decisions.c.action_value)
            .join(decisions, decisions.c.batch == batches.c.id)
            .where(batches.c.gate == gate)
        )
        with site.store._database.reading() as connection:
            found = {name: decode_action(value) for name, value in connection.execute(query)}
        names = dict(zip([*HELD, *READ], texts, strict=True))
        held = {name: rules for name, (_, rules) in HELD.items() if (gate, name) != ("usual", "reasoning")}
        for name, rules in held.items():
            action = found[f"batch-{names[name]}"]
            assert (action.action, action.reason) == ("abstain", "not_read"), (gate, name)
            assert {one.not_read for one in action.responses} == {*rules}, (gate, name)
        for name in set(names) - set(held):
            action = found[f"batch-{names[name]}"]
            assert (action.action, action.reason) == ("ship", "scored"), (gate, name)
            assert not any(isinstance(one.not_read, str) for one in action.responses)
        counted = {rule: sum(rule in rules for rules in held.values()) for rule in RULES}
        name = f'streamer_batches_not_read_total{{gate="{gate}",rule="%s"}}'
        wait_until(
            lambda: {rule: worker.metrics()[name % rule] for rule in RULES} == counted,  # noqa: B023
            "each batch is counted, after its commit",
        )
        said = site.command("audit", "show", f"batch-{names['both']}", "--gate", gate).stdout
        assert f"{SAYS['cut']} (cut)" in said
        assert f"{SAYS['unread']} (unread)" in said
        findings = json.loads(site.command("doctor", "--json").stdout)["findings"]
        total = LABELLED + len(texts)
        share = percent(counted["cut"] / total)
        said = f"of {total} recent batches its encoder did not read {share} (cut: {SAYS['cut']}), "
        assert any(one["subject"] == f"gate {gate}" and one["text"].startswith(said) for one in findings)
    site.command("audit", "verify")
    site.check()
