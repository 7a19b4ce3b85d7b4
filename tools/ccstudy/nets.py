"""Perceptrons with their gradients, and AdamW, for many runs at once: the run, R, is the first dimension of arrays, so that
there are few NumPy calls. The numbers of a run do not depend on the other runs."""
from __future__ import annotations

from collections.abc import Sequence

from .study import np


def draws(seed: int, *what: int) -> np.random.Generator:
    """A random generator for (seed, purpose, ...)."""
    return np.random.default_rng([seed, *what])


def half_cosine(done: float, total: float) -> float:
    """The cosine schedule, from 1 down to 0."""
    return 0.5 * (1 + np.cos(np.pi * min(done / total, 1)))


def gelu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x Phi(x) and its derivative, where Phi is the normal distribution's function: within 1.5e-7, by Abramowitz and
    Stegun, 7.1.26."""
    half = x.dtype.type(0.5)
    density = x * x
    density *= -half
    np.exp(density, out=density)
    t = np.abs(x)
    t *= 0.3275911 * 0.5 ** 0.5
    t += 1
    np.reciprocal(t, out=t)
    tail = np.full_like(x, 1.061405429)
    for a in (-1.453152027, 1.421413741, -0.284496736, 0.254829592, 0):
        tail *= t
        tail += a
    tail *= density
    tail *= -half
    tail += half
    below = np.copysign(tail, x, out=t)
    below += half
    density *= x
    density *= (2 * np.pi) ** -0.5
    density += below
    return below * x, density


class AdamW:
    """For parameters (R, n), of which the first `decayed` of each run have weight decay. The moments are stored without their
    factors 1 - beta, which are part of the step size."""

    def __init__(self, parameters: np.ndarray, decayed: int = 0, weight_decay: float = 0.0):
        self.values, self.decayed, self.weight_decay = parameters, decayed, weight_decay
        self.gradient, self.first, self.second, self.scratch = (np.zeros_like(parameters) for _ in range(4))
        self.steps = 0

    def step(self, lr: float) -> None:
        """Updates the parameters; overwrites the gradient."""
        beta1, beta2, eps = 0.9, 0.999, 1e-8
        self.steps += 1
        scale = np.sqrt((1 - beta2) / (1 - beta2 ** self.steps))
        g, a = self.gradient, self.scratch
        self.first *= np.float32(beta1)
        self.first += g
        self.second *= np.float32(beta2)
        g *= g
        self.second += g
        np.sqrt(self.second, out=a)
        a += np.float32(eps / scale)
        np.divide(self.first, a, out=a)
        a *= np.float32(lr * (1 - beta1) / (1 - beta1 ** self.steps) / scale)
        self.values[:, :self.decayed] *= np.float32(1 - lr * self.weight_decay)
        self.values -= a


class Perceptron:
    """Layers of R runs, with GELU in between; weights and biases are slices of a table."""

    def __init__(self, widths: Sequence[int]):
        self.shapes = list(zip(widths[:-1], widths[1:]))
        self.weight_count = sum(i * o for i, o in self.shapes)
        self.bias_count = sum(widths[1:])

    def bind(self, optimizer: AdamW, weights_at: int, biases_at: int) -> None:
        """Uses the weights and biases that begin at these positions of the table."""
        runs = len(optimizer.values)
        self.layers, self.gradients = [], []
        for i, o in self.shapes:
            for table, out in ((optimizer.values, self.layers), (optimizer.gradient, self.gradients)):
                out.append((table[:, weights_at:weights_at + i * o].reshape(runs, i, o),
                            table[:, biases_at:biases_at + o].reshape(runs, 1, o)))
            weights_at, biases_at = weights_at + i * o, biases_at + o

    def forward(self, x: np.ndarray) -> np.ndarray:
        """(R, B, width) -> (R, B, E)."""
        self.inputs, self.slopes = [], []
        for k, (weight, bias) in enumerate(self.layers):
            if k > 0:
                x, slope = gelu(x)
                self.slopes.append(slope)
            self.inputs.append(x)
            x = x @ weight
            x += bias
        return x

    def backward(self, dout: np.ndarray) -> None:
        """Computes the gradients from the gradient of forward's result."""
        for k in range(len(self.layers) - 1, -1, -1):
            dweight, dbias = self.gradients[k]
            np.matmul(self.inputs[k].transpose(0, 2, 1), dout, out=dweight)
            np.sum(dout, axis=1, keepdims=True, out=dbias)
            if k > 0:
                dout = dout @ self.layers[k][0].transpose(0, 2, 1)
                dout *= self.slopes[k - 1]
