"""The package ccstream over the built library: batches against ccbench's digest, views without
copies, positions, exceptions, threads, fork, signals, and the stub of the extension."""

import ast
import ctypes
import gc
import http.server
import importlib.util
import inspect
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import unittest
import warnings
from unittest import mock

try:
    import numpy
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

import ccstream
from ccstream import _ccstream

BIN, TESTBIN = os.environ["BIN"], os.environ["TESTBIN"]
SAMPLES, BATCH, SIZE = 60, 12, 16


def setUpModule():
    subprocess.run([os.path.join(TESTBIN, "make_images"), "d", str(SAMPLES)], check=True)
    subprocess.run([os.path.join(TESTBIN, "make_images"), "damaged", "30", "12"], check=True)


def loader(data="d", **options):
    options = {"batch_size": BATCH, "image_size": SIZE, "num_threads": 2, **options}
    return ccstream.DataLoader(data, **options)


def as_numpy(batch):
    return {name: numpy.array(array) for name, array in batch.items()}


def ids(batches):
    return [numpy.asarray(b["id"]).tolist() for b in batches]


def fingerprint_of(path):
    with ccstream.Dataset(path) as ds:
        return ds.fingerprint


class RemoteTest(unittest.TestCase):
    def test_a_remote_dataset_is_like_its_folder(self):
        server = subprocess.Popen([sys.executable, os.path.join(os.environ["SRC"], "tests/net/fault_server.py"), "."],
                                  stdout=subprocess.PIPE, text=True)
        try:
            url = f"http://127.0.0.1:{int(server.stdout.readline())}/d"
            with self.assertRaisesRegex(ccstream.UsageError, "256 MiB"):
                ccstream.configure_remote(cache="cache", cache_size=1)
            ccstream.configure_remote(cache="cache")
            with self.assertRaises(ccstream.ExistsError):
                ccstream.configure_remote()
            pieces = []
            ccstream.read_remote(url + "/dataset.json", pieces.append)
            with open("d/dataset.json", "rb") as file:
                self.assertEqual(b"".join(pieces), file.read())
            with self.assertRaises(ccstream.NotFoundError):
                ccstream.read_remote(url + "/nosuch", pieces.append)
            with self.assertRaisesRegex(ccstream.UsageError, "'d/dataset.json' is not a location"):
                ccstream.read_remote("d/dataset.json", pieces.append)
            with self.assertRaises(ZeroDivisionError):
                ccstream.read_remote(url + "/dataset.json", lambda piece: 1 // 0)
            with ccstream.Dataset(url) as remote, ccstream.Dataset("d") as local:
                self.assertEqual(remote.fingerprint, local.fingerprint)
                self.assertEqual(remote[5], local[5])
                with multiprocessing.get_context("fork").Pool(3) as workers:  # as torch's DataLoader has
                    self.assertEqual(workers.map(remote.__getitem__, range(8, 38), 1), [local[i] for i in range(8, 38)])
                    fingerprints = workers.map(fingerprint_of, [url] * 3)
                self.assertEqual(fingerprints, [local.fingerprint] * 3)
            with loader(url) as remote, loader("d") as local:
                for a, b in zip(remote, local, strict=True):
                    for name, array in as_numpy(a).items():
                        numpy.testing.assert_array_equal(array, b[name])
            with self.assertRaisesRegex(ccstream.NotFoundError, "404"):
                ccstream.Dataset(url + "x")
        finally:
            server.kill()
            server.wait()
            server.stdout.close()


class DatasetTest(unittest.TestCase):
    def test_samples_are_found_by_position_and_id(self):
        with ccstream.Dataset("d") as ds:
            self.assertEqual((len(ds), ds.ids.dtype, len(ds.ids)), (SAMPLES, numpy.int64, SAMPLES))
            info = json.loads(subprocess.run([os.path.join(BIN, "ccdump"), "info", "--json", "d"], check=True,
                                             capture_output=True).stdout)
            self.assertEqual(ds.fingerprint, info["fingerprint"])
            self.assertGreater(ds.id_space, ds.ids.max())
            for position in (0, 7, -1):
                s = ds[position]
                self.assertEqual(s.id, ds.ids[position])
                self.assertEqual(ds.by_id(s.id), s)
                self.assertEqual(ds.captions(position), s.captions)
                self.assertEqual(s.image[:2], b"\xff\xd8")
                self.assertEqual(s.format, "jpeg")
            self.assertEqual([s.id for s in ds], ds.ids.tolist())
            self.assertEqual(ds[-3:], [ds[57], ds[58], ds[59]])
            self.assertIn(f"image=<{len(ds[7].image)} bytes>, captions=[", repr(ds[7]))
            self.assertEqual(pickle.loads(pickle.dumps(ds)).fingerprint, ds.fingerprint)
            self.assertEqual(ds.info["samples"], SAMPLES)
            self.assertEqual(len(ds.classes), ds.info["classes"])

    def test_a_notebook_shows_image_and_captions(self):
        ds = ccstream.Dataset("d")
        sample = ds[7].__class__(**{**{f: getattr(ds[7], f) for f in ds[7].__slots__}, "captions": ["a <b> & c"]})
        page = sample._repr_html_()
        self.assertIn("<li>a &lt;b&gt; &amp; c</li>", page)
        self.assertIn('<img src="data:image/jpeg;base64,/9j/', page)

    def test_a_data_frame_has_captions_and_columns(self):
        ds = ccstream.Dataset("d")
        if importlib.util.find_spec("pandas") is None:
            with self.assertRaisesRegex(ccstream.UnsupportedError, "needs pandas"):
                ds.to_pandas()
            return
        ds.attach("score", ds.ids[::2], numpy.arange(30, dtype=numpy.float32))
        ds.attach("vector", ds.ids, numpy.ones((SAMPLES, 3), numpy.float32))
        ds.attach("note", ds.ids[:2], ["x", "y"])
        try:
            frame = ccstream.Dataset("d").to_pandas()
            self.assertEqual((frame.index.tolist(), list(frame.columns)), (ds.ids.tolist(), ["captions", "note", "score", "vector"]))
            self.assertEqual(frame["captions"].iloc[3], ds.captions(3))
            self.assertEqual((frame["score"].iloc[4], frame["score"].isna().sum(), frame["note"].iloc[1]), (2.0, 30, "y"))
            self.assertEqual(frame["vector"].iloc[0].tolist(), [1.0, 1.0, 1.0])
            self.assertEqual(list(ds.to_pandas(["score"]).columns), ["captions", "score"])
        finally:
            for name in ("score", "vector", "note"):
                ds.detach(name)

    def test_threads_read_one_dataset(self):
        ds = ccstream.Dataset("d")
        wrong = []

        def read():
            wrong.extend(i for i in range(SAMPLES) if ds[i].id != ds.ids[i])

        threads = [threading.Thread(target=read) for _ in range(8)]
        [t.start() for t in threads], [t.join() for t in threads]
        self.assertEqual(wrong, [])

    def test_errors_are_exceptions_with_the_reason(self):
        ds = ccstream.Dataset("d")
        for error, builtin, text, call in (
                (ccstream.NotFoundError, FileNotFoundError, "absent", lambda: ccstream.Dataset("absent")),
                (ccstream.NotFoundError, LookupError, "999", lambda: ds.by_id(999)),
                (IndexError, LookupError, "position 60", lambda: ds[60]),
                (ValueError, ValueError, "is not within", lambda: ds.by_id(-1)),
                (TypeError, TypeError, "", lambda: ds["0"])):
            with self.assertRaisesRegex(error, text) as caught:
                call()
            self.assertIsInstance(caught.exception, builtin)
        ds.close()
        ds.close()
        for call in (lambda: ds[0], lambda: ds.captions(0), lambda: ds.by_id(0), lambda: ds.ids):
            with self.assertRaisesRegex(ccstream.ClosedError, "the dataset is closed"):
                call()
        os.mkdir("empty")
        with self.assertRaises(ccstream.Error):
            ccstream.Dataset("empty")


class LoaderTest(unittest.TestCase):
    def test_three_epochs_are_those_of_ccbench(self):
        xxhash = ctypes.CDLL("libxxhash.so.0")
        xxhash.XXH64.restype = ctypes.c_uint64
        for options, flags in (({"augment": "crop"}, []), ({"augment": "paper", "seed": 5, "views": 2},
                                                         ["--augment", "paper", "--seed", "5", "--views", "2"])):
            data = bytearray()
            dl = loader(**options)
            self.assertEqual(len(dl), SAMPLES // BATCH)
            for epoch in range(3):
                for step, b in enumerate(dl):
                    self.assertEqual((b.epoch, b.step, b.replaced), (epoch, step, 0))
                    names = [n for n in ("image", "image2", "tokens", "length", "label", "id", "caption_id") if n in b]
                    arrays = [numpy.asarray(b[n]) for n in names]
                    for row in range(len(b["id"])):
                        for a in arrays:
                            data += a[row].tobytes()
            out = subprocess.run([os.path.join(BIN, "ccbench"), "loader", "d", "--json", "--digest", "--epochs", "3",
                                  "--batch-size", str(BATCH), "--size", str(SIZE), "--threads", "1", *flags],
                                 check=True, capture_output=True).stdout
            digest = xxhash.XXH64(bytes(data), ctypes.c_size_t(len(data)), ctypes.c_uint64(0))
            self.assertEqual(f"{digest:016x}", json.loads(out)["digest"])

    def test_arrays_are_views_of_the_loaders_memory(self):
        b = next(iter(loader()))
        image = b["image"]
        self.assertEqual((image.shape, image.dtype, len(image)), ((BATCH, SIZE, SIZE, 3), "uint8", BATCH))
        views = [numpy.asarray(image), numpy.asarray(memoryview(image)), numpy.from_dlpack(image)]
        for v in views:
            self.assertEqual((v.shape, v.dtype), (image.shape, numpy.uint8))
            self.assertEqual(v.ctypes.data, views[0].ctypes.data)
        views[0][0, 0, 0, 0] ^= 255
        self.assertEqual(views[2][0, 0, 0, 0], views[0][0, 0, 0, 0])
        self.assertEqual([numpy.asarray(b[n]).dtype for n in ("tokens", "length", "id", "caption_id", "label")],
                         [numpy.int32, numpy.int32, numpy.int64, numpy.int64, numpy.int32])
        self.assertEqual(b["tokens"].shape, (BATCH, 30))

    def test_dlpack_has_both_capsules_and_refuses_copies(self):
        a = next(iter(loader()))["id"]
        self.assertEqual(a.__dlpack_device__(), (1, 0))
        self.assertIn('"dltensor"', repr(a.__dlpack__()))
        self.assertIn('"dltensor"', repr(a.__dlpack__(max_version=(0, 8))))
        self.assertIn('"dltensor_versioned"', repr(a.__dlpack__(max_version=(1, 2), dl_device=(1, 0), copy=False)))
        for options in ({"stream": 1}, {"dl_device": (2, 0)}, {"copy": True}):
            with self.assertRaises(BufferError):
                a.__dlpack__(**options)
        for options in ({"max_version": 1}, {"dl_device": "cpu"}):
            with self.assertRaises(TypeError):
                a.__dlpack__(**options)

    def test_views_outlive_batch_and_loader(self):
        want = [as_numpy(b) for b in loader()]
        dl = loader(prefetch_factor=4)
        views = []
        for b in dl:
            views.append([numpy.asarray(b["image"]), numpy.from_dlpack(b["id"]), memoryview(b["tokens"])])
        del b
        dl.close()
        del dl
        gc.collect()
        for w, (image, ident, tokens) in zip(want, views):
            self.assertTrue((w["image"] == image).all() and (w["id"] == ident).all() and (w["tokens"] == tokens).all())

    def test_memory_returns_with_the_last_view(self):
        dl = loader(prefetch_factor=1)
        for _ in range(3):
            for b in dl:
                view = numpy.asarray(b["image"])
                del b
                view = view[2:4]
                del view
        kept = []
        with self.assertRaisesRegex(ccstream.UsageError, "release"):
            for b in dl:
                kept.append(b["id"])

    def test_a_callers_memory_is_used_and_given_back(self):
        given = []

        def allocate(size):
            block = numpy.empty(size + 64, numpy.uint8)
            block = block[-block.ctypes.data % 64:][:size]
            given.append((block.ctypes.data, block.ctypes.data + size))
            return block

        dl = loader()
        options = (*dl._options[:-1], allocate)
        handle = _ccstream.Loader(*options)
        arrays = handle.next(None)[0]
        image = numpy.asarray(arrays["image"])
        self.assertTrue(any(a <= image.ctypes.data < b for a, b in given))
        self.assertTrue((image == numpy.asarray(next(iter(dl))["image"])).all())
        before = sys.getrefcount(allocate)
        handle.close()
        self.assertEqual(image.sum(), image.copy().sum())
        del arrays, image, options
        self.assertLess(sys.getrefcount(allocate), before)
        with self.assertRaises(ccstream.OutOfMemoryError):
            _ccstream.Loader(*dl._options[:-1], lambda size: bytearray(1))

    def test_runs_continue_on_other_threads_and_ranks(self):
        straight = loader()
        want = [ids(straight) for _ in range(3)]
        first = loader(num_threads=1)
        batches = iter(first)
        [next(batches) for _ in range(2)]
        state = json.loads(json.dumps(first.state_dict()))
        ranks = [loader(num_threads=3, rank=r, world_size=2) for r in range(2)]
        for dl in ranks:
            dl.load_state_dict(state)
        rest = [ids(dl) for dl in ranks]
        self.assertEqual([sorted(a + b) for a, b in zip(*rest)], [sorted(x) for x in want[0][2:]])
        for dl in ranks:
            self.assertEqual(dl.epoch, 1)
            batches = iter(dl)
            next(batches)
        self.assertEqual(ranks[0].state_dict(), ranks[1].state_dict())
        again = loader()  # the second resume, of a resumed state
        again.load_state_dict(ranks[1].state_dict())
        again.set_epoch(1)  # where it is already
        self.assertEqual([ids(again), ids(again)], [want[1][1:], want[2]])

    def test_a_for_that_was_left_begins_the_next_epoch(self):
        want = loader()
        want = [ids(want) for _ in range(3)]
        dl = loader()
        for held in dl:
            break
        self.assertEqual(ids(dl), want[1])  # though a batch is alive
        self.assertEqual(numpy.asarray(held["id"]).tolist(), want[0][0])
        for _ in dl:
            break
        dl.set_epoch(0)
        self.assertEqual(ids(dl), want[0])
        old = iter(dl)
        next(old)
        next(iter(dl))
        with self.assertRaisesRegex(ccstream.UsageError, "this `for` loop is no longer valid"):
            next(old)

    def test_states_of_other_runs_are_refused(self):
        dl = loader()
        state = dl.state_dict()
        for other in (loader(seed=1), loader(batch_size=10), loader("damaged"), loader(shuffle=False)):
            with self.assertRaises(ccstream.MismatchError):
                other.load_state_dict(state)
            next(iter(other))
        with self.assertRaisesRegex(ccstream.UsageError, "no 'epoch'"):
            dl.load_state_dict({k: v for k, v in state.items() if k != "epoch"})

    def test_ranks_come_from_the_launcher(self):
        for names, proof in ((("RANK", "WORLD_SIZE"), {"MASTER_ADDR": "localhost"}),
                             (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), {"PMIX_NAMESPACE": "7"}),
                             (("PMI_RANK", "PMI_SIZE"), {"PMI_FD": "0"}), (("PMI_RANK", "PMI_SIZE"), {"PMI_PORT": "h:1"}),
                             (("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), {"SLURM_TASK_PID": str(os.getppid())})):
            with mock.patch.dict(os.environ, {**dict(zip(names, ("2", "3"))), **proof}):
                dl = loader()
                self.assertEqual((dl.rank, dl.world_size, len(next(iter(dl))["id"])), (2, 3, BATCH // 3))
            # of an enclosing job
            with mock.patch.dict(os.environ, dict(zip(names, ("2", "3")))), self.assertWarnsRegex(Warning, names[0]):
                self.assertEqual((loader().rank, loader().world_size), (0, 1))
        with mock.patch.dict(os.environ, SLURM_PROCID="0", SLURM_NTASKS="8"), self.assertWarnsRegex(Warning, "ignored"):
            self.assertEqual((loader().rank, loader().world_size), (0, 1))
        self.assertEqual((loader().rank, loader().world_size), (0, 1))

    def test_ranks_share_batches_that_they_do_not_divide(self):
        with self.assertRaisesRegex(ccstream.UsageError, "batch_size 2 is the global batch size and must be at least 3"):
            loader(batch_size=2, rank=0, world_size=3)
        for batch_size, drop_last, last in ((13, True, 0), (13, False, SAMPLES % 13), (28, False, 4)):
            counts, together = [], []
            for rank in range(7):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    dl = loader(batch_size=batch_size, drop_last=drop_last, rank=rank, world_size=7, num_threads=1, views=0)
                self.assertEqual(["the last batch of an epoch has 4 rows, and some of 7 ranks receive none" in str(w.message) for w in caught],
                                 [True] if last == 4 else [])
                batches = [numpy.asarray(b["id"]).tolist() for b in dl]
                counts.append([len(b) for b in batches])
                together.append(batches)
            self.assertEqual([sum(c) for c in zip(*counts)], [batch_size] * (SAMPLES // batch_size) + [last] * (last > 0))
            self.assertTrue(all(max(c) - min(c) <= 1 for c in zip(*counts)))
            alone = loader(batch_size=batch_size, drop_last=drop_last, num_threads=1, views=0)
            for b, parts in zip(alone, zip(*together)):
                self.assertEqual(sorted(numpy.asarray(b["id"]).tolist()), sorted(sum(parts, [])))

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "torch is not installed")
    def test_ranks_of_torch_come_before_those_of_the_launcher(self):
        import torch.distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        os.environ.update(RANK="2", WORLD_SIZE="3", MASTER_ADDR="localhost")
        try:
            dl = loader()
            self.assertEqual((dl.rank, dl.world_size, len(next(iter(dl))["id"])), (0, 1, BATCH))
        finally:
            del os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"]
            dist.destroy_process_group()

    def test_damaged_samples_are_replaced_and_counted(self):
        dl = loader("damaged", batch_size=10)
        self.assertEqual(sum(b.replaced for b in dl), 1)
        self.assertEqual((dl.stats()["corrupt"], dl.stats()["batches"]), (1, 3))
        with self.assertRaises(ccstream.CorruptError):
            list(map(len, loader("damaged", batch_size=10, max_corrupt=0)))

    def test_wrong_options_are_refused(self):
        for error, options in ((ccstream.UsageError, {"augment": "sharpen"}), (ccstream.UsageError, {"order": "random"}),
                               (ccstream.UsageError, {"image_size": 1}), (ValueError, {"batch_size": -1}),
                               (ccstream.UsageError, {"batch_size": 0}), (ccstream.UsageError, {"batch_size": 61}),
                               (ValueError, {"seed": 2**64}), (ccstream.UsageError, {"rank": 1}),
                               (ccstream.UsageError, {"rank": 2, "world_size": 2}), (TypeError, {"batch_size": 1.5}),
                               (ccstream.Error, {"tokenizer": b"no model"}), (ValueError, {"data": []}),
                               (ccstream.NotFoundError, {"data": "absent"}), (TypeError, {"seeds": 1}),
                               (ccstream.UsageError, {"timeout": -1}), (ccstream.UsageError, {"crop_scale": 0.9}),
                               (ccstream.UsageError, {"dtype": numpy.float32})):
            with self.subTest(**options), self.assertRaises(error) as caught:
                loader(**options)
            self.assertTrue(str(caught.exception))
        for name, number in (("batch_size", -1), ("num_threads", -2), ("seed", 0.5)):
            with self.assertRaisesRegex((ccstream.UsageError, TypeError), f"^{name} is {number}, expected"):
                loader(**{name: number})

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "torch is not installed")
    def test_memory_is_pinned_where_torch_has_cuda_and_a_warning_says_where_not(self):
        import torch
        want = next(iter(loader()))["id"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            batch = next(iter(loader(pin_memory=True)))
        self.assertEqual([w.filename for w in caught if "finds no CUDA" in str(w.message)],
                         [] if torch.cuda.is_available() else [__file__])
        self.assertEqual(torch.from_dlpack(batch["image"]).is_pinned(), torch.cuda.is_available())
        self.assertEqual(numpy.asarray(batch["id"]).tolist(), numpy.asarray(want).tolist())

    def test_pinned_memory_needs_torch(self):
        code = ("import sys; sys.modules['torch'] = None  # which makes the import fail\n"
                "import ccstream\n"
                "try:\n    ccstream.DataLoader('d', 12, 16, pin_memory=True)\n"
                "except ccstream.UnsupportedError as error:\n    print(error)\n")
        out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        self.assertEqual(out, "pin_memory needs torch, which is not installed\n")

    def test_a_batch_names_what_it_lacks(self):
        batch = next(iter(loader(captions=False)))
        self.assertNotIn("tokens", batch)
        for name, text in (("tokens", "ccpack tokenizer"), ("pixels", "it has image, ")):
            with self.assertRaisesRegex(KeyError, text):
                batch[name]
        self.assertEqual(repr(batch["id"]), f"Array(int64, ({BATCH},))")
        self.assertEqual(repr(loader()), f"DataLoader({SAMPLES} samples, 5 batches of {BATCH}, rank 0 of 1)")

    def test_a_tokenizer_is_a_path_or_bytes(self):
        want = numpy.array(next(iter(loader()))["tokens"])
        with open("d/tokenizer.model", "rb") as file:
            model = file.read()
        for tokenizer in ("d/tokenizer.model", model):
            self.assertTrue((numpy.asarray(next(iter(loader(tokenizer=tokenizer)))["tokens"]) == want).all())
        with self.assertRaises(FileNotFoundError):
            loader(tokenizer="absent")

    def test_a_closed_loader_says_so(self):
        dl = loader()
        with dl:
            next(iter(dl))
        for call in (lambda: next(iter(dl)), dl.state_dict, dl.stats, lambda: dl.set_epoch(1)):
            with self.assertRaisesRegex(ccstream.ClosedError, "the loader is closed"):
                call()
        dl.close()


class HoldingHandler(http.server.BaseHTTPRequestHandler):
    """Serves ranges of the files here; those of images once the server's `released` is set."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        try:
            with open("." + self.path, "rb") as file:
                data = file.read()
        except OSError:
            data = b""
        first, last = (int(n) for n in self.headers["Range"].removeprefix("bytes=").split("-"))
        last = min(last, len(data) - 1)
        if self.path.endswith(".tar.zst") and last > 0:
            self.server.released.wait()
        self.send_response(206 if data else 404)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.end_headers()
        self.wfile.write(data[first:last + 1])

    def log_message(self, *arguments):
        pass


class HoldingServer(http.server.ThreadingHTTPServer):
    request_queue_size = 128  # all connections of a loader at once

    def handle_error(self, request, client_address):
        pass  # the loader left before its answer


class WaitTest(unittest.TestCase):
    """The loader waits for a server that answers when the test says so."""

    def setUp(self):
        server = HoldingServer(("127.0.0.1", 0), HoldingHandler)
        self.released = server.released = threading.Event()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        for clean_up in (server.server_close, thread.join, server.shutdown, self.released.set):
            self.addCleanup(clean_up)
        self.data = f"http://127.0.0.1:{server.server_port}/d"

    def slow_loader(self, **options):
        return loader(self.data, batch_size=SAMPLES, prefetch_factor=1, **options)

    def assert_batch_comes(self, dl):
        self.released.set()
        self.assertEqual(len(next(iter(dl))["id"]), SAMPLES)

    def test_a_wait_has_an_end(self):
        for timeout in (0.0, 0.15):
            dl = self.slow_loader(timeout=timeout)
            begin = time.monotonic()
            with self.assertRaises(TimeoutError) as caught:
                next(iter(dl))
            self.assertIs(type(caught.exception), ccstream.TimeoutError)
            self.assertGreater(time.monotonic() - begin, timeout - 0.01)
        dl.timeout = None
        self.assert_batch_comes(dl)

    def test_a_signal_ends_a_wait(self):
        class Stop(Exception):
            pass

        def stop(number, frame):
            raise Stop

        old = signal.signal(signal.SIGALRM, stop)
        try:
            dl = self.slow_loader()
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with self.assertRaises(Stop):
                next(iter(dl))
        finally:
            signal.signal(signal.SIGALRM, old)
        self.assert_batch_comes(dl)

    def test_ctrl_c_ends_a_wait(self):
        code = ("import ccstream, signal\n"
                "signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's '&' takes away\n"
                f"dl = ccstream.DataLoader('{self.data}', {SAMPLES}, {SIZE}, prefetch_factor=1)\n"
                "print('waits', flush=True)\n"
                "try:\n    next(iter(dl))\n"
                "except KeyboardInterrupt:\n"
                "    print(dl.stats()['batches'], flush=True)\n"
                "print(len(next(iter(dl))['id']))\n")
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
            self.assertEqual(child.stdout.readline(), "waits\n")
            time.sleep(0.1)
            child.send_signal(signal.SIGINT)
            self.assertEqual(child.stdout.readline(), "0\n")
            self.released.set()
            self.assertEqual(child.communicate()[0], f"{SAMPLES}\n")
        self.assertEqual(child.returncode, 0)

    def test_one_thread_waits_and_others_may_close(self):
        dl = self.slow_loader(timeout=None)
        errors = []

        def wait():
            try:
                next(iter(dl))
            except ccstream.Error as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.1)
        with self.assertRaisesRegex(ccstream.UsageError, "another thread"):
            next(iter(dl))
        self.assertEqual(dl.stats()["batches"], 0)
        dl.close()
        thread.join()
        self.assertEqual([type(e) for e in errors], [ccstream.ClosedError])


class ProcessTest(unittest.TestCase):
    def test_a_child_after_fork_gets_an_error(self):
        dl, ds = loader(), ccstream.Dataset("d")
        batch = next(iter(dl))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                next(iter(dl))
            except ccstream.ForkedError as error:
                ok = "after the fork" in str(error) and ds[3].id == ds.ids[3] and len(loader()) == len(dl)
                ok = ok and next(iter(loader()))["id"].shape == (BATCH,)
                del batch
                dl.close()
                code = 0 if ok else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(sum(1 for _ in dl), len(dl))

    def test_threads_have_loaders_of_their_own(self):
        got = []
        threads = [threading.Thread(target=lambda: got.append(sum(1 for _ in loader()))) for _ in range(4)]
        [t.start() for t in threads], [t.join() for t in threads]
        self.assertEqual(got, [SAMPLES // BATCH] * 4)

    def test_the_end_of_the_process_with_everything_alive(self):
        code = ("import ccstream, numpy\n"
                f"dl = ccstream.DataLoader('d', {BATCH}, {SIZE})\n"
                "it = iter(dl); b = next(it); v = numpy.from_dlpack(b['image']); c = b['id'].__dlpack__()\n")
        subprocess.run([sys.executable, "-c", code], check=True)


def rss_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class ErrorTest(unittest.TestCase):
    def test_every_exception_has_a_cause(self):
        loss = ccstream.Loss("nuclr", 9)
        os.mkdir("newer")
        with open("d/dataset.json") as file, open("newer/dataset.json", "w") as out:
            out.write(file.read().replace('"version":1', '"version":9'))
        image = ccstream.Dataset("d")[0].image
        taken, closed = loader(), ccstream.Dataset("d")
        closed.close()

        def forked():  # in a child, which reports by its exit code
            child = os.fork()
            if child == 0:
                try:
                    next(iter(taken))
                except ccstream.ForkedError:
                    os._exit(7)
                os._exit(1)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7:
                raise ccstream.ForkedError

        causes = {
            "UsageError": lambda: loader(augment="sharpen"),
            "OutOfMemoryError": lambda: _ccstream.Loader(*taken._options[:-1], lambda size: bytearray(1)),
            "StorageError": lambda: loss.save("d/dataset.json/below", "0f", 1),
            "CorruptError": lambda: ccstream.Tokenizer(b"no model"),
            "VersionError": lambda: ccstream.Dataset("newer"),
            "LimitError": lambda: ccstream.Writer("limits").add(image, ["one"] * 257),
            "UnsupportedError": lambda: ccstream.Loss("clip", 9).carried([1, 2]),
            "NotFoundError": lambda: ccstream.Dataset("absent"),
            "ExistsError": lambda: ccstream.Writer("d"),
            "MismatchError": lambda: loader(seed=1).load_state_dict(taken.state_dict()),
            "ForkedError": forked,
            "ClosedError": lambda: closed[0],
        }
        kinds = {n for n in dir(ccstream) if n.endswith("Error") and n != "Error"}
        self.assertEqual(set(causes), kinds - {"TimeoutError"})  # which WaitTest meets
        for name, call in causes.items():
            with self.subTest(name), self.assertRaises(getattr(ccstream, name)) as caught:
                call()
            self.assertIs(type(caught.exception), getattr(ccstream, name))


class LeakTest(unittest.TestCase):
    """The short form of bench.py --leaks."""

    def held(self):
        gc.collect()
        return (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))), sys.getallocatedblocks(), rss_mib()

    def check(self, use, blocks, mib):
        use()
        grown = []
        for _ in range(3):  # a leak is in each use; the interpreter's caches grow in some of the first
            kernel, objects, memory = self.held()
            use()
            kernel_after, objects_after, memory_after = self.held()
            self.assertEqual(kernel, kernel_after)  # files and threads
            grown.append((objects_after - objects, memory_after - memory))
        self.assertLess(min(g[0] for g in grown), blocks)
        if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # which keeps what was freed
            self.assertLess(min(g[1] for g in grown), mib)

    def test_opens_and_closes_leave_nothing(self):
        def use():  # 20 loaders, each with 4 MiB of slots, half of them left to the collector
            for n in range(20):
                dl = loader(image_size=160, batch_size=BATCH, num_threads=1)
                numpy.asarray(next(iter(dl))["id"])
                if n % 2:
                    dl.close()
        self.check(use, 100, 20)

    def test_batches_leave_nothing(self):
        with loader(batch_size=2) as dl:
            def use():  # a view of 1,500 batches
                for _ in range(50):
                    for b in dl:
                        numpy.from_dlpack(b["image"]), memoryview(b["id"])
            self.check(use, 100, 2)


class TokenizerTest(unittest.TestCase):
    def test_rows_are_those_of_the_loader(self):
        ds = ccstream.Dataset("d")
        t = ccstream.Tokenizer(ds)
        b = next(iter(loader()))
        captions = [c for id in numpy.asarray(b["id"]) for c in ds.by_id(id).captions or [""]]
        tokens, lengths = t.encode(captions)
        self.assertEqual((tokens.shape, tokens.dtype, lengths.dtype), ((len(captions), 30), numpy.int32, numpy.int32))
        self.assertTrue((tokens < len(t)).all())
        rows = {row.tobytes() for row in tokens}
        self.assertTrue(all(row.tobytes() in rows for row in numpy.asarray(b["tokens"])))
        for row, length in zip(tokens, lengths):
            self.assertTrue((row[length:] == t.pad).all())
        self.assertEqual([a.shape for a in t.encode([])], [(0, 30), (0,)])
        with self.assertRaises(ccstream.UsageError):
            t.encode(["a"], max_tokens=1)
        for error, source in ((ccstream.CorruptError, b"no model"), (FileNotFoundError, "absent"), (TypeError, 3)):
            with self.assertRaises(error):
                ccstream.Tokenizer(source)
        with self.assertRaises(TypeError):
            ccstream._ccstream.Tokenizer(3)

    def test_one_text_is_no_list_of_texts(self):
        tokenizer = ccstream.Tokenizer("clip")
        with self.assertRaisesRegex(TypeError, "a list of texts"):
            tokenizer.encode("a dog")
        self.assertEqual(repr(tokenizer), "Tokenizer(49408 tokens, texts end with 49407)")

    def test_clip_is_built_in(self):
        t = ccstream.Tokenizer("clip")
        self.assertEqual((len(t), t.begin, t.end, t.eos_id, t.pad), (49408, 49406, 49407, 49407, 0))
        for clean in (False, True):
            tokens, lengths = t.encode(["A cat's  PHOTO."], 8, clean)
            self.assertEqual(tokens.tolist(), [[49406, 320, 2368, 568, 1125, 269, 49407, 0]])
            self.assertEqual(lengths.tolist(), [7])
        with self.assertRaises(ccstream.UnsupportedError):
            ccstream.Tokenizer(b'{"model": {"type": "Unigram"}}')


class WriterTest(unittest.TestCase):
    def test_what_is_written_is_read(self):
        source = ccstream.Dataset("d")
        with ccstream.Writer("w", shard_samples=7) as w:
            w.set_classes(["cat", "dog"])
            for i, s in enumerate(source):
                id = w.add(s.image, ["caf\u00e9", *s.captions], {"n": i, "t": "\u00e9"}, key=f"k{i}", label=i % 2)
                self.assertEqual(id, i)
            for error, text, call in (
                    (ccstream.CorruptError, "", lambda: w.add(s.image[:99])), (ccstream.Error, "", lambda: w.add(b"")),
                    (ccstream.ExistsError, "", lambda: w.add(s.image, id=3, key="k")),
                    (ccstream.CorruptError, "not-utf8", lambda: w.add(s.image, ["\udcff"], key="k")),
                    (TypeError, "list of texts", lambda: w.add(s.image, "one")),
                    (ValueError, "is not within", lambda: w.add(s.image, id=-3)),
                    (ccstream.LimitError, "metadata of 5000009 bytes: a sample has at most 4194304",
                     lambda: w.add(s.image, metadata={"a": 5000000 * "b"})),
                    (TypeError, "JSON", lambda: w.add(s.image, metadata={"a": b""}))):
                with self.assertRaisesRegex(error, text):
                    call()
        ds = ccstream.Dataset("w")
        self.assertEqual((len(ds), ds.classes, ds.info["shards"]), (SAMPLES, ["cat", "dog"], 9))
        self.assertEqual([s.image for s in ds], [s.image for s in source])
        self.assertEqual((ds[5].captions[0], ds[5].metadata, ds[5].key, ds[5].label),
                         ("caf\u00e9", {"n": 5, "t": "\u00e9"}, "k5", 1))
        with self.assertRaisesRegex(ccstream.ClosedError, "the writer is closed"):
            w.add(s.image)
        with self.assertRaises(ccstream.ExistsError):
            ccstream.Writer("w")
        with ccstream.Writer("w", append=True) as w:
            self.assertEqual(w.add(s.image, key="new"), SAMPLES)
        self.assertEqual(len(ccstream.Dataset("w")), SAMPLES + 1)

    def test_an_exception_keeps_what_was_added(self):
        image = ccstream.Dataset("d")[0].image
        with self.assertRaises(KeyError) as caught, ccstream.Writer("kept") as w:
            w.add(image, ["one"])
            raise KeyError
        self.assertIn("kept has the samples that were added before", caught.exception.__notes__[0])
        with ccstream.Writer("kept", append=True) as w:
            w.add(image, ["two"])
        self.assertEqual([s.captions for s in ccstream.Dataset("kept")], [["one"], ["two"]])
        with self.assertRaises(KeyError), ccstream.Writer("failed"):
            raise KeyError  # before the first sample
        with self.assertRaises(ccstream.NotFoundError):
            ccstream.Dataset("failed")
        with self.assertRaises(ccstream.UsageError), ccstream.Writer("failed"):
            pass  # no sample
        with self.assertRaises(ccstream.UsageError):
            ccstream.Writer("failed", container="zip")

    def test_a_killed_process_leaves_what_it_published(self):
        code = ("import ccstream, os, signal\n"
                "image = ccstream.Dataset('d')[0].image\n"
                "w = ccstream.Writer('killed')\n"
                "w.set_classes(['a', 'b'])\n"
                "for i in range(7):\n"
                "    w.add(image, [str(i)], label=i % 2)\n"
                "    if i % 3 == 2:\n        w.publish()\n"
                "os.kill(os.getpid(), signal.SIGKILL)\n")
        self.assertEqual(subprocess.run([sys.executable, "-c", code]).returncode, -signal.SIGKILL)
        with ccstream.Dataset("killed") as ds:
            self.assertEqual(([s.captions for s in ds], ds.classes), ([[str(i)] for i in range(6)], ["a", "b"]))
            image = ds[0].image
        with ccstream.Writer("killed", append=True) as w:
            self.assertEqual(w.add(image, ["again"], label=1), 6)
        self.assertEqual(ccstream.Dataset("killed")[6].captions, ["again"])

    def test_a_label_beyond_the_classes_is_refused_when_it_is_added(self):
        image = ccstream.Dataset("d")[0].image
        with ccstream.Writer("labels") as w:
            w.add(image, label=2)
            with self.assertRaisesRegex(ValueError, "label 2, and there are names for 2 classes"):
                w.set_classes(["a", "b"])
            w.set_classes(["a", "b", "c"])
            with self.assertRaisesRegex(ValueError, "label 3 is not among the 3 classes"):
                w.add(image, label=3)
            w.add(image, label=0)
        self.assertEqual([s.label for s in ccstream.Dataset("labels")], [2, 0])

    def test_closing_without_finishing_warns(self):
        image, writer = ccstream.Dataset("d")[0].image, ccstream.Writer("lost")
        writer.add(image)
        with self.assertWarnsRegex(Warning, r"lost: 1 unpublished samples were removed; call finish\(\)"):
            writer.close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            writer.close()
            with ccstream.Writer("lost") as writer:
                writer.add(image)
            writer.close()

    def test_threads_add_at_once(self):
        images = [s.image for s in ccstream.Dataset("d")]
        with ccstream.Writer("threads") as w:
            def add(part):
                for i in range(part, SAMPLES, 4):
                    w.add(images[i], [str(i)], id=i)
            threads = [threading.Thread(target=add, args=(part,)) for part in range(4)]
            [t.start() for t in threads], [t.join() for t in threads]
        ds = ccstream.Dataset("threads")
        self.assertEqual([(s.image, s.captions) for s in ds], [(x, [str(i)]) for i, x in enumerate(images)])


class LossTest(unittest.TestCase):
    def test_options_of_a_loss_and_their_values(self):
        options = ccstream.loss_options("nuclr", gamma=0.5, gamma_schedule="cosine", tau=None)
        self.assertEqual((options["tau"], options["gamma"], options["xi"], options["zeta_lr"], options["gamma_epochs"]),
                         (0.01, 0.5, "signed", "auto", 0.0))
        self.assertNotIn("tau_plus", options)
        self.assertEqual(ccstream.loss_options("fastclip-v3", gamma_epochs=5.0)["gamma_epochs"], 5.0)
        for message, name, given in (("does not read gamma", "clip", {"gamma": 0.5}), ("no loss 'clop'", "clop", {}),
                                     ("no option tua", "clip", {"tua": 1}), ("is not within", "nuclr", {"gamma": 2}),
                                     ("expected one of signed, norm, all", "nuclr", {"xi": "max"})):
            with self.assertRaisesRegex(ccstream.UsageError, message):
                ccstream.loss_options(name, **given)

    def test_a_loss_keeps_its_state_by_id(self):
        loss = ccstream.Loss("nuclr", 50, id_space=60, max_batch=4, tau=0.1)
        similarity = numpy.array([[0.9, 0.1, 0.2], [0.3, 0.8, 0.1], [0.0, 0.4, 0.7]])
        out = loss.step(similarity, [7, 59, 3], zeta_lr_text=0.01)
        self.assertEqual((out.gradient.shape, out.gradient.dtype), ((3, 3), numpy.float32))
        self.assertAlmostEqual(abs(out.gradient.sum()), 0, places=6)
        self.assertEqual(numpy.flatnonzero(loss["visits"]).tolist(), [3, 7, 59])
        self.assertEqual(numpy.flatnonzero(~numpy.isnan(loss["text.log_u"])).tolist(), [3, 7, 59])
        self.assertIn("text.zeta", loss)
        loss.write("text.zeta", numpy.arange(60) / 60)
        self.assertEqual(loss["text.zeta"][30], 0.5)
        loss.set_scalar("text.xi", 2)
        self.assertEqual(loss.scalars["text.xi"], 2.0)
        loss.save("loss.safetensors", "00000000000000ff", 12)
        state = ccstream.State("loss.safetensors")
        self.assertEqual((state.loss, state.step, state.fingerprint, state.id_space), ("nuclr", 12, "00000000000000ff", 60))
        self.assertEqual(sorted(state), sorted(loss))
        self.assertTrue((state["text.zeta"] == loss["text.zeta"]).all())
        other = ccstream.Loss("nuclr", 50, id_space=60)
        other.load("loss.safetensors")
        self.assertEqual((other["visits"].tolist(), other.scalars), (loss["visits"].tolist(), loss.scalars))
        loss.save("loss.safetensors", "00000000000000ff", 13)
        self.assertEqual(ccstream.State("loss.safetensors").step, 13)
        with open("notes.txt", "w", encoding="utf-8") as notes:
            notes.write("mine")
        for taken in ("notes.txt", "d/dataset.json", "d"):
            with self.assertRaisesRegex(ccstream.ExistsError, taken):
                loss.save(taken, "00000000000000ff", 13)
        for error, call in ((ccstream.UsageError, lambda: ccstream.Loss("none", 9)),
                            (ccstream.UsageError, lambda: ccstream.Loss("clip", 9, gamma=0.5)),
                            (ccstream.UsageError, lambda: ccstream.Loss("nuclr", 1)),
                            (ccstream.NotFoundError, lambda: state["text.tau"]),
                            (ccstream.NotFoundError, lambda: ccstream.State("absent")),
                            (ccstream.UsageError, lambda: loss.step(similarity[:2], [1, 2, 3])),
                            (ccstream.UsageError, lambda: loss.step(similarity, [1, 2, 60])),
                            (ccstream.UsageError, lambda: loss.step(similarity, numpy.array([1, -2, 3]))),
                            (ccstream.UsageError, lambda: loss.step(similarity, [1.0, 2.0, 3.0])),
                            (ccstream.CorruptError, lambda: loss.step(similarity * numpy.nan, [1, 2, 3])),
                            (ccstream.MismatchError, lambda: ccstream.Loss("sogclr", 50, id_space=60).load("loss.safetensors"))):
            with self.assertRaises(error):
                call()


    def test_cyclip_is_that_of_float64(self):
        rng = numpy.random.default_rng(0)
        s = rng.uniform(-1, 1, (5, 5))
        own = [(x + x.T) / 2 for x in rng.uniform(-1, 1, (2, 5, 5))]
        s, *own = (x.astype(numpy.float32).astype(numpy.float64) for x in (s, *own))

        def value(s, xx, tt, tau=0.2, cyclic=(0.25, 0.5)):  # Goel et al., NeurIPS 2022
            def info_nce(z):
                return (numpy.log(numpy.exp(z).sum(1)) - z.diagonal()).mean()
            return ((info_nce(s / tau) + info_nce(s.T / tau)) / 2 + cyclic[0] / 5 * ((xx - tt)**2).sum()
                    + cyclic[1] / 5 * ((s - s.T)**2).sum())

        def slopes(which, h=1e-6):
            out = numpy.empty((5, 5))
            for at in numpy.ndindex(5, 5):
                up, down = ([x.copy() for x in (s, *own)] for _ in range(2))
                up[which][at] += h
                down[which][at] -= h
                out[at] = (value(*up) - value(*down)) / (2 * h)
            return out

        loss = ccstream.Loss("cyclip", 9, tau=0.2, temperature="constant", cyclic_self=0.25, cyclic_cross=0.5)
        out = loss.step(s, range(5), image_similarity=own[0], text_similarity=own[1])
        self.assertAlmostEqual(out.value, value(s, *own), places=5)
        for which, got in enumerate((out.gradient, out.image_gradient, out.text_gradient)):
            self.assertEqual(got.dtype, numpy.float32)
            numpy.testing.assert_allclose(got, slopes(which), rtol=1e-5, atol=1e-6)
        clip = ccstream.Loss("clip", 9)
        self.assertIsNone(clip.step(s, range(5)).image_gradient)
        for text, call in (
                ("requires similarities of images", lambda: loss.step(s, range(5))),
                ("pass both", lambda: loss.step(s, range(5), image_similarity=s)),
                ("shape of similarity", lambda: loss.step(s, range(5), image_similarity=s, text_similarity=s[:4])),
                ("reads no similarities of images", lambda: clip.step(s, range(5), image_similarity=s, text_similarity=s))):
            with self.assertRaisesRegex(ccstream.UsageError, text):
                call()


class StubTest(unittest.TestCase):
    def test_the_stub_names_what_exists(self):
        with open(os.path.join(os.path.dirname(_ccstream.__file__), "_ccstream.pyi")) as file:
            tree = ast.parse(file.read())
        stub = {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                stub[node.name] = None
            elif isinstance(node, ast.ClassDef):
                stub[node.name] = {getattr(n, "name", None) or n.target.id for n in node.body
                                   if isinstance(n, (ast.FunctionDef, ast.AnnAssign))}
                bases = [getattr(base, "id", None) or base.attr for base in node.bases]
                if bases:
                    self.assertEqual([c.__name__ for c in getattr(_ccstream, node.name).__bases__], bases)
        self.assertEqual(set(stub), {n for n in dir(_ccstream) if not n.startswith("__")})
        for name, members in stub.items():
            if members is None or issubclass(getattr(_ccstream, name), Exception):
                continue
            special = {"__new__", "__buffer__", "__len__", "__dlpack__", "__dlpack_device__"}
            self.assertEqual(members - special, {n for n in dir(getattr(_ccstream, name)) if not n.startswith("__")})

    def test_the_stub_has_the_signatures_of_methods(self):
        with open(os.path.join(os.path.dirname(_ccstream.__file__), "_ccstream.pyi")) as file:
            classes = [node for node in ast.parse(file.read()).body if isinstance(node, ast.ClassDef)]
        checked = 0
        for node in classes:
            for method in (n for n in node.body if isinstance(n, ast.FunctionDef)):
                runtime = getattr(getattr(_ccstream, node.name), method.name, None)
                if getattr(runtime, "__text_signature__", None) and method.name not in ("__new__", "__len__"):
                    args = method.args
                    want = [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
                    self.assertEqual(list(inspect.signature(runtime).parameters), want, f"{node.name}.{method.name}")
                    checked += 1
        self.assertGreater(checked, 20)

    def test_everything_public_is_there_and_described(self):
        for name in ccstream.__all__:
            self.assertTrue(getattr(ccstream, name).__doc__, name)


if __name__ == "__main__":
    unittest.main()
