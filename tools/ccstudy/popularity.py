"""What NUCLR (Wang et al., ICLR 2025) calls popularity, for fixed similarities."""

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
    v = np.ones(count)
    for _ in range(_MOST_ITERATIONS):
        sums = v * (kernel.T @ (1.0 / (kernel @ v)))
        if np.abs(1.0 - sums).max() / count < 1e-14:
            return 1.0 / v
        v /= sums
    raise StudyError(f"{count} pairs: no fixed point after {_MOST_ITERATIONS} iterations")
