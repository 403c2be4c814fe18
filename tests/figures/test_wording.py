"""Labels: hostile token text is harmless, numbers are short, heads have their names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.font_manager import findfont, get_font

from detoklens.figures.labels import number, short_number, text_inches, token_label
from detoklens.figures.panels import EDGE, TICKS
from detoklens.figures.theme import SMALL_SIZE
from detoklens.wording import head_name, term_name

FONT = get_font(findfont("DejaVu Sans")).get_charmap()


@given(st.text(alphabet=st.characters(), max_size=80), st.integers(4, 40))
def test_a_token_label_has_only_visible_characters_of_the_font(text: str, longest: int) -> None:
    label = token_label(text, longest)
    assert 0 < len(label) <= longest
    assert label.isprintable()
    assert all(ord(character) in FONT for character in label)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (" Korea", "␣Korea"),
        ("␣", "\\u2423"),
        ("a\nb\t", "a\\nb\\t"),
        ("\\x82", "\\x82"),
        ("\x00", "\\x00"),
        ("\u202e", "\\u202e"),
        ("漢", "\\u6f22"),
        ("$x$", "$x$"),
        ("e\u0301", "e\\u0301"),
        ("\ud800", "\\ud800"),
        ("", '""'),
        (None, "–"),
        ("0123456789abcdef", "0123456789abcdef"),
        ("0123456789abcdefg", "0123456789abcde…"),
        ("漢字漢字", "\\u6f22\\u5b57…"),
    ],
)
def test_token_labels_by_example(text: str | None, label: str) -> None:
    assert token_label(text) == label


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (1000, "1000"), (12000, "12k"), (2.5e6, "2.5M"), (3e9, "3G"), (-0.05, "−0.05"), (-2e-5, "−2e−5")],
)
def test_ticks_are_written_in_few_characters(value: float, shown: str) -> None:
    assert short_number(value) == shown


@given(st.floats(-1e9, 1e9), st.integers(-5, 0))
def test_a_tick_never_outgrows_its_room(value: float, exponent: int) -> None:
    nice = float(f"{value * 10.0**exponent:.1g}")  # ticks are 1, 2 or 5 times a power of ten and their multiples
    assert text_inches(short_number(nice), SMALL_SIZE) < TICKS + EDGE


def test_undefined_numbers_are_dashes_and_minus_signs_true() -> None:
    assert [number(None), number(float("nan")), number(-0.684), number(1.0, 3)] == ["–", "–", "−0.68", "1.000"]


def test_heads_and_terms_have_their_names() -> None:
    assert head_name(7) == "L0H7"
    assert term_name("ee") == "token and token (Tᵉᵉ)"
    assert term_name("offset") == "offset"


def test_the_width_of_text_grows_with_its_letters_and_size() -> None:
    assert text_inches("ab", 6) > text_inches("a", 6)
    assert text_inches("a", 12) == pytest.approx(2 * text_inches("a", 6), rel=0.1)
