"""Studies with heads on frozen features (tools/ccstudy: nets, heads, batch, noise): gradients, measures, what is drawn,
the file of runs, and what training has to show."""
# not under sanitizers: Python and NumPy; of ours it calls what test_losses.py calls

import itertools
import math
import os
import sys
import tempfile
import types
import unittest
import unittest.mock

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

from ccstream.studies import batch, command, heads, longtail, nets, normalizer, study


def numeric_gradient(value, parameters):
    out = np.zeros_like(parameters)
    for at in np.ndindex(parameters.shape):
        kept = parameters[at]
        sides = []
        for step in (1e-5, -1e-5):
            parameters[at] = kept + step
            sides.append(value())
        parameters[at] = kept
        out[at] = (sides[0] - sides[1]) / 2e-5
    return out


class NetsTest(unittest.TestCase):
    def test_gelu_is_that_of_the_normal_distribution(self):
        x = np.linspace(-6, 6, 1001)
        phi = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])
        y, slope = nets.gelu(x.astype(np.float32))
        self.assertLess(np.abs(y - x * phi).max(), 1e-6)
        self.assertLess(np.abs(slope - phi - x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)).max(), 1e-6)

    def test_adamw_is_the_published_one(self):
        r = np.random.default_rng(0)
        p = r.normal(size=(2, 5))
        m, v, expected = np.zeros_like(p), np.zeros_like(p), p.copy()
        optimizer = nets.AdamW(p, 3, 0.1)
        for step in range(1, 6):
            g = r.normal(size=p.shape)
            optimizer.gradient[:] = g
            optimizer.step(0.01)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            expected[:, :3] *= 1 - 0.01 * 0.1
            expected -= 0.01 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
            self.assertLess(np.abs(p - expected).max(), 1e-7)


class HeadsTest(unittest.TestCase):
    def test_gradients_are_finite_differences(self):
        r = np.random.default_rng(0)
        for labelled, hidden in itertools.product((False, True), (0, 6)):
            f = heads.Features(r.normal(size=(9, 5)), None if labelled else r.normal(size=(9, 4)))
            h = heads.Heads(f, hidden, 3, [0, 1])
            h.bind(h.optimizer.values.astype(float))
            sides = r.normal(size=(2, 4, 5)), r.normal(size=(2, 4, 5 if labelled else 4))
            g = r.normal(size=(2, 4, 4))

            def value():
                x, t = h.forward(*sides)
                return (g * (x @ t.transpose(0, 2, 1))).sum()

            x, t = h.forward(*sides)
            h.backward(g @ t, g.transpose(0, 2, 1) @ x)
            exact = h.optimizer.gradient.copy()
            self.assertLess(np.abs(numeric_gradient(value, h.optimizer.values) - exact).max(), 1e-5)

    def test_recall_counts_ranks_in_both_directions_and_a_tie_as_lost(self):
        x = np.eye(3, dtype=np.float32)
        t = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0.5]], np.float32)
        owners = np.array([0, 0, 1, 2])
        # Images: the best text of image 0 is first; of 1 three texts tie; 2 has the only one above 0. Texts: the
        # second and the last belong to another image than the nearest.
        r1, r5, r10 = heads.recalls(x, t, owners)
        self.assertAlmostEqual(r1, 50 * (2 / 3 + 2 / 4))
        self.assertEqual((r5, r10), (100, 100))

    def test_global_loss_is_its_definition_at_any_temperature(self):
        r = np.random.default_rng(0)
        x, t = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in r.normal(size=(2, 40, 8)))
        s = x @ t.T
        for tau in (0.01, 0.05, 1.0):
            expected = sum(np.mean([tau * math.log(sum(math.exp((side[i, j] - side[i, i]) / tau)
                                                       for j in range(40) if j != i)) for i in range(40)])
                           for side in (s, s.T))
            self.assertAlmostEqual(heads.global_loss(x.astype(np.float32), t.astype(np.float32), tau), expected, 4)
            few = sum(np.mean([tau * math.log(sum(math.exp((side[i, j] - side[i, i]) / tau) for j in range(40) if j != i))
                               for i in range(7)]) for side in (s, s.T))
            self.assertAlmostEqual(heads.global_loss(x.astype(np.float32), t.astype(np.float32), tau, 7), few, 4)

    def test_more_noise_keeps_that_of_less(self):
        settings = [heads.Setting(7, "clip", {}, noise=noise) for noise in (0.0, 0.3, 0.6)]
        labels = np.arange(2000) % 20
        for drawn, right in (([heads.wrong_texts(s, 2000) for s in settings], np.arange(2000)),
                             ([heads.wrong_labels(s, labels, 20) for s in settings], labels)):
            wrong = [d != right for d in drawn]
            for s, w in zip(settings, wrong):
                self.assertLess(abs(w.mean() - s.noise), 0.045)  # four standard errors
            self.assertFalse(wrong[0].any())
            self.assertTrue((drawn[1] == drawn[2])[wrong[1]].all())

    def test_crops_are_means_of_consecutive_patches(self):
        patches = np.eye(20, dtype=np.float32)[None].repeat(400, 0)  # patch k is the k-th unit vector
        whole, cut = (heads.crop(patches, noise, np.random.default_rng(3)) for noise in (0.0, 1.0))
        for rows, least, most in ((whole, 8, 20), (cut, 2, 4)):
            sizes = (rows > 0).sum(1)
            self.assertTrue((sizes >= least).all() and (sizes <= most).all() and len(set(sizes)) > 2)
            self.assertLess(np.abs(rows.sum(1) - 1).max(), 1e-6)
            # Around the circle there is one place where the window begins.
            self.assertTrue((((rows > 0) & (np.roll(rows, 1, 1) == 0)).sum(1) <= 1).all())
        some = heads.crop(patches, 0.3, np.random.default_rng(3))
        self.assertLess(abs((some != whole).any(1).mean() - 0.3), 0.1)

    def test_negatives_of_the_own_label_are_kept_out(self):
        f = heads.divide(heads.draw_cropped(1), 1200, 1)
        self.assertLess(np.abs(f.patches.mean(1) - f.images).max(), 1e-4)  # standardised alike
        seen = []

        class Spy:
            def __init__(self, *args, **options):
                pass

            def step(self, similarity, ids, **how):
                seen.append((similarity.copy(), ids))
                return types.SimpleNamespace(gradient=np.zeros_like(similarity))

        settings = [heads.Setting(1, "clip", {"tau": 0.2}, crops=True, unbiased=True)]
        with unittest.mock.patch.object(heads.ccstream, "Loss", Spy):
            heads.train(f, settings, 128, 1, 0.01, 0, 8, lambda pairs: None)
        for similarity, ids in seen:
            labels = f.labels[f.train[ids]]
            own = (labels[:, None] == labels) & ~np.eye(128, dtype=bool)
            self.assertTrue((similarity[own] == -heads.FAR).all() and (np.abs(similarity[~own]) <= 1.001).all())

    def test_generic_captions_are_those_of_training_images_alone(self):
        self.check_generic([])
        r = np.random.default_rng(3)
        with tempfile.TemporaryDirectory() as folder:
            owners = np.sort(np.append(np.arange(1200), r.integers(1200, size=600))).astype("<i4")
            images, texts = r.normal(size=(1200, 4)).astype("<f4"), r.normal(size=(1800, 8)).astype("<f4")
            self.write(f"{folder}/f", images=images, texts=texts, owners=owners)
            f, kinds = self.check_generic(["--features", f"{folder}/f"]), longtail.clusters(images, 0)
        self.assertTrue((f.kinds == kinds).all() and len(np.unique(kinds)) == longtail.CLUSTERS)
        centres = np.stack([images[kinds == c].mean(0) for c in range(longtail.CLUSTERS)])
        nearest = np.argmin(((images[:, None] - centres) ** 2).sum(2), 1)
        self.assertGreater((nearest == kinds).mean(), 0.97)

    def check_generic(self, more):
        options = command.parse(longtail, "ccstudy longtail", ["--quick", "--generic", "0.4", *more])
        longtail.check(options)
        f, popularity = longtail.draw(options, 0.4)
        training = f.texts[f.train]
        same = (np.abs(training[:, None] - f.prompts).max(2) < 1e-6)
        generic = same.any(1)
        self.assertLess(abs(generic.mean() - 0.4), 0.1)
        self.assertEqual((popularity > 1).sum() + (generic & (popularity == 1)).sum(), generic.sum())
        counts = same.sum(0)
        self.assertTrue((popularity[generic] == counts[same.argmax(1)[generic]]).all() and (popularity[~generic] == 1).all())
        self.assertTrue((same.argmax(1)[generic] == f.kinds[f.train][generic]).all())
        held = f.texts[np.concatenate([f.test, f.validation])]
        self.assertGreater(np.abs(held[:, None] - f.prompts).max(2).min(), 1e-3)
        return f

    def test_partners_have_the_label_and_differ_from_draw_to_draw(self):
        labels = np.append(np.arange(400) % 4, 4)  # one alone
        first, second = (heads.partners(labels, np.random.default_rng(seed)) for seed in (0, 1))
        for p in (first, second):
            self.assertTrue((labels[p] == labels).all())
            self.assertTrue((p != np.arange(401))[:400].all() and p[400] == 400)
        self.assertLess((first == second)[:400].mean(), 0.05)
        self.assertGreater(len(set(first)), 200)

    def write(self, prefix, **arrays):
        for name, array in arrays.items():
            np.save(f"{prefix}.{name}.npy", array)

    def test_features_are_those_that_embed_writes(self):
        images, texts = np.arange(6, dtype=np.float32).reshape(3, 2), np.zeros((4, 2), np.float32)
        with tempfile.TemporaryDirectory() as folder:
            prefix = os.path.join(folder, "f")
            with self.assertRaises(study.NotFoundError):
                heads.read_pairs(prefix)
            self.write(prefix, images=images, texts=texts, owners=np.array([0, 0, 1, 2], np.int32))
            f = heads.read_pairs(prefix)
            self.assertEqual(f.first_text.tolist(), [0, 2, 3, 4])
            with self.assertRaisesRegex(study.UsageError, "fewer than 128 remain"):
                heads.divide(f, 1, 0)
            for owners in ([0, 0, 1, 3], [0, 0, 1, 1], [1, 0, 0, 2], [0, 0, 1]):
                self.write(prefix, owners=np.array(owners, np.int32))
                self.assertRaises(study.DataError, heads.read_pairs, prefix)
            self.write(prefix, owners=np.array([0, 0, 1, 2], np.int32), images=images + np.nan)
            self.assertRaises(study.DataError, heads.read_pairs, prefix)
            self.write(prefix, images=images, labels=np.array([2, 0, 1], np.int32))
            self.assertEqual(heads.read_labelled(prefix).labels.tolist(), [2, 0, 1])
            self.write(prefix, labels=np.array([2, -1, 1], np.int32))
            with self.assertRaisesRegex(study.DataError, "a label of two to 4096 classes"):
                heads.read_labelled(prefix)
            self.write(prefix, features=images.astype(np.float64))  # these count where they exist
            self.assertRaises(study.DataError, heads.read_pairs, prefix)
            with open(f"{prefix}.features.npy", "r+b") as file:
                file.truncate(9)
            self.assertRaises(study.DataError, heads.read_pairs, prefix)

    def test_captions_are_samples_of_images_that_train(self):
        f = heads.draw_pairs(700, 1)
        f.texts, f.owners = np.repeat(f.texts, 3, 0), np.repeat(f.owners, 3)
        whole = heads.divide(heads.Features(f.images, f.texts, f.owners), 50, 1)
        f = heads.divide(f, 50, 1, 400, True)
        self.assertEqual((len(f.train), f.count), (400, 1152))
        self.assertTrue((f.train == whole.train[:400]).all())  # fewer images are the first of more
        pairs = heads._Pairs(f, heads.Setting(1, "clip", {"tau": 0.1}))
        for epoch in (0, 1):
            ids, images, texts = pairs.epoch(epoch)
            self.assertEqual(sorted(ids), list(range(1152)))
            self.assertTrue((texts == f.captions[ids]).all() and (f.owners[texts] == images).all())
            self.assertEqual(len(set(texts)), 1152)
            self.assertTrue(np.isin(images, f.train).all())


    def test_the_exact_normaliser_is_its_definition(self):
        s = np.random.default_rng(0).normal(size=(7, 7))
        found = normalizer.exact(s.copy(), 0.5)
        for side, m in enumerate((s, s.T)):
            for i in range(7):
                mean = np.mean([math.exp((m[i, j] - m[i, i]) / 0.5) for j in range(7) if j != i])
                self.assertAlmostEqual(found[side, i], math.log(mean), 12)


class TrainingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pairs = heads.divide(heads.draw_pairs(512, 1), 100, 1)
        cls.points = heads.divide(heads.draw_labelled(3), 500, 1)

    def train(self, f, settings, size=128, epochs=6, rate=None, hidden=0):
        seen = []
        rate = 0.001 * size**0.5 if rate is None else rate
        out = heads.train(f, settings, size, epochs, rate, hidden, 32, seen.append)
        self.assertEqual(sum(seen), len(settings) * epochs * len(f.train))  # whatever the batch
        return out

    def test_every_loss_learns_in_every_batch(self):
        options = types.SimpleNamespace(seed=0)
        for size in (8, 128):
            keys = [batch.Key(name, size, 0.1, 0, gamma, 1) for name, gamma in
                    (("clip", 0), ("sogclr", 0.6), ("sogclr-forgets", 1), ("nuclr-frozen", 0.6), ("nuclr-fixed", 0.6),
                     ("nuclr-auto", 0.6))]
            for outcome in self.train(self.pairs, [batch._setting(options, key) for key in keys], size):
                self.assertGreater(min(outcome.test_score, outcome.validation_score), 15)  # chance: 5
                self.assertTrue(math.isfinite(outcome.gcl))

    def test_a_run_does_not_depend_on_those_beside_it(self):
        settings = [heads.Setting(seed, "nuclr", {"tau": 0.1, "gamma": 0.6}, None) for seed in (7, 8, 9)]
        for hidden in (0, 16):
            together = self.train(self.pairs, settings, 32, 2, hidden=hidden)
            self.assertEqual(self.train(self.pairs, settings[1:2], 32, 2, hidden=hidden), together[1:2])
            self.assertNotEqual(together[0], together[1])

    def test_a_hidden_layer_fits_better(self):
        settings = [heads.Setting(1, "sogclr", {"tau": 0.1, "gamma": 0.6})]
        linear, hidden = (self.train(self.pairs, settings, 8, hidden=units)[0] for units in (0, 64))
        self.assertLess(hidden.gcl, 0.9 * linear.gcl)

    def test_recall_falls_with_wrong_pairs_and_less_with_rince(self):
        f = heads.divide(heads.draw_pairs(1100, 1), 100, 1)
        settings = [heads.Setting(1, "clip", {"tau": 0.2}, noise=noise) for noise in (0, 0.4, 1)]
        settings.append(heads.Setting(1, "rince", {"tau": 0.2, "q": 0.5}, noise=0.4))
        clean, noisy, wrong, rince = (o.test_score for o in self.train(f, settings, epochs=12, rate=0.01))
        self.assertTrue(clean > noisy + 5 and noisy > wrong + 5 and wrong < 10 and rince > noisy)

    def test_accuracy_falls_with_wrong_labels(self):
        settings = [heads.Setting(1, "clip", {"tau": 0.2}, noise=noise) for noise in (0, 0.5, 0.95)]
        right, half, wrong = (o.test_score for o in self.train(self.points, settings, rate=0.004))
        self.assertTrue(right > 30 and half < right - 10 and wrong < half)  # chance: 5


RUNS = """# drawn
# a comment
clip 8 0.1 0.001 0 0 10 20 30 90 90 90 0.5
clip 8 0.2 0.001 0 0 11 20 30 1 1 1
clip 8 0.2 0.001 0 1 0 0 0 10 20 30
clip 8 0.2 0.001 0 2 0 0 0 12 22 32
clip 8 0.1 0.001 0 1 0 0 0 99 99 99
sogclr 8 0.1 0.001 0.8 0 1 2 3 1 2 3 -0.5
sogclr 8 0.1 0.001 0.4 0 1 2 3 1 2 3 -0.75
sogclr 8 0.1 0.001 0.8 1 0 0 0 11 21 31
sogclr 8 0.1 0.001 0.8 2 0 0 0 15 25 35
"""


class CellsTest(unittest.TestCase):
    def read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "batch.cells")
            with open(path, "w") as file:
                file.write(text)
            cells = batch.Cells.read(path)
            cells.write(path)
            again = batch.Cells.read(path)
        self.assertEqual((again.settings, repr(again)), (cells.settings, repr(cells)))  # NaN is not equal to itself
        return cells

    def test_a_file_of_runs_is_read_as_it_was_written(self):
        cells = self.read(RUNS.replace("12 22 32", "12 33.333333333333336 32"))
        self.assertEqual((cells.settings, len(cells)), ("drawn", 9))

    def test_a_line_that_is_no_run_is_named(self):
        for end in ("90 90", "90 90 101", "90 90 90 0.5 more", "90 90 nan", "90 90 90 0.5 1 1", "90 90 90 0.5 -1"):
            with self.assertRaisesRegex(study.DataError, "line 2 is not METHOD"):
                self.read(f"# drawn\nclip 8 0.1 0.001 0 0 10 20 30 {end}\n")
        with self.assertRaisesRegex(study.DataError, "line 2"):
            self.read("# drawn\nnobody 8 0.1 0.001 0 0 10 20 30 90 90 90\n")

    def test_validation_chooses_and_other_seeds_count(self):
        result = batch.result_of(self.read(RUNS))
        clip, sogclr = result["rows"]
        self.assertEqual((clip["tau"], clip["seeds"]), (0.2, 2))  # not that of the better test recall
        self.assertEqual(sogclr["gamma"], 0.8)  # the first of equal ones
        for row, name, value in ((clip, "recall", 21), (clip, "recall_se", 1), (clip, "r1", 11), (sogclr, "over_clip", 2),
                                 (sogclr, "over_clip_se", 1)):
            self.assertAlmostEqual(row[name], value, 12)
        self.assertEqual([(row["method"], row["tau"], row["gcl"]) for row in result["fit"]],
                         [("clip", 0.1, 0.5), ("sogclr", 0.1, -0.75)])

    def test_runs_of_fewer_samples_are_tuned_by_themselves(self):
        fewer = "".join(f"{line} 1024\n" if len(line.split()) == 13 else f"{line} nan 1024\n"
                        for line in RUNS.replace(" 11 20 30 1 1 1", " 9 20 30 1 1 1").splitlines()[2:])
        cells = self.read(RUNS + fewer)
        self.assertEqual(len(cells), 18)
        rows = {(row["method"], row["samples"]): row for row in batch.result_of(cells)["rows"]}
        self.assertEqual([rows["clip", samples]["tau"] for samples in (0, 1024)], [0.2, 0.1])
        self.assertEqual(rows["sogclr", 1024]["over_clip_se"], None)  # clip has one seed there



if __name__ == "__main__":
    unittest.main()
