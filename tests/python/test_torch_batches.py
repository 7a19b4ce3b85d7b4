"""Batches in torch: moved to devices, as nodes of pytrees, by Lightning and accelerate; their memory during
asynchronous copies, on a device that is emulated; the loader's position in checkpoints of other tools."""

import ctypes
import functools
import importlib.util
import os
import subprocess
import sys
import unittest
from unittest import mock

try:
    import torch
except ImportError:
    print("skipped: torch is not installed")
    sys.exit(77)

import numpy

import ccstream
import ccstream.loader
import ccstream.torch as cct

SAMPLES, BATCH, SIZE = 48, 8, 16


def needs(package):
    return unittest.skipIf(importlib.util.find_spec(package) is None, f"needs {package}")


def setUpModule():
    subprocess.run([os.path.join(os.environ["TESTBIN"], "make_images"), "d", str(SAMPLES)], check=True)
    ds = ccstream.Dataset("d")
    ds.attach("score", ds.ids[::2], numpy.arange(len(ds.ids[::2]), dtype=numpy.float32))


def loader(**options):
    return ccstream.DataLoader("d", **{"batch_size": BATCH, "image_size": SIZE, "num_threads": 2, **options})


class MovedTest(unittest.TestCase):
    def check(self, moved, batch):
        self.assertIsInstance(moved, ccstream.Batch)
        self.assertEqual((moved.epoch, moved.step, moved.replaced), (0, 1, 0))
        self.assertEqual(list(moved), list(batch))
        for name in batch:
            self.assertIsInstance(moved[name], torch.Tensor)
            self.assertTrue((moved[name].numpy() == numpy.asarray(batch[name])).all())
        self.assertTrue((moved.columns["score"].numpy() == batch.columns["score"]).all())
        self.assertTrue((moved.present["score"].numpy() == batch.present["score"]).all())

    def batch(self):
        batches = iter(loader(columns=["score"]))
        next(batches)
        return next(batches)

    def test_a_batch_moves_whole(self):
        batch = self.batch()
        moved = batch.to("cpu")
        self.check(moved, batch)
        self.assertEqual(moved["image"].data_ptr(), numpy.asarray(batch["image"]).ctypes.data)  # a view
        self.check(moved.to(torch.device("cpu"), non_blocking=True), batch)
        self.assertEqual(moved.to("meta")["image"].shape, (BATCH, SIZE, SIZE, 3))

    def test_a_batch_is_a_node_of_pytrees(self):
        batch = self.batch()
        leaves, spec = torch.utils._pytree.tree_flatten(batch)
        self.assertEqual(len(leaves), len(batch) + 2)
        self.check(torch.utils._pytree.tree_unflatten(list(map(cct._tensor, leaves)), spec), batch)
        twice = torch.utils._pytree.tree_map(lambda x: 2 * x, batch.to("cpu"))
        self.assertEqual((twice["id"] // 2).tolist(), numpy.asarray(batch["id"]).tolist())
        self.assertEqual(twice.step, 1)

    @needs("lightning")
    def test_lightning_moves_it(self):
        from lightning.fabric.utilities import move_data_to_device
        from lightning.pytorch.utilities.data import extract_batch_size
        batch = self.batch()
        self.check(move_data_to_device(batch, torch.device("cpu")), batch)
        self.check(move_data_to_device({"x": [batch]}, torch.device("cpu"))["x"][0], batch)
        self.assertEqual(extract_batch_size(batch.to("cpu")), BATCH)

    @needs("accelerate")
    def test_accelerate_moves_it(self):
        from accelerate.utils import send_to_device
        batch = self.batch()
        for non_blocking in (False, True):
            self.check(send_to_device(batch, torch.device("cpu"), non_blocking=non_blocking), batch)

    def test_without_torch_an_error_names_it(self):
        code = ("import sys; sys.modules['torch'] = None\nimport ccstream\n"
                "b = next(iter(ccstream.DataLoader('d', 8, 16)))\n"
                "try:\n    b.to('cpu')\nexcept ccstream.UnsupportedError as error:\n    print(error)\n")
        out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        self.assertEqual(out, "Batch.to needs torch, which is not installed\n")


class AsTheModelTakesThemTest(unittest.TestCase):
    def test_images_are_those_that_the_device_would_normalise(self):
        normalize = cct.NormalizeOnDevice("clip")
        made = loader(dtype="float32", norm="clip", layout="channels_last", fields=["text", "encoded"])
        small = loader(dtype="bfloat16", norm="clip", layout="nchw")
        for plain, batch, half in zip(loader(), made, small):
            want, moved = normalize(torch.from_dlpack(plain["image"])), batch.to("cpu")
            self.assertLess((moved["image"] - want).abs().max(), 1e-6)
            self.assertTrue(moved["image"].is_contiguous(memory_format=torch.channels_last))
            self.assertEqual((moved["text"], moved["encoded"]), (batch["text"], batch["encoded"]))
            image = half.to("cpu")["image"]
            self.assertEqual((image.dtype, image.is_contiguous()), (torch.bfloat16, True))
            self.assertTrue((image - want.bfloat16()).abs().max() <= 0.02)  # rounded once instead of twice

    @needs("transformers")
    def test_a_tokenizer_of_hugging_face(self):
        from transformers import AutoTokenizer
        os.makedirs("tokenizer", exist_ok=True)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "image", "caption", "of", *"0123456789", *(f"##{i}" for i in range(10))]
        with open("tokenizer/vocab.txt", "w") as file:
            file.write("\n".join(words))
        with open("tokenizer/config.json", "w") as file:
            file.write('{"model_type": "bert"}')
        tokenize = functools.partial(AutoTokenizer.from_pretrained("tokenizer"), padding="max_length", truncation=True, max_length=12,
                                     return_tensors="pt")
        for batch in loader(tokenizer=tokenize, fields=["text"]):
            want = tokenize(batch["text"])
            self.assertTrue((batch["tokens"] == want["input_ids"]).all() and (batch["attention_mask"] == want["attention_mask"]).all())

    @needs("open_clip")
    def test_open_clips_tokenizer_is_that_of_the_name(self):
        import open_clip
        theirs = loader(tokenizer=open_clip.get_tokenizer("ViT-B-32"))
        for a, b in zip(theirs, loader(tokenizer="clip", max_tokens=77)):
            self.assertTrue((a["tokens"].numpy() == numpy.asarray(b["tokens"])).all())


class Device:
    """Copies that end when the event after them is asked for, or after `lag` further events."""

    def __init__(self, lag):
        self.lag, self.queue, self.events, self.waits = lag, [], 0, 0

    def copy(self, array):
        out, at = {}, (ctypes.c_ubyte * array.nbytes).from_address(array.ctypes.data)  # which keeps nothing alive
        shape, dtype = array.shape, array.dtype
        self.queue.append(lambda: out.update(value=numpy.frombuffer(bytes(at), dtype).reshape(shape)))
        return out

    def record(self, _):
        self.events += 1
        device, number, work = self, self.events, self.queue
        self.queue = []

        class Event:
            def run(self):
                while work:
                    work.pop(0)()

            def query(self):
                if device.events - number >= device.lag:
                    self.run()
                return not work

            def synchronize(self):
                device.waits += 1
                self.run()

        return Event()


def pinned(size):
    block = numpy.empty(size + 64, numpy.uint8)
    return block[-block.ctypes.data % 64 :][:size]


class CopyTest(unittest.TestCase):
    """Copies that are late read what the batch had."""

    def copies(self, lag, by_to):
        device, dl, got = Device(lag), loader(pin_memory=True, prefetch_factor=2), []
        self.assertTrue(dl.pinned)
        with mock.patch.object(ccstream.loader, "_record_event", device.record):
            for _ in range(3):
                for batch in dl:
                    arrays = [torch.from_dlpack(batch[name]) for name in ("image", "id")]
                    got.append([device.copy(a.numpy()) for a in arrays])
                    if by_to:
                        batch.to("meta")
                    del batch, arrays
            dl.close()
            for work in device.queue:
                work()
        return [[x["value"] for x in copies] for copies in got], device

    def test_memory_is_kept_until_the_copy_is_done(self):
        want = [[numpy.array(b["image"]), numpy.array(b["id"])] for _, dl in [(0, loader())] for _ in range(3) for b in dl]
        with mock.patch.object(ccstream.loader, "_allocate_pinned", lambda: pinned):
            for lag in (0, 1, 2, 100):
                for by_to in (False, True):
                    with self.subTest(lag=lag, by_to=by_to):
                        got, device = self.copies(lag, by_to)
                        self.assertEqual(len(got), len(want))
                        for a, b in zip(got, want):
                            self.assertTrue((a[0] == b[0]).all() and (a[1] == b[1]).all())
                        self.assertEqual(device.waits > 0, True)

    def test_a_position_changes_after_the_copies(self):
        with mock.patch.object(ccstream.loader, "_allocate_pinned", lambda: pinned):
            device, dl = Device(100), loader(pin_memory=True)
            with mock.patch.object(ccstream.loader, "_record_event", device.record):
                next(iter(dl))
                dl.set_epoch(4)
                self.assertEqual((next(iter(dl)).epoch, device.waits), (4, 1))


class PositionTest(unittest.TestCase):
    """A loader in the checkpoints of other tools."""

    def ids(self, batches):
        return [numpy.asarray(b["id"]).tolist() for b in batches]

    def half(self):
        want, dl = self.ids(loader()), loader()
        batches = iter(dl)
        for _ in range(2):
            next(batches)
        return want, dl

    def test_torch_saves_it(self):
        want, dl = self.half()
        torch.save(dl.state_dict(), "position.pt")
        again = loader()
        again.load_state_dict(torch.load("position.pt", weights_only=True))
        self.assertEqual(self.ids(again), want[2:])

    @needs("accelerate")
    def test_accelerate_saves_it(self):
        from accelerate import Accelerator
        want, dl = self.half()
        accelerator, again = Accelerator(cpu=True), loader()
        accelerator.register_for_checkpointing(dl)
        accelerator.save_state("state")
        accelerator._custom_objects[:] = [again]
        accelerator.load_state("state")
        self.assertEqual(self.ids(again), want[2:])

    @needs("torchdata")
    def test_it_is_stateful_as_torchdata_means_it(self):
        from torch.distributed.checkpoint.stateful import Stateful as InCheckpoints
        from torchdata.stateful_dataloader import Stateful
        want, dl = self.half()
        self.assertIsInstance(dl, Stateful)
        self.assertIsInstance(dl, InCheckpoints)
        again = loader()
        again.load_state_dict(dl.state_dict())
        self.assertEqual(self.ids(again), want[2:])


if __name__ == "__main__":
    unittest.main()
