"""TriviaQA in letters that the encoder does not know, under a threshold of answers that it reads, and with labels of its own."""

import string

import numpy as np
import pytest

from streamer import calibrate
from streamer.calibration.full_fit import allowed, fit_full
from streamer.clouds.offline import ScoredCloud
from streamer.labels.answer_forms import answer_batch
from streamer.scoring.blank import is_blank
from streamer.scoring.encoders.encoder import CachedEncoder, Encoder
from streamer.scoring.encoders.registry import load_encoder
from streamer.scoring.registry import EVERY
from streamer.scoring.signals import words
from streamer.scoring.signals.measured import Measured
from streamer.scoring.signals.signal_list import SignalList, choice_scores

pytestmark = [pytest.mark.slow, pytest.mark.encoder]

ALPHA, LABELS = 0.1, 60
ETHIOPIC = {ord(one): chr(0x1200 + 8 * place) for place, one in enumerate(string.ascii_lowercase)}


def swapped(text: str) -> str:
    return text.lower().translate(ETHIOPIC)


def best(scores: np.ndarray, severities: np.ndarray) -> tuple[float, float]:
    return float(scores.max()), float(severities[scores.argmax()])


def level(found: np.ndarray) -> float:
    """The threshold of some prompts, shape (G, 2): score and severity."""
    return calibrate(found[:, 0], found[:, 1], np.arange(len(found)), alpha=ALPHA).value


def test_no_threshold_meets_it_and_its_own_labels_ship_it(
    trivia: list[ScoredCloud], real_encoder: Encoder
) -> None:
    clouds = [one.cloud for one in trivia]
    severities = [np.array([answer.severity for answer in cloud.responses]) for cloud in clouds]
    texts = [list(map(swapped, cloud.texts)) for cloud in clouds]
    blank = [list(map(is_blank, some)) for some in texts]
    lenient = CachedEncoder(load_encoder(strict=False)).embed(texts)
    strict = CachedEncoder(real_encoder).embed(texts)
    read = np.array(
        [best(np.array(one.scores), some) for one, some in zip(trivia, severities, strict=True) if one.scores]
    )
    other, by_words, rows, chosen = [], [], [], []
    for cloud, some, empty, bare, rows_of, severity in zip(
        clouds, texts, blank, lenient, strict, severities, strict=True
    ):
        other.append(best(EVERY["gram"].score(answer_batch(some, bare, empty)), severity))
        batch = answer_batch(some, rows_of, empty, encoded=True)
        assert set(batch.not_read) <= {"unread", None}
        assert any(batch.not_read), "no threshold meets it: served 0, exposure 0"
        measured = Measured(batch, swapped(cloud.question))
        place = int(choice_scores(measured).argmax())
        by_words.append(best(words.rouge_1.of(measured), severity))
        rows.append(SignalList().of_measured(measured)[place])
        chosen.append(severity[place])
    unread, lexical = np.array(other), np.array(by_words)

    rng, found = np.random.default_rng(8), []
    for _ in range(200):
        ships = unread[:, 0] > level(read[rng.permutation(len(read))[:250]])
        order = rng.permutation(len(rows))
        mine, rest = order[:LABELS], order[LABELS:]
        bad = rng.random(len(rows)) < chosen
        ours = fit_full(np.array(rows)[mine], bad[mine]).counts(np.array(rows)[rest]) <= allowed(
            ALPHA, LABELS
        )
        rouge = lexical[rest, 0] > level(lexical[mine])
        found.append(
            (
                ships.mean(),
                (ships * unread[:, 1]).mean(),
                ours.mean(),
                (ours * bad[rest]).mean(),
                rouge.mean(),
            )
        )
    served, exposed, ours_served, ours_exposed, rouge_served = np.mean(found, axis=0)
    print(np.round(np.mean(found, axis=0), 3))
    assert served > 0.95, "without the rule it ships as if it were read"
    assert exposed > 4 * ALPHA
    assert ours_exposed < ALPHA + 3 * np.std(found, axis=0)[3] / len(found) ** 0.5
    assert ours_served > rouge_served - 0.03, "all signals lose little to the one that is known to be good"
