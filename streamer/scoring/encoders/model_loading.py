"""Load a sentence-transformers model from a folder: float32, safetensors, no foreign code, no noise."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamer.errors import UsageError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_PROBES = ("Paris", "The capital of France is Paris, and it has been for a long time.", "Paris? " * 100)
_AGREEMENT = 1e-5
"""A faster product must give the reference's vectors to within this, in every number."""


def resolve_device(device: str) -> str:
    """The device that torch is to use for the setting `device`; ``auto`` takes a GPU if there is one.

    Raises `UsageError` where there is no such device here.
    """
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise UsageError(f"{device!r} is not a device: use auto, cpu, cuda, cuda:1 or mps") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "no GPU is visible to torch: use the device cpu, or install a CUDA build and its driver"
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UsageError("this machine has no Metal device: use the device cpu")
    return device


def load_sentence_transformer(folder: Path, device: str) -> SentenceTransformer:
    """The model in `folder`, in float32 and ready for inference on `device`.

    On CPU its linear layers are packed (see `streamer.scoring.encoders.packed_linear`) where that agrees with the
    plain ones. Raises `UsageError` where the folder does not hold a model that can be loaded.
    """
    with quiet_libraries():
        model = _load(folder, device)
        if device == "cpu" and not _pack(model):
            model = _load(folder, device)
    return model


def _load(folder: Path, device: str) -> SentenceTransformer:
    import torch
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer

    # 'medium' would let matrix products drop to bfloat16, silently.
    torch.set_float32_matmul_precision("highest")
    try:
        model = SentenceTransformer(
            str(folder),
            device=device,
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"dtype": torch.float32, "use_safetensors": True},
        )
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, SafetensorError) as error:
        raise UsageError(f"the encoder in {folder} cannot be loaded: {error}") from error
    return model.float().eval()


def _pack(model: SentenceTransformer) -> bool:
    """Pack the linear layers in place; False: this is not to be used, load the model again."""
    from streamer.scoring.encoders.packed_linear import pack_linear_layers, packing_is_available

    if not packing_is_available():
        return True
    plain = model.encode(list(_PROBES), show_progress_bar=False)
    try:
        pack_linear_layers(model)
        packed = model.encode(list(_PROBES), show_progress_bar=False)
    except (RuntimeError, NotImplementedError, TypeError, AttributeError):
        return False
    return bool(np.allclose(packed, plain, rtol=0.0, atol=_AGREEMENT))


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Without progress bars, and without the libraries' advice on standard error, while a model loads."""
    loggers = [
        logging.getLogger(name) for name in ("transformers", "sentence_transformers", "huggingface_hub")
    ]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.utils import logging as transformers_logging

        bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.disable_progress_bar()
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            if bars:
                transformers_logging.enable_progress_bar()
