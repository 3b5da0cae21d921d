"""The language models that answer prompts, from settings and from what a command names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from streamer.errors import UsageError
from streamer.labels.llm.endpoint import ChatEndpoint
from streamer.labels.llm.record import Price
from streamer.research.sampling.collecting import Vendor

if TYPE_CHECKING:
    from streamer.settings.settings import Settings


def sampling_endpoints(
    settings: Settings, models: Sequence[str], base_urls: Sequence[str]
) -> tuple[ChatEndpoint, ...]:
    """Return who is asked: the models that are named, or the configured one.

    Parameters
    ----------
    settings : hold the bounds, the keys, and what is not named.
    models : names; none for the configured one.
    base_urls : one for all models or one each; none for the configured one.

    Raises
    ------
    UsageError : the model or its endpoint is not set; a key is missing for one of several hosts.
    """
    sampling = settings.sampling
    names = list(models) or ([sampling.model] if sampling.model else [])
    urls = list(base_urls) or ([sampling.base_url] if sampling.base_url else [])
    if not names or not urls:
        raise UsageError(
            "the model to ask, and its endpoint, are not set: give --model and --base-url (like "
            "https://api.openai.com/v1), or set STREAMER_SAMPLING_MODEL and STREAMER_SAMPLING_BASE_URL; the key, where "
            "the endpoint asks for one, goes into a file that STREAMER_SAMPLING_API_KEY_FILE names"
        )
    if len(urls) not in (1, len(names)):
        raise UsageError(
            f"{len(names)} models and {len(urls)} base URLs: give one --base-url for all, or one for each --model"
        )
    urls = urls * len(names) if len(urls) == 1 else urls
    hosts = {_host(url) for url in urls}
    if len(hosts) > 1 and sampling.api_key and not hosts <= sampling.api_keys.keys():
        raise UsageError(
            f"one key cannot be for {len(hosts)} hosts ({', '.join(sorted(hosts - sampling.api_keys.keys()))}): name a "
            "file with each host's, like STREAMER_SAMPLING_API_KEYS_API_TOGETHER_XYZ_FILE for api.together.xyz"
        )
    return tuple(
        ChatEndpoint(
            model=name,
            base_url=url,
            api_key=sampling.api_keys.get(_host(url), (sampling.api_key or "") if len(hosts) == 1 else ""),
            concurrency=sampling.concurrency,
            tries=sampling.tries,
            timeout=sampling.timeout_seconds,
            allow_plaintext=settings.insecure,
        )
        for name, url in zip(names, urls, strict=True)
    )


def sampling_vendor(settings: Settings, endpoint: ChatEndpoint, price: Price | None) -> Vendor:
    """Return a vendor at an endpoint, within the configured rates."""
    from streamer.research.sampling.session import connect

    sampling = settings.sampling
    return connect(
        endpoint,
        price=price,
        requests_per_minute=sampling.requests_per_minute,
        tokens_per_minute=sampling.tokens_per_minute,
        token_limit_name=sampling.limit_parameter,
    )


def _host(url: str) -> str:
    """The host that a key is for, without a port; what is wrong with an address is told where it is used."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
