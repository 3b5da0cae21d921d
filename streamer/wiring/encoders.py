"""Encoders from settings: those that run here, and those that are asked for at an endpoint."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from streamer.errors import UsageError
from streamer.gates.settings import NO_ENCODER
from streamer.settings.settings import Settings

if TYPE_CHECKING:
    from streamer.labels.llm.embeddings import EmbeddingsEndpoint
    from streamer.scoring.encoders.encoder import CachedEncoder
    from streamer.scoring.encoders.endpoint_encoder import EndpointEncoder
    from streamer.scoring.encoders.identity import EncoderIdentity

_LONGEST_DELAY = 10.0
"""Seconds that an endpoint may ask to wait: with a worker's one attempt, short of the time that a stop may take."""


def encoder(
    settings: Settings, *, in_worker: bool = False, report_status: Callable[[bool], None] = lambda _up: None
) -> CachedEncoder | None:
    """Load the encoder, which takes seconds, behind its cache; None when there is to be none.

    `in_worker` : of an endpoint one attempt a call, for the worker calls again after `Unavailable`,
    and `EncoderGivenUp` after the configured wait; it need not answer at the start if the name
    gives the dimension.
    """
    from streamer.scoring.encoders.encoder import CachedEncoder
    from streamer.scoring.encoders.registry import load_encoder

    chosen = settings.encoder
    if chosen.name == NO_ENCODER:
        return None
    loaded = endpoint_encoder(settings, in_worker=in_worker, report_status=report_status) or load_encoder(
        chosen.name, device=chosen.device, threads=chosen.threads
    )
    return CachedEncoder(loaded, capacity_texts=chosen.cache_texts)


def load_candidate_encoder(settings: Settings, *, in_worker: bool = False) -> CachedEncoder | None:
    """Load the encoder that the settings name beside their own, as `encoder`; None where they name none."""
    if settings.encoder.candidate is None:
        return None
    other = settings.encoder.model_copy(update={"name": settings.encoder.candidate})
    return encoder(settings.model_copy(update={"encoder": other}), in_worker=in_worker)


def encoder_identity(settings: Settings, name: str | None = None) -> EncoderIdentity:
    """Return the identity of an encoder; None: of the configured one.

    One text is sent for it where an endpoint's dimension is not part of the name.
    """
    from streamer.scoring.encoders import registry
    from streamer.scoring.encoders.endpoint_encoder import endpoint_identity, is_endpoint_name, parted_name

    named = settings.encoder.name if name is None else name
    if not is_endpoint_name(named):
        return registry.encoder_identity(named)
    base, dimension = parted_name(named)
    if dimension is not None:
        return endpoint_identity(base, dimension, _endpoint(settings, named).host)
    asked = endpoint_encoder(settings, named)
    if asked is None:
        raise AssertionError("an endpoint's name has an encoder")
    with closing(asked):
        return asked.identity


def what_it_reads(settings: Settings) -> tuple[int | None, dict[str, bool]]:
    """Of the configured encoder, which runs here; see `streamer.scoring.encoders.registry.what_it_reads`."""
    from streamer.scoring.encoders import registry

    return registry.what_it_reads(settings.encoder.name)


def endpoint_encoder(
    settings: Settings,
    name: str | None = None,
    *,
    in_worker: bool = False,
    report_status: Callable[[bool], None] = lambda _up: None,
) -> EndpointEncoder | None:
    """Return the encoder of this name, None: the configured one, if it is asked for at an endpoint. Close it.

    Raises `UsageError` where no endpoint is configured, or it takes no request; `Unavailable` where
    it does not answer, and the name does not give the dimension.
    """
    from streamer.scoring.encoders.endpoint_encoder import EndpointEncoder, is_endpoint_name

    named = settings.encoder.name if name is None else name
    if not is_endpoint_name(named):
        return None
    from streamer.labels.llm.embeddings import Embeddings

    endpoint = _endpoint(settings, named)
    requests = Embeddings(replace(endpoint, tries=1) if in_worker else endpoint)
    try:
        return EndpointEncoder(
            requests,
            named,
            wait=settings.encoder.wait_seconds if in_worker else math.inf,
            start_without=in_worker,
            report_status=report_status,
        )
    except BaseException:
        requests.close()
        raise


def _endpoint(settings: Settings, name: str) -> EmbeddingsEndpoint:
    from streamer.labels.llm.embeddings import EmbeddingsEndpoint
    from streamer.labels.llm.record import Price
    from streamer.scoring.encoders.endpoint_encoder import model_of

    chosen = settings.encoder
    if chosen.base_url is None:
        raise UsageError(
            f"the encoder {name} is asked for at an endpoint, and none is configured: set STREAMER_ENCODER_BASE_URL "
            "(like https://api.openai.com/v1); the key, where it asks for one, goes into a file that "
            "STREAMER_ENCODER_API_KEY_FILE names"
        )
    price = chosen.price_per_million
    return EmbeddingsEndpoint(
        model=model_of(name),
        base_url=chosen.base_url,
        api_key=chosen.api_key or "",
        timeout=chosen.timeout_seconds,
        tries=chosen.tries,
        longest_delay=_LONGEST_DELAY,
        concurrency=chosen.concurrency,
        price=None if price is None else Price(price, Decimal(0)),
        allow_plaintext=settings.insecure,
    )
