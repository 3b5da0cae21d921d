"""Figures have room for their legends, however many rows these have."""

import warnings

import pytest

from streamer.research.evaluation.figure_style import finish, panels


@pytest.mark.parametrize("series", [1, 5, 14])
def test_panels_keep_their_room_beside_a_legend_of_any_length(series: int) -> None:
    figure, axes = panels([None], ["best"], width=4.5, height=3.2, margin=0.5)  # type: ignore[list-item]
    axis = axes.flat[0]
    for number in range(series):
        axis.plot([0, 1], [number, number], label=f"a score with a name of some length, number {number}")
    axis.set_xlabel("share shipped")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        finish(figure, axis, "What each score ships, and what it costs")
    height = axis.get_position().height * figure.get_size_inches()[1]
    assert height > 1.6, "half of what a panel was given"
