"""2^x for x ≤ 0, fast: a polynomial that the compiler turns into vector instructions.

numba calls the system's exp once per number, about 10 ns each. For float32 a polynomial of degree 6 on [−½, ½], put
together with the exponent's bits, is as exact as the type allows (relative error below 2e-7) and ten times as fast.
"""

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

LOWEST = np.float32(-126)
"""Below 2^−126 float32 has no normal numbers; what is smaller counts as that, nothing in any sum."""
COEFFICIENTS = tuple(
    np.float32(value)
    for value in (1.5353362e-4, 1.3398874e-3, 9.6184373e-3, 5.5503324e-2, 2.4022648e-1, 6.9314720e-1, 1.0)
)


def exp2(exponent: float) -> float:
    """2^exponent, only for compiled code and only for exponents up to 0."""
    raise NotImplementedError("exp2 is for compiled loops")


@overload(exp2, inline="always")
def _exp2(exponent: Any) -> Any:
    return _single if exponent == types.float32 else _double


def _double(exponent: Any) -> Any:
    return math.exp(exponent * 0.6931471805599453)


def _single(exponent: Any) -> Any:
    c6, c5, c4, c3, c2, c1, c0 = COEFFICIENTS
    bounded = max(exponent, LOWEST)
    whole = np.int32(bounded - np.float32(0.5))
    rest = bounded - np.float32(whole)
    series = ((((((c6 * rest + c5) * rest + c4) * rest + c3) * rest) + c2) * rest + c1) * rest + c0
    power = np.int32((whole + np.int32(127)) << np.int32(23))
    return series * power.view(np.float32)
