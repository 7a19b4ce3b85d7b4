"""The maths of ccstudy margin: margins worked out by hand, k-variance, the towers' losses and gradients."""
# not under sanitizers: Python and NumPy; of ours it calls what test_losses.py calls

import itertools
import sys
import unittest

try:
    import numpy as np
    import scipy.optimize  # noqa: F401
except ImportError:
    print("skipped: numpy or scipy is not installed")
    sys.exit(77)

from ccstream.studies import command, margin, study, towers


def measured(rows, labels, weight, bias, subsets=1):
    return margin.mean_margins(np.array(rows, float), np.array(labels), np.array(weight, float), np.array(bias, float),
                               subsets, np.random.default_rng(0))


class MarginTest(unittest.TestCase):
    def test_margins_are_those_worked_out_by_hand(self):
        # f_0 = s z, f_1 = -s z on the line. Margins of z = 1, 3 (class 0) and -2, -2 (class 1): 2, 6, 4, 4 times s;
        # gradients 2 s; k = 1: Var_0 = 2, Var_1 = 0, so E[Var] = 1 and E[Var Lip] = 2 s.
        for s in (1, 8):
            found = measured([[1], [3], [-2], [-2], [50], [60]], [0, 0, 1, 1, -1, 2], [[s], [-s]], [0, 0], 4)
            for key, value in {"margin": 4 * s, "gn_margin": 2, "kv_margin": 2, "kv_gn_margin": 2, "variance": 1,
                               "lipschitz": 2 * s}.items():
                self.assertAlmostEqual(found[key] / value, 1, 5, key)

    def test_margins_by_the_total_variance_and_the_spectral_complexity(self):
        # Margins 2, 6, 4, 4 over a gradient of 2; z has the mean 0 and the total variance 4.5. SC of one matrix is its norms'
        # sum by rows: 2.
        found = measured([[1], [3], [-2], [-2]], [0, 0, 1, 1], [[1], [-1]], [0, 0])
        self.assertAlmostEqual(found["tv_gn_margin"], 2 / np.sqrt(4.5), 5)
        self.assertAlmostEqual(found["sn_margin"], 2, 9)
        # Two layers: |W|_2 = 3 and 2, rows 3 + 3 and 2 + 1.
        layers = [np.diag([3.0, 3.0]), np.diag([2.0, 1.0])]
        self.assertAlmostEqual(margin.spectral_complexity(layers), 6 * (2 ** (2 / 3) + 1.5 ** (2 / 3)) ** 1.5, 9)

    def test_separation_is_the_chance_of_a_larger_margin(self):
        row = {"_values": {"margin": np.array([1.0, 3.0])}}
        other = {"_values": {"margin": np.array([0.0, 2.0, 4.0, 5.0])}}
        self.assertAlmostEqual(margin.separation(row, other, "margin"), (0.25 + 0.5) / 2)

    def test_the_rival_is_the_best_wrong_class(self):
        # f = (z_0, 0.5, z_1 - 9): the rival is class 1, by its bias; margins 0.5 and 2.5, gradient 1.
        found = measured([[1, 0], [3, 0]], [0, 0], [[1, 0], [0, 0], [0, 1]], [0, 0.5, -9])
        self.assertAlmostEqual(found["margin"], 1.5, 9)
        self.assertAlmostEqual(found["kv_margin"], 0.75, 9)
        self.assertEqual((found["lipschitz"], found["variance"]), (1, 2))

    def test_classes_of_one_image_have_no_variance(self):
        with self.assertRaises(study.UsageError):
            measured([[1], [-1]], [0, 1], [[1], [-1]], [0, 0])

    def test_k_variance_is_the_cheapest_of_all_matchings(self):
        rows = np.random.default_rng(1).normal(size=(10, 2))
        distances = np.linalg.norm(rows[:5, None] - rows[None, 5:], axis=-1)
        cheapest = min(distances[range(5), list(p)].mean() for p in itertools.permutations(range(5)))
        self.assertAlmostEqual(margin.k_variance(rows), cheapest, 12)

    def test_equal_values_share_their_ranks(self):
        rows = [{"accuracy": a, **dict.fromkeys(margin.KINDS, 1), "margin": m} for a, m in ((5, 2), (1, 0), (5, 2), (9, 3))]
        found = margin.rank_correlations(rows)
        self.assertAlmostEqual(found["margin"], 1, 12)
        self.assertIsNone(found["kv_margin"])

    def test_former_names_of_options_are_accepted(self):
        o = command.parse(margin, "ccstudy margin", ["--normalize", "clip", "--batch=7"])
        self.assertEqual((o.image_norm, o.batch_size, o.given), ("clip", 7, {"image-norm", "batch-size"}))

    def test_the_probe_separates_what_is_separable(self):
        r = np.random.default_rng(2)
        labels = np.arange(60) % 3
        rows = (5 * np.eye(3)[labels] + r.normal(size=(60, 3))).astype(np.float32)
        weight, bias = margin.probe(rows, labels, 3, 1000, r)
        self.assertGreater(margin.accuracy(rows, labels, weight, bias), 95)


class TowersTest(unittest.TestCase):
    shapes = [towers.Blocks(6, 4, 3, hinge, pairs) for hinge in (False, True) for pairs in (False, True)]

    def test_gradients_are_slopes(self):
        points = np.random.default_rng(0).normal(size=(6, 5, 10)).astype(np.float32)
        for shape in self.shapes:
            tower = towers.Tower(10, np.random.default_rng(1))
            value, gradient = tower.loss(points, shape)
            step = np.float32(1e-3 / np.linalg.norm(gradient))
            tower.values -= step * gradient
            lower = tower.loss(points, shape)[0]
            self.assertAlmostEqual((value - lower) / (step * (gradient**2).sum()), 1, 1, shape)

    def test_pairs_are_never_below_blocks(self):
        points = np.random.default_rng(3).normal(size=(6, 5, 10)).astype(np.float32)
        tower = towers.Tower(10, np.random.default_rng(1))
        for blocks, pairs in (self.shapes[:2], self.shapes[2:]):
            self.assertGreaterEqual(tower.loss(points, pairs)[0], tower.loss(points, blocks)[0])

    def test_a_seed_repeats_a_tower_and_blocks_have_different_points_of_one_class(self):
        first = np.array([0, 5, 9, 20])
        drawn = towers.draw_blocks(first, towers.Blocks(8, 3, 1), 50, np.random.default_rng(0))
        classes = np.searchsorted(first, drawn, "right")
        self.assertTrue((classes == classes[..., :1]).all())
        self.assertTrue((np.diff(np.sort(drawn), axis=-1) > 0).all())
        points = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
        one, same, other = (towers.train_tower(points, first, towers.Blocks(8, 3, 1), 5, 0.01, np.random.default_rng(s)).values
                            for s in (0, 0, 1))
        self.assertTrue((one == same).all() and (one != other).any())


if __name__ == "__main__":
    unittest.main()
