"""A curve as one line of text."""

from __future__ import annotations

from detoklens.tables.rendering import sparkline


def test_a_sparkline_goes_from_lowest_to_highest() -> None:
    assert sparkline([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([3.0, 3.0], 5) == "▁▁"
    assert sparkline([1.0, 3.0, 10.0, 10.0], 2) == "▁█"
    assert len(sparkline(list(map(float, range(1000))), 40)) == 40


def test_a_curve_without_any_number_is_an_empty_line() -> None:
    assert sparkline([], 10) == ""
