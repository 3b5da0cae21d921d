"""Scores of a file of response clouds, kept beside the work so that they are computed once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from streamer.experiments.clouds import read_clouds
from streamer.experiments.offline import ScoredCloud, score_clouds

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamer.scoring.encoder import CachedEncoder

SCORES_FOLDER = Path(".streamer/scores")
"""Where scores are kept unless a command is told otherwise."""

_decoder = msgspec.json.Decoder(dict[str, tuple[float, ...] | None])


def scored_file(
    path: Path, *, encoder_id: str, load_encoder: Callable[[], CachedEncoder], folder: Path = SCORES_FOLDER
) -> list[ScoredCloud]:
    """Return the clouds of a file with their scores, in its order.

    Scores are kept in `folder` under a hash of the file's bytes and the encoder's identity. They are rounded to
    1e-6, so that what is read back is what was computed; a record that is damaged is made anew.

    Parameters
    ----------
    path : response clouds, plain or gzip.
    encoder_id : identity of the encoder, ``name@hash``.
    load_encoder : called only when there is no record yet; loading takes seconds.
    folder : made if it is not there.

    Raises
    ------
    UsageError
        If the file cannot be read or a line is not a cloud.
    """
    clouds = list(read_clouds(path))
    key = hashlib.sha256(path.read_bytes() + b"\0" + encoder_id.encode()).hexdigest()[:32]
    record = folder / f"{key}.json"
    kept = _read(record)
    if kept is not None and kept.keys() == {cloud.batch_id for cloud in clouds}:
        return [ScoredCloud(cloud, kept[cloud.batch_id]) for cloud in clouds]
    scored = score_clouds(clouds, load_encoder())
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = record.with_suffix(".part")
    unfinished.write_bytes(msgspec.json.encode({item.cloud.batch_id: item.scores for item in scored}))
    unfinished.replace(record)
    return scored


def _read(record: Path) -> dict[str, tuple[float, ...] | None] | None:
    try:
        return _decoder.decode(record.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None
