"""A gate of claims at the endpoint: the text that may be shown, and why an answer is held."""

from collections.abc import Callable
from typing import Any

from tests.faults.endpoint import GATE, Site, action, held

CLAIMS: dict[str, Any] = {"unit": "claim", "scorer": "support", "cut": 0.6}


def test_the_endpoint_gives_the_text_and_what_it_holds_says_why(
    new_site: Callable[..., Site], migrated_sqlite_url: str
) -> None:
    site = new_site(migrated_sqlite_url, **CLAIMS)
    site.gate("marked", left_out="mark", **CLAIMS)
    served = site.serve()

    def ask(name: str, texts: list[str], gate: str = GATE, **first: Any) -> dict[str, Any]:
        answers = [{"id": f"r{i}", "text": text} for i, text in enumerate(texts)]
        answers[0] |= first
        body = {"batch_id": name, "prompt": "?", "responses": answers}
        found = action(served.ask(body, gate=gate))
        assert action(served.ask(body, gate=gate)) == found
        return found

    two = [
        "<think>?</think>\nBern is in Ada. Zebras fly 77 times.",
        "Bern is in Ada.",
        "Surely Bern is in Ada.",
    ]
    found = ask("mixed", two)
    assert (found["action"], found["text"], found["answer"]) == ("mixed", "Bern is in Ada. ", "r0")
    assert [one["action"] for one in found["responses"]] == ["ship", "abstain"]
    marked = ask("marked", two, "marked")["text"]
    assert marked == "Bern is in Ada. [unsupported: Zebras fly 77 times.]"
    claims = [{"id": "z", "text": "Zebras fly 77 times.", "span": [33, 53]}]
    given = ask("given", two, claims=claims)
    assert (given["action"], given["text"], given["responses"][0]["id"]) == ("abstain", None, "z")
    claims = [{"id": "b", "text": "Bern is in Ada.", "span": [17, 32], "rests_on": ["z"]}, *claims]
    given = ask("rests", two, claims=claims)
    assert [one["action"] for one in given["responses"]] == ["abstain", "abstain"]
    for name, texts, reason in (
        ("alone", two[:1], "no_witness"),
        ("nothing", ["!!!", "Bern."], "no_claims"),
        ("thought", ["<think>Bern.", "Bern."], "no_claims"),
        ("long", ["Bern is. " * 65, "Bern."], "too_many_units"),
    ):
        found = ask(name, texts)
        assert (found["action"], found["reason"], found["text"]) == ("abstain", reason, None)
    for name, lost, kept in (
        ("lines", "Bern is in Ada. Zebras fly.\n\nBern is in Ada.", "Bern is in Ada. \n\nBern is in Ada."),
        # Right behind the item the paragraph would be read as part of it.
        ("items", "- Bern is in Ada.\n- Zebras fly.\n\nIn Ada.", "- Bern is in Ada.\n\nIn Ada."),
    ):
        assert ask(name, [lost, *two[1:]])["text"] == kept
    for wrong, said in (
        ({"id": "z", "text": "?", "span": [50, 54]}, "within its 53 code points"),
        # What is scored, and labelled, is what ships.
        ({"id": "z", "text": "Bern is in Ada.", "span": [33, 53]}, "has the words of the answer"),
        ({"id": "z", "text": "Zebras fly 77 times.", "span": [33, 53], "rests_on": ["y"]}, "rests on 'y'"),
    ):
        first = {"id": "r0", "text": two[0], "claims": [wrong]}
        body = {"batch_id": "bad", "prompt": "?", "responses": [first, {"id": "r1", "text": two[1]}]}
        assert said in held(served.ask(body), 422, "invalid_field")["detail"]
    first = {"id": "r0", "text": two[0], "token_logprobs": [-0.1, 0.7]}
    body = {"batch_id": "bad", "prompt": "?", "responses": [first, {"id": "r1", "text": two[1]}]}
    assert "token_logprobs" in held(served.ask(body), 422, "invalid_field")["detail"]
    site.check()
