"""Data and measures of ccstudy blocks: captions grouped by topic, images with labels, and Proposition 6.2."""
# not under sanitizers: Python and NumPy; of ours it calls what test_losses.py calls

import math
import os
import subprocess
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

import ccstream
from ccstream.studies import blocks_data, labels, study, towers


def setUpModule():
    subprocess.run([os.path.join(os.environ["TESTBIN"], "make_images"), "d", "100"], check=True)


class DataTest(unittest.TestCase):
    def test_parts_are_sorted_by_class_and_differ(self):
        parts = blocks_data.draw(3)
        for part, each in ((parts.train, 50), (parts.test, 100)):
            self.assertEqual(part.first.tolist(), list(range(0, 20 * each + 1, each)))
            self.assertEqual(part.labels[part.first[7]], 7)
        # Noise of deviation 2 in 58 directions, 1 around means of deviation 1 in 6.
        self.assertLess(abs((parts.test.rows**2).sum(1).mean() - (58 * 4 + 6 * 2)), 6)

    def test_captions_are_grouped_by_the_word_of_their_topic(self):
        # They are "A tree in the city, view 1; number 20!" and the like: 75 of every fourth sample, 75 of the others.
        parts = blocks_data.read_captions("d", "grass,lake,horse,city,night", 2)  # no caption has a horse
        words = "at car cup dog house in mountain near number old on red the tree view".split()
        own = [words.index(word) for word in ("on", "near", "in", "at")]  # of a topic's place
        self.assertEqual((parts.train.rows.shape, len(parts.test.labels)), ((75, len(words)), 75))
        self.assertLess(np.abs((parts.train.rows**2).sum(1) - len(words)).max(), 1e-4)
        for word in ("number", "view"):  # in all captions
            self.assertFalse(parts.train.rows[:, words.index(word)].any())
        self.assertTrue(((parts.train.rows[:, own] > 0) == (parts.train.labels[:, None] == np.arange(4))).all())
        for topics, text in (("grass", "2 to 256 words"), ("horse,grass", "1 of the --topics"),
                             ("city,in", "0 of the --topics")):  # always both
            with self.assertRaisesRegex(study.UsageError, text):
                blocks_data.read_captions("d", topics, 2)

    def test_images_need_labels_and_enough_of_a_class(self):
        with self.assertRaisesRegex(study.UsageError, "images without labels"):
            blocks_data.read_images("d", 8)
        images = [sample.image for sample in ccstream.Dataset("d")[:8]]
        for name, count in (("few", 40), ("enough", 44)):
            with ccstream.Writer(name) as w:
                for i in range(2 * count):
                    w.add(images[i % 8], label=i % 2)
        with self.assertRaisesRegex(study.UsageError, "class 0 has 40 points; blocks need about 44"):
            blocks_data.read_images("few", 8)
        parts = blocks_data.read_images("enough", 8)
        self.assertEqual((parts.train.rows.shape, parts.test.first.tolist()), ((66, 192), [0, 11, 22]))
        self.assertTrue(np.abs(parts.train.rows).max() <= 1 and parts.train.rows.min() < 0)


class MeasuresTest(unittest.TestCase):
    def test_mean_classifier_by_hand(self):
        x, means = np.array([[2.0, 1], [1, 2], [1, 1]]), np.eye(2)
        found = blocks_data.classify(x, np.array([0, 0, 1]), means)  # the tie is lost
        self.assertTrue(np.allclose(found, (100 / 3, 100 / 3, 100)))
        twelve = np.arange(12.0)[:, None]  # class 11 scores most: class k is number 12 - k
        found = blocks_data.classify(np.ones((12, 1)), np.arange(12), twelve)
        self.assertTrue(np.allclose(found, (50, 100 / 12, 1000 / 12)), found)
        losses = [math.log2(1 + math.exp(v)) for v in (-1, 1, 0)]
        self.assertAlmostEqual(blocks_data.mean_loss(x, np.array([0, 0, 1]), means), sum(losses) / 3)

    def test_towers_learn_and_larger_blocks_bound_more_tightly(self):
        parts = blocks_data.draw(3)
        found = {}
        for size, steps in ((1, 0), (1, 300), (10, 300)):
            tower = towers.train_tower(parts.train.rows, parts.train.first, towers.Blocks(16, size, 3), steps, 1e-3,
                                       np.random.default_rng(7))
            r = found[size, steps] = blocks_data.measure(tower, parts, 7)
            losses = [r[f"loss_{b}"] for b in blocks_data.SIZES]
            self.assertEqual(losses, sorted(losses, reverse=True))
            self.assertLess(r["mean_loss"], (losses[-1] - 1 / 20) / (1 - 1 / 20))  # Proposition 6.2
        first, pairs, blocks = found.values()
        self.assertTrue(first["avg2"] + 5 < pairs["avg2"] < blocks["avg2"])
        self.assertTrue(first["avg2_5"] + 3 < pairs["avg2_5"] < pairs["avg2"])


class LabelsTest(unittest.TestCase):
    def test_supervised_gradients_are_finite_differences(self):
        r = np.random.default_rng(0)
        x, y = r.normal(size=(6, 4)).astype(np.float32), np.array([0, 1, 2, 0, 1, 2])
        head = r.normal(size=(3, towers.EMBED + 1))

        def value(values, weights):
            tower = towers.Tower(4, np.random.default_rng(1))
            tower.values[:] = values
            scores = tower.embed(x) @ weights[:, :-1].T + weights[:, -1]
            return float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(6), y]))

        tower = towers.Tower(4, np.random.default_rng(1))
        start, moments, learned = tower.values.astype(np.float64), np.zeros((2, *head.shape)), head.copy()
        self.assertAlmostEqual(tower.learn_labels(x, y, learned, moments, 0.0, 0), value(start, head), 5)
        for moved, gradient, of in ((head, moments[0] / 0.1, lambda w: value(start, w)),
                                    (start, tower._moments[0] / np.float32(0.1), lambda v: value(v, head))):
            for at in [tuple(r.integers(n) for n in moved.shape) for _ in range(12)]:
                sides = []
                for step in (1e-2, -1e-2):
                    other = moved.copy()
                    other[at] += step
                    sides.append(of(other))
                self.assertAlmostEqual((sides[0] - sides[1]) / 2e-2, gradient[at], 3)

    def test_collision_divides_the_unsupervised_loss(self):
        first, r = np.array([0, 20, 50, 90]), np.random.default_rng(0)
        x = r.normal(size=(90, 5)) + np.repeat(np.eye(3, 5), np.diff(first), 0)
        found = labels.collision(x, first, 0)
        rho = np.array([20, 30, 40]) / 90
        self.assertAlmostEqual(found["tau"], (rho**2).sum(), 12)
        self.assertAlmostEqual(found["loss"], found["tau"] * found["same"] + (1 - found["tau"]) * found["other"], 12)
        self.assertTrue(0 < found["excess"] <= found["excess_bound"])
        # Points of a class that do not differ: l(0) = 1, and no deviation.
        still = labels.collision(np.repeat(np.eye(3), np.diff(first), 0), first, 0)
        self.assertAlmostEqual(still["same"], 1, 12)
        self.assertAlmostEqual(still["deviation"], 0, 12)
        self.assertAlmostEqual(still["other"], math.log2(1 + math.exp(-1)), 12)


if __name__ == "__main__":
    unittest.main()
