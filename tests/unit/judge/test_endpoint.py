"""What an endpoint may be, and what is shown of it."""

import sys
from decimal import Decimal
from typing import Any

import pytest

from streamer.errors import UsageError
from streamer.labels.judge.client import JudgeClient
from streamer.labels.judge.endpoint import JudgeEndpoint
from streamer.labels.judge.record import Judgement
from streamer.labels.judge.rubric import JudgeCase
from streamer.labels.kinds.judge import judge_endpoint
from streamer.labels.llm.record import Exchange, Price, TokenUsage, cost_of
from streamer.settings.settings import load_settings


@pytest.mark.parametrize(
    "url",
    ["https://api.together.xyz/v1", "http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]:80/v1"],
)
def test_encrypted_or_here(url: str) -> None:
    assert JudgeEndpoint(base_url=url).base_url == url


def test_unencrypted_elsewhere_must_be_permitted() -> None:
    with pytest.raises(UsageError, match="unencrypted"):
        JudgeEndpoint(base_url="http://grader.internal/v1")
    JudgeEndpoint(base_url="http://grader.internal/v1", allow_plaintext=True)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"base_url": "api.openai.com/v1"}, "must look like"),
        ({"base_url": "ftp://host/v1"}, "must look like"),
        ({"base_url": "https://[::1/v1"}, "must look like"),
        ({"base_url": "https://user:pw@host/v1"}, "without user"),
        ({"base_url": "https://host/v1?key=x"}, "without user"),
        ({"model": " "}, "model"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"concurrency": 0}, "concurrency"),
        ({"tries": 0}, "tries"),
        ({"timeout": 0.0}, "timeout"),
        ({"first_delay": 2.0, "longest_delay": 1.0}, "first_delay"),
        ({"longest_delay": float("inf")}, "longest_delay"),
    ],
)
def test_values_out_of_range_are_told(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        JudgeEndpoint(**settings)
    assert "pw" not in str(refused.value)


def test_the_key_is_never_shown() -> None:
    assert "sk-1" not in repr(JudgeEndpoint(api_key="sk-1"))


def test_the_judge_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(UsageError, match=r"pip install 'conformal-streamer\[judge\]'"):
        JudgeClient(JudgeEndpoint())


def test_costs_are_exact_and_unknown_where_something_was_not_counted() -> None:
    price = Price(Decimal("0.1"), Decimal("0.3"))

    def exchange(reply: str | None, usage: TokenUsage | None) -> Exchange:
        return Exchange(messages=(), parameters={}, reply=reply, usage=usage, seconds=1.0)

    counted, lost = exchange("x", TokenUsage(3, 7)), exchange(None, None)
    assert cost_of((counted, lost, counted), price) == Decimal("0.0000048")
    assert cost_of((lost,), price) == 0
    assert cost_of((counted, exchange("x", None)), price) is None
    assert cost_of((counted,), None) is None


def test_a_judgement_is_a_verdict_or_a_failure() -> None:
    with pytest.raises(ValueError, match="a verdict or a failure"):
        Judgement(case=JudgeCase("q", "a"), judge="j", verdict=None, failure=None, exchanges=(), cost=None)


def test_a_key_that_no_header_can_hold_is_told_and_not_quoted() -> None:
    with pytest.raises(UsageError, match="api_key") as refused:
        JudgeEndpoint(api_key="sk-1\nsk-2")
    assert "sk-" not in str(refused.value)


def test_insecure_permits_a_judge_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_JUDGE_BASE_URL", "http://grader.internal/v1")
    monkeypatch.setenv("STREAMER_JUDGE_MODEL", "grader")
    with pytest.raises(UsageError, match="--insecure"):
        judge_endpoint(load_settings())
    monkeypatch.setenv("STREAMER_INSECURE", "true")
    assert judge_endpoint(load_settings()).allow_plaintext
