"""The popularity of NUCLR (Wang et al., ICLR 2025) for fixed similarities."""

from __future__ import annotations

from .study import StudyError, np

_MOST_ITERATIONS = 10000


def solve(kernel: np.ndarray) -> np.ndarray:
    """q = exp(zeta / tau) of the zeta that minimises eq. (8),

        -1/n sum_i tau log( kernel_ii / sum_j kernel_ij exp(-zeta_j / tau) ) + 1/n sum_j zeta_j

    until no element of its gradient is above 1e-14, by Sinkhorn's fixed-point iteration. kernel (n, n):
    exp(E_ij / tau), rows anchors. q is unique but for a factor.
    """
    count = len(kernel)
    q, gap = approach(kernel, _MOST_ITERATIONS, 1e-14 * count)
    if gap >= 1e-14 * count:
        raise StudyError(f"{count} pairs: no fixed point after {_MOST_ITERATIONS} iterations")
    return q


def approach(kernel: np.ndarray, iterations: int, least: float) -> tuple[np.ndarray, float]:
    """The same q after this many iterations, or once its gap is below `least`: the largest element of n times the gradient,
    |1 - sum_i P_ij|."""
    v = np.ones(len(kernel))
    for k in range(iterations):
        sums = v * (kernel.T @ (1.0 / (kernel @ v)))
        gap = float(np.abs(1.0 - sums).max())
        if gap < least or k + 1 == iterations:
            break
        v /= sums
    return 1.0 / v, gap
