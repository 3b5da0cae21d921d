"""Which gates can answer chat requests: asked when one comes, and before that when a gate is made or changed."""

from streamer.events.responses import UPSTREAM
from streamer.gates.setting import EXTERNAL_PREFIX
from streamer.gates.settings import GateSettings
from streamer.scoring.registry import LIKELIHOOD
from streamer.scoring.signals.declared import LOGARITHMS
from streamer.serving.chat.upstream import Upstream

MOST_TOP_LOGPROBS = 20
"""As many as OpenAI's protocol gives for a token."""


def of_one_origin(settings: GateSettings) -> bool:
    """Whether a gate's threshold is for the answers of its upstream, as that is set."""
    return settings.upstream is not None or settings.segment_by == UPSTREAM


def token_numbers(settings: GateSettings) -> dict[str, object]:
    """What is asked of an upstream beside its answers: the log-probabilities that a gate has among its signals."""
    listed = settings.signal_list
    given = (settings.of_event,) if listed is None else listed.given
    if "token_entropy" in given or "most_token_entropy" in given:
        return {"logprobs": True, "top_logprobs": MOST_TOP_LOGPROBS}
    return {"logprobs": True} if any(one in LOGARITHMS for one in given) else {}


def unsuited(settings: GateSettings, upstream: Upstream) -> str | None:
    """Say why a gate could ship none of this upstream's answers, or could not answer a repeat, and what to do; None if it can."""
    if settings.unit not in ("best", "claim"):
        return (
            f"its unit is {settings.unit}, and one answer is shown under the units best and claim "
            "alone; give it --unit best"
        )
    of_claims = settings.unit == "claim"
    if of_claims and (
        upstream.steps
        or upstream.then
        or upstream.with_earlier
        or upstream.tools != "refuse"
        or upstream.schemas != ("text",)
    ):
        return (
            "its unit is claim, of texts and of as many answers each time; leave steps, then, "
            "with_earlier, tools and schemas out of its upstream"
        )
    if settings.of_event not in (None, "logprob") or settings.encoder.startswith(EXTERNAL_PREFIX):
        return (
            "its scores or embeddings come with the batch, and sampled answers bring none; give it a --scorer and an --encoder "
            "that the service runs"
        )
    if min(upstream.rule.sizes) < (2 if of_claims else settings.least_answers):
        other = "" if of_claims else f"it --scorer {LIKELIHOOD}, or "
        return (
            f"its upstream samples one answer, and the scorer {settings.scorer} compares several; give {other}the upstream 2 "
            "answers or more"
        )
    if not settings.keep_texts:
        return "it keeps no texts, and a repeat could not be answered; give it --keep-texts"
    if upstream.then is not None and settings.floor is None:
        option = "--ship-above" if settings.calibrator.of_signals else "--label-floor"
        return f"it hands on to gate {upstream.then!r} what scores at most a number that is fixed in advance; give it {option}"
    if upstream.then is not None and settings.desk_deadline_seconds is not None:
        return (
            f"what it holds waits for a person at the desk, and would be handed on to gate {upstream.then!r}; give the last gate "
            "a desk, and this one none"
        )
    return None
