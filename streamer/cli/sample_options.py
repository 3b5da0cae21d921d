"""The options of `streamer sample`, in groups, and what they mean: texts into values, with errors that name the option."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

import typer

from streamer.clouds.noise import NOISE_FAMILIES
from streamer.errors import UsageError
from streamer.labels.llm.record import Price
from streamer.research.sampling.recipe import Mix, Recipe

UNASKED = 100
"""Requests that are sent without asking."""


@dataclass(frozen=True, slots=True)
class CloudOptions:
    """What a cloud is made of."""

    preset: Annotated[
        str | None,
        typer.Option(
            metavar="C1...C6",
            help="A configuration of the paper: answers, paraphrases, mix, temperature, top-p, tokens, seed. Other "
            "options win over it.",
        ),
    ] = None
    answers: Annotated[int | None, typer.Option(metavar="N", help="Answers of a cloud. Default: 10.")] = None
    mix: Annotated[
        str | None,
        typer.Option(
            metavar="N/E/Z",
            help="Shares of normal answers, of answers told to name the canonical one, and of noise. Default: 1/0/0.",
        ),
    ] = None
    noise_family: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A kind of noise, repeatable: gibberish, off-topic, fabricated-citation, prompt-injection, "
            "contradiction, emoji-flood, multilingual-snippet. Default: all.",
        ),
    ] = None
    model_noise: Annotated[
        bool,
        typer.Option(
            "--model-noise",
            help="Let the model write noise that is off-topic, cites, contradicts itself or is in another language; "
            "otherwise a program makes all noise.",
        ),
    ] = False
    paraphrases: Annotated[
        int | None,
        typer.Option(
            metavar="P", help="Paraphrases of the first reference, which join the references. Default: 0."
        ),
    ] = None
    rewordings: Annotated[
        int,
        typer.Option(
            metavar="R",
            help="Rewordings of the question; the answers are spread over the question as it is and these.",
        ),
    ] = 0
    limit: Annotated[int | None, typer.Option(metavar="Q", min=1, help="Only the first Q prompts.")] = None


@dataclass(frozen=True, slots=True)
class AnswererOptions:
    """Who answers."""

    model: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Its name at the endpoint; repeatable. Overrides the setting."),
    ] = None
    base_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="The endpoint, like https://api.openai.com/v1: one for all models, or one for each --model in turn.",
        ),
    ] = None
    together: Annotated[
        bool,
        typer.Option(
            "--together",
            help="Several models or temperatures share each cloud; otherwise each has a file of its own.",
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How answers are decoded."""

    temperature: Annotated[
        list[float] | None,
        typer.Option(metavar="T", help="In [0, 2]; repeatable, every model at each. Default: 1."),
    ] = None
    top_p: Annotated[float | None, typer.Option(metavar="P", help="In (0, 1]. Default: 1.")] = None
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Most tokens of an answer. Default: 256.")
    ] = None
    system_prompt: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The system prompt of normal answers; an empty file sends none. Default: short answer first.",
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="S",
            help="Every choice derives from it; a number derived from it is sent with each request. Default: 0.",
        ),
    ] = None
    send_seed: Annotated[bool, typer.Option("--send-seed/--no-send-seed", help="Send seeds at all.")] = True


@dataclass(frozen=True, slots=True)
class SendingOptions:
    """What is sent, and what it may cost."""

    per_request: Annotated[
        int,
        typer.Option(metavar="N", help="Most answers that one request asks for; its prompt is paid once."),
    ] = 5
    concurrency: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most requests in flight at an endpoint; overrides the setting."),
    ] = None
    requests_per_minute: Annotated[
        float | None, typer.Option(metavar="R", help="Most to an endpoint; overrides the setting.")
    ] = None
    tokens_per_minute: Annotated[
        float | None, typer.Option(metavar="R", help="Most at an endpoint; overrides the setting.")
    ] = None
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="IN/OUT",
            help="For a million tokens of requests and of replies, from your price list: one for all models, or one "
            "for each --model in turn.",
        ),
    ] = None
    max_cost: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT",
            help="What all replies may cost together, those of earlier runs too; needs --price. No request is sent that "
            "could exceed it.",
        ),
    ] = None
    again: Annotated[
        bool, typer.Option("--again", help="Ask again for answers that were refused or empty.")
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan, examples and cost; send nothing.")
    ] = False
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help=f"Do not ask before more than {UNASKED} requests are sent.")
    ] = False

    def settings(self) -> dict[str, Any]:
        """What it makes of the settings."""
        return given(
            concurrency=self.concurrency,
            requests_per_minute=self.requests_per_minute,
            tokens_per_minute=self.tokens_per_minute,
        )


def recipe_of(
    cloud: CloudOptions, who: AnswererOptions, decoding: DecodingOptions, sending: SendingOptions
) -> tuple[Recipe, list[float]]:
    """Return the recipe, and the temperatures. Raises `UsageError` for a preset that the paper does not have."""
    from streamer.research.sampling import PRESETS

    preset = cloud.preset
    if preset is not None and preset.upper() not in PRESETS:
        raise UsageError(f"there is no preset {preset!r}; the paper has {', '.join(PRESETS)}")
    chosen = {} if preset is None else dict(PRESETS[preset.upper()])
    chosen |= given(
        answers=cloud.answers,
        paraphrases=cloud.paraphrases,
        mix=mix_of(cloud.mix),
        families=families(cloud.noise_family),
        top_p=decoding.top_p,
        max_tokens=decoding.max_tokens,
        instruction=None if decoding.system_prompt is None else text_of(decoding.system_prompt),
        seed=decoding.seed,
    )
    usual = chosen.pop("temperature", 1.0)
    recipe = Recipe(
        **chosen,
        rewordings=cloud.rewordings,
        noise_by_model=cloud.model_noise,
        per_request=sending.per_request,
        send_seed=decoding.send_seed,
        together=who.together,
    )
    return recipe, decoding.temperature or [usual]


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def families(names: list[str] | None) -> tuple[str, ...] | None:
    """Families of noise as they are called elsewhere; what is none is passed on, and refused by the recipe."""
    if names is None:
        return None
    by_slug = {family.replace(" ", "-"): family for family in NOISE_FAMILIES}
    return tuple(dict.fromkeys(by_slug.get(name.lower().replace(" ", "-"), name) for name in names))


def mix_of(text: str | None) -> Mix | None:
    """Shares from ``.75/0/.25``. Raises `UsageError` for anything else."""
    if text is None:
        return None
    try:
        normal, enforced, noise = (float(part) for part in text.split("/"))
    except ValueError:
        raise UsageError(f"--mix is 3 numbers like .75/0/.25, not {text!r}") from None
    return Mix(normal, enforced, noise)


def amount(text: str, option: str) -> Decimal:
    """A sum of money from a text. Raises `UsageError` for what is none, or negative."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal(-1)
    if not found.is_finite() or found < 0:
        raise UsageError(f"{option} is an amount of 0 or more, not {text!r}")
    return found


def prices_of(texts: list[str], count: int) -> list[Price | None]:
    """The price of each of `count` models, from one text for all or one each. Raises `UsageError` otherwise."""
    prices = []
    for text in texts:
        parts = text.split("/")
        if len(parts) != 2:
            raise UsageError(f"--price is two amounts like 0.15/0.60, not {text!r}")
        prices.append(Price(amount(parts[0], "--price"), amount(parts[1], "--price")))
    if len(prices) not in (0, 1, count):
        raise UsageError(
            f"{count} models and {len(prices)} prices: give one --price for all, or one for each --model"
        )
    if not prices:
        return [None] * count
    return [*prices] * count if len(prices) == 1 else [*prices]


def text_of(path: Path) -> str:
    """The text of a file, without space around it. Raises `UsageError` where it cannot be read."""
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
