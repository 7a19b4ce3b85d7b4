"""What DataLoader makes of samples besides its defaults, each against a plain computation: pixels, captions, subsets,
fields, functions as tokenizers, and what changes with the epoch."""

import gc
import json
import os
import struct
import subprocess
import sys
import threading
import time
import unittest
import zlib

try:
    import numpy
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

import ccstream

TESTBIN = os.environ["TESTBIN"]
SAMPLES, BATCH, SIZE = 60, 12, 16


def setUpModule():
    subprocess.run([os.path.join(TESTBIN, "make_images"), "d", str(SAMPLES)], check=True)
    rng = numpy.random.default_rng(3)
    with ccstream.Dataset("d") as ds, ccstream.Writer("several") as writer:
        for i in range(20):
            captions = [f"caption {k} of {i}" for k in range(1 + i % 3)]
            writer.add(ds[int(rng.integers(SAMPLES))].image, captions, metadata={"number": i} if i % 2 else None, key=f"key{i}")
    with ccstream.Writer("square") as writer:
        for i in range(BATCH):
            writer.add(png(64, i), ["a gradient"])


def png(side, offset):
    """A gradient in both directions."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    y, x = numpy.mgrid[:side, :side]
    rows = numpy.zeros((side, 1 + 3 * side), numpy.uint8)
    rows[:, 1::3], rows[:, 2::3], rows[:, 3::3] = 3 * x + offset, 3 * y, 2 * (x + y)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows.tobytes())) + chunk(b"IEND", b""))


def loader(data="d", **options):
    return ccstream.DataLoader(data, **{"batch_size": BATCH, "image_size": SIZE, "num_threads": 2, **options})


def ids(dl):
    return [numpy.asarray(b["id"]).tolist() for b in dl]


def bits_of_bfloat16(batch):
    """What DLPack shows, as NumPy has no bfloat16: read through the pointer in the capsule's struct."""
    import ctypes
    capsule = batch["image"].__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = pointer(capsule, b"dltensor")
    data, = struct.unpack("Q", ctypes.string_at(at, 8))
    code, bits, lanes = struct.unpack("BBH", ctypes.string_at(at + 20, 4))
    assert (code, bits, lanes) == (4, 16, 1), (code, bits, lanes)
    count = int(numpy.prod(batch["image"].shape))
    return numpy.frombuffer(ctypes.string_at(data, 2 * count), numpy.uint16).reshape(batch["image"].shape).copy()


class PixelsTest(unittest.TestCase):
    def test_types_norms_and_layouts_are_those_of_numpy(self):
        plain = numpy.array(next(iter(loader()))["image"])
        for norm, (mean, deviation) in ((None, ((0,) * 3, (1,) * 3)), *ccstream.NORMS.items(),
                                        (((0.1, 0.2, 0.3), (1e-4, 0.5, 4)),) * 2):
            want = (plain / 255 - numpy.float32(mean).astype(float)) / numpy.float32(deviation).astype(float)
            for dtype in ("float32", "float16"):
                with numpy.errstate(over="ignore"):
                    expected = want.astype(dtype)
                for layout, view in (("nhwc", expected), ("nchw", expected.transpose(0, 3, 1, 2)),
                                     ("channels_last", expected.transpose(0, 3, 1, 2))):
                    image = numpy.asarray(next(iter(loader(dtype=dtype, norm=norm, layout=layout)))["image"])
                    numpy.testing.assert_array_equal(image, view)
                    self.assertEqual(image.flags.c_contiguous, layout != "channels_last")
            bits = numpy.float32(want).view(numpy.uint32)
            near = want.astype(numpy.float32)
            got = bits_of_bfloat16(next(iter(loader(dtype="bfloat16", norm=norm))))
            shown = (got.astype(numpy.uint32) << 16).view(numpy.float32)
            for other in (got.astype(numpy.int64) - 1, got.astype(numpy.int64) + 1):  # the neighbours are not nearer
                neighbour = ((other % 65536).astype(numpy.uint32) << 16).view(numpy.float32)
                ok = numpy.abs(shown - want) <= numpy.abs(neighbour - want)
                self.assertTrue((ok | ~numpy.isfinite(neighbour) | (numpy.sign(neighbour) != numpy.sign(near))).all())
            self.assertEqual(bits.shape, got.shape)

    def test_uint8_has_layouts_too(self):
        plain = numpy.array(next(iter(loader(views=2)))["image2"])
        for layout in ("nchw", "channels_last"):
            image = numpy.asarray(next(iter(loader(views=2, layout=layout)))["image2"])
            numpy.testing.assert_array_equal(image, plain.transpose(0, 3, 1, 2))

    def test_views_of_other_layouts_are_refused_where_they_would_be_wrong(self):
        image = next(iter(loader(layout="channels_last")))["image"]
        self.assertEqual(image.shape, (BATCH, 3, SIZE, SIZE))
        with open(os.devnull, "wb") as file, self.assertRaisesRegex(BufferError, "strides"):
            file.write(image)
        with self.assertRaisesRegex(BufferError, "torch.from_dlpack"):
            memoryview(next(iter(loader(dtype="bfloat16")))["image"])
        self.assertEqual(next(iter(loader(dtype="bfloat16")))["image"].dtype, "bfloat16")

    def test_a_crop_of_the_whole_image_is_the_whole_image(self):
        whole, squashed, part = (next(iter(loader("square", augment=a, crop_scale=c)))
                                 for a, c in (("clip", (1, 1)), ("eval-squash", None), ("clip", (0.1, 0.2))))
        numpy.testing.assert_array_equal(numpy.asarray(whole["image"]), numpy.asarray(squashed["image"]))
        spread = [numpy.ptp(numpy.asarray(b["image"]).astype(int), axis=(1, 2)) for b in (whole, part)]
        self.assertTrue((spread[1] < spread[0] * 0.6).all())  # of a gradient, a part has less

    def test_interpolations_differ_and_bicubic_is_the_default(self):
        images = {i: numpy.array(next(iter(loader(augment="eval-squash", interpolation=i)))["image"])
                  for i in (None, "bilinear", "bicubic", "lanczos")}
        numpy.testing.assert_array_equal(images[None], images["bicubic"])
        for a, b in (("bilinear", "bicubic"), ("bilinear", "lanczos"), ("bicubic", "lanczos")):
            self.assertTrue((images[a] != images[b]).any())

    def test_wrong_values_are_refused(self):
        for text, options in (("float16, bfloat16", {"dtype": "float64"}), ("cannot be normalised", {"norm": "clip"}),
                              ("no norm 'x'", {"norm": "x", "dtype": "float32"}), ("above 0", {"norm": ((0,) * 3, (0,) * 3), "dtype": "float32"}),
                              ("layout", {"layout": "hwc"}), ("0 < min <= max", {"crop_scale": (0.5, 0.2)}),
                              ("lanczos", {"interpolation": "nearest"}), ("fields: 'x'", {"fields": ["x"]}),
                              ("either subset or weights", {"subset": [1], "weights": [1]}), ("epoch 0", {"image_size": {1: 32}}),
                              ("0 or more", {"subset": [-1]}), ("one per sample", {"weights": [1.0]}),
                              ("finite", {"weights": numpy.full(SAMPLES, numpy.nan)}), ("captions=True", {"captions": False, "fields": ["text"]}),
                              ("with one positive", {"caption": 1, "positives": 2})):
            with self.assertRaisesRegex((ccstream.UsageError, ValueError), text, msg=options):
                loader(**options)
        with self.assertRaisesRegex(ccstream.NotFoundError, "no sample 99999"):
            loader(subset=[99999])


class FieldsTest(unittest.TestCase):
    def test_fields_are_those_of_the_samples(self):
        with ccstream.Dataset("several") as ds:
            for options in ({}, {"views": 0}, {"caption": 1}, {"caption_columns": None}):
                dl = loader("several", batch_size=8, drop_last=False, fields=["text", "encoded", "key", "metadata"], **options)
                for b in dl:
                    self.assertEqual("image" in b, options.get("views") != 0)
                    caption = numpy.asarray(b["caption"]).tolist()
                    for row, i in enumerate(numpy.asarray(b["id"]).tolist()):
                        s = ds.by_id(i)
                        self.assertEqual(b["text"][row], s.captions[caption[row]])
                        self.assertEqual((b["encoded"][row], b["key"][row], b["metadata"][row]), (s.image, s.key, s.metadata))
                        if "caption" in options:
                            self.assertEqual(caption[row], 1 % len(s.captions))

    def test_ids_alone_read_no_images(self):
        dl = loader(views=0, captions=False)
        order = ids(loader())
        self.assertEqual(ids(dl), order)
        self.assertEqual((dl.stats()["read_bytes"], sorted(next(iter(dl)))), (0, ["caption", "caption_id", "id", "label"]))
        self.assertGreater(sum(len(x) for b in loader(views=0, fields="encoded") for x in b["encoded"]), 0)

    def test_fields_come_of_each_of_several_datasets(self):
        dl = ccstream.DataLoader(["d", "several"], batch_size=20, image_size=SIZE, fields=["key"])
        with ccstream.Dataset("d") as d, ccstream.Dataset("several") as several:
            for b in dl:
                for i, key in zip(numpy.asarray(b["id"]).tolist(), b["key"]):
                    self.assertEqual(key, (d.by_id(i) if i < d.id_space else several.by_id(i - d.id_space)).key)

    def test_texts_outlive_the_loader_and_threads(self):
        batches = [(b["text"], b["encoded"]) for b in loader(fields=["text", "encoded"], num_threads=1)]
        self.assertEqual(batches, [(b["text"], b["encoded"]) for b in loader(fields=["text", "encoded"], num_threads=4)])

    def test_batches_without_views_outlive_their_loader(self):
        dl = loader(views=0, captions=False)
        b = next(iter(dl))
        want = numpy.array(b["id"])
        dl.close()
        del dl
        gc.collect()
        numpy.testing.assert_array_equal(numpy.asarray(b["id"]), want)


class TokenizerTest(unittest.TestCase):
    @staticmethod
    def lengths(texts):
        return numpy.array([[len(t), len(t) % 7] for t in texts])

    def test_clips_tokenizer_has_a_name(self):
        b = next(iter(loader("several", tokenizer="clip", max_tokens=77, fields=["text"], batch_size=8)))
        tokens, lengths = ccstream.Tokenizer("clip").encode(b["text"], 77)
        numpy.testing.assert_array_equal(numpy.asarray(b["tokens"]), tokens)
        numpy.testing.assert_array_equal(numpy.asarray(b["length"]), lengths)

    def test_a_function_gets_the_captions_on_another_thread(self):
        threads = set()

        def tokenize(texts):
            threads.add(threading.current_thread())
            return self.lengths(texts)

        with ccstream.DataLoader("several", 8, SIZE, tokenizer=tokenize, fields=["text"]) as dl:
            for _ in range(2):
                for b in dl:
                    numpy.testing.assert_array_equal(b["tokens"], self.lengths(b["text"]))
                    self.assertNotIn("length", b)
        self.assertNotIn(threading.main_thread(), threads)
        self.assertFalse(any(t.is_alive() for t in threads))
        b = next(iter(loader("several", batch_size=8, tokenizer=lambda t: {"input_ids": [[1]] * len(t), "attention_mask": [[1]] * len(t)})))
        self.assertEqual((b["tokens"].shape, b["attention_mask"].tolist(), "text" in b), ((8, 1), [[1]] * 8, False))

    def test_a_loader_that_nobody_has_is_closed_at_once(self):
        gc.disable()
        try:
            for options in ({}, {"tokenizer": self.lengths, "prefetch_factor": 1}, {"image_size": {0: 16}}):
                before = len(os.listdir("/proc/self/task"))
                dl = loader(**options)
                next(iter(dl))
                self.assertGreater(len(os.listdir("/proc/self/task")), before)
                del dl
                end = time.monotonic() + 20  # a joined thread may be listed for a moment
                while len(os.listdir("/proc/self/task")) > before and time.monotonic() < end:
                    time.sleep(0.01)
                self.assertEqual(len(os.listdir("/proc/self/task")), before)
        finally:
            gc.enable()

    def test_positions_are_those_of_what_was_delivered(self):
        plain = loader()
        want = [ids(plain), ids(plain)]
        dl = loader(tokenizer=self.lengths)
        batches = iter(dl)
        got = [numpy.asarray(next(batches)["id"]).tolist() for _ in range(2)]
        self.assertEqual((dl.state_dict()["step"], dl.epoch), (2, 0))
        state = dl.state_dict()
        other = loader(tokenizer=self.lengths)
        other.load_state_dict(state)
        self.assertEqual((got + ids(other), ids(other)), (want[0], want[1]))
        with self.assertRaises(ccstream.MismatchError):
            dl.load_state_dict({**state, "seed": 1})
        self.assertEqual([numpy.asarray(b["id"]).tolist() for b in batches], want[0][2:])  # nothing was lost
        dl.set_epoch(1)
        self.assertEqual(ids(dl), want[1])

    def test_exceptions_of_a_function_reach_the_loop(self):
        for result, text in ((lambda t: [1], "expected 12 rows"), (lambda t: {"ids": 1}, "input_ids"), (lambda t: 1 / 0, "division"),
                             (lambda t: [[1], [2, 3]] * 6, "")):
            dl = loader(tokenizer=result)
            for _ in range(2):
                with self.assertRaisesRegex((ccstream.UsageError, ZeroDivisionError, ValueError), text):
                    next(iter(dl))
            dl.close()

    def test_a_slow_function_is_waited_for_as_long_as_the_timeout_says(self):
        waiting = threading.Event()
        dl = loader(tokenizer=lambda t: waiting.wait(20) and self.lengths(t), timeout=0.2)
        with self.assertRaisesRegex(ccstream.TimeoutError, "is slower"):
            next(iter(dl))
        waiting.set()
        dl.timeout = None
        self.assertEqual(len(next(iter(dl))["tokens"]), BATCH)

    def test_batches_that_are_kept_do_not_end_the_run(self):
        dl = loader(tokenizer=self.lengths, prefetch_factor=1, timeout=0.3)
        kept = []
        with self.assertRaisesRegex((ccstream.UsageError, ccstream.TimeoutError), "release|held"):
            for b in dl:
                kept.append(b)
        kept.clear()
        del b
        self.assertEqual(len(next(iter(dl))["tokens"]), BATCH)


class SubsetTest(unittest.TestCase):
    def test_a_subset_is_an_epoch_of_its_own(self):
        with ccstream.Dataset("d") as ds:
            every = ds.ids
        chosen = every[[3, 50, 7, 7, 21, 8, 9, 10, 11, 12, 13, 14]].tolist()
        got = sum(ids(loader(subset=chosen)), [])
        self.assertEqual((sorted(got), got != sorted(got)), (sorted(chosen), True))
        self.assertEqual(sum(ids(loader(subset=chosen, shuffle=False)), []), sorted(chosen))
        mask = numpy.arange(SAMPLES) % 5 != 0
        self.assertEqual(ids(loader(subset=mask)), ids(loader(subset=every[mask])))
        self.assertEqual(sum(ids(loader(subset=mask, shuffle=False)), []), every[mask].tolist())
        for words in ("captions=2..", "caption-bytes=..14"):
            alone = sum(ids(loader("several", batch_size=1, filter=words, drop_last=False)), [])
            self.assertTrue(0 < len(alone) < 20)
            both = sum(ids(loader("several", batch_size=1, subset=range(10), filter=words)), [])
            self.assertEqual(sorted(both), sorted(set(alone) & set(range(10))))

    def test_two_datasets_have_ids_one_after_the_other(self):
        with ccstream.Dataset("d") as d:
            chosen = [int(d.ids[5]), int(d.ids[6]), d.id_space + 3, d.id_space + 4]
        dl = ccstream.DataLoader(["d", "several"], 4, SIZE, subset=chosen)
        self.assertEqual(sorted(ids(dl)[0]), chosen)

    def test_weights_are_how_often_a_sample_comes(self):
        weights = numpy.zeros(SAMPLES)
        weights[:10], weights[10:20], weights[20:30] = 1, 2.5, 0.3
        dl = loader(weights=weights, drop_last=False, views=0)
        with ccstream.Dataset("d") as ds:
            place = {i: k for k, i in enumerate(ds.ids.tolist())}
        counts = numpy.zeros((40, SAMPLES), int)
        for epoch in counts:
            for i in sum(ids(dl), []):
                epoch[place[i]] += 1
        self.assertTrue((counts[:, :10] == 1).all() and (counts[:, 30:] == 0).all())
        self.assertEqual(set(counts[:, 10:20].ravel()), {2, 3})
        self.assertAlmostEqual(counts[:, 10:20].mean(), 2.5, delta=0.1)
        self.assertAlmostEqual(counts[:, 20:30].mean(), 0.3, delta=0.1)
        again = loader(weights=weights, drop_last=False, views=0)
        again.set_epoch(39)
        self.assertEqual(numpy.bincount([place[i] for i in sum(ids(again), [])], minlength=SAMPLES).tolist(), counts[39].tolist())

    def test_a_curriculum_and_sizes_by_epoch_resume(self):
        asked = []
        with ccstream.Dataset("d") as ds:
            every = ds.ids

        def easy_first(epoch):
            asked.append(epoch)
            return every[: 24 + 12 * epoch]

        def make(**options):
            return loader(subset=easy_first, image_size={0: 16, 2: 32}, **options)

        straight = make()
        self.assertEqual(len(straight), 2)
        want = [[(numpy.asarray(b["id"]).tolist(), b["image"].shape[1]) for b in straight] for _ in range(4)]
        self.assertEqual([len(e) for e in want], [2, 3, 4, 5])
        self.assertEqual([e[0][1] for e in want], [16, 16, 32, 32])
        self.assertEqual([max(max(r) for r, _ in e) for e in want], every[[23, 35, 47, 59]].tolist())
        for step in range(8):
            dl, got = make(num_threads=1), []
            while len(got) < step:
                for b in dl:
                    got.append(numpy.asarray(b["id"]).tolist())
                    if len(got) == step:
                        state = json.loads(json.dumps(dl.state_dict()))
                        break
            if not step:
                state = dl.state_dict()
            rest = make(rank=0, world_size=1)
            rest.load_state_dict(state)
            while rest.epoch < 4:
                got += ids(rest)
            self.assertEqual(got, [r for e in want for r, _ in e], step)
        changed = loader(subset=lambda epoch: every[:24], image_size=16)
        before = ids(changed)
        with self.assertRaises(ccstream.MismatchError):
            changed.load_state_dict({**state, "epoch": 1})
        self.assertEqual(len(ids(changed)), len(before))
        self.assertEqual(asked[0], 0)


if __name__ == "__main__":
    unittest.main()
