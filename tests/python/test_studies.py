"""The maths of the studies (tools/ccstudy): exact values, unbiasedness, and what their frame promises."""
# not under sanitizers: Python and NumPy; of ours it calls what test_losses.py calls

import json
import os
import struct
import sys
import tempfile
import unittest

try:
    import numpy as np

    import ccstream
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

from ccstream.studies import cards, chains, command, dynamics, normalizer, page, popularity, run_log, study, toy, zeta


class FrameTest(unittest.TestCase):
    def options(self, *words):
        return command.parse(toy, "ccstudy toy", list(words))

    def test_options_are_read_as_the_other_programs_read_theirs(self):
        self.assertEqual(self.options().repeats, 20)
        for words in (["-r", "3"], ["-r3"], ["--repeats=3"], ["--repeats", "3"], ["-qr3"]):
            self.assertEqual(self.options(*words).repeats, 3)
        for words, text in ((["--repeats"], "requires a value: N"), (["--repeats", "1"], "at least 2, not 1"),
                            (["-r", "x"], "an integer, not 'x'"), (["--quick=1"], "takes no value"),
                            (["--repeats="], "not an empty one"), (["--repeat", "3"], "did you mean '--repeats'"),
                            (["x"], "one argument too many"), (["--out", "--seed=3"], "follows it"),
                            (["-quick"], "did you mean '--quick'")):
            with self.assertRaisesRegex(study.UsageError, text):
                self.options(*words)

    def test_json_has_plain_finite_numbers(self):
        numbers = {"a": np.float64(0.5), "b": float("nan"), "c": 3.0, "_d": 1, "e": np.arange(2)}
        self.assertEqual(page.json_text(numbers), '{"a":0.5,"b":null,"c":3,"e":[0,1]}\n')

    def test_texts_of_strangers_are_harmless_on_a_page(self):
        table = study.Table([study.Column("<a>", "s"), study.Column("b", "s")], [["\"1\" & \u202e", ""]])
        text = "</script><b a=\"1\"> a\0b\x1bc\x7fd\x85e\u202ef"
        bars = study.figure("bars", "t", study.axis("side"), study.axis("count"), [{"x": ["a", "<b>"], "y": [1, 3]}])
        section = study.Section("s", items=[{"kind": "facts", "object": {"_id": text}}])
        html = page.page_html("x", "<title>", table, [section], page.plain_bars(bars), tiles=True).decode()
        for part in ("<h1>&lt;title&gt;</h1>", "<dt>&lt;a&gt;</dt><dd>&quot;1&quot; &amp; [U+202E]</dd>", "&lt;b&gt;</text><rect",
                     '{"_id":"\\u003c/script>\\u003cb a=\\"1\\"> a b c d e[U+202E]f"}'):
            self.assertIn(part, html)
        self.assertNotIn("<dt>b", html)

    def test_a_full_page_has_no_further_images(self):
        made = cards.Cards(room=10, characters=2)
        first, second = (made.card({"id": 1, "thumbnail": "data:12345"[:n]}, "\u00e9ab", ["l"], "own") for n in (10, 1))
        self.assertEqual(first, {"caption": "\u00e9a\u2026", "lines": ["l"], "src": "data:12345", "mark": "own"})
        self.assertEqual(second["missing"], "image omitted")

    def test_a_missing_library_is_named_with_its_package(self):
        with self.assertRaisesRegex(study.MissingError, "apt install python3-torch"):
            sys.modules["torch"] = None  # as if it were not installed
            try:
                study.load("torch.nn")
            finally:
                del sys.modules["torch"]

    def test_files_are_whole_or_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            path = page.Path(folder) / "a.json"
            page.write(path, b"x")
            with self.assertRaises(TypeError):
                page.write(path, None)
            self.assertEqual((path.read_bytes(), os.listdir(folder)), (b"x", ["a.json"]))


class ToyTest(unittest.TestCase):
    def test_partitions_are_the_known_ones(self):
        # By two-dimensional quadrature, apart from this code.
        for tau, x, z in ((0.2, (0.5, 0.5), 20.007707389), (0.2, (-0.6, 0.8), 4.24413793942),
                          (0.2, (-1.0, 0.0), 0.1986524106), (1.0, (-0.6, 0.8), 1.15197876339),
                          (1.0, (1.0, 0.0), 1.71828182846), (0.2, (1e-6, 1e-6), 1.00000500001)):
            self.assertAlmostEqual(toy.partition(tau, np.array(x)).prod() / z, 1.0, 9)

    def test_true_risks_are_the_known_ones(self):
        self.assertAlmostEqual(toy.true_risk(0.2), -0.0808944502, 10)
        self.assertAlmostEqual(toy.true_risk(1.0), -0.0205771449, 10)

    def test_draws_have_the_density(self):
        count, tau = 1 << 14, 0.2
        x, y = toy.draw(np.random.default_rng(1), count, tau)
        self.assertTrue((x[:, 1] >= 0).all() and (y >= 0).all() and (y <= 1).all())
        self.assertLess(abs((x**2).sum(1).mean() - 0.5), 5 * 0.29 / count**0.5)
        risk = (tau * np.log(toy.partition(tau, x).prod(1)) - (x * y).sum(1)).mean()
        self.assertLess(abs(risk - toy.true_risk(tau)), 5 * 0.17 / count**0.5)

    def test_popularity_is_a_fixed_point_and_brings_the_risk_near(self):
        x, y = toy.draw(np.random.default_rng(3), 400, 0.2)
        kernel = np.exp(x @ y.T / 0.2)
        weighted = kernel / popularity.solve(kernel)
        self.assertLess(np.abs((weighted / weighted.sum(1, keepdims=True)).sum(0) - 1.0).max(), 1e-10)
        result = dict(zip(toy._FIELDS, toy.compare(toy.solve(x, y, 0.2), 0.2, toy.true_risk(0.2))))
        self.assertTrue(result["nuclr"] < 0.04 and result["gcl"] > 0.03 and result["nuclr"] < result["gcl"])
        self.assertTrue(result["error_nuclr"] < 0.01 and result["error_gcl"] > 0.03)
        self.assertGreater(result["correlation"], 0.99)


class ZetaTest(unittest.TestCase):
    def test_popularity_of_two_pairs_has_a_closed_form(self):
        # With similarities a b / c d the columns' shares add up to 1 where zeta_2 - zeta_1 = (b - a + d - c) / 2.
        q = popularity.solve(np.exp(np.array([[0.9, 0.2], [-0.4, 0.7]]) / 0.3))
        self.assertAlmostEqual(0.3 * np.log(q[1] / q[0]), (0.2 - 0.9 + 0.7 + 0.4) / 2, 12)

    def test_minimisers_have_no_slope(self):
        for kind in ("drawn", "fitted"):
            p = zeta.problem(kind, 40, 3)
            for side, s in (("text", p.similarity.astype(float)), ("image", p.similarity.T.astype(float))):
                def objective(z):  # eq. (8) by its definition
                    return (0.2 * np.log(np.exp((s - z) / 0.2).sum(1)) - np.diag(s) + z).mean()
                at = p.minimiser[side]
                least = objective(at)
                for j in range(40):
                    above, below = (objective(at + h * (np.arange(40) == j)) for h in (1e-4, -1e-4))
                    self.assertTrue(above > least and below > least)
                    self.assertLess(abs(above - below), 1e-3 * (above + below - 2 * least))

    def learn(self, kind, gradient, epochs):
        learner = zeta.Learner(zeta.problem(kind, 200, 5), gradient, 20, epochs, 5)
        for _ in range(epochs):
            learner.run_epoch()
            at = learner.measure()
            for side in ("image", "text"):  # each form of xi by its definition; zeta begins at -0.05
                self.assertEqual(at[f"xi_all_{side}"], max(0.0, at[f"largest_{side}"]))
                self.assertGreaterEqual(at[f"xi_signed_{side}"], at[f"xi_all_{side}"])
                self.assertGreaterEqual(at[f"xi_norm_{side}"], max(0.05, at[f"xi_signed_{side}"]))
        return at

    def test_algorithm_1_learns_popularity_where_pairs_are_as_drawn(self):
        for gradient in ("paper", "unbiased"):
            at = self.learn("drawn", gradient, 100)
            for side in ("image", "text"):
                self.assertGreater(at[f"correlation_{side}"], 0.99)
                self.assertLess(at[f"distance_{side}"], 0.02)

    def test_the_automatic_rate_learns_popularity_in_five_visits(self):
        p = zeta.problem("drawn", 200, 5)
        for gamma in (0.8, 0.3):
            loss = ccstream.Loss("nuclr", 200, max_batch=20, tau=0.2, gamma=gamma, zeta_lr="auto", zeta_freeze_epochs=0)
            for epoch in range(5):
                order = np.random.default_rng((5, epoch)).permutation(200).reshape(-1, 20)
                for ids in order:
                    loss.step(np.ascontiguousarray(p.similarity[np.ix_(ids, ids)]), ids, epoch=epoch, zeta_lr_image=1,
                              zeta_lr_text=1)
            for side, correlation, spread in ("image", 0.95, 0.5), ("text", 0.97, 0.6):
                learned, exact = loss[f"{side}.zeta"].astype(float), p.minimiser[side]
                self.assertGreater(np.corrcoef(learned, exact)[0, 1], correlation)
                self.assertGreater(learned.std() / exact.std(), spread)

    def test_the_published_gradient_drifts_where_pairs_are_fitted(self):
        paper, unbiased = self.learn("fitted", "paper", 100), self.learn("fitted", "unbiased", 100)
        self.assertTrue(0.5 < zeta.problem("drawn", 200, 5).own_share < 2.5 < 5 < zeta.problem("fitted", 200, 5).own_share)
        for side in ("image", "text"):
            self.assertTrue(unbiased[f"correlation_{side}"] > 0.95 and abs(unbiased[f"mean_{side}"]) < 0.2)
            self.assertTrue(paper[f"correlation_{side}"] < 0.6 and paper[f"mean_{side}"] > 0.3)
        self.assertTrue(unbiased["change_signed"] == 0.0 < 1e-3 < unbiased["change_norm"])


class ChainsTest(unittest.TestCase):
    def run_one(self, method, views, side, steps=4000):
        options = command.parse(chains, "ccstudy chains", ["--steps", str(steps)])
        run = chains.Run(method, views, side, options)
        return [of_side[-1] for of_side in chains.measure(run, [steps], study.Progress(True))]

    def test_chains_that_encode_and_the_cache_sample_the_softmax(self):
        for method, views, side in (("encode", False, 0), ("encode", False, 1), ("encode", True, 0), ("negcache", False, 1)):
            for at in self.run_one(method, views, side):
                with self.subTest(method=method, views=views, side=side):
                    self.assertAlmostEqual(at["mass"], 1.0, 6)
                    self.assertLess(at["error"], 0.15)
                    self.assertLess(at["chi_square"], 27.9)  # 9 degrees of freedom, 0.1 %

    def test_chains_that_skip_lose_most_of_the_mass(self):
        (image,), (text,) = self.run_one("skip", False, 0), self.run_one("skip", False, 1)
        self.assertLess(image["mass"] + text["mass"], 1.0)
        self.assertGreater(min(image["error"], text["error"]), 0.3)

    def test_a_run_is_the_beginning_of_a_longer_one(self):
        options = command.parse(chains, "ccstudy chains", [])
        parts, whole = chains.Run("encode", True, 0, options), chains.Run("encode", True, 0, options)
        for first, count in ((0, 13), (13, 20), (33, 7)):
            parts.advance(first, count)
        whole.advance(0, 40)
        np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12, atol=1e-12)


class MixingTest(unittest.TestCase):
    def test_the_chain_of_lemma_3_2_mixes_when_its_matrix_says(self):
        scores = np.random.default_rng(4).normal(size=7) * 3
        p = np.exp(scores) / np.exp(scores).sum()
        k = chains.kernel(scores)
        np.testing.assert_allclose(k.sum(1), 1.0, atol=1e-14)
        np.testing.assert_allclose(p[:, None] * k, (p[:, None] * k).T, atol=1e-15)  # detailed balance with the softmax
        for within in (0.25, 0.01):
            at, count = np.eye(7), 0
            while np.abs(at - p).sum(1).max() / 2 > within:
                at, count = at @ k, count + 1
            self.assertEqual(chains.proposals(scores, within), count)
        self.assertEqual(chains.proposals(np.zeros(7), 0.25), 1)  # a uniform softmax is what is proposed

    def test_no_chain_is_slower_than_the_bound(self):
        options = command.parse(chains, "ccstudy chains", ["-n", "16", "-b", "4"])
        rows = chains._mixing(options)
        self.assertEqual(len(rows), 15)
        for row in rows:
            self.assertLess(row["steps"], row["bound"])


class NormalizerTest(unittest.TestCase):
    def test_the_gradient_of_neuclips_network_is_the_slope_of_its_objective(self):
        r = np.random.default_rng(5)
        unit = normalizer._unit
        x, own, ids, log_g, tau = unit(r.normal(size=(6, 8))), 0.3 * r.normal(size=6), np.arange(6), r.normal(size=6), 0.2
        network = normalizer.Network(8)
        network.weight, network.owner = r.normal(size=(5, 8)), np.array([2, 9, 9, 9, 4])  # two belong to anchors

        def objective(weight):
            c = x @ unit(weight).T
            terms = []
            for i in range(6):
                e = [np.exp((c[i, k] - own[i]) / tau) for k in range(5) if network.owner[k] != i]
                alpha = np.log(np.mean(e))
                terms.append(np.exp(log_g[i] - alpha) + alpha - 1)
            return np.mean(terms)

        got = network.gradient(x, own, ids, log_g, tau)
        for place in np.ndindex(5, 8):
            shift = np.zeros((5, 8))
            shift[place] = 1e-6
            slope = (objective(network.weight + shift) - objective(network.weight - shift)) / 2e-6
            self.assertAlmostEqual(got[place], slope, delta=1e-7 * max(1, np.abs(got).max()))

    def test_a_network_learns_the_normaliser_of_a_batch_that_stays(self):
        r = np.random.default_rng(6)
        x, t = (normalizer._unit(r.normal(size=(12, 6))) for _ in range(2))
        s = x @ t.T
        log_g = normalizer.exact(s, 0.2)[0]
        network, errors = normalizer.Network(6), []
        for step in range(1, 60):
            alpha = network.step(x, t, np.diag(s), np.arange(12), log_g, 0.2, step + normalizer.RESTART)
            errors.append(float(np.sqrt(np.mean((alpha - log_g) ** 2))))
        self.assertEqual(len(network.weight), normalizer.PROTOTYPES)
        self.assertLess(errors[-1], 0.3)


def checkpoint(path, metadata, tensors):
    """A safetensors file of one-dimensional arrays, without hashes."""
    header, begin = {"__metadata__": metadata}, 0
    for name, values in tensors.items():
        kind = {"f": "F32", "u": {4: "U32", 8: "U64"}.get(values.itemsize)}[values.dtype.kind]
        header[name] = {"dtype": kind, "shape": [len(values)], "data_offsets": [begin, begin + values.nbytes]}
        begin += values.nbytes
    text = json.dumps(header).encode()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for v in tensors.values()))


class DynamicsTest(unittest.TestCase):
    def test_quantiles_are_those_of_evenly_spread_bins(self):
        h = run_log.Histogram(1, -1.0, 0.5, [25.0, 0.0, 50.0, 25.0])
        np.testing.assert_allclose(dynamics.quantiles(h, (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)), (-1.0, -0.75, -0.5, 0.25, 0.5, 1.0))
        values = np.random.default_rng(1).normal(size=5000)
        counts, edges = np.histogram(values, 40)
        h = run_log.Histogram(1, edges[0], edges[1] - edges[0], list(counts / 50))
        shares = (0.05, 0.25, 0.5, 0.75, 0.95)
        np.testing.assert_allclose(dynamics.quantiles(h, shares), np.quantile(values, shares), atol=h.width / 2)

    def moves(self, before, after, names=("text.zeta", "image.zeta"), count=2):
        with tempfile.TemporaryDirectory() as run:
            for step, (metadata, tensors) in ((2, before), (10, after)):
                checkpoint(f"{run}/checkpoints/step-{step}.safetensors", metadata | {"train.step": str(step)}, tensors)
            return dynamics.moves(run, list(names), count)

    def test_samples_that_moved_most_are_found_in_their_dataset(self):
        mix = {"dataset.count": "2", "dataset.0.id_offset": "0", "dataset.1.id_offset": "3"}
        nan = np.nan
        before = {"state.text.zeta": np.float32([0, 0, 0, 0, 1]), "state.image.zeta": np.float32([nan, 1, 1, 1, 1])}
        after = {"state.text.zeta": np.float32([0.25, 0, -0.5, 0, 2]), "state.image.zeta": np.float32([9, 1, 1, 1, 1])}
        found = self.moves((mix, before), (mix, after))
        self.assertEqual((found.first, found.last, list(found.of)), (2, 10, ["text.zeta"]))
        self.assertEqual([(m.place, m.id, m.caption, m.before, m.after) for m in found.of["text.zeta"]], [(1, 1, 0, 1, 2), (0, 2, 0, 0, -0.5)])
        self.assertIsNone(self.moves((mix, after), (mix, after)))

    def test_a_caption_that_moved_is_found_by_its_entry(self):
        captions = {"captions": np.uint32([2, 0, 3])}
        old = {"state.text.zeta": np.zeros(5, np.float32)} | captions
        new = {"state.text.zeta": np.float32([0, 0.1, 0, 0, 1])} | captions
        found = self.moves(({}, old), ({}, new), ["text.zeta"]).of["text.zeta"]
        self.assertEqual([(m.id, m.caption) for m in found], [(2, 2), (0, 1)])
        grown = {"state.text.zeta": np.float32([0, 0, 0.1, 0, 0, 1]), "captions": np.uint32([3, 0, 3])}
        self.assertIsNone(self.moves(({}, old), ({}, grown), ["text.zeta"]))

    def test_checkpoints_that_are_none_are_skipped(self):
        with tempfile.TemporaryDirectory() as run:
            checkpoint(f"{run}/checkpoints/step-3.safetensors", {"train.step": "3"}, {"state.text.zeta": np.zeros(2, np.float32)})
            for name, data in (("step-1", b""), ("step-4", b"\xff" * 80), ("step-5", struct.pack("<Q", 2) + b"[]"), ("x", b"")):
                with open(f"{run}/checkpoints/{name}.safetensors", "wb") as file:
                    file.write(data)
            os.mkfifo(f"{run}/checkpoints/step-6.safetensors")
            checkpoint(f"{run}/checkpoints/step-7.safetensors", {"train.step": "7"}, {"state.text.zeta": np.ones(2, np.float32)})
            self.assertEqual(dynamics.moves(run, ["text.zeta"], 1).last, 7)
            with open(f"{run}/checkpoints/step-7.safetensors", "rb") as file:
                whole = file.read()
            with open(f"{run}/checkpoints/step-8.safetensors", "wb") as file:
                file.write(whole[:-4])  # its column is cut
            self.assertIsNone(dynamics.moves(run, ["text.zeta"], 1))
            self.assertIsNone(dynamics.moves(f"{run}/none", ["text.zeta"], 1))

    def test_the_minimiser_agrees_with_itself(self):
        problem = zeta.problem("drawn", 60, 3)
        kernel = np.exp(problem.similarity.astype(float) / zeta._TAU)
        for side, matrix in (("text", kernel), ("image", kernel.T)):
            got = dynamics._agreement(matrix, 7 + problem.minimiser[side], zeta._TAU)
            self.assertGreater(got["correlation"], 0.99999)
            self.assertAlmostEqual(got["spread"], got["minimiser_spread"], places=2)
            self.assertLess(got["gap"], 1e-3)
            self.assertLess(dynamics._agreement(matrix, -problem.minimiser[side], zeta._TAU)["correlation"], -0.99999)
        q, gap = popularity.approach(kernel, 1, 0.0)  # its first point has no popularity in it
        np.testing.assert_array_equal(q, np.ones(60))
        self.assertGreater(gap, 0.1)


if __name__ == "__main__":
    unittest.main()
