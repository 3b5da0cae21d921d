"""What endpoints say when a model does not take a parameter, in the words of several of them."""

import pytest

from streamer.labels.llm.refusals import fitted, refused_parameter

SENT = {"model", "temperature", "top_p", "max_tokens", "seed", "n"}


@pytest.mark.parametrize(
    ("status", "code", "param", "message", "name"),
    [
        (
            400,
            "unsupported_value",
            "temperature",
            "Unsupported value: 'temperature' does not support 0.2 with this model.",
            "temperature",
        ),
        (
            400,
            "unsupported_parameter",
            "max_tokens",
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
            "instead.",
            "max_tokens",
        ),
        (400, None, None, "Unrecognized request argument supplied: seed", "seed"),
        (
            422,
            None,
            None,
            "{'detail': [{'type': 'extra_forbidden', 'loc': ['body', 'seed'], 'msg': 'Extra inputs are not permitted'}]}",
            "seed",
        ),
        (400, None, None, 'Invalid JSON payload received. Unknown name "seed": Cannot find field.', "seed"),
        (400, None, None, "'n' : number must be at most 1", "n"),
        (
            400,
            None,
            None,
            "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
            "top_p",
        ),
    ],
)
def test_refusals_that_are_about_one_parameter(
    status: int, code: str | None, param: str | None, message: str, name: str
) -> None:
    assert refused_parameter(status=status, code=code, param=param, message=message, sent=SENT) == name


@pytest.mark.parametrize(
    ("status", "code", "param", "message"),
    [
        (400, None, None, "temperature: 1.5 is out of the range 0..1"),
        (400, "decimal_above_max_value", "temperature", "Expected a value <= 2, but got 2.5 instead."),
        (400, None, None, "This model's maximum context length is 8192 tokens."),
        (400, None, None, "unsupported message role"),
        (400, "unsupported_parameter", "logit_bias", "'logit_bias' is not supported"),
        (500, "unsupported_parameter", "seed", "'seed' is not supported"),
        (429, None, None, "seed: unsupported"),
        (400, None, None, ""),
    ],
)
def test_refusals_that_leaving_something_out_does_not_help(
    status: int, code: str | None, param: str | None, message: str
) -> None:
    assert refused_parameter(status=status, code=code, param=param, message=message, sent=SENT) is None


def test_only_what_was_sent_can_be_left_out() -> None:
    message = "Unrecognized request argument supplied: seed"
    assert refused_parameter(status=400, code=None, param=None, message=message, sent={"model"}) is None


def test_what_is_sent_instead() -> None:
    asked = {"model": "m", "seed": 1, "max_tokens": 9}
    assert fitted(asked, frozenset()) == asked
    assert fitted(asked, {"seed", "temperature"}) == {"model": "m", "max_tokens": 9}
    assert fitted(asked, {"max_tokens"}) == {"model": "m", "seed": 1, "max_completion_tokens": 9}
    assert fitted(asked, {"max_tokens", "max_completion_tokens"}) == asked
