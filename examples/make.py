"""Write the files of this folder: answers made up by the simulation, scored by the default encoder.

`python examples/make.py`, from the root of a source checkout.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from streamer.clouds.simulation import SIMULATED_KIND, simulate_clouds
from streamer.scoring.gram import score_batch
from streamer.security.csv_cells import CsvTable
from streamer_research.studies.command_arguments import default_encoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamer.clouds.cloud import Cloud

HERE = Path(__file__).parent
PAST, NEW, ANSWERS, SEED = 80, 20, 5, 4
COLUMNS = ("gate", "batch_id", "response_id", "prompt", "response", "score", "severity", "kind", "labeller")


def write(folder: Path) -> None:
    """Write the files into `folder`."""
    clouds = simulate_clouds(seed=SEED, clouds=PAST + NEW, responses=ANSWERS)
    past, new = clouds[:PAST], clouds[PAST:]
    (folder / "answers.jsonl").write_text(lines(past), "utf-8")
    (folder / "new-answers.jsonl").write_text(lines(new), "utf-8")
    with (folder / "labelled.csv").open("w", encoding="utf-8", newline="") as file:
        table = CsvTable(file)
        table.write(COLUMNS)
        encoder = default_encoder()
        for cloud in past:
            (vectors,) = encoder.embed([cloud.texts])
            for response, score in zip(cloud.responses, score_batch(vectors, None)[0], strict=True):
                about = (cloud.question, response.text, f"{score:.4f}", response.severity)
                table.write(("quiz", cloud.batch_id, response.id, *about, SIMULATED_KIND, "simulation"))

    write_wide(folder / "wide.csv", past)
    (folder / "batches.jsonl").write_text("".join(map(batch, past)), "utf-8")
    (folder / "labels.json").write_text("[\n" + ",\n".join(labels(past)) + "\n]\n", "utf-8")


def write_wide(path: Path, clouds: Sequence[Cloud]) -> None:
    """Write a table as people have them: a row for each prompt, "yes" and "no", and a fifth of these still missing."""
    numbers = range(1, ANSWERS + 1)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = CsvTable(file)
        table.write(("ID", "Question", *(f"Answer {i}" for i in numbers), *(f"Correct {i}" for i in numbers)))
        for row, cloud in enumerate(clouds):
            correct = [
                "" if (row + 2 * i) % 5 == 0 else "no" if response.severity else "yes"
                for i, response in enumerate(cloud.responses)
            ]
            table.write((cloud.batch_id, cloud.question, *cloud.texts, *correct))


def batch(cloud: Cloud) -> str:
    """A request to decide, on one line."""
    asked = {"batch_id": cloud.batch_id, "prompt": cloud.question, "responses": list(cloud.texts)}
    return json.dumps(asked, ensure_ascii=False) + "\n"


def labels(clouds: Sequence[Cloud]) -> Iterator[str]:
    """The severities of the answers of such requests, whose ids are their places."""
    for cloud in clouds:
        for place, response in enumerate(cloud.responses):
            label = {"batch_id": cloud.batch_id, "response_id": str(place), "severity": response.severity}
            yield json.dumps(label | {"kind": SIMULATED_KIND, "labeller": "simulation"})


def lines(clouds: Sequence[Cloud]) -> str:
    """Write response clouds without severities, one JSON object a line."""
    return "".join(
        json.dumps(
            {
                "question_id": cloud.question_id,
                "question": cloud.question,
                "references": list(cloud.references),
                "responses": [{"text": response.text} for response in cloud.responses],
            },
            ensure_ascii=False,
        )
        + "\n"
        for cloud in clouds
    )


if __name__ == "__main__":
    write(HERE)
