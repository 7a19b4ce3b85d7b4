"""Runs the examples of the package on a few small images; each where its packages are installed."""

import importlib.util
import os
import socket
import subprocess
import sys
import unittest

EXAMPLES = os.path.join(os.environ["SRC"], "bindings/python/examples")
NEEDS = {"train_nuclr": ("torch", "timm", "transformers"), "open_clip_data": ("torch",),
         "train_lightning": ("torch", "timm", "lightning"), "train_accelerate": ("torch", "timm", "accelerate"),
         "parquet_to_shards": ("pyarrow",), "read_with_webdataset": ("webdataset",)}
missing = {name: [m for m in needs if importlib.util.find_spec(m) is None] for name, needs in NEEDS.items()}
if all(missing.values()) or importlib.util.find_spec("numpy") is None:
    print("skipped: torch, pyarrow and webdataset are not installed")
    sys.exit(77)


def example(name, *arguments, ranks=1):
    """What rank 0 prints."""
    environment, of_rank = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}, [{}]
    if ranks > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        of_rank = [{"RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": port, "ACCELERATE_USE_CPU": "true"} for r in range(ranks)]
    running = [subprocess.Popen([sys.executable, os.path.join(EXAMPLES, name + ".py"), *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env={**environment, **own}) for own in of_rank]
    results = [process.communicate() for process in running]
    for process, (_, errors) in zip(running, results):
        if process.returncode:
            raise AssertionError(errors[-3000:])
    return results[0][0]


def setUpModule():
    subprocess.run([os.path.join(os.environ["TESTBIN"], "make_images"), "d", "24"], check=True)


class ExampleTest(unittest.TestCase):
    @unittest.skipIf(missing["train_nuclr"], f"needs {missing['train_nuclr']}")
    def test_train_nuclr(self):
        options = ["d", "--out", "run", "--batch-size", "12", "--size", "32", "--image-model", "resnet18", "--text-layers", "1"]
        out = example("train_nuclr", *options, "--epochs", "1")
        self.assertIn("epoch 0: objective ", out)
        out = example("train_nuclr", *options, "--epochs", "2")
        self.assertIn("epoch 1: objective ", out)
        self.assertNotIn("epoch 0", out)
        import ccstream
        state = ccstream.State("run/loss.safetensors")
        self.assertEqual((state.loss, state.step), ("nuclr", 4))
        subprocess.run([os.path.join(os.environ["BIN"], "ccdump"), "state", "run/loss.safetensors"], check=True,
                       stdout=subprocess.DEVNULL)

    def same(self, a, b):
        import torch
        self.assertEqual(a.keys(), b.keys())
        for name, x in a.items():
            if isinstance(x, torch.Tensor):
                self.assertTrue(torch.allclose(x.double(), b[name].double(), rtol=1e-6, atol=1e-6, equal_nan=True), name)

    @unittest.skipIf(missing["train_lightning"], f"needs {missing['train_lightning']}")
    def test_lightning_continues_inside_an_epoch_on_two_ranks(self):
        import torch
        options = ["--batch-size", "6", "--size", "32", "--image-model", "resnet18", "--epochs", "2", "--devices", "2"]
        example("train_lightning", "d", "--out", "whole", *options)
        example("train_lightning", "d", "--out", "stopped", *options, "--max-steps", "5")
        self.assertEqual(torch.load("stopped/last.ckpt", weights_only=False)["global_step"], 5)
        example("train_lightning", "d", "--out", "stopped", *options)
        whole, stopped = (torch.load(f"{run}/last.ckpt", weights_only=False) for run in ("whole", "stopped"))
        self.assertEqual((whole["global_step"], stopped["global_step"]), (8, 8))
        self.assertEqual(whole["state_dict"]["loss.visits"].sum(), 48)
        self.same(whole["state_dict"], stopped["state_dict"])

    @unittest.skipIf(missing["train_accelerate"], f"needs {missing['train_accelerate']}")
    def test_accelerate_continues_inside_an_epoch_on_two_ranks(self):
        import safetensors.torch
        import torch
        options = ["--batch-size", "6", "--size", "32", "--image-model", "resnet18", "--epochs", "2"]
        self.assertIn("epoch 1: objective ", example("train_accelerate", "d", "--out", "a-whole", *options, ranks=2))
        example("train_accelerate", "d", "--out", "a-stopped", *options, "--max-steps", "5", ranks=2)
        self.assertIn("epoch 1: objective ", example("train_accelerate", "d", "--out", "a-stopped", *options, ranks=2))
        whole, stopped = (safetensors.torch.load_file(f"{run}/model.safetensors") for run in ("a-whole", "a-stopped"))
        self.same(whole, stopped)
        whole, stopped = (torch.load(f"{run}/custom_checkpoint_0.pkl", weights_only=True) for run in ("a-whole", "a-stopped"))
        self.assertEqual(whole["visits"].sum(), 48)
        self.same(whole, stopped)

    @unittest.skipIf(missing["open_clip_data"], f"needs {missing['open_clip_data']}")
    def test_open_clip_data(self):
        self.assertEqual(example("open_clip_data", "d"), "(8, 3, 224, 224) (8, 30)\n")

    @unittest.skipIf(missing["parquet_to_shards"], f"needs {missing['parquet_to_shards']}")
    def test_parquet_to_shards(self):
        import pyarrow
        import pyarrow.parquet
        import ccstream
        source = ccstream.Dataset("d")
        rows = [{"image": {"bytes": s.image}, "caption": ["one", "two"], "url": f"http://{s.id}"} for s in source]
        rows.insert(3, {"image": {"bytes": b"no image"}, "caption": ["x"], "url": ""})
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), "a.parquet")
        self.assertTrue(example("parquet_to_shards", "out", "a.parquet").endswith("24 packed, 1 refused\n"))
        ds = ccstream.Dataset("out")
        self.assertEqual([s.image for s in ds], [s.image for s in source])
        self.assertEqual((ds[5].captions, ds[5].metadata), (["one", "two"], {"url": f"http://{source[5].id}"}))

    @unittest.skipIf(missing["read_with_webdataset"], f"needs {missing['read_with_webdataset']}")
    def test_read_with_webdataset(self):
        self.assertTrue(example("read_with_webdataset", "d").endswith("24 samples\n"))


if __name__ == "__main__":
    unittest.main()
