"""Runs the examples of the package on a few small images; each where its packages are installed."""

import importlib.util
import os
import subprocess
import sys
import unittest

EXAMPLES = os.path.join(os.environ["SRC"], "bindings/python/examples")
NEEDS = {"train_nuclr": ("torch", "timm", "transformers"), "open_clip_data": ("torch",),
         "parquet_to_shards": ("pyarrow",), "read_with_webdataset": ("webdataset",)}
missing = {name: [m for m in needs if importlib.util.find_spec(m) is None] for name, needs in NEEDS.items()}
if all(missing.values()) or importlib.util.find_spec("numpy") is None:
    print("skipped: torch, pyarrow and webdataset are not installed")
    sys.exit(77)


def example(name, *arguments):
    result = subprocess.run([sys.executable, os.path.join(EXAMPLES, name + ".py"), *arguments],
                            capture_output=True, text=True)
    if result.returncode:
        raise AssertionError(result.stderr)
    return result.stdout


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
