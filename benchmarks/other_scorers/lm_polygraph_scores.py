# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["lm-polygraph==0.7.0"]
# ///
"""lm-polygraph's black-box estimators that need no model: a program for `score_table --others`.

Reads clouds from standard input, one JSON object ``{"texts": [...]}`` a line, and writes one object a line: for each estimator a
number for each answer, higher is safer. These speak of the prompt: all its answers have the same number, which is the
uncertainty u of the estimator turned round, so that it lies in [0, 1].
"""

import json
import sys

import numpy as np
from lm_polygraph.estimators import DegMat, Eccentricity, EigValLaplacian, LexicalSimilarity

ESTIMATORS = {
    "lm-polygraph LexicalSimilarity rouge1": (LexicalSimilarity("rouge1"), lambda u: -u),
    "lm-polygraph LexicalSimilarity rougeL": (LexicalSimilarity("rougeL"), lambda u: -u),
    "lm-polygraph EigValLaplacian Jaccard": (EigValLaplacian("Jaccard_score"), lambda u: 1 / max(u, 1.0)),
    "lm-polygraph DegMat Jaccard": (DegMat("Jaccard_score"), lambda u: 1 - u),
    "lm-polygraph Eccentricity Jaccard": (Eccentricity("Jaccard_score"), lambda u: 1 / (1 + u)),
}


def main() -> None:
    for line in sys.stdin:
        texts = json.loads(line)["texts"]
        found = {}
        for name, (estimator, turned) in ESTIMATORS.items():
            score = float(turned(float(estimator({"sample_texts": [texts]})[0])))
            found[name] = [float(np.clip(score, 0, 1))] * len(texts)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
