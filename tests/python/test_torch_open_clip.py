"""open_clip's own training program on ccstream's data and losses (ccstream.open_clip): the loss of its WebDataset path, two ranks,
accumulation, and a resumed run that ends as one that was not interrupted; tokenizers that do not fit a model. The same of FastCLIP's
fork where FAST_CLIP names a clone of github.com/Optimization-AI/fast_clip, which no package index has."""

import importlib.util
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import types
import unittest
from functools import partial

for name in ("torch", "open_clip_train", "pandas", "webdataset", "PIL"):  # pandas: of open_clip_train
    if importlib.util.find_spec(name) is None:
        print(f"skipped: {name} is not installed")
        sys.exit(77)

import numpy
import torch
import open_clip
from PIL import Image

import ccstream
import ccstream.torch as cct

SAMPLES, SIZE, TOKENS = 48, 32, 16
TEXTS = ("a red car in the street", "two dogs", "the sea at night, with a very long caption that is cut off after some of its tokens", "café")
MODEL = {"embed_dim": 16, "vision_cfg": {"image_size": SIZE, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16},
         "text_cfg": {"context_length": TOKENS, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}}
DRIVER = """import sys
import importlib, torch
importlib.import_module("fast_clip" if "fast_clip" in sys.argv else "open_clip").add_model_config("models")
Parallel = torch.nn.parallel.DistributedDataParallel  # open_clip names a device, which torch refuses on CPUs
torch.nn.parallel.DistributedDataParallel = lambda model, device_ids, **more: Parallel(model, **more)
torch.set_num_threads(1)
if "fast_clip" in sys.argv:  # of torch 2.2; its checkpoints hold numbers of NumPy
    load = torch.load
    torch.load = lambda *args, **more: load(*args, **{"weights_only": False, **more})
from ccstream.open_clip import main
main(sys.argv[1:])
"""


def setUpModule():
    """The same PNGs and captions as a tar and as a dataset."""
    rng = numpy.random.default_rng(0)
    with tarfile.open("0.tar", "w") as tar, ccstream.Writer("d") as w:
        for i in range(SAMPLES):
            file, text = io.BytesIO(), f"{TEXTS[i % 4]} {i}"
            Image.fromarray(rng.integers(0, 256, (SIZE, SIZE, 3), numpy.uint8)).save(file, "png")
            w.add(file.getvalue(), [text])
            for suffix, data in (("png", file.getvalue()), ("txt", text.encode())):
                member = tarfile.TarInfo(f"{i:03}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    os.mkdir("models")
    for name, tokens in (("tiny", TOKENS), ("tiny77", 77)):  # FastCLIP's tokenizer knows one length
        with open(f"models/{name}.json", "w") as file:
            json.dump({**MODEL, "text_cfg": {**MODEL["text_cfg"], "context_length": tokens}}, file)
    with open("driver.py", "w") as file:
        file.write(DRIVER)
    open_clip.add_model_config("models")


def arguments(**more):
    return types.SimpleNamespace(train_data="0.tar", val_data="0.tar", train_num_samples=SAMPLES, val_num_samples=SAMPLES, batch_size=8,
                                 world_size=1, rank=0, workers=0, seed=0, accum_freq=1, dataset_resampled=False, epochs=3,
                                 train_data_upsampling_factors=None, device="cpu", **more)


class SameLossTest(unittest.TestCase):
    def test_the_loss_is_that_of_the_webdataset_path(self):
        from open_clip_train.data import get_wds_dataset
        import ccstream.open_clip as plugin
        torch.manual_seed(0)
        model, _, preprocess = open_clip.create_model_and_transforms("tiny")
        model.eval()
        tokenizer = open_clip.get_tokenizer("tiny")
        theirs = get_wds_dataset(arguments(), preprocess, False, tokenizer=tokenizer).dataloader
        ours = plugin.Data(types.SimpleNamespace(augment="clip", program="open_clip"), "d", arguments(), preprocess, False, tokenizer)
        loss, steps = open_clip.ClipLoss(), 0
        with torch.no_grad():
            for (a, b), (c, d) in zip(theirs, ours, strict=True):
                self.assertEqual(b.tolist(), d.tolist())
                values = [loss(*model(images.to(device="cpu", dtype=None), texts)) for images, texts in ((a, b), (c, d))]
                self.assertAlmostEqual(values[0].item(), values[1].item(), delta=1e-6)
                steps += 1
        self.assertEqual(steps, SAMPLES // 8)


class TrainingTest(unittest.TestCase):
    def train(self, name, *more, ranks=1, epochs=2, path=""):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "driver.py", "--dataset-type", "ccstream", "--train-data", "d", "--model", "tiny", "--precision", "fp32",
                   "--batch-size", str(8 // ranks), "--epochs", str(epochs), "--lr", "0.01", "--warmup", "0", "--name", name, "--logs", "logs",
                   "--workers", "0", "--save-frequency", "1", "--lr-scheduler", "const", "--dist-backend", "gloo", *more]
        of_rank = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port)} if ranks > 1 else {} for rank in range(ranks)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
                       "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])}
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**environment, **own})
                   for own in of_rank]
        for process in running:
            out = process.communicate()[0]
            if process.returncode:
                raise AssertionError(out[-3000:])
        found = [path for path in (f"logs/{name}/checkpoints/epoch_{epochs}.pt", f"logs/{name}/checkpoints/loss_{epochs}.state")
                 if os.path.exists(path)]
        return [torch.load(path, weights_only="fast_clip" not in more) for path in found]

    def same(self, a, b, at=1e-6):
        def numbers(states):
            model = {k.removeprefix("module."): v for k, v in states[0]["state_dict"].items()}
            extra = states[1].get("_extra_state", {}).get("columns", {})
            return {**model, **{k: v for k, v in states[1].items() if k != "_extra_state"}, **extra}
        for (name, x), y in zip(numbers(a).items(), numbers(b).values(), strict=True):
            self.assertTrue(torch.allclose(x.double(), y.double(), rtol=at, atol=at, equal_nan=True), name)

    def test_resumed_ranks_and_accumulation_are_one_run(self):
        options = ["--loss", "sogclr", "--loss-option", "tau=0.1"]
        whole = self.train("whole", *options)
        self.assertEqual(whole[1]["step"], 2 * SAMPLES // 8)
        self.train("stopped", *options, epochs=1)
        self.same(whole, self.train("stopped", *options, "--resume", "latest"))
        ranks = self.train("ranks", *options, ranks=2)
        self.train("stopped-ranks", *options, ranks=2, epochs=1)
        self.same(ranks, self.train("stopped-ranks", *options, "--resume", "latest", ranks=2))
        parts = self.train("parts", *options, "--accum-freq", "2", "--batch-size", "4")
        for other in (ranks, parts):  # AdamW makes steps of rounding where a gradient is zero
            self.assertEqual(other[1]["step"], whole[1]["step"])
            self.assertEqual(other[1]["visits"].tolist(), whole[1]["visits"].tolist())
            self.assertLess((other[1]["image.log_u"] - whole[1]["image.log_u"]).abs().max(), 0.1)

    def test_losses_of_the_library_and_their_own(self):
        states = self.train("dcl", "--loss", "dcl", "--loss-option", "tau=0.1", ranks=2, epochs=1)
        self.assertEqual(states[1]["_extra_state"]["loss"], "dcl")
        self.assertEqual(len(self.train("clip", epochs=1)), 1)  # without --loss: no state

    @unittest.skipUnless("FAST_CLIP" in os.environ, "FAST_CLIP names no clone")
    def test_the_fork_of_fastclip(self):
        path = os.pathsep.join(os.path.join(os.environ["FAST_CLIP"], folder) for folder in ("src", "src/training"))
        run = partial(self.train, ranks=2, path=path)
        for name, options in (("theirs", ["--fastclip", "--data_size", str(SAMPLES), "--lr_tau_scheduler", "const"]), ("ours", ["--loss", "sogclr"])):
            options = ["--program", "fast_clip", "--model", "tiny77", *options]
            whole = run(name, *options)
            run(name + "-stopped", *options, epochs=1)
            resumed = run(name + "-stopped", *options, "--resume", "latest")
            for key, value in whole[0]["state_dict"].items():
                self.assertTrue(torch.allclose(value, resumed[0]["state_dict"][key], atol=1e-6), key)
            u = whole[0]["u_im"] if name == "theirs" else whole[1]["image.log_u"]
            self.assertEqual((u != 0).sum(), SAMPLES)


class TextTest(unittest.TestCase):
    def test_a_tokenizer_that_does_not_fit_is_refused(self):
        subprocess.run([os.path.join(os.environ["TESTBIN"], "make_images"), "images", "24"], check=True)
        own, clip = ccstream.Tokenizer(ccstream.Dataset("images")), ccstream.Tokenizer("clip")
        text = {"vocab_size": len(own), "context_length": TOKENS, "pool_type": "eos", "eos_id": own.eos_id, "width": 16, "heads": 2, "layers": 1}
        model = lambda **more: open_clip.model.CLIP(16, {**MODEL["vision_cfg"]}, {**text, **more})
        cct.check_text(model(), own, TOKENS)
        cct.check_text(open_clip.create_model("tiny"), clip, TOKENS)
        self.assertNotEqual(own.eos_id, len(own) - 1)
        for message, options, tokenizer in ((f"pools at the largest token id, and texts end with {own.eos_id} of {len(own)}", {"pool_type": "argmax"}, own),
                                            (f"pools at token 99, and texts end with {own.eos_id}", {"eos_id": 99}, own),
                                            ("set vocab_size", {}, clip), ("set max_tokens", {"context_length": 9}, own)):
            with self.assertRaisesRegex(ValueError, message):
                cct.check_text(model(**options), tokenizer, TOKENS)


if __name__ == "__main__":
    unittest.main()
