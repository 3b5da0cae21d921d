"""`streamer simulate`: traffic to try an installation with, simulated, with labels, until it is stopped."""

import time
from itertools import islice

from streamer import wiring
from streamer.cli import options as opt
from streamer.cli.broker import require_broker
from streamer.cli.console import counted, note, tell
from streamer.cli.options import gate_names
from streamer.cli.publish import check_simulated
from streamer.cli.services import end_on_sigterm
from streamer.clouds.cloud import cloud_labels, cloud_message
from streamer.clouds.simulation import SIMULATED_KIND
from streamer.clouds.traffic import endless_clouds, occurrences
from streamer.events.labels import encode_label


def simulate(
    gate: str = opt.option(
        "GATE",
        "The gate that decides; its severity kind must be `simulated`.",
        ...,
        parser=opt.gate_name,
        autocompletion=gate_names,
    ),
    rate: float = opt.option("R", "Batches per second.", 2.0, min=0.001, max=100.0),
    label_after: str = opt.option("TIME", "Delay of a batch's labels, like 0s, 30s, 5m.", "30s"),
    noise: float = opt.option(
        "SHARE",
        "Share of responses that are noise, from 0 to 1; more is worse.",
        0.25,
        parser=opt.share_from(0),
    ),
    batches: int | None = opt.option("N", "Stop after this many batches and their labels.", min=1),
    seed: int | None = opt.option(
        "S", "Seed of the simulation. Default: the current time.", min=0, max=2**62
    ),
    into_real_gate: bool = opt.flag(
        "--into-real-gate",
        "Permit a gate with real batches or labels, whose threshold the simulated labels then move.",
    ),
    json: opt.JsonOption = False,
) -> None:
    """Publish simulated batches and their severities until Ctrl-C, to try an installation.

    No language model answers: questions, right, wrong and noisy answers and their severities come from a simulation.
    Every response is labelled; only labels of the audit sample count. A gate with real batches or labels is refused.
    """
    delay = opt.seconds(label_after, "--label-after")
    settings = wiring.load_settings()
    check_simulated(settings, gate, kind=SIMULATED_KIND, into_real_gate=into_real_gate)
    require_broker(settings)
    end_on_sigterm()
    topics, limits = wiring.topics(settings), wiring.limits(settings)
    clouds = islice(endless_clouds(seed=int(time.time()) if seed is None else seed, noise=noise), batches)
    sent = labelled = 0
    start = time.monotonic()
    note(f"Publishing {rate:g} simulated batches a second to gate {gate}; press Ctrl-C to stop.")
    try:
        with wiring.publisher(settings) as publisher:
            for due in occurrences(clouds, rate=rate, label_after=delay):
                time.sleep(max(0.0, start + due.at - time.monotonic()))
                key = due.cloud.batch_id.encode()
                if due.labels:
                    for label in cloud_labels(due.cloud, gate, "simulation", wiring.now()):
                        publisher.send(topics.labels, encode_label(label), key=key)
                        labelled += 1
                else:
                    publisher.send(topics.responses, cloud_message(due.cloud, gate, limits), key=key)
                    sent += 1
                # Few per second: send each at once, and report trouble at once.
                publisher.flush()
    finally:
        said = f"published {counted(sent, 'batch', 'batches')} and {counted(labelled, 'label', 'labels')}"
        tell(json, {"batches": sent, "labels": labelled}, said)
