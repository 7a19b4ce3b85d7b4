"""ccstream-eval debias: vectors worked out by hand, and those of another implementation."""
# not under sanitizers: Python and NumPy; of ours it calls what test_losses.py calls

import os
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

from ccstream.studies import debias, study

GOLDEN = Path(__file__).resolve().parent.parent / "golden/evaluation/debias.txt"


class DebiasTest(unittest.TestCase):
    def same(self, got, want):
        np.testing.assert_allclose(got, want, atol=1e-6)

    def test_a_spurious_direction_is_removed(self):
        background = [[0, 0, 5], [0, 0, -2]]  # the second adds nothing
        self.same(debias.project([[0.6, 0, 0.8], [0, 0.28, 0.96]], background, [], 1000), [[1, 0, 0], [0, 1, 0]])

    def test_a_pair_shrinks_its_difference(self):
        # (I + lambda d d^T)^-1 with d = (0, 2) divides the second coordinate by 1 + 4 lambda = 5; the mean over two equal
        # pairs is that of one, and without weight pairs have no effect.
        for pairs in ([[0, 2]], [[0, 2], [0, 2]]):
            self.same(debias.project([[3, 20]], [], pairs, 1.0), [[0.6, 0.8]])
        self.same(debias.project([[3, 4]], [], [[0, 2]], 0.0), [[0.6, 0.8]])

    def test_a_class_that_is_the_spurious_thing_is_not_finite(self):
        got = debias.project([[1, 1], [0, 3]], [[0, 1]], [], 1)
        self.assertTrue(np.isfinite(got[0]).all() and np.isnan(got[1]).all())

    def test_skew_is_of_the_most_frequent_group_among_the_most_similar(self):
        images = np.array([[1, 0], [0.9, 0.1], [0.8, 0.2], [0, 1], [0.1, 0.9], [0.2, 0.8]])
        groups = np.array([0, 0, 1, 1, 1, 1])
        texts = np.array([[1, 0], [0, 1], [np.nan, 0]])
        self.same(debias.max_skew(images, groups, texts, 3), [np.log(2 / 3 * 2), np.log(2), np.nan])
        self.same(debias.max_skew(images, groups, texts[:1], 2), [np.log(2)])
        self.same(debias.max_skew(images, groups, texts[:2], 1000), [np.log(4 / 6 * 2)] * 2)

    def test_vectors_are_those_of_another_implementation(self):
        words = iter(GOLDEN.read_text().split())
        cases = 0

        def take(name, rows, columns):
            self.assertEqual(next(words), name)
            return np.array([float(next(words)) for _ in range(rows * columns)]).reshape(rows, columns)
        for word in words:
            self.assertEqual(word, "debias")
            count, dim, spurious, pairs = (int(next(words)) for _ in range(4))
            weight = float(next(words))
            vectors, removed, z = (take(n, rows, dim) for n, rows in (("vectors", count), ("spurious", spurious), ("pairs", 2 * pairs)))
            self.same(debias.project(vectors, removed, z[0::2] - z[1::2], weight), take("result", count, dim))
            cases += 1
        self.assertEqual(cases, 4)

    def test_every_two_prompts_of_a_line_are_a_pair(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pairs")
            Path(path).write_text("# pairs\na\tb\tc\n\nd\te\n")
            self.assertEqual(debias.read_pairs(path), [("a", "b"), ("a", "c"), ("b", "c"), ("d", "e")])
            Path(path).write_text("a\tb\nalone\n")
            with self.assertRaisesRegex(study.UsageError, "'alone' is a single prompt"):
                debias.read_pairs(path)
            Path(path).write_text("\t".join(map(str, range(92))))
            with self.assertRaisesRegex(study.UsageError, "4186 pairs, more than 4096"):
                debias.read_pairs(path)


if __name__ == "__main__":
    unittest.main()
