"""Scores of response clouds by every label-free scorer, kept beside the work so that they are computed once."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamer.clouds.cloud import Cloud
from streamer.clouds.line_files import append_lines, read_lines
from streamer.errors import UsageError
from streamer.labels.answer_forms import answer_batch
from streamer.scoring.judged import WHOLE, Form
from streamer.scoring.plugins import checked_scores, frozen, loaded
from streamer.scoring.registry import SCORER_NAMES, SCORERS
from streamer.scoring.scorer import AnswerBatch

SCORES_FOLDER = Path(".streamer/scores")
"""Where scores are kept unless a command is told otherwise."""

OWN_EMBEDDINGS = "embeddings of the file"
"""The encoder of clouds that bring their embeddings along."""

_VERSION = "6"
"""Raised when a scorer changes: older records are then no longer read."""

_CLOUDS_AT_ONCE = 64
"""That are written down together."""
_CLOUDS_A_CALL = 1000
"""That are embedded together: what embeds may read all that it has kept each time."""

Floats: TypeAlias = "NDArray[np.float64]"
CloudScores = dict[str, tuple[float, ...]]
Measure = TypeVar("Measure")


class Embeds(Protocol):
    """What turns texts into the rows that scorers compare."""

    def embed(self, batches: Sequence[Sequence[str]], /) -> Sequence[ArrayLike]:
        """Return an array of shape (n, d) for each batch of n texts."""


class _Line(msgspec.Struct):
    key: str
    scores: CloudScores | None


def every_score(
    clouds: Sequence[Cloud],
    *,
    encoder_id: str,
    load_encoder: Callable[[], Embeds],
    folder: Path = SCORES_FOLDER,
    form: Form = WHOLE,
    progress: Callable[[int], None] = lambda _done: None,
) -> list[CloudScores | None]:
    """Return the scores of each cloud by each scorer; None for a cloud whose answers are all blank.

    Scores are kept in `folder`, one line a cloud, under a hash of its texts (or embeddings) and the encoder's identity.
    They are rounded to 1e-6, so that what is read back is what was computed; a damaged line is computed again. A
    run that is ended keeps what it had. Raises `UsageError` if some clouds have embeddings and
    others do not, or of another dimension.

    `clouds`: with embeddings of their own, all or none of them. `encoder_id`: identity of the
    encoder, ``name@hash``. `load_encoder`: called only when something has to be encoded; loading
    takes seconds. `folder`: made if it is not there. `progress`: called with the number of clouds
    done.
    """
    own = own_embeddings(clouds)
    keys = [_key(cloud, OWN_EMBEDDINGS if own else encoder_id, form) for cloud in clouds]
    record = folder / f"{hashlib.sha256(chr(10).join(sorted(keys)).encode()).hexdigest()[:32]}.jsonl"
    kept = {
        line.key: line.scores
        for line in read_lines(record, strict_type=_Line)
        if line.scores is None or line.scores.keys() == set(SCORER_NAMES)
    }
    missing = [
        (key, cloud)
        for key, cloud in zip(keys, clouds, strict=True)
        if key not in kept or not _fits(kept[key], cloud, form)
    ]
    if len(missing) < len(clouds):
        progress(len(clouds) - len(missing))
    done = len(clouds) - len(missing)
    encoder = None if own or not missing else load_encoder()
    made = measured_batches([cloud for _, cloud in missing], encoder, _scores, form)
    lines = (_Line(key, found) for (key, _), found in zip(missing, made, strict=True))
    while some := list(islice(lines, _CLOUDS_AT_ONCE)):
        append_lines(record, some)
        kept |= {line.key: line.scores for line in some}
        done += len(some)
        progress(done)
    return [kept[key] for key in keys]


def _scores(batch: AnswerBatch, cloud: Cloud) -> CloudScores | None:
    """Score one cloud by every scorer; None where the encoder did not read an answer."""
    if any(one.holds(batch) for one in SCORERS):
        return None
    return {one.name: tuple(one.score(batch).tolist()[: len(cloud.responses)]) for one in SCORERS}


def _answers(cloud: Cloud, embeddings: ArrayLike, form: Form) -> AnswerBatch | None:
    """What scorers see of a cloud; None where all answers are blank, or there is one alone."""
    of = cloud.samples
    if all(form.blank(cloud.texts)) or len(of.responses) < 2:
        return None
    return answer_batch(
        of.texts, embeddings, form.blank(of.texts), of.models, encoded=not of.embedded, form=form
    )


def package_scores(
    name: str, clouds: Sequence[Cloud], encoder: Embeds | None, form: Form = WHOLE
) -> list[tuple[float, ...] | None]:
    """Score each cloud by an installed package's scorer, as a gate's worker does; None for one whose answers are all blank.

    Parameters are those of `measured_batches`. Raises `UsageError` where the scorer is not installed, or fails.
    """
    try:
        scorer = loaded(frozen(name))
        scores = measured_batches(
            clouds, encoder, lambda batch, _: None if batch.not_read else checked_scores(scorer, batch), form
        )
        return [
            None if one is None else tuple(one.tolist()[: len(cloud.responses)])
            for one, cloud in zip(scores, clouds, strict=True)
        ]
    except ValueError as error:
        raise UsageError(f"--scorers {name}: {error}") from None


def measured_batches(
    clouds: Sequence[Cloud],
    encoder: Embeds | None,
    measure: Callable[[AnswerBatch, Cloud], Measure],
    form: Form = WHOLE,
) -> Iterator[Measure | None]:
    """Yield what `measure` makes of the answers of each cloud; None where all are blank.

    `encoder` keeps what it has encoded; None: the clouds bring embeddings of their own.
    """
    for first in range(0, len(clouds), _CLOUDS_A_CALL):
        some = clouds[first : first + _CLOUDS_A_CALL]
        vectors: Sequence[ArrayLike] = (
            [[r.embedding or () for r in cloud.responses] for cloud in some]
            if encoder is None
            else encoder.embed([form.parts(cloud.samples.texts) for cloud in some])
        )
        for cloud, rows in zip(some, vectors, strict=True):
            batch = _answers(cloud, rows, form)
            yield None if batch is None else measure(batch, cloud)


def own_embeddings(clouds: Sequence[Cloud]) -> bool:
    """Report whether the clouds bring their embeddings along, all of one dimension."""
    dimensions: dict[int, str] = {}
    for cloud in clouds:
        vector = cloud.responses[0].embedding
        dimensions.setdefault(0 if vector is None else len(vector), cloud.question_id)
    if len(dimensions) > 1:
        told = ", ".join(
            f"{f'dimension {size}' if size else 'no embedding'} (question {question!r})"
            for size, question in sorted(dimensions.items())
        )
        raise UsageError(
            f"embeddings are of one encoder or are not there at all, and these are mixed: {told}; give every response "
            "an embedding of one dimension, or none any"
        )
    return 0 not in dimensions and bool(clouds)


def _key(cloud: Cloud, encoder_id: str, form: Form) -> str:
    witnesses = [one.text for one in cloud.witnesses]
    content = [
        _VERSION,
        form.text,
        encoder_id,
        cloud.texts,
        witnesses,
        [r.embedding for r in cloud.responses],
    ]
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:32]


def _fits(scores: CloudScores | None, cloud: Cloud, form: Form) -> bool:
    """Report whether a record is one of this cloud, as far as can be seen without computing it."""
    if scores is None:
        return all(form.blank(cloud.texts)) or len(cloud.samples.responses) < 2
    return all(
        len(one) == len(cloud.responses) and all(0 <= score <= 1 for score in one) for one in scores.values()
    )
