"""Case 24: embeddings that a publisher made up, through a real worker: none of them ships on a gate that refuses them."""

import json
from collections import Counter
from typing import Any

from streamer import wiring
from streamer.events.actions import decode_action
from streamer.gates.settings import GateSettings
from tests.faults import oracle
from tests.faults.matrix import Matrix
from tests.faults.site import Site, event, publish, put_in_force, wait_until

UNRELATED = ("Paris.", "I do not know.", "7", "Ask your doctor.")
ENCODER = "text-embedding-3-small"
ALIKE = [1.0] + [0.0] * 15


def made_up(
    gate: str, number: int, vector: list[float], encoder: str | None, *, fake: bool = True
) -> tuple[str, bytes]:
    """Four unrelated texts whose embeddings are equal, and so score 1; the batch's name, and its event."""
    changes: dict[str, Any] = {"gate": gate, "batch_id": f"{gate}-{number}", "embedding_encoder": encoder}
    responses = [{"id": f"r{i}", "text": text} for i, text in enumerate(UNRELATED)]
    if fake:
        responses = [one | {"embedding": vector} for one in responses]
    return changes["batch_id"], event(number, responses=responses, **changes)


def test_made_up_embeddings_ship_only_where_a_gate_trusts_the_publisher(site: Site, matrix: Matrix) -> None:
    # The worker has no encoder, so that nothing but the gate's settings can tell names and dimensions.
    external: dict[str, Any] = {"encoder": f"external:{ENCODER}", "embeddings": "accept", "dimension": 16}
    for gate, settings in (("usual", {"encoder": "any@12345678"}), ("trusting", external)):
        chosen = GateSettings(mode="enforce", **settings)
        site.store.gates.create(gate, chosen, by="test", reason="test")
        put_in_force(site.store, 0.9, gate)
    shipped = [made_up("trusting", 0, ALIKE, ENCODER), made_up("trusting", 1, ALIKE, f"external:{ENCODER}")]
    held = [
        made_up("usual", 0, ALIKE, None),
        made_up("usual", 1, ALIKE, "any@12345678"),
        made_up("usual", 2, ALIKE, ENCODER),
        made_up("trusting", 2, ALIKE, None),
        made_up("trusting", 3, ALIKE, "text-embedding-3-large"),
        made_up("trusting", 4, [1.0, 0.0], ENCODER),
        made_up("trusting", 5, [], ENCODER, fake=False),
    ]
    refused = [
        made_up("trusting", 6, [float("nan")] * 16, ENCODER),
        made_up("trusting", 7, [0.0] * 16, ENCODER),
        made_up("usual", 8, [float("inf")] * 16, None),
    ]
    topic = wiring.topics(site.settings).responses
    with wiring.publisher(site.settings) as publisher:
        for key, value in (*shipped, *held, *refused):
            publisher.send(topic, value, key=key.encode())
    publish(site, 0, 20)  # a gate with honest embeddings goes on as ever
    worker = site.start_worker()
    total = len(shipped) + len(held) + len(refused) + 20
    wait_until(lambda: site.recorded() == total, "every record has an outcome", progress=site.recorded)
    found = site.check()
    actions = {}
    for record in oracle.read_all(wiring.connection(site.settings), wiring.topics(site.settings).actions):
        action = decode_action(record.value)
        actions[action.batch_id] = action
    for key, _ in shipped:
        assert (actions[key].action, actions[key].reason) == ("ship", "scored"), key
        assert actions[key].scorer.encoder == f"external:{ENCODER}", "no encoder is named that somebody runs"
        assert actions[key].scorer.embedding_source == "event"
    for key, value in held:
        assert (actions[key].action, actions[key].reason) == ("abstain", "encoder_mismatch"), key
        brought = "embedding" in json.loads(value)["responses"][0]
        assert actions[key].scorer.embedding_source == ("event" if brought else "none")
    assert Counter(one.code for one in site.store.dead_letters.list()) == {
        "not_finite": 2,
        "bad_embedding": 1,
    }
    matrix.add("24 embeddings made up, misnamed, of other dimensions", found)
    assert worker.terminate() == 0
