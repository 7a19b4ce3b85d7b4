#!/usr/bin/env python3
"""Writes columns.txt: losses with weights of samples, a reference model and a teacher, in float64.

    python3 make_columns.py >columns.txt

Formulas as docs/columns.md has them, with plain exponentials; gradients by complex steps, which are exact to the last
bits. Similarities are multiples of 2^-8 by a linear congruence. test_loss_columns.c reads a line for each case: loss,
tau, distill weight, teacher's tau; B; weights; S, R, T (B x B; R 0 without a reference); value, K and the gradient.
"""
import cmath
import math

B, N = 5, 1000
state = 7


def draw(steps=512):
    global state
    state = (state * 1103515245 + 12345) % (1 << 31)
    return (state >> 8) % steps


def matrix():
    return [[(draw() - 256) / 256 for _ in range(B)] for _ in range(B)]


def transposed(m):
    return [list(row) for row in zip(*m)]


def softmax_log(row, tau):
    total = sum(cmath.exp(x / tau) for x in row)
    return [x / tau - cmath.log(total) for x in row]


def clip(s, real, w, tau):
    return sum(0.5 * w[a] / B * -softmax_log(m[a], tau)[a] for m in (s, transposed(s)) for a in range(B))


def siglip(s, real, w, tau):
    def term(i, j):
        z = 1 if i == j else -1
        return cmath.log(1 + cmath.exp(-z * (s[i][j] / tau - 10)))

    return sum((w[i] + w[j]) / 2 * term(i, j) for i in range(B) for j in range(B)) / B


def surrogate(s, real, w, tau, share, zeta=0.0, own=0.0):
    """First visits: u = g. Weights of contrasts are constants: from real."""
    value = 0.0
    for m, c in ((s, real), (transposed(s), transposed(real))):
        for a in range(B):
            e = [math.exp((c[a][j] - c[a][a] - zeta) / tau) if j != a else 0.0 for j in range(B)]
            u = sum(e) / (B - 1)
            value += share * w[a] / B * sum(e[j] / (B - 1) / (u + own) * (m[a][j] - m[a][a]) for j in range(B))
    return value


def sogclr(s, real, w, tau):
    return surrogate(s, real, w, tau, 1.0)


def nuclr(s, real, w, tau):  # zeta -0.05, xi 0
    return surrogate(s, real, w, tau, 1.0, -0.05, math.exp(-0.0 / tau) / (N - 1))


def fastclip(s, real, w, tau):
    return surrogate(s, real, w, tau, 0.5)


def fastclip_v1(s, real, w, tau):
    return surrogate(s, real, w, tau, 0.5 / tau)


def distillation(s, t, w, tau, teacher_tau):
    k = 0.0
    for m, teacher in ((s, t), (transposed(s), transposed(t))):
        for a in range(B):
            p, q = softmax_log(teacher[a], teacher_tau), softmax_log(m[a], tau)
            k += 0.5 * w[a] / B * sum(cmath.exp(p[j]) * (p[j] - q[j]) for j in range(B))
    return k


LOSSES = {"clip": clip, "siglip": siglip, "sogclr": sogclr, "isogclr": sogclr, "nuclr": nuclr, "fastclip-v1": fastclip_v1,
          "fastclip-v3": fastclip}
MOVING = ("sogclr", "isogclr", "nuclr", "fastclip-v1", "fastclip-v3")


def case(name, tau, with_reference, distill, teacher_tau):
    w = [draw(16) / 4 for _ in range(B)]
    s, t = matrix(), matrix()
    r = matrix() if with_reference else [[0.0] * B for _ in range(B)]
    excess = [[s[i][j] - r[i][j] for j in range(B)] for i in range(B)]

    def both(m):
        x = [[m[i][j] - r[i][j] for j in range(B)] for i in range(B)]
        k = distillation(m, t, w, tau, teacher_tau)
        return (1 - distill) * LOSSES[name](x, excess, w, tau) + distill * k, k

    value, k = both(s)
    gradient = []
    for i in range(B):
        for j in range(B):
            step = [list(row) for row in s]
            step[i][j] += 1e-30j
            gradient.append(both(step)[0].imag / 1e-30)
    numbers = [*w, *sum(s, []), *sum(r, []), *sum(t, []), complex(value).real, complex(k).real, *gradient]
    print(name, tau, distill, teacher_tau, *(f"{x:.17g}" for x in numbers))


for loss in LOSSES:
    for temperature in (0.25, 0.05) if loss != "isogclr" else (0.05,):
        for reference in (False, True) if loss in MOVING else (False,):
            for weight in (0.0, 0.75):
                case(loss, temperature, reference, weight, 0.125)
