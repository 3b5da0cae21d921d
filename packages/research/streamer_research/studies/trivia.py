"""The answers behind the README's figure, from the public file that has them:
``python -m streamer_research.studies.trivia demo_data.pkl trivia.jsonl``.

The file is ``notebook/demo_data.pkl`` of github.com/zlin7/UQ-NLG (MIT): 500 questions of TriviaQA, 20 answers of LLaMA 13B each.
"""

import json
import pickle
import sys
from pathlib import Path
from typing import Any


class Plain(pickle.Unpickler):
    """Reads texts, lists and dicts, and refuses whatever would run code."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse."""
        raise pickle.UnpicklingError(f"{module}.{name} is no plain value")


def clouds(path: Path) -> list[dict[str, Any]]:
    """Return the questions as response clouds without severities."""
    with path.open("rb") as file:
        rows = Plain(file).load()
    return [
        {
            "question_id": row["id"],
            "question": row["question"],
            "references": [row["answer"]],
            "responses": [{"text": text.strip()} for text in row["generations"]["text_cleaned"]],
        }
        for row in rows
    ]


if __name__ == "__main__":
    source, out = map(Path, sys.argv[1:])
    out.write_text("".join(json.dumps(one) + "\n" for one in clouds(source)))
