import json
import sys

from api import Client
from api.api.gates import decide, find_decision, label, show_gate
from api.api.in_place_of_a_model import complete
from api.models import ChatRequest, LabelsV1, ResponsesV1

client, gate = Client(sys.argv[1]), sys.argv[2]


def decided(batch: str, score: float):
    answers = [{"id": "a", "text": "Here.", "score": score}, {"id": "b", "text": "There.", "score": 0.1}]
    body = ResponsesV1.from_dict({"batch_id": batch, "prompt": "Where?", "responses": answers})
    return decide.sync(gate, client=client, body=body)


ships, held = decided("python-1", 0.9), decided("python-2", 0.2)
found = find_decision.sync(gate, ships.batch_id, client=client)
severity = LabelsV1(batch_id=ships.batch_id, response_id="a", severity=0.5, kind="human", labeller="ana")
recorded = label.sync(gate, client=client, body=severity).recorded
shown = show_gate.sync(gate, client=client)
refused = show_gate.sync("nobody", client=client)
chat = ChatRequest.from_dict({"model": "chatty", "messages": [{"role": "user", "content": "Where?"}]})
said = complete.sync(client=client, body=chat)
of = (ships.action, ships.selected, held.action, found.action, recorded, shown.gate, refused.code)
print(json.dumps([*of, said.id != ""]))
