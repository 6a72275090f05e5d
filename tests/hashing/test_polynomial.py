"""Interpolation and evaluation over GF(65497), against Lagrange's formula in plain integers."""

import numpy as np
import pytest

from hashing.polynomial import evaluate, interpolate

P = 65497


def lagrange(xs: list[int], ys: list[int], at: int) -> int:
    """The interpolant's value at `at`, straight from the definition."""
    total = 0
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        term = y
        for j, other in enumerate(xs):
            if j != i:
                term = term * (at - other) * pow(x - other, -1, P) % P
        total += term
    return total % P


def test_a_line_through_two_points_is_found() -> None:
    # y = 3 + 5 x
    assert interpolate(np.array([[1, 4]]), np.array([[8, 23]])).tolist() == [[3, 5]]


def test_a_negative_slope_is_a_residue() -> None:
    # y = 10 - x, and -1 is 65496 modulo the prime
    assert interpolate(np.array([[0, 3]]), np.array([[10, 7]])).tolist() == [[10, 65496]]


def test_several_polynomials_are_interpolated_apart() -> None:
    x_CK = np.array([[0, 1, 2], [5, 0, 65496]])
    y_CK = np.array([[0, 1, 4], [25, 0, 1]])  # x squared, twice

    assert interpolate(x_CK, y_CK).tolist() == [[0, 0, 1], [0, 0, 1]]


def test_values_are_powers_summed() -> None:
    # 2 + 3 x + x^2 at 0, 10 and -1
    assert evaluate(np.array([[2, 3, 1]]), np.array([[0, 10, 65496]])).tolist() == [[2, 132, 0]]


def test_128_points_agree_with_lagrange_between_and_on_them() -> None:
    rng = np.random.default_rng(1)
    x_1K = rng.choice(P, 128, replace=False)[None, :]
    y_1K = rng.integers(0, P, (1, 128))
    at = [int(x_1K[0, 0]), 17, 65000]

    values = evaluate(interpolate(x_1K, y_1K), np.array([at]))

    assert values[0].tolist() == [lagrange(x_1K[0].tolist(), y_1K[0].tolist(), x) for x in at]


@pytest.mark.parametrize("order", [[2, 0, 1], [1, 2, 0]])
def test_the_order_of_points_does_not_matter(order: list[int]) -> None:
    x_CK, y_CK = np.array([[9, 100, 65000]]), np.array([[65496, 0, 12345]])

    assert (interpolate(x_CK, y_CK) == interpolate(x_CK[:, order], y_CK[:, order])).all()
