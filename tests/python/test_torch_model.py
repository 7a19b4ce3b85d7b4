"""Trained models in Python: ccstream.Model without torch, and ccstream.torch.load_model, give the embeddings of
ccstream-eval embed."""

import importlib.util
import json
import os
import subprocess
import sys
import unittest

for name in ("torch", "open_clip", "transformers", "timm"):
    if importlib.util.find_spec(name) is None:
        print(f"skipped: {name} is not installed")
        sys.exit(77)

import numpy
import torch

import ccstream
import ccstream.torch as cct

BIN, TESTBIN = os.environ["BIN"], os.environ["TESTBIN"]
SIZE = 32
SMALL = {"embed_dim": 24, "vision_cfg": {"image_size": SIZE, "patch_size": 8, "layers": 2, "width": 32, "head_width": 16},
         "text_cfg": {"context_length": 20, "vocab_size": 49408, "width": 16, "heads": 1, "layers": 2}}
TEXTS = ["a red circle", "two dogs and a cat", "  x ", "café"]


def run(*words):
    done = subprocess.run([os.path.join(BIN, words[0]), *words[1:]], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)


def setUpModule():
    subprocess.run([os.path.join(TESTBIN, "make_scenes"), "train", "48", "3", str(SIZE), "train.tar"], check=True)
    run("ccpack", "-q", "-o", "data", "train.tar")
    with open("small.json", "w") as file:
        json.dump(SMALL, file)
    options = ["--data", "data", "--batch-size", "24", "--epochs", "1", "--threads", "1", "--augment", "none"]
    run("ccstream-train", *options, "--model", "small.json", "--tokenizer", "clip", "--loss", "clip", "--out", "native")
    run("ccpack", "tokenizer", "data")
    run("ccstream-train", *options, "--preset", "cpu-demo", "--projection-bias", "off", "--image-size", str(SIZE), "--out", "demo")


class ModelTest(unittest.TestCase):
    def test_arrays_and_modules_agree(self):
        with ccstream.Dataset("data") as ds:
            files = [s.image for s in ds[:10]]
        batch = next(iter(ccstream.DataLoader("data", 10, SIZE, augment="eval-squash", shuffle=False, num_threads=1)))
        pixels = numpy.asarray(batch["image"])
        for name in ("native", "demo"):
            with self.subTest(name):
                model = ccstream.Model(name, threads=1)
                run("ccstream-eval", "embed", name, "--data", "data", "--transform", "squash", "--threads", "1", "-q", "-o", name)
                of_program = numpy.load(f"{name}.images.npy")[:10]
                images = model.encode_image(pixels)
                numpy.testing.assert_allclose(images, of_program, atol=2e-5)
                numpy.testing.assert_allclose(model.encode_image(files, transform="squash"), of_program, atol=1e-6)
                texts = model.encode_text([t.replace("  x", "\nx") for t in TEXTS])
                encoder = cct.load_model(name)
                with torch.no_grad():
                    theirs = encoder(torch.from_numpy(pixels.copy()), encoder.tokenize(TEXTS))
                self.assertEqual((encoder.image_size, encoder.training), (SIZE, False))
                for ours, tensor in zip((images, texts), theirs):
                    self.assertEqual((ours.dtype, ours.shape), (numpy.float32, tuple(tensor.shape)))
                    numpy.testing.assert_allclose(ours, tensor.numpy(), atol=2e-4)
                sum(x.sum() for x in encoder(torch.from_numpy(pixels.copy()), encoder.tokenize(["x"]))).backward()
                self.assertTrue(any(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder.parameters()))

    def test_what_is_wrong_is_named(self):
        model = ccstream.Model("native")
        for error, text, call in (
                (ccstream.NotFoundError, "absent", lambda: ccstream.Model("absent")),
                (ccstream.UsageError, "at least one image", lambda: model.encode_image([])),
                (ccstream.UsageError, "float64", lambda: model.encode_image([numpy.zeros((4, 4, 3))])),
                (ccstream.UsageError, "one text", lambda: model.encode_text("text")),
                (ccstream.Error, "small.json", lambda: ccstream.Model("small.json").encode_text(["x"]))):
            with self.assertRaisesRegex(error, text):
                call()


if __name__ == "__main__":
    unittest.main()
