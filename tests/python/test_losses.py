"""ccstream.Loss with samples beyond the batch against tests/golden/losses/losses.txt (make_losses.py
describes the lines), and that the mean gradient of emc2 and negcache is that of the global loss."""

import os
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

import ccstream

SAMPLES, STEPS, WHOLE, NONE = 1000, 3, 5, 2**64 - 1
MASK = (1 << 64) - 1


class Draws:
    """splitmix64, as make_losses.py draws."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def matrix(self, rows, columns):
        count = rows * columns
        return np.array([((self.next() >> 51) % 8193 - 4096) / 4096 for _ in range(count)]).reshape(rows, columns)

    def signs(self, shape):
        return np.array([1.0 if self.next() >> 63 else -1.0 for _ in range(np.prod(shape))]).reshape(shape)


def golden_cases():
    with open(os.path.join(os.environ["SRC"], "tests/golden/losses/losses.txt")) as file:
        cases = []
        for line in file:
            words = line.split()
            if words[0] == "case":
                cases.append((dict(word.split("=", 1) for word in words[1:]), []))
            else:
                cases[-1][1].append(words)
    return cases


class GoldenTest(unittest.TestCase):
    def check_gradient(self, name, got, lines, draws, tolerance):
        what, norm, *projections = lines.pop(0)
        self.assertEqual(what, name)
        allowed = tolerance * float(norm) + 1e-12
        self.assertLessEqual(abs(np.sqrt((got**2).sum()) - float(norm)), allowed)
        for want in projections:
            self.assertLessEqual(abs((draws.signs(got.shape) * got).sum() - float(want)), 4 * allowed)

    def check_elements(self, got, lines, tolerance):
        if lines and lines[0][0] == "elements":
            want = np.array([float(x) for x in lines.pop(0)[1:]]).reshape(got.shape)
            self.assertLessEqual(np.abs(got - want).max(), tolerance * max(1.0, np.abs(want).max()))

    def test_losses_beyond_the_batch_are_those_of_the_float64_reference(self):
        seen = set()
        for index, (keys, lines) in enumerate(golden_cases()):
            if keys["loss"] not in ("emc2", "negcache") or keys.get("away") != "1" or keys.get("emc2-carry") == "skip":
                continue
            name, b, tau = keys["loss"], int(keys["b"]), float(keys["tau"])
            views = keys.get("views") == "1"
            loss = ccstream.Loss(name, SAMPLES, max_batch=b, views=views, tau=tau)
            draws, rows = Draws(index), 2 * b if views else b
            seen.add((name, views))
            with self.subTest(**keys):
                for k in range(STEPS):
                    s = draws.matrix(rows, rows)
                    draws.matrix(b, b), draws.matrix(b, b)  # of cyclip
                    ids = np.array([5 + 3 * (i + k * (b // 2)) for i in range(b)])
                    similarity = draws.matrix(2, b)
                    if loss.beyond == "named":
                        carried = loss.carried(ids)
                    else:  # every fourth anchor has none
                        carried = np.full(2 * b, 5, np.uint64)
                        carried[3::4] = NONE
                        carried = carried.reshape(2, b)
                    got = loss.step(s, ids, step=k, epoch=k // 2, lr=1e-3, carried_ids=carried,
                                    carried_similarity=similarity)
                    tolerance = 1e-6 if k == 0 else 1e-6 + 2**-22 / tau
                    what, want = lines.pop(0)
                    self.assertEqual(what, "value")
                    self.assertLessEqual(abs(got.value - float(want)), tolerance * max(1.0, abs(float(want))))
                    for gradient, of in ((got.gradient, "gradient"), (got.carried_gradient, "carried_gradient")):
                        self.check_gradient(of, gradient.astype(float), lines, draws, tolerance)
                        self.check_elements(gradient, lines, tolerance)
        self.assertEqual(len(seen), 4)


class ArgumentTest(unittest.TestCase):
    def test_what_goes_together_is_demanded(self):
        loss, s, ids = ccstream.Loss("emc2", 9), np.eye(2), np.arange(2)
        self.assertEqual((loss.beyond, ccstream.Loss("negcache", 9).beyond, ccstream.Loss("clip", 9).beyond),
                         ("named", "drawn", ""))
        self.assertEqual(ccstream.Loss("emc2", 9, emc2_carry="skip").beyond, "")
        carried = loss.carried(ids)
        self.assertTrue((carried == NONE).all() and carried.shape == (2, 2))
        for wrong, text in (({}, "requires off-batch samples"), ({"carried_ids": carried}, "pass both"),
                            ({"carried_ids": carried, "carried_similarity": np.zeros(3)}, r"\(2, B\)"),
                            ({"carried_ids": carried * 0 + 9, "carried_similarity": np.zeros((2, 2))}, "id 9")):
            with self.assertRaisesRegex(ccstream.UsageError, text):
                loss.step(s, ids, **wrong)
        self.assertIsNone(ccstream.Loss("clip", 9).step(s, ids).carried_gradient)


class MeanGradientTest(unittest.TestCase):
    """Fixed similarities of 12 pairs: steps of batches of 4 give on average the gradient of the softmax over all."""

    def mean_gradient(self, loss, s, tau, steps):
        n, rng, total = len(s), np.random.default_rng(0), np.zeros_like(s)
        softmax = [np.exp(m / tau) * (1 - np.eye(n)) for m in (s, s.T)]
        softmax = [p / p.sum(1, keepdims=True) for p in softmax]
        for k in range(steps):
            ids = rng.permutation(n)[:4]
            carried = (loss.carried(ids) if loss.beyond == "named" else
                       np.array([[rng.choice(n, p=p[i]) for i in ids] for p in softmax], np.uint64))
            has = carried != NONE
            at = np.where(has, carried, 0).astype(int)
            similarity = np.stack([s[ids, at[0]], s[at[1], ids]])
            got = loss.step(s[np.ix_(ids, ids)], ids, step=k, carried_ids=carried, carried_similarity=similarity)
            total[np.ix_(ids, ids)] += got.gradient
            np.add.at(total, (ids[has[0]], at[0][has[0]]), got.carried_gradient[0][has[0]])
            np.add.at(total, (at[1][has[1]], ids[has[1]]), got.carried_gradient[1][has[1]])
        exact = ((softmax[0] + softmax[1].T) / 2 - np.eye(n)) / (n * tau)
        return np.linalg.norm(total / steps - exact) / np.linalg.norm(exact)

    def test_it_is_that_of_the_global_loss(self):
        s = np.random.default_rng(5).uniform(-0.5, 0.5, (12, 12))
        for name in ("emc2", "negcache"):
            with self.subTest(name):
                self.assertLess(self.mean_gradient(ccstream.Loss(name, 12, tau=0.2), s, 0.2, 4000), 0.06)


if __name__ == "__main__":
    unittest.main()
