"""How long the signals of a batch take: ``python benchmarks/signals.py``.

Processor time of one thread, without the encoder: the least of many runs, so that what else the machine does hardly counts. Exit
status 1 where ten answers of 200 words take more than `MOST_MILLISECONDS`.
"""

import argparse
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is there

import numpy as np

from streamer.labels.answer_forms import answer_batch
from streamer.scoring.scorer import AnswerBatch
from streamer.scoring.signals.measured import Measured
from streamer.scoring.signals.signal_list import SignalList, choice_scores

MOST_MILLISECONDS = 5.0
KINDS = ((10, 12), (10, 200), (20, 12), (20, 400), (100, 50))
"""Answers and words."""


def answers(count: int, words: int) -> AnswerBatch:
    """Answers that share most of their words, as those of one model do."""
    rng = np.random.default_rng([count, words])
    letters, weights = list("etaoinshrdlucmfwypvbgkjqxz"), 1.0 / np.arange(2, 28)
    vocabulary = [
        "".join(rng.choice(letters, rng.integers(1, 10), p=weights / weights.sum())) for _ in range(4 * words)
    ]
    base = rng.choice(vocabulary, words)
    texts = [
        " ".join(np.where(rng.random(words) < 0.3, rng.choice(vocabulary, words), base)).capitalize()
        + f", {one % 3}."
        for one in range(count)
    ]
    return answer_batch(texts, rng.normal(size=(count, 384)), [False] * count)


def milliseconds(batch: AnswerBatch, runs: int) -> float:
    """The least processor time of all signals and the choice."""
    found = []
    for _ in range(runs):
        again = answer_batch(batch.texts, batch.embeddings, batch.blank)  # normal forms are kept with a batch
        start = time.process_time()
        measured = Measured(again, "What is it?")
        SignalList().of_measured(measured)
        choice_scores(measured)
        found.append(time.process_time() - start)
    return 1000 * min(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the runs")
    runs = 20 if parser.parse_args().short else 200
    passed = True
    for count, words in KINDS:
        took = milliseconds(answers(count, words), runs)
        held = (count, words) == (10, 200)
        passed &= not held or took <= MOST_MILLISECONDS
        print(
            f"{count:4} answers of {words:3} words: {took:6.2f} ms"
            + (f" (at most {MOST_MILLISECONDS:g})" if held else "")
        )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
