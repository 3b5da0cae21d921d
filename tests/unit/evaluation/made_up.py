"""Files of response clouds that bring their embeddings along, so that nothing has to be encoded."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np


def rows(count: int = 40, answers: int = 4, *, seed: int = 1, judged: bool = False) -> list[dict[str, Any]]:
    """Questions whose answers agree the more the finer they are; some answers are blank."""
    rng = np.random.default_rng(seed)
    made = []
    for q in range(count):
        quality = rng.random()
        centre = rng.normal(size=6)
        responses = []
        for i in range(answers):
            bad = float(rng.random() > quality)
            vector = centre + (0.2 + 1.5 * bad) * rng.normal(size=6)
            meta: dict[str, Any] = {"label_kind": "human", "model": "made-up"}
            if judged:
                meta["judge_score"] = round(float(np.clip(0.9 - 0.5 * bad + 0.2 * rng.normal(), 0, 1)), 2)
                meta["luck"] = round(float(rng.random()), 3)
            blank = q and rng.random() < 0.04
            responses.append(
                {
                    "text": " " if blank else f"answer {i} to {q}: {'wrong' if bad else 'right'}",
                    "label": bad,
                    "meta": meta,
                    "embedding": [round(float(x), 5) for x in vector],
                }
            )
        made.append({"question_id": f"q{q}", "question": f"question {q}?", "responses": responses})
    return made


def write(path: Path, clouds: list[dict[str, Any]]) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in clouds)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path
