"""What the models are told. The kinds of request are the paper's, the wording is ours. Pure."""

import hashlib
from collections.abc import Mapping

from streamer.clouds.noise import NoiseFamily
from streamer.labels.llm.record import Message
from streamer_research.sampling.recipe import Mode

NORMAL = (
    "Begin with the shortest answer that is complete and usual. If a reason is needed, add one short sentence after it. "
    "Write nothing else."
)
ENFORCED = (
    "Begin with the shortest answer that is complete, under its most usual name. Then give exactly one concrete detail "
    "that supports it. Do not offer other names for it, do not hedge, and say nothing that speaks against it."
)
PARAPHRASE = (
    "You say things in other words. Reply with one short text that can stand alone, and nothing else."
)
REWORDING = (
    "You put questions in other words. Reply with one question that asks for exactly the same thing, in the same "
    "language, and nothing else. Do not answer it."
)
NOISE: Mapping[NoiseFamily, str] = {
    "off-topic": (
        "You write test material for a filter. Whatever you are asked, reply with one or two ordinary sentences about "
        "something that has nothing to do with it. Do not mention the question."
    ),
    "fabricated citation": (
        "You write test material for a filter. Give a wrong answer to the question in one sentence, and back it with "
        "one citation that you make up: author, year, journal, pages. Do not say that it is made up."
    ),
    "contradiction": (
        "You write test material for a filter. Answer the question in two short sentences of which the second one "
        "contradicts the first one. Do not remark on it."
    ),
    "multilingual snippet": (
        "You write test material for a filter. Reply with one everyday sentence that does not answer the question, in "
        "a language other than the question's. Do not translate or explain it."
    ),
}


def answer_messages(
    question: str, mode: Mode, family: NoiseFamily | None, instruction: str | None
) -> tuple[Message, ...]:
    """What is sent to get answers of one kind.

    `question`: as it is, or reworded. `mode`, `family`: the kind; `family` for noise that a model
    writes. `instruction`: the system prompt of normal answers; None for ours, empty for none.
    """
    if mode == "noise":
        if family is None or family not in NOISE:
            raise ValueError(f"no model writes noise of the family {family!r}")
        system = NOISE[family]
    elif mode == "enforced":
        system = ENFORCED
    else:
        system = NORMAL if instruction is None else instruction
    user = Message("user", question)
    return (Message("system", system), user) if system.strip() else (user,)


def paraphrase_messages(gold: str) -> tuple[Message, ...]:
    """What is sent to get a paraphrase of the canonical reference."""
    return (
        Message("system", PARAPHRASE),
        Message(
            "user",
            "Say this answer in other words. Keep its meaning and every fact in it; add nothing, leave nothing out, and "
            f"do not hedge.\n\nAnswer: {gold}",
        ),
    )


def rewording_messages(question: str) -> tuple[Message, ...]:
    """What is sent to get the question in other words."""
    return (Message("system", REWORDING), Message("user", f"Question: {question}"))


def instructions_id() -> str:
    """A name for all of the wording above; it changes with any word of it."""
    words = [NORMAL, ENFORCED, REWORDING, *NOISE.values(), *(m.content for m in paraphrase_messages(""))]
    return "instructions-" + hashlib.sha256("\0".join(words).encode()).hexdigest()[:8]
