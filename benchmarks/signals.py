"""How long the signals of a batch take: ``python benchmarks/signals.py``.

Processor time of one thread, without the encoder: the least of many runs, so that what else the machine does hardly counts.
Beside it, in turns, what one plain count of the same answers' character sequences takes, as chrF needs them. Exit status 1
where for ten answers of 200 words all signals take more than `MOST_COUNTS` of it, whatever the machine.
"""

import argparse
import os
import sys
import time
from collections import Counter

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is there

import numpy as np

from streamer.labels.answer_forms import answer_batch
from streamer.scoring.scorer import AnswerBatch
from streamer.scoring.signals.measured import LONGEST_GRAM, Measured
from streamer.scoring.signals.signal_list import SignalList, choice_scores

MOST_COUNTS = 1.0
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


def signals(batch: AnswerBatch) -> None:
    """All signals and the choice."""
    measured = Measured(batch, "What is it?")
    SignalList().of_measured(measured)
    choice_scores(measured)


def counts(batch: AnswerBatch) -> None:
    """Each answer's sequences of up to `LONGEST_GRAM` characters, counted one by one."""
    for text in batch.texts:
        for length in range(1, LONGEST_GRAM + 1):
            Counter(text[start : start + length] for start in range(len(text) - length + 1))


def milliseconds(batch: AnswerBatch, runs: int) -> tuple[float, float]:
    """The least processor time of `signals` and of `counts`, in turns."""
    least = [float("inf")] * 2
    for _ in range(runs):
        again = answer_batch(batch.texts, batch.embeddings, batch.blank)  # normal forms are kept with a batch
        for place, work in enumerate((signals, counts)):
            start = time.process_time()
            work(again)
            least[place] = min(least[place], 1000 * (time.process_time() - start))
    return least[0], least[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the runs")
    runs = 20 if parser.parse_args().short else 200
    passed = True
    for count, words in KINDS:
        took, plain = milliseconds(answers(count, words), runs)
        held = (count, words) == (10, 200)
        passed &= not held or took <= MOST_COUNTS * plain
        print(
            f"{count:4} answers of {words:3} words: {took:6.2f} ms, {took / plain:.2f} plain counts"
            + (f" (at most {MOST_COUNTS:g})" if held else "")
        )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
