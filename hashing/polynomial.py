"""Polynomials over GF(65497), many at once: interpolation and evaluation, exact, in numpy.

Letters: C polynomials, K points (and coefficients) of each, N points of evaluation.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from hashing.encoding import PRIME

Field = npt.NDArray[np.int64]  # residues modulo PRIME; a product of two fits with 31 bits to spare


def interpolate(x_CK: Field, y_CK: Field) -> Field:
    """Coefficients (C, K), ascending powers, of the polynomials of degree below K through (x, y).

    The x of each row must be distinct residues; the result does not depend on the order of points.

    Source: Newton's divided differences, then expansion by Horner's rule.
    """
    d_CK = _divided_differences(x_CK, y_CK)
    count = x_CK.shape[1]
    coefficients_CK = np.zeros_like(d_CK)
    coefficients_CK[:, 0] = d_CK[:, -1]
    for j in range(count - 2, -1, -1):
        used = count - 1 - j  # coefficients so far; multiplying by (X - x_j) shifts them up by one
        head_CU = coefficients_CK[:, :used].copy()
        coefficients_CK[:, :used] *= PRIME - x_CK[:, j, None]
        coefficients_CK[:, 1 : used + 1] += head_CU
        coefficients_CK[:, 0] += d_CK[:, j]
        coefficients_CK[:, : used + 1] %= PRIME
    return coefficients_CK


def evaluate(coefficients_CK: Field, x_CN: Field) -> Field:
    """Values (C, N) of the polynomials at `x`, by Horner's rule."""
    y_CN = np.zeros_like(x_CN)
    for k in range(coefficients_CK.shape[1] - 1, -1, -1):
        y_CN *= x_CN
        y_CN += coefficients_CK[:, k, None]
        y_CN %= PRIME
    return y_CN


def _divided_differences(x_CK: Field, y_CK: Field) -> Field:
    inverse = _inverses()
    d_CK = y_CK % PRIME
    for order in range(1, x_CK.shape[1]):
        rise_CN = d_CK[:, order:] - d_CK[:, order - 1 : -1]
        run_CN = x_CK[:, order:] - x_CK[:, :-order]
        d_CK[:, order:] = rise_CN * inverse[run_CN] % PRIME  # a negative index is the residue from the table's end
    return d_CK


@cache
def _inverses() -> Field:
    """Inverse of every residue (that of 0 is 0), as a table: a^(p-2), Fermat."""
    base = np.arange(PRIME, dtype=np.int64)
    result = np.ones(PRIME, dtype=np.int64)
    exponent = PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * base % PRIME
        base = base * base % PRIME
        exponent >>= 1
    result.flags.writeable = False
    return result
