"""The toy problem of NUCLR (Wang et al., ICLR 2025, section 3.3 and appendix G), where everything is known: x is
uniform on the upper half of the unit disc, y lies in the unit square with density p(y | x) = exp(<x, y> / tau) /
Z(x), and similarities are E = <x, y>. No model is trained; compared is how well three objectives know the
partition function:

  L(q) = -1/n sum_i tau log( exp(E_ii / tau) / sum_j exp(E_ij / tau) / q_j )

  MLE    Z(x_i) itself instead of the sum
  GCL    q_j = n for all j
  NUCLR  q from the data alone: the popularity zeta that minimises eq. (8)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import popularity
from .study import Column, Item, Option, Options, Progress, Section, Table, axis, figure, np, series, table_item

PURPOSE = "solves NUCLR's toy problem, whose true popularity is known (figures 2 and 6)"
TITLE = "NUCLR's toy problem: popularity from data alone"
OPTIONS = [
    Option("repeats", "r", int, 20, "N", "random sets of pairs per number of pairs", least=2, most=1000),
]
NOTES = [
    "x is uniform on the upper half of the unit disc, and y in the unit square has density exp(<x, y> / tau) / Z(x). For n = 25 to 1,600 "
    "pairs the risks of MLE (with the exact Z), GCL (all samples equally popular) and NUCLR (popularity estimated from the data) are "
    "compared with the true risk. The paper claims that NUCLR's error falls with n like MLE's, and that GCL's does not.",
    "--json: risk by tau; rows of tau, n, repeats, means of the errors of nuclr, gcl and mle, of the error terms "
    "error_nuclr and error_gcl and of the correlation of log popularity, and the standard error of each mean as "
    "NAME_se. --quick: up to 400 pairs, 5 repeats.",
]
EXAMPLES = ["ccstudy toy -o studies", "ccstudy toy --quick --json"]

_TAUS = (0.2, 1.0)
_FIELDS = ("nuclr", "gcl", "mle", "error_nuclr", "error_gcl", "correlation")
_SHOWN_PAIRS, _MAP_CELLS, _CURVE_POINTS = 100, 32, 120


def partition(tau: float, a: np.ndarray) -> np.ndarray:
    """The integral of exp(a t / tau) over t in [0, 1]."""
    s = np.asarray(a, float) / tau
    small = np.abs(s) < 1e-4
    safe = np.where(small, 1.0, s)
    return np.where(small, 1.0 + s / 2.0 + s * s / 6.0, np.expm1(safe) / safe)


def _mean(tau: float, a: np.ndarray) -> np.ndarray:
    """E[t] under the density exp(a t / tau) on [0, 1]."""
    s = a / tau
    small = np.abs(s) < 1e-3
    safe = np.where(small, 1.0, s)
    return np.where(small, 0.5 + s / 12.0 - s**3 / 720.0, -1.0 / np.expm1(-safe) - 1.0 / safe)


def true_risk(tau: float) -> float:
    """E[-tau log p(y | x)]. Both coordinates contribute tau log phi(a) - a E[t], an even function of a, and a =
    sin(angle) has the density (4 / pi) cos^2 over [0, pi / 2]: the trapezoidal rule over a whole period converges
    exponentially."""
    angle = 2.0 * np.pi * np.arange(256) / 256
    a = np.abs(np.sin(angle))
    return float(4.0 * np.mean(np.cos(angle) ** 2 * (tau * np.log(partition(tau, a)) - a * _mean(tau, a))))


def draw(rng: np.random.Generator, count: int, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """x and y (count, 2) of pairs."""
    radius, angle = np.sqrt(rng.random(count)), np.pi * rng.random(count)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    s = x / tau
    s = np.where(np.abs(s) < 1e-12, 1e-12, s)
    return x, np.log1p(rng.random((count, 2)) * np.expm1(s)) / s


class Problem(NamedTuple):
    """A set of pairs: kernel (n, n) = exp(E / tau), Z (n), and the true and the estimated q (n), of the same
    largest value."""

    y: np.ndarray
    kernel: np.ndarray
    z: np.ndarray
    popularity: np.ndarray
    estimate: np.ndarray


def solve(x: np.ndarray, y: np.ndarray, tau: float) -> Problem:
    kernel = np.exp(x @ y.T / tau)
    z = partition(tau, x).prod(1)
    truth = (kernel / z[:, None]).sum(0)
    estimate = popularity.solve(kernel)
    return Problem(y, kernel, z, truth, estimate * (truth.max() / estimate.max()))


def compare(p: Problem, tau: float, risk: float) -> list[float]:
    """The numbers of _FIELDS: |L - risk| of the three objectives, the error terms 1/n sum_ij |1/q~_j - 1/q_j|
    exp((E_ij - 1) / tau) of theorem 2, and the correlation of log q and that of its estimate."""
    count = len(p.y)
    own = np.log(np.diag(p.kernel))
    losses = [np.log(p.kernel @ (1.0 / p.estimate)), np.log(p.kernel.sum(1) / count), np.log(p.z)]
    errors = [abs(float(tau * np.mean(total - own)) - risk) for total in losses]
    weights = p.kernel.sum(0) * np.exp(-1.0 / tau) / count
    terms = [float(np.abs(1.0 / q - 1.0 / p.popularity) @ weights) for q in (p.estimate, count)]
    return errors + terms + [float(np.corrcoef(np.log(p.popularity), np.log(p.estimate))[0, 1])]


def _pairs(options: Options, count: int, repeat: int, tau: float) -> tuple[np.ndarray, np.ndarray]:
    return draw(np.random.default_rng((options.seed, count, repeat)), count, tau)


def run(options: Options, progress: Progress) -> dict[str, Any]:
    sizes = [25 << k for k in range(5 if options.quick else 7)]
    repeats = 5 if options.quick and "repeats" not in options.given else options.repeats
    progress.total = len(_TAUS) * repeats * sum(n * n for n in sizes)
    risks = {f"{tau:g}": true_risk(tau) for tau in _TAUS}
    rows: list[dict[str, Any]] = []
    for tau in _TAUS:
        for n in sizes:
            cells = np.empty((repeats, len(_FIELDS)))
            for repeat in range(repeats):
                cells[repeat] = compare(solve(*_pairs(options, n, repeat, tau), tau), tau, risks[f"{tau:g}"])
                progress.advance(n * n)
            row: dict[str, Any] = {"tau": tau, "n": n, "repeats": repeats}
            for name, mean, error in zip(_FIELDS, cells.mean(0), cells.std(0, ddof=1) / repeats**0.5):
                row |= {name: mean, f"{name}_se": error}
            rows.append(row)
    return {"risk": risks, "rows": rows}


def table(result: dict[str, Any]) -> Table:
    columns = [Column("tau"), Column("n", ".0f"), Column("nuclr", ".4f"), Column("gcl", ".4f"), Column("mle", ".4f"),
               Column("error nuclr", ".5f"), Column("error gcl", ".5f"), Column("correlation", ".5f")]
    return Table(columns, [[row["tau"], row["n"], *(row[name] for name in _FIELDS)] for row in result["rows"]])


# ---- the page


def _lines(result: dict[str, Any], tau: float, names: dict[str, str], title: str, y_title: str) -> Item:
    rows = [row for row in result["rows"] if row["tau"] == tau]
    n = [row["n"] for row in rows]
    return figure("lines", title, axis("n, number of pairs", scale="log"), axis(y_title, scale="log"),
                  [series(text, n, [row[name] for row in rows], error=[row[f"{name}_se"] for row in rows])
                   for name, text in names.items()])


def _map(p: Problem, q: np.ndarray, limits: list[float], title: str) -> Item:
    """log10 q over the unit square: a mean weighted with a Gaussian of deviation 0.08 around each sample."""
    at = (np.arange(_MAP_CELLS) + 0.5) / _MAP_CELLS
    dx2 = (p.y[:, 0] - at[:, None]) ** 2
    dy2 = (p.y[:, 1] - at[::-1, None]) ** 2
    weights = np.exp(-(dy2[:, None] + dx2[None]) / (2.0 * 0.08**2)) + 1e-12
    return {"kind": "map", "title": title, "x": axis("first coordinate of y"), "y": axis("second coordinate of y"),
            "extent": [0, 1, 0, 1], "range": limits, "unit": "log10 q",
            "rows": (weights @ np.log10(q) / weights.sum(2)).tolist()}


def density(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """A Gaussian estimate of density by Silverman's rule."""
    width = 1.06 * values.std() * len(values) ** -0.2 + 1e-9
    kernels = np.exp(-((at[:, None] - values) ** 2) / (2.0 * width**2))
    return kernels.sum(1) / (width * np.sqrt(2.0 * np.pi) * len(values))


def _example(options: Options, tau: float) -> list[Item]:
    p = solve(*_pairs(options, _SHOWN_PAIRS, 0, tau), tau)
    logs = np.log10([p.popularity, p.estimate])
    limits = [float(logs.min()), float(logs.max())]
    margin = 0.15 * (limits[1] - limits[0])
    at = np.linspace(limits[0] - margin, limits[1] + margin, _CURVE_POINTS)
    x, y = _pairs(options, _SHOWN_PAIRS, 0, tau)
    return [
        figure("scatter", f"The two spaces, with {_SHOWN_PAIRS} pairs, tau = {tau:g}", axis("first coordinate"), axis("second coordinate"),
               [series("x, of the half disc", x[:, 0], x[:, 1]), series("y, of the square", y[:, 0], y[:, 1])]),
        _map(p, p.popularity, limits, f"True popularity: log10 q over the square of y, tau = {tau:g}"),
        _map(p, p.estimate, limits, f"Recovered by NUCLR: log10 of its estimate, tau = {tau:g}"),
        figure("lines", f"How popularity is distributed, tau = {tau:g}, n = {_SHOWN_PAIRS}",
               axis("log10 of popularity"), axis("density"),
               [series("true popularity", at, density(logs[0], at)),
                series("NUCLR's estimate", at, density(logs[1], at))]),
    ]


def page(result: dict[str, Any], options: Options) -> list[Section]:
    first = [row for row in result["rows"] if row["tau"] == _TAUS[0]]
    errors = ", ".join(f"that of {name.upper()} from {first[0][name]:.3f} to {first[-1][name]:.3f}"
                       for name in ("gcl", "nuclr", "mle"))
    sections = [Section("The claim", [
        "The paper's claim (Wang et al., ICLR 2025, section 3.3): with every sample counted equally (GCL) the distance "
        "between empirical and true risk stops falling as the data grow; with the popularity that NUCLR finds it falls "
        "as if the partition function were known.",
        f"Measured here: from n = {first[0]['n']} to {first[-1]['n']} at tau = {_TAUS[0]} the error falls as follows: "
        f"{errors}. Bars in the figures are standard errors over {first[0]['repeats']} sets of pairs."])]
    risks = {"nuclr": "NUCLR: popularity from the data", "gcl": "GCL: all equally popular",
             "mle": "MLE: the exact partition function"}
    for tau in _TAUS:
        risk = result["risk"][f"{tau:g}"]
        sections.append(Section(f"tau = {tau:g}", [], [
            _lines(result, tau, risks, f"Generalisation error |L - true risk|, tau = {tau:g}; the true risk is "
                   f"{risk:.10f}", "generalisation error"),
            _lines(result, tau, {"error_nuclr": "NUCLR", "error_gcl": "GCL"},
                   f"Error term of theorem 2: how far 1/q is from its estimate, tau = {tau:g}", "error term"),
            *_example(options, tau)]))
    return sections + [Section("Numbers", [], [table_item(
        f"Means over {first[0]['repeats']} sets of pairs", table(result))])]
