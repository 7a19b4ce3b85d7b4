"""The maths of ccstudy gradient: exact losses against plain loops, what estimators have on average, runs and parts."""
# not under sanitizers: Python and NumPy; of ours it calls what test_losses.py calls

import json
import os
import sys
import tempfile
import unittest
from unittest import mock

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

from ccstream.studies import command, gradient, study
from ccstream.studies import gradient_model as model

TAU = 0.2
METHODS = {m.key: m for m in model.METHODS}


def unit_rows(count, dim, seed):
    x = np.random.default_rng(seed).normal(size=(count, dim))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def loss_of(x, n, objective):
    """The formula of model.exact, as it is written there."""
    loss = 0.0
    for a in range(2 * n):
        own = (a + n) % (2 * n)
        others = [c for c in range(3 * n) if (c >= 2 * n) == (objective == "unaugmented") and
                  (c % n != a % n or (objective == "with_own" and c == own))]
        loss += (np.log(np.exp(x[others] @ x[a] / TAU).sum()) - x[own] @ x[a] / TAU) / (2 * n)
    return loss


class ExactTest(unittest.TestCase):
    def test_losses_and_gradients_are_those_of_plain_loops(self):
        n = 6
        x = unit_rows(3 * n, 5, 1).astype(np.float64)
        for objective in model.OBJECTIVES:
            loss, dx = model.exact(x.astype(np.float32), n, TAU, objective)
            self.assertAlmostEqual(loss, loss_of(x, n, objective), 5)
            for i in range(x.size):
                h = np.zeros(x.size)
                h[i] = 1e-5
                h = h.reshape(x.shape)
                slope = (loss_of(x + h, n, objective) - loss_of(x - h, n, objective)) / 2e-5
                self.assertAlmostEqual(dx.flat[i], slope, 4)

    def test_whitened_rows_have_covariance_one(self):
        r = np.random.default_rng(4)
        rows = 7 + 3 * r.normal(size=(200, 1)) + np.arange(1, 13) * r.normal(size=(200, 12))
        y = model.whiten(rows, 5)
        self.assertLess(np.abs(y.mean(0)).max(), 1e-9)
        self.assertLess(np.abs(y.T @ y / 200 - np.eye(5)).max(), 1e-9)
        self.assertTrue((model.whiten(np.ones((9, 4)), 2) == 0).all())

    def test_estimators_are_exact_where_the_batch_is_everything(self):
        n = 6
        x = unit_rows(3 * n, 5, 2)
        for key, objective in (("simclr", "with_own"), ("sogclr-0.9", "global")):
            estimator = model.Estimator(METHODS[key], n, n, TAU, 0, 1)
            rows = estimator.begin(0, lambda _: self.fail("no sample beyond the batch"))
            dx = np.zeros_like(x[:2 * n])
            dx[rows[0]] = estimator.end(x[rows])[0]
            self.assertLess(np.abs(dx - model.exact(x, n, TAU, objective)[1][:2 * n]).max(), 1e-5, key)


class RunTest(unittest.TestCase):
    def problem(self, n):
        pixels = model.draw_views(n, 8, 3)
        return model.Problem(pixels, 4, TAU, 3, lambda runs: model.Linear(pixels, runs, 3))

    def test_gradient_of_the_parameters_is_the_slope_of_the_loss(self):
        p = self.problem(40)
        encoder = p.encoder(1)
        before, first = model.exact_gradient(p, encoder)
        encoder.values -= np.float32(0.002) * first
        after, last = model.exact_gradient(p, encoder)
        norm2 = (model.squares(first) + model.squares(last)) / 2
        self.assertGreater(norm2[0], 0.05)
        self.assertLess(abs((before - after) / 0.002 / norm2 - 1)[0], 0.01)

    def test_measuring_does_not_disturb_runs_and_runs_do_not_disturb_each_other(self):
        p = self.problem(40)
        few = model.train(p, METHODS["emc2-view"], [0.01], 60, 3, 0, lambda _: None)[0]
        many = model.train(p, METHODS["emc2-view"], [0.001, 0.01], 60, 7, 0, lambda _: None)[1]
        self.assertEqual([point[0] for point in few["points"]], [0, 30, 60])
        for i, k in ((0, 0), (1, 3), (2, 6)):
            np.testing.assert_allclose(few["points"][i][2:], many["points"][k][2:], rtol=1e-4)
        self.assertAlmostEqual(few["norm2"][0] / few["points"][2][3], 1, 6)
        self.assertLess(few["points"][2][2], few["points"][0][2])

    def test_chains_that_encode_their_view_have_the_least_bias(self):
        # The cause of the difference between --emc2-carry encode and the published figure.
        p = self.problem(100)
        view, plain, batch = (model.bias2(p, p.encoder(1), METHODS[key], 2000)[0]
                              for key in ("emc2-view", "emc2-encode", "simclr"))
        self.assertTrue(view < 0.2 * plain and view < 0.2 * batch, (view, plain, batch))

    def test_the_negative_cache_is_unbiased_for_its_own_objective(self):
        p = self.problem(40)
        own, other = (model.bias2(p, p.encoder(1), METHODS["negcache"], 700, objective)[0]
                      for objective in ("unaugmented", "global"))
        self.assertLess(own, 0.05 * other)

    def test_a_run_that_diverges_ends_with_infinities(self):
        p = self.problem(20)
        p.adam = True
        good, bad = model.train(p, METHODS["simclr"], [0.001, 1e38], 40, 5, 10, lambda _: None)
        self.assertEqual(len(good["points"]), 5)
        self.assertTrue(np.isfinite(good["bias2"]) and bad["points"][-1][2] == np.inf and len(bad["points"]) < 5)
        self.assertIsNone(gradient.best([bad]))


class StudyTest(unittest.TestCase):
    def test_the_run_that_counts_has_the_least_loss(self):
        def end(loss, norm2):
            return {"points": [[1, 0.0, loss, norm2, 1.0]], "norm2": [norm2]}

        one, point, failed = end(5.8, 4.4), end(np.log(998), 1e-6), end(np.nan, np.nan)
        self.assertIs(gradient.best([one, point, failed]), one)
        self.assertIs(gradient.best([failed, point, failed]), point)
        self.assertIsNone(gradient.best([failed, end(np.inf, 1.0)]))

    def test_the_burn_in_of_figure_4_is_the_papers_and_leaves_states(self):
        def parse(*words):
            options = command.parse(gradient, "ccstudy gradient", ["--burn-in", "--quick", *words])
            gradient.check(options)
            return options

        for batch in (6, 8, 32):
            shares = [m.options["burn_in"] for m in gradient._methods(parse("--batch", str(batch)))]
            found = [int(share * (2 * batch - 2)) for share in shares]  # as emc2.c has it
            self.assertEqual(found, [0, batch // 2, batch, 3 * batch // 2])
            self.assertLess(found[-1], 2 * batch - 2)
        self.assertEqual(parse().batch, 8)
        with self.assertRaisesRegex(study.UsageError, "6 is the least"):
            parse("--batch", "5")
        options = parse("--samples", "20", "--steps", "40", "--lr", "0.01")
        with mock.patch.object(gradient, "QUICK_BIAS_STEPS", 20):  # the biases are not looked at
            result = gradient.run(options, study.Progress(True))
        self.assertEqual([row["method"] for row in result["rows"]], ["emc2-P-0", "emc2-P-b/2", "emc2-P-b", "emc2-P-3b/2"])
        sections = gradient.page(result, options)
        self.assertIn("P = b on", sections[0].text[0])
        self.assertEqual([len(item["series"]) for item in sections[0].items], [4, 4])

    def test_a_part_is_read_only_with_the_settings_that_wrote_it(self):
        with tempfile.TemporaryDirectory() as folder:
            def options(*words):
                o = command.parse(gradient, "ccstudy gradient", ["-o", folder, "--resume", *words])
                gradient.check(o)
                return o

            o = options("--lr", "0.1", "--lr", "0.2")
            self.assertEqual(gradient._read_part(o), [])
            runs = [{"lr": 0.1 * i, "bias2": float("nan"), "points": [[1, 2, float("inf")]]} for i in range(3)]
            gradient._write_part(o, runs)
            self.assertEqual(json.dumps(gradient._read_part(o)), json.dumps(runs[:2]))  # a method has two runs
            with self.assertRaisesRegex(study.UsageError, "belongs to a study with other options"):
                gradient._read_part(options("--lr", "0.1"))
            with open(os.path.join(folder, "gradient.part.json"), "w") as file:
                file.write("[")
            with self.assertRaises(study.DataError):
                gradient._read_part(o)


if __name__ == "__main__":
    unittest.main()
