"""ccstream-eval suite: metrics against their definitions, and what a broken folder is answered."""
# not under sanitizers: Python and NumPy; of ours it calls what test_losses.py calls

import io
import json
import os
import random
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

from ccstream.studies import command, page, study, suite, suite_encode, suite_folder, suite_metrics, suite_page, suite_sets


def unit(rng, rows, columns):
    out = rng.normal(size=(rows, columns)).astype(np.float32)
    return out / np.linalg.norm(out, axis=1, keepdims=True)


class MetricsTest(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(0)

    def test_of_equal_scores_the_lower_label_wins(self):
        vectors = unit(self.rng, 7, 16)
        vectors[5] = vectors[1]
        images = vectors[[1, 1, 5, 2]] + 0.01 * unit(self.rng, 4, 16)
        labels = np.array([1, 5, 5, 2])
        predicted, ranks = suite_metrics.classify(images, vectors, labels)
        self.assertEqual(predicted.tolist(), [1, 1, 1, 2])
        self.assertEqual(ranks.tolist(), [0, 1, 1, 0])
        self.assertEqual(suite_metrics.accuracies(predicted, ranks, labels, 7),
                         {"acc1": 0.5, "acc5": 1.0, "mean_per_class_recall": (1 + 0 + 1) / 3})
        self.assertIsNone(suite_metrics.accuracies(predicted, ranks, labels, 4)["acc5"])

    def test_retrieval_is_counted_from_whole_orders(self):
        images, owners = unit(self.rng, 30, 8), np.repeat(np.arange(30), 5)[:-1]
        texts = images[owners] + 0.9 * unit(self.rng, len(owners), 8)
        scores = texts @ images.T
        of_text = np.argsort(-scores, axis=1, kind="stable")
        of_image = np.argsort(-scores.T, axis=1, kind="stable")
        got = suite_metrics.retrieval(images, texts, owners)
        for k in (1, 5, 10):
            self.assertAlmostEqual(got[f"image_retrieval_recall@{k}"],
                                   np.mean([owners[t] in of_text[t, :k] for t in range(len(texts))]))
            self.assertAlmostEqual(got[f"text_retrieval_recall@{k}"],
                                   np.mean([i in owners[of_image[i, :k]] for i in range(30)]))
        self.assertEqual(suite_metrics.first_captions(images, texts, owners)["karpathy_mean_recall@1"], got["mean_recall@1"])
        more = np.concatenate([owners, [29, 29, 29]])
        order = np.argsort(more, kind="stable")
        texts = np.concatenate([texts, -texts[:3]])[order]
        self.assertNotEqual(suite_metrics.retrieval(images, texts, more[order]), got)
        first = suite_metrics.first_captions(images, texts, more[order])
        self.assertNotEqual(first["karpathy_image_retrieval_recall@1"],
                            suite_metrics.retrieval(images, texts, more[order])["image_retrieval_recall@1"])

    def test_macro_f1_and_the_worst_group_are_over_what_occurs(self):
        labels, predicted = np.array([0, 0, 2, 2]), np.array([0, 1, 2, 2])
        got = suite_metrics.macro(predicted, labels)
        self.assertAlmostEqual(got["F1-macro_all"], (2 / 3 + 1) / 2)
        self.assertAlmostEqual(got["recall-macro_all"], 0.75)
        groups = suite_metrics.by_group("acc", np.array([1.0, 0.0, 1.0, 1.0]), np.array([3, 3, 1, 1]), "region")
        self.assertEqual((groups["acc_wg"], groups["acc_region:0"], groups["acc_region:3"], groups["count_region:2"]), (0.5, None, 0.5, 0.0))

    def test_fmow_counts_other_as_datacomp_and_leaves_it_out_as_wilds(self):
        meta = np.array([[0, 14, 0, 0], [5, 15, 0, 0], [0, 15, 1, 0], [1, 14, 1, 0]])
        predicted, labels = np.array([0, 1, 1, 1]), np.array([0, 0, 1, 1])
        got, more = suite_metrics.wilds("wilds/fmow", predicted, predicted != labels, labels, meta)
        self.assertEqual((got["acc_worst_region"], got["acc_worst_year"], more), (0.0, 0.5, {"wilds_acc_worst_region": 1.0}))

    def test_jaccard_and_average_precision(self):
        self.assertEqual(suite_metrics.jaccard(np.array([0.9, 0.1, 0.8, 0.2]), np.array([1, 0, 0, 1], bool)), 1 / 3)
        got = suite_metrics.winogavil([(5, 1.0), (12, 0.5), (10, 0.25)])
        self.assertEqual((got["jaccard_score_10-12"], got["jaccard_score_5-6"], got["jaccard_score_6"]), (0.375, 1.0, None))
        images, vectors = np.eye(3, dtype=np.float32), np.array([[0.9, 0.5, 0.1]], np.float32)
        truth = np.array([[1.0], [0.0], [1.0]])
        self.assertAlmostEqual(suite_metrics.mean_average_precision(images, vectors, truth)["mean_average_precision"], (1 + 2 / 3) / 2)


    def test_pairing_is_clip_benchmarks_argmax(self):
        right, wrong = np.array([[0.9, 0.2], [0.1, 0.8]]), np.array([[0.2, 0.9], [0.1, 0.8]])
        got = suite_metrics.pairing({"": [right, wrong]})
        self.assertEqual(got, {"image_acc": 0.5, "text_acc": 0.5, "acc": 0.5})
        equal = np.full((1, 2), 0.5)  # torch's argmax takes the first of equal ones
        got = suite_metrics.pairing({"add_att": [equal, np.array([[0.1, 0.2]])], "swap_obj": [equal]})
        self.assertEqual(got, {"add_att_acc": 0.5, "swap_obj_acc": 1.0, "mean_acc": 0.75})


class TableTest(unittest.TestCase):
    def test_38_sets_are_averaged_and_every_folder_is_one_set(self):
        self.assertEqual(sum(s.main is not None for s in suite_sets.SETS), 38)
        self.assertEqual([len(sets) for _, sets in suite_sets.AVERAGES], [1, 6, 7, 13, 3, 2, 38])
        self.assertEqual(len(suite_sets.BY_FOLDER), sum(len(s.folders) for s in suite_sets.SETS + suite_sets.EXTRAS))
        for folder, key in (("vtab-pets", "vtab/pets"), ("cifar10", "cifar10"), ("dollar_street", "fairness/dollar_street"),
                            ("mscoco_captions", "retrieval/mscoco_2014_5k_test_image_text_retrieval")):
            self.assertEqual(suite_sets.BY_FOLDER[folder].key, key)

    def test_an_average_says_of_how_many(self):
        rows = [{"key": "imagenet1k", "metrics": {"main_metric": 0.5}}, {"key": "imagenet-a", "metrics": {"main_metric": 0.25}}]
        got = {a["name"]: a for a in suite_page.averages(rows)}
        self.assertEqual((got["ImageNet & variants"]["value"], got["ImageNet & variants"]["sets"]), (0.375, 2))
        self.assertEqual((got["Average"]["sets"], got["Average"]["of"], got["VTAB"]["value"]), (2, 38, None))


class FolderTest(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.TemporaryDirectory()
        self.addCleanup(self.top.cleanup)
        self.folder = Path(self.top.name) / "wds_mnist"
        (self.folder / "test").mkdir(parents=True)
        self.put("test/0.tar", b"\0" * 1024)
        self.put("test/nshards.txt", b"1\n")
        self.put("classnames.txt", b"zero\n\n  # two\t\n")
        self.put("zeroshot_classification_templates.txt", b"#{c}, {{one}} {c}\n")

    def put(self, name, data):
        (self.folder / name).write_bytes(data)

    def refuses(self, text):
        with self.assertRaisesRegex(study.DataError, text):
            suite_folder.read_set(self.folder)

    def test_every_line_is_a_class_and_a_template_is_pythons(self):
        one = suite_folder.read_set(self.folder)
        self.assertEqual((one.known.key, one.names), ("mnist", ["zero", "", "# two"]))
        self.assertEqual(one.prompts(), [["#zero, {one} zero"], ["#, {one} "], ["## two, {one} # two"]])

    def test_broken_files_are_named_with_their_line(self):
        self.put("zeroshot_classification_templates.txt", b"a {c}\na digit\n")
        self.refuses("templates.txt: line 2: 'a digit' must contain {c}")
        for bad in (b"{}", b"{c!r}", b"{c:>9}", b"{c} {d}", b"{c.real}", b"{c"):
            self.put("zeroshot_classification_templates.txt", bad)
            self.refuses("line 1")
        self.put("zeroshot_classification_templates.txt", b"{c}")
        self.put("classnames.txt", b"zero\n\xffone\n")
        self.refuses("classnames.txt: line 2: byte 5 is not UTF-8")
        self.put("classnames.txt", b"")
        self.refuses("contains no class")
        self.put("classnames.txt", b"zero\n")
        self.put("test/nshards.txt", b"2")
        self.refuses("expects 2 tar files, but .*1.tar is missing")
        self.put("test/nshards.txt", b"two")
        self.refuses("'two' is not a number of tar files")
        self.put("test/nshards.txt", b"1")
        self.put("test/1.tar", b"")
        self.assertIn("1.tar and what follows is not read", suite_folder.read_set(self.folder).notes[0])
        self.put("test/0.tar", b"version https://git-lfs.github.com/spec/v1\n")
        self.refuses("git-lfs pointer")
        self.put("dataset_type.txt", b"regression\n")
        self.refuses("'regression': expected one of")

    def test_two_folders_of_one_set_are_refused(self):
        os.symlink(self.folder, Path(self.top.name) / "mnist_test")
        options = command.parse(suite, "suite", ["run", "--sets", self.top.name, "-o", "out"])
        with self.assertRaisesRegex(study.DataError, "are the same set, mnist"):
            suite.find(options)

    def test_extras_are_read_as_they_are_given(self):
        top = Path(self.top.name)
        (top / "winoground/data/images").mkdir(parents=True)
        (top / "sugar_crepe/val2017").mkdir(parents=True)
        for name in ("winoground/data/images/ex_0_img_0.png", "winoground/data/images/ex_0_img_1.png", "sugar_crepe/val2017/1.jpg"):
            (top / name).write_bytes(b"x")
        row = {"caption_0": "a\nb", "caption_1": "c", "image_0": "ex_0_img_0", "image_1": "ex_0_img_1"}
        (top / "winoground/data/examples.jsonl").write_text(json.dumps(row) + "\n")
        one = suite_folder.read_set(top / "winoground")
        self.assertEqual((one.known.key, one.instances[0]["images"], one.all_prompts()), ("winoground", [0, 1], ["a b", "c"]))
        rows = {"0": {"filename": "1.jpg", "caption": "a", "negative_caption": "b"}}
        for task in ("add_att", "swap_obj"):
            (top / f"sugar_crepe/{task}.json").write_text(json.dumps(rows))
        one = suite_folder.read_set(top / "sugar_crepe")
        self.assertEqual((len(one.images), [i["task"] for i in one.instances]), (1, ["add_att", "swap_obj"]))
        (top / "sugar_crepe/add_att.json").write_text('{"7": {"filename": "../1.jpg", "caption": "a", "negative_caption": "b"}}')
        with self.assertRaisesRegex(study.DataError, "add_att.json: '7': val2017/../1.jpg is missing"):
            suite_folder.read_set(top / "sugar_crepe")
        (top / "winoground/data/examples.jsonl").write_text('{"caption_0": "a"}')
        with self.assertRaisesRegex(study.DataError, "examples.jsonl: line 1: requires two captions"):
            suite_folder.read_set(top / "winoground")

    def test_random_bytes_in_any_text_file_are_read_or_refused(self):
        rng = random.Random(0)
        files = ("classnames.txt", "zeroshot_classification_templates.txt", "dataset_type.txt", "test/nshards.txt",
                 "instances.jsonl", "examples.jsonl", "val2017", "add_att.json")
        pieces = [b"{c}", b"{", b"}", b"\n", b"\r", b"\0", b"\xff", b"1", b"9" * 5000, b"retrieval", b"\xe2\x80\xa8", b"{}",
                  b'{"cue": "a", "candidates": [], "associations": []}', b'{"caption_0": "a", "image_0": 1}', b'{"1": {}}', b"[1]", b"[" * 9000, b" ", "é".encode()]
        for _ in range(400):
            name = rng.choice(files)
            before = (self.folder / name).read_bytes() if (self.folder / name).exists() else None
            self.put(name, b"".join(rng.choice(pieces) for _ in range(rng.randrange(6))))
            try:
                one = suite_folder.read_set(self.folder)
                if one is not None:
                    one.all_prompts()
            except (study.DataError, study.NotFoundError):
                pass
            os.unlink(self.folder / name)
            if before is not None:
                self.put(name, before)

    def test_damaged_arrays_are_read_or_refused(self):
        rng = random.Random(0)
        good = io.BytesIO()
        np.save(good, np.arange(4))
        tar = self.folder / "test/0.tar"

        def read(data):
            with tarfile.open(tar, "w") as out:
                info = tarfile.TarInfo("a.npy")
                info.size = len(data)
                out.addfile(info, io.BytesIO(data))
            return suite_encode.read_meta([tar], [0], 1)
        self.assertEqual(read(good.getvalue()).tolist(), [[0, 1, 2, 3]])
        shapes = [b"(9999999999999,)", b"(-1,)", b"()", b"(True,)", b"'x'", b"((((("]
        for i in range(600):
            data = bytearray(good.getvalue())
            if i < len(shapes):
                data = data.replace(b"(4,)", shapes[i])
            for _ in range(rng.randrange(1, 6) if i >= len(shapes) else 0):
                at = rng.randrange(len(data))
                data[at:at + rng.randrange(2)] = bytes(rng.randrange(256) for _ in range(rng.randrange(3)))
            try:
                read(bytes(data[:rng.randrange(len(data)) if i % 7 == 6 else None]))
            except study.DataError as error:
                self.assertIn("row 0: its .npy", str(error))
        for values in (np.array(["a"]), np.array([np.nan]), np.array([1j])):
            other = io.BytesIO()
            np.save(other, values)
            with self.assertRaisesRegex(study.DataError, "not an array of numbers"):
                read(other.getvalue())

    def test_random_lines_of_results_are_read_or_refused(self):
        rng = random.Random(0)
        path = Path(self.top.name) / "eval_results.jsonl"
        pieces = [b'{"key": "mnist", "metrics": {}, "model": "a"}', b"\n", b"{", b"}", b"[1]", b"\0", b"\xff", b"NaN", b'"key"', b"[" * 9000]
        for _ in range(300):
            path.write_bytes(b"".join(rng.choice(pieces) for _ in range(rng.randrange(5))))
            try:
                suite_page.averages(suite.finished(path, "a", False))
            except (study.DataError, page.ExistsError):
                pass

    def test_results_of_another_checkpoint_are_kept(self):
        path = Path(self.top.name) / "eval_results.jsonl"
        path.write_text(json.dumps({"key": "mnist", "metrics": {"acc5": float("nan")}, "model": "a"}) + "\n")
        self.assertEqual(len(suite.finished(path, "a", False)), 1)
        with self.assertRaisesRegex(page.ExistsError, "another checkpoint"):
            suite.finished(path, "b", False)
        self.assertEqual(suite.finished(path, "b", True), [])
        path.write_text("{")
        with self.assertRaisesRegex(study.DataError, "line 1: not a JSON object"):
            suite.finished(path, "a", False)


unittest.main()
