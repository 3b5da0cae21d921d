"""Every answer that a run needs, fixed before anything is asked: a pure function of prompts, recipe and arms."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from streamer.clouds.noise import NoiseFamily
from streamer.errors import UsageError
from streamer.labels.llm.record import Message
from streamer_research.sampling.instructions import (
    answer_messages,
    instructions_id,
    paraphrase_messages,
    rewording_messages,
)
from streamer_research.sampling.noise import distinct_noise
from streamer_research.sampling.prompts import Prompt
from streamer_research.sampling.recipe import MODEL_FAMILIES, Arm, Mode, Recipe

Kind = Literal["paraphrase", "rewording", "answer"]

PREPARATION_TEMPERATURE = 1.0
"""Of paraphrases and rewordings, which are to differ from one another."""

_NEIGHBOURS = 50
"""Prompts after one (and of the first) whose references serve as wrong answers to it."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One answer of a cloud, before it is there.

    `position`: in the cloud, from 0. `mode`, `family`: its kind; `family` for noise. `arm`: who
    answers, as an index into the plan's arms; None where a program makes it. `rewording`: 0 for the
    question as it is, k for its k-th rewording.
    """

    position: int
    mode: Mode
    family: NoiseFamily | None
    arm: int | None
    rewording: int


class RecordPart(NamedTuple):
    """What belongs together in the record: the answers of one cloud, or the preparation of one prompt.

    `question_id`: of the prompt. `kind`: what it holds. `cloud`: which of the prompt's clouds, from
    0; 0 for paraphrases and rewordings, which all its clouds share.
    """

    question_id: str
    kind: Kind
    cloud: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: the chat that is sent to an arm, and the places of its batch, at least one, for
    which it asks as many answers.

    `mode`, `family`: the kind of the answers; ``normal`` for paraphrases and rewordings. `seed`: to
    be sent, unless the recipe sends none.
    """

    batch: RecordPart
    positions: tuple[int, ...]
    arm: int
    mode: Mode
    family: NoiseFamily | None
    messages: tuple[Message, ...]
    seed: int
    temperature: float


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """What a run makes.

    `prompts`: with question ids of their own, at least one. `recipe`: how each becomes a cloud.
    `arms`: the models and temperatures, at least one, no two alike. Raises `UsageError`: no prompt,
    no arm, or the same arm twice.
    """

    prompts: tuple[Prompt, ...]
    recipe: Recipe
    arms: tuple[Arm, ...]

    def __post_init__(self) -> None:
        if not self.prompts or not self.arms:
            raise UsageError("a plan needs at least one prompt and one model")
        distinct = {(arm.host, arm.model, arm.temperature) for arm in self.arms}
        if len(distinct) < len(self.arms):
            raise UsageError("the same model is given twice for the same endpoint and temperature")

    @property
    def clouds_per_prompt(self) -> int:
        """One for each arm, or one for all."""
        return 1 if self.recipe.together else len(self.arms)

    def document(self) -> dict[str, Any]:
        """What the answers depend on, as plain JSON values: no key, no endpoint's address beyond its host."""
        prompts = [[one.question_id, one.question, list(one.references)] for one in self.prompts]
        return {
            "recipe": self.recipe.document(),
            "arms": [asdict(arm) for arm in self.arms],
            "instructions": instructions_id(),
            "prompts": {
                "count": len(self.prompts),
                "sha256": hashlib.sha256(json.dumps(prompts).encode()).hexdigest(),
            },
        }

    def slots(self, prompt: Prompt, cloud: int) -> tuple[Slot, ...]:
        """The places of one cloud, in their order.

        The kinds are mixed by the seed and the prompt alone: all clouds of a prompt have the same kind at the same
        place, and the same noise there, so that what differs between arms is the arms.
        """
        recipe = self.recipe
        rng = np.random.default_rng([recipe.seed, _number(prompt.question_id, "order")])
        families = [recipe.families[i] for i in rng.permutation(len(recipe.families))]
        kinds = [
            (mode, families[i % len(families)] if mode == "noise" else None, i)
            for mode, count in recipe.mix.counts(recipe.answers).items()
            for i in range(count)
        ]
        slots = []
        for position, place in enumerate(rng.permutation(len(kinds))):
            mode, family, i = kinds[place]
            by_program = mode == "noise" and not (recipe.noise_by_model and family in MODEL_FAMILIES)
            sharing = len(self.arms) if recipe.together else 1
            arm = i % sharing if recipe.together else cloud
            rewording = 0 if mode == "noise" else i // sharing % (recipe.rewordings + 1)
            slots.append(Slot(position, mode, family, None if by_program else arm, rewording))
        return tuple(slots)

    def noise(self, place: int) -> dict[int, str]:
        """The answers of the `place`-th prompt's clouds that a program makes, by position."""
        prompt = self.prompts[place]
        wanted = [
            (slot.position, slot.family)
            for slot in self.slots(prompt, 0)
            if slot.arm is None and slot.family is not None
        ]
        rng = np.random.default_rng([self.recipe.seed, _number(prompt.question_id, "noise")])
        accepted = {reference.casefold() for reference in prompt.references}
        following = (*self.prompts[place + 1 :][:_NEIGHBOURS], *self.prompts[:place][:_NEIGHBOURS])
        others = [
            other.references[0]
            for other in following
            if other.references and other.references[0].casefold() not in accepted
        ]
        texts = distinct_noise(
            rng, [family for _, family in wanted], references=prompt.references, others=others
        )
        return {position: text for (position, _), text in zip(wanted, texts, strict=True)}

    def preparations(
        self, missing: Mapping[RecordPart, Sequence[int]], most: Mapping[int, int]
    ) -> Iterator[Request]:
        """Requests for the paraphrases and rewordings that are missing; the first arm is asked for all of them."""
        for prompt in self.prompts:
            for kind in ("paraphrase", "rewording"):
                batch = RecordPart(prompt.question_id, kind, 0)
                if kind == "paraphrase":
                    messages = paraphrase_messages(prompt.references[0]) if prompt.references else ()
                else:
                    messages = rewording_messages(prompt.question)
                for positions in self._chunks(missing.get(batch, ()), 0, most):
                    yield self._request(
                        batch, positions, 0, "normal", None, messages, PREPARATION_TEMPERATURE
                    )

    def answers(
        self,
        missing: Mapping[RecordPart, Sequence[int]],
        most: Mapping[int, int],
        questions: Mapping[tuple[str, int], str],
    ) -> Iterator[Request]:
        """Requests for the answers that are missing.

        `missing`: places by batch. `most`: by vendor, the most answers that it was seen to give to
        one request. Looked up at each request. `questions`: texts of rewordings by question id and
        number; places whose rewording is absent are passed over.
        """
        for prompt in self.prompts:
            for cloud in range(self.clouds_per_prompt):
                batch = RecordPart(prompt.question_id, "answer", cloud)
                wanted = set(missing.get(batch, ()))
                if not wanted:
                    continue
                alike: dict[tuple[int, Mode, NoiseFamily | None, int], list[int]] = defaultdict(list)
                for slot in self.slots(prompt, cloud):
                    if slot.arm is not None and slot.position in wanted:
                        alike[slot.arm, slot.mode, slot.family, slot.rewording].append(slot.position)
                for (arm, mode, family, rewording), places in alike.items():
                    question = (
                        questions.get((prompt.question_id, rewording)) if rewording else prompt.question
                    )
                    if question is None:
                        continue
                    messages = answer_messages(question, mode, family, self.recipe.instruction)
                    for positions in self._chunks(places, arm, most):
                        yield self._request(
                            batch, positions, arm, mode, family, messages, self.arms[arm].temperature
                        )

    def batches(self) -> dict[RecordPart, tuple[int, ...]]:
        """All places that a model has to fill, by batch."""
        recipe = self.recipe
        wanted: dict[RecordPart, tuple[int, ...]] = {}
        for prompt in self.prompts:
            name = prompt.question_id
            if prompt.references:
                wanted[RecordPart(name, "paraphrase", 0)] = tuple(range(recipe.paraphrases))
            wanted[RecordPart(name, "rewording", 0)] = tuple(range(recipe.rewordings))
            for cloud in range(self.clouds_per_prompt):
                wanted[RecordPart(name, "answer", cloud)] = tuple(
                    slot.position for slot in self.slots(prompt, cloud) if slot.arm is not None
                )
        return {batch: positions for batch, positions in wanted.items() if positions}

    def _chunks(
        self, positions: Sequence[int], arm: int, most: Mapping[int, int]
    ) -> Iterator[tuple[int, ...]]:
        left = list(positions)
        while left:
            size = min(self.recipe.per_request, most.get(self.arms[arm].vendor, self.recipe.per_request))
            yield tuple(left[:size])
            left = left[size:]

    def _request(
        self,
        batch: RecordPart,
        positions: tuple[int, ...],
        arm: int,
        mode: Mode,
        family: NoiseFamily | None,
        messages: tuple[Message, ...],
        temperature: float,
    ) -> Request:
        name = f"{self.recipe.seed}:{batch.kind}:{batch.cloud}:{positions[0]}"
        return Request(
            batch=batch,
            positions=positions,
            arm=arm,
            mode=mode,
            family=family,
            messages=messages,
            seed=_number(batch.question_id, name) % 2**31,
            temperature=temperature,
        )


def _number(*names: str) -> int:
    """A number in [0, 2**64) that stands for these names."""
    digest = hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")
