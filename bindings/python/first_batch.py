"""Packs the JPEG files that are named and reads a batch of them: what try_wheel.py runs, with ccpack where the wheel has it."""
import io
import os
import subprocess
import sys
import tarfile
import tempfile

import numpy

import ccstream

programs = [os.path.join(os.path.dirname(sys.executable), name) for name in ("ccpack", "ccdump")]
programs = [program for program in programs if os.path.exists(program)]
with tempfile.TemporaryDirectory() as folder:
    data = os.path.join(folder, "data")
    if programs:
        tar = os.path.join(folder, "images.tar")
        with tarfile.open(tar, "w") as out:
            for name in sys.argv[1:]:
                out.add(name, os.path.basename(name))
                caption = tarfile.TarInfo(os.path.splitext(os.path.basename(name))[0] + ".txt")
                caption.size = 8
                out.addfile(caption, io.BytesIO(b"an image"))
        subprocess.run([programs[0], "--quiet", "--out", data, tar], check=True, stdout=sys.stderr)
        subprocess.run([programs[1], "verify", data], check=True, stdout=subprocess.DEVNULL)
    else:
        with ccstream.Writer(data) as writer:
            for name in sys.argv[1:]:
                with open(name, "rb") as file:
                    writer.add(file.read(), captions=["an image"])
    with ccstream.DataLoader(data, batch_size=2, image_size=64, num_threads=1) as loader:
        batch = next(iter(loader))
        image = numpy.asarray(batch["image"])
        if image.shape != (2, 64, 64, 3) or image.std() == 0:
            sys.exit(f"images {image.shape} of standard deviation {image.std()}")
        print("ids", numpy.asarray(batch["id"]).tolist(), "with", *(os.path.basename(p) for p in programs or ["no programs"]))
