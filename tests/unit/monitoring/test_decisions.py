import math

import numpy as np
import pytest

from streamer.risk.states import AuditedDecision, AuditedDecisions

RIGHT = {
    "probability": [0.5, 0.5, 1.0],
    "sampled": [True, False, True],
    "labelled": [True, False, False],
    "loss": [0.25, 0.0, 0.0],
    "shipped": [1.0, 1.0, 1.0],
    "predicted": [0.5, 0.5, 0.5],
}


def test_weights_and_what_an_overdue_label_may_cost():
    decisions = AuditedDecisions.of(**RIGHT)
    assert len(decisions) == 3
    assert decisions.weight.tolist() == [2.0, 0.0, 1.0]
    assert decisions.overdue.tolist() == [False, False, True]
    assert decisions.least_loss.tolist() == [0.25, 0.0, 0.0]
    assert decisions.most_loss.tolist() == [0.25, 0.0, 1.0]


def test_what_shipped_nothing_needs_no_label_and_no_prediction():
    decisions = AuditedDecisions.of_pieces([AuditedDecision(0.5, sampled=True, shipped=0.0, predicted=0.7)])
    assert not decisions.overdue.any()
    assert decisions.most_loss.tolist() == decisions.predicted.tolist() == [0.0]


def test_rows_and_columns_are_the_same():
    rows = [
        AuditedDecision(0.5, sampled=True, loss=0.25, predicted=0.5),
        AuditedDecision(0.5, sampled=False, predicted=0.5),
        AuditedDecision(1.0, sampled=True, predicted=0.5),
    ]
    by_rows, by_columns = AuditedDecisions.of_pieces(rows), AuditedDecisions.of(**RIGHT)
    for name in RIGHT:
        np.testing.assert_array_equal(getattr(by_rows, name), getattr(by_columns, name))


def test_there_may_be_none():
    assert len(AuditedDecisions.of_pieces([])) == 0
    assert len(AuditedDecisions.of(probability=0.5, sampled=[], labelled=[], loss=[])) == 0


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("probability", [0.5, 0.0, 1.0], "above 0 and at most 1; see position 1"),
        ("probability", [0.5, -0.1, 1.0], "probability must lie"),
        ("probability", [0.5, 1.1, 1.0], "probability must lie"),
        ("probability", [0.5, math.nan, 1.0], "probability holds NaN"),
        ("probability", [0.5, 1.0, 1.0], "1 was logged for a decision that was not sampled"),
        ("probability", [0.5, 0.5], "3 rows"),
        ("sampled", [False, False, True], "only decisions of the audit sample"),
        ("sampled", [1, 0, 1], "true and false"),
        ("labelled", [True, False], "labelled must have 3 rows"),
        ("loss", [math.nan, 0.0, 0.0], "loss holds NaN"),
        ("loss", [1.5, 0.0, 0.0], "loss must lie"),
        ("loss", [0.25, 0.25, 0.0], "a loss needs a label"),
        ("loss", [0.25, 0.0, 0.25], "a loss needs a label"),
        ("shipped", [0.0, 1.0, 1.0], "shipped nothing has no loss"),
        ("predicted", [math.nan, 0.5, 0.5], "predicted holds NaN"),
    ],
)
def test_what_cannot_be_is_refused(column, values, why):
    with pytest.raises(ValueError, match=why):
        AuditedDecisions.of(**{**RIGHT, column: values})


def test_a_draw_must_be_true_or_false_in_rows_too():
    with pytest.raises(ValueError, match="position 0 holds None"):
        AuditedDecisions.of_pieces([AuditedDecision(0.5, sampled=None)])
