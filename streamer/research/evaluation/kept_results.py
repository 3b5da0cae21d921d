"""Results under a hash of everything that they depend on, so that a second run of the same finds them there."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

import streamer
from streamer.clouds.line_record import append_lines, read_lines
from streamer.research.evaluation.data_sets import DataSet
from streamer.research.evaluation.results import Evaluation, Options

_CODE = (
    "calibration/**/*.py",
    "report/charts.py",
    "research/evaluation/measures.py",
    "research/evaluation/ranking.py",
    "research/evaluation/results.py",
    "research/evaluation/run.py",
    "clouds/spreads.py",
    "clouds/cloud.py",
    "scoring/signals/*.py",
    "clouds/compared_methods.py",
    "clouds/halves.py",
    "clouds/measurement.py",
    "clouds/offline.py",
    "gates/*.py",
)


def results_key(data_sets: Sequence[DataSet], options: Options) -> str:
    """Return SHA-256, hexadecimal, of the data, their scores, the options and the code that evaluates."""
    content = [
        options,
        [
            [
                data.name,
                data.source,
                data.digest,
                data.encoder,
                data.judge,
                data.notes,
                data.scores,
                [
                    (one.scores, None if one.row is None else one.row.tobytes())
                    for some in data.chosen.values()
                    for one in some
                ],
            ]
            for data in data_sets
        ],
        _code_digest(),
    ]
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


def kept_evaluation(folder: Path, key: str) -> Evaluation | None:
    """Return the results under `key`; None where there are none, or where they are damaged."""
    for found in read_lines(_place(folder, key), strict_type=Evaluation):
        if isinstance(found, Evaluation) and found.key == key:
            return found
    return None


def keep_evaluation(folder: Path, evaluation: Evaluation) -> None:
    """Write results under their key."""
    place = _place(folder, evaluation.key)
    place.unlink(missing_ok=True)
    append_lines(place, [evaluation])


def _place(folder: Path, key: str) -> Path:
    return folder / f"{key[:32]}.json"


def _code_digest() -> str:
    root = Path(streamer.__file__).parent
    digest = hashlib.sha256()
    for pattern in _CODE:
        for path in sorted(root.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
