"""Tables for eyes: no number and no token is ever broken, and what does not fit is named."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from detoklens.tables.rendering import sparkline, text_table
from detoklens.wording import column_cells

TOKENS = st.text(max_size=50) | st.sampled_from([" the", "東京", "\n", "", "<|endoftext|>", "\u202e"])
COLUMNS = st.fixed_dictionaries(
    {
        "head": st.just([0, 11]),
        "token": st.lists(TOKENS, min_size=2, max_size=2),
        "score": st.lists(st.floats(allow_nan=False), min_size=2, max_size=2),
        "a_column_with_a_rather_long_name": st.just([None, 1e-300]),
        "count": st.lists(st.integers(0, 2**62), min_size=2, max_size=2),
    }
)


@settings(max_examples=60)
@given(COLUMNS, st.integers(20, 120))
def test_no_cell_is_broken_and_no_line_is_wider_than_the_terminal(columns: dict[str, list[object]], width: int) -> None:
    frame = pl.DataFrame(columns).select("head", pl.exclude("head"))
    lines = text_table(frame, "model: Which tokens are these, and what is known of them?", width, " (--wide)").split(
        "\n"
    )
    assert all(cell_len(line) <= max(width, 38) for line in lines)  # of the longest name
    heading = next(number for number, line in enumerate(lines) if line.startswith("  ") and "head" in line)
    shown = [name for name in frame.columns if name in lines[heading].split()]
    assert shown == frame.columns[: len(shown)]
    for row, line in enumerate(lines[heading + 2 : heading + 4]):
        assert all(column_cells(frame[name].to_list())[row] in line for name in shown)
    left_out = frame.columns[len(shown) :]
    more = " ".join(" ".join(lines[heading + 4 :]).split())
    assert (f"{len(left_out)} more column" in more) == bool(left_out)
    assert all(name in more for name in left_out)


def test_a_sparkline_goes_from_lowest_to_highest() -> None:
    assert sparkline([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([3.0, 3.0], 5) == "▁▁"
    assert sparkline([1.0, 3.0, 10.0, 10.0], 2) == "▁█"
    assert len(sparkline(list(map(float, range(1000))), 40)) == 40


def test_a_curve_without_any_number_is_an_empty_line() -> None:
    assert sparkline([], 10) == ""
