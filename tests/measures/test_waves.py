"""Waves that were put in are found with their period, amplitude and share; curves without one have none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detoklens.measures import shape as waves
from detoklens.measures.shape import FEWEST_KEYS, Wave, is_sinusoidal, leading_waves


def waves_of(curve: np.ndarray, places: np.ndarray | None = None) -> list[Wave]:
    return leading_waves(curve[None], np.arange(len(curve)) if places is None else places)[0][0]


@given(
    n_keys=st.integers(60, 300),
    cycles=st.floats(1.6, 20),
    phase=st.floats(0, 6.28),
    amplitude=st.floats(0.1, 50),
    slope=st.floats(-3, 3),
)
def test_a_wave_on_a_line_is_found_exactly(
    n_keys: int, cycles: float, phase: float, amplitude: float, slope: float
) -> None:
    places = np.arange(n_keys)
    period = n_keys / cycles
    found = waves_of(amplitude * np.cos(2 * np.pi * places / period + phase) + slope * places + 5)
    assert found[0].period == pytest.approx(period, rel=1e-3)
    assert found[0].amplitude == pytest.approx(amplitude, rel=1e-2)
    assert found[0].share == pytest.approx(1, abs=1e-4)
    assert is_sinusoidal(found, n_keys)


def test_two_waves_come_in_order_of_their_power() -> None:
    places = np.arange(400)
    strong, weak = 4 * np.cos(2 * np.pi * places / 40), 2 * np.sin(2 * np.pi * places / 10)
    first, second, third = waves_of(strong + weak)
    assert (first.period, second.period) == pytest.approx((40, 10), rel=1e-3)
    assert (first.share, second.share) == pytest.approx((0.8, 0.2), abs=0.01)
    assert third.share < 1e-3
    assert first.share + second.share + third.share <= 1 + 1e-12


def test_missing_keys_do_not_disturb() -> None:
    places = np.delete(np.arange(300), [0, 100, 101, 299])
    found = waves_of(np.sin(2 * np.pi * places / 23.7), places)
    assert found[0].period == pytest.approx(23.7, rel=1e-4)
    assert found[0].share == pytest.approx(1, abs=1e-6)


def test_blocks_of_frequencies_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = np.random.default_rng(0).normal(size=(3, 70)).cumsum(axis=1)
    whole, _ = leading_waves(curves, np.arange(70))
    monkeypatch.setattr(waves, "BLOCK_BYTES", 5 * 2 * 8 * 70)
    assert leading_waves(curves, np.arange(70))[0] == whole


@given(st.integers(0, 2**32 - 1), st.integers(FEWEST_KEYS, 200))
def test_noise_is_not_called_sinusoidal(seed: int, n_keys: int) -> None:
    found = waves_of(np.random.default_rng(seed).normal(size=n_keys))
    assert is_sinusoidal(found, n_keys) is False


@pytest.mark.parametrize(
    "curve",
    [
        np.linspace(-1, 1, 200) ** 2,
        np.exp(np.linspace(-5, 0, 200)),
        1 / np.arange(200, 0, -1),
        np.exp(-np.square(np.linspace(-4, 0, 200))),
    ],
    ids=["parabola", "exponential", "hyperbola", "bell"],
)
def test_a_bend_is_not_called_sinusoidal(curve: np.ndarray) -> None:
    assert is_sinusoidal(waves_of(curve), len(curve)) is not True


def test_a_line_a_constant_and_few_keys_have_no_wave() -> None:
    assert waves_of(3.0 * np.arange(100) + 2) == []
    assert waves_of(np.full(100, 7.0)) == waves_of(np.zeros(100)) == []
    assert waves_of(np.array([1.0, -1.0, 1.0, 3.0, 2.0])) == []
    assert waves_of(np.empty(0)) == []
    assert is_sinusoidal([], 100) is None
    assert is_sinusoidal([], FEWEST_KEYS - 1) is None


def test_share_and_view_decide() -> None:
    assert is_sinusoidal([Wave(1 / 50, 1.0, 0.5)], 100) is True
    assert is_sinusoidal([Wave(1 / 50, 1.0, 0.499)], 100) is False
    assert is_sinusoidal([Wave(1 / 70, 1.0, 0.9)], 100) is None
