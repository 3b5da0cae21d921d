"""The best score of some answers, before a batch is made of them."""

from collections.abc import Sequence

from streamer.gates.settings import GateSettings
from streamer.labels.answer_forms import answer_batch
from streamer.scoring.encoders.encoder import CachedEncoder


def best_score(
    settings: GateSettings,
    texts: Sequence[str],
    encoder: CachedEncoder | None,
    logprobs: Sequence[float | None],
) -> float:
    """Score answers as a gate does, and return the score of the one that it would select; 0.0 where all are blank,
    or where the gate's encoder does not read one.

    Parameters
    ----------
    texts : at least as many as the gate's scorer needs.
    encoder : it remembers the texts, so that the decision about them does not encode them again. Blocks.

    Raises
    ------
    ValueError
        When the encoder is not the gate's, or the scorer cannot score these.
    Unavailable, EncoderGivenUp
        From the encoder.
    """
    blank = settings.form.blank(texts)
    if all(blank):
        return 0.0
    if settings.of_event is not None:
        made = settings.scores_by.of_given(logprobs, blank)
        if made is None:
            raise ValueError("the upstream gave an answer without log-probabilities")
        return max(made[0])
    if encoder is None or encoder.identity.id != settings.encoder:
        raise ValueError(f"the gate's encoder is {settings.encoder}, which does not run here")
    (vectors,) = encoder.embed([settings.form.parts(texts)])
    batch = answer_batch(list(texts), vectors, blank, encoded=True, form=settings.form)
    if settings.signal_list is None and settings.scores_by.holds(batch):
        return 0.0
    scores = settings.scores_by.with_raw(batch)[0]
    return max(float(score) for score, empty in zip(scores, blank, strict=True) if not empty)
