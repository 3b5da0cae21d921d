"""The line that `streamer dev` prints to be pasted: one request, answered by a gate that is there."""

from collections.abc import Sequence

from streamer.gates.policy import GateRevision
from streamer.gates.settings import NO_ENCODER

NEW_GATE = "try"
"""The gate that the line creates where there is none that could answer."""


def first_request(endpoint: str, gates: Sequence[GateRevision], *, encoder: str) -> str:
    """Write what asks for a decision when it is pasted into a shell, in short lines; also a second time.

    Parameters
    ----------
    endpoint : root of the service.
    gates : all that there are; the first that decides by text, or by scores in the event, is asked.
    encoder : what the service embeds texts with; `NO_ENCODER`: nothing.
    """
    fitting = (
        (one.gate, one.settings.scorer == "external")
        for one in gates
        if one.settings.scorer == "external" or one.settings.encoder == encoder
    )
    first = next(fitting, None)
    gate, scored = first or (NEW_GATE, encoder == NO_ENCODER)
    create = f"streamer gate create {gate}{' --scorer external' if scored else ''}\n"
    one, two = (f', "score": {score}' if scored else "" for score in (0.9, 0.8))
    return (
        ("" if first else create)
        + f"curl {endpoint}/v1/gates/{gate}/decisions --json '\n"
        + f'  {{"prompt": "Who?", "responses": [{{"id": "a", "text": "Ada."{one}}},\n'
        + f'    {{"id": "b", "text": "Ada Lovelace."{two}}}]}}\''
    )
