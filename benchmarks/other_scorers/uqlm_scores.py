# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = [
#   "uqlm==0.6.7",
#   "pyarrow<21",  # uqlm wants NumPy 1 below Python 3.13, and later releases want NumPy 2
# ]
# ///
"""uqlm's black-box scorers that need no model but the packaged encoder: a program for `score_table --others`.

Reads clouds from standard input, one JSON object ``{"texts": [...]}`` a line, and writes one object a line: for each scorer a
number for each answer, higher is safer. uqlm scores one response beside sampled ones: here each answer in turn is that response.
"""

import json
import sys

import numpy as np
from uqlm.black_box import CosineScorer, MatchScorer


class Remembered:
    """A sentence-transformers model that encodes each text once: uqlm encodes an answer again for each pair."""

    def __init__(self, model):
        self._model = model
        self._rows = {}

    def encode(self, texts):
        missing = [text for text in dict.fromkeys(texts) if text not in self._rows]
        if missing:
            rows = self._model.encode(missing, show_progress_bar=False)
            self._rows.update(zip(missing, rows, strict=True))
        return np.array([self._rows[text] for text in texts])


def main() -> None:
    clouds = [json.loads(line)["texts"] for line in sys.stdin]
    responses = [text for texts in clouds for text in texts]
    others = [texts[:i] + texts[i + 1 :] for texts in clouds for i in range(len(texts))]
    cosine = CosineScorer(transformer=sys.argv[1])
    cosine.model = Remembered(cosine.model)
    cosine.model.encode([text[: cosine.max_length] for text in responses])
    found = {
        "uqlm exact_match": iter(MatchScorer().evaluate(responses, others)),
        "uqlm cosine_sim": iter(cosine.evaluate(responses, others)),
    }
    for texts in clouds:  # a cosine in float32 may be 1.0000001
        print(
            json.dumps(
                {name: [min(1.0, float(next(scores))) for _ in texts] for name, scores in found.items()}
            )
        )


if __name__ == "__main__":
    main()
