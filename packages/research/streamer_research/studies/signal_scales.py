"""The scale of each signal: ``python -m streamer_research.studies.signal_scales FILE...``.

Prints the mean and the standard deviation, to two digits, that `streamer.scoring.signals` has frozen: over the written answers
of response clouds, every file counting alike.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamer.calibration.signal_order import SIGNALS
from streamer.clouds.cloud import Cloud
from streamer.clouds.cloud_files import read_clouds
from streamer.research.experiments.score_cache import measured_batches, own_embeddings
from streamer.research.experiments.stored_encoder import EMBEDDINGS_FOLDER, StoredEncoder
from streamer.scoring.encoders.registry import DEFAULT_ENCODER
from streamer.scoring.scorer import AnswerBatch
from streamer.scoring.signals.alone import question_overlap
from streamer.scoring.signals.measured import Measured
from streamer.scoring.signals.signal_list import MEASURED


def scales(paths: Sequence[Path], folder: Path) -> list[tuple[str, float, float]]:
    """Return name, mean and standard deviation of each signal, not rounded. The questions of the files are known."""
    files = []

    def measure(batch: AnswerBatch, cloud: Cloud) -> NDArray[np.float64]:
        measured = Measured(batch, cloud.question)
        found = np.array([one.of(measured)[measured.written] for one in MEASURED])
        if not cloud.question:
            found[MEASURED.index(question_overlap)] = np.nan
        return found

    for path in paths:
        clouds = list(read_clouds(path, needs_answers=True))
        encoder = (
            None if own_embeddings(clouds) else StoredEncoder(DEFAULT_ENCODER, folder=folder, strict=False)
        )
        found = measured_batches(clouds, encoder, measure)
        together = np.hstack([one for one in found if one is not None])
        known = ~np.isnan(together).any(axis=1)
        files.append(np.where(known, [together.mean(axis=1), (together**2).mean(axis=1)], np.nan))
    means, squares = np.nanmean(files, axis=0)
    deviations = np.sqrt(np.maximum(squares - means**2, 0.0))
    return list(zip(SIGNALS, means.tolist(), deviations.tolist(), strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(description="Measure the scale of each signal.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--embeddings", type=Path, default=EMBEDDINGS_FOLDER)
    options = parser.parse_args(arguments)
    for name, mean, deviation in scales(options.files, options.embeddings):
        sys.stdout.write(f"{name:20} mean={mean:.2g} deviation={deviation:.2g}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
