"""What the writers of pack_*.py share: the options, the files with their captions, a resize with Pillow.

A writer without a resize of its own gets one here, as its user would write it: the shorter side at most SIZE, antialiased bicubic, a new
JPEG. Images that are not larger keep their bytes.
"""

import argparse
import glob
import io
import os
import shutil


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("data", help="folder of KEY.jpg and KEY.txt")
    p.add_argument("out", help="folder to write; an existing one is removed")
    p.add_argument("--workers", type=int, default=os.cpu_count())
    p.add_argument("--size", type=int, default=0, help="shorter side of the images; 0: their bytes as they are")
    p.add_argument("--quality", type=int, default=95)
    a = p.parse_args()
    shutil.rmtree(a.out, ignore_errors=True)
    a.files = sorted(glob.glob(os.path.join(a.data, "*.jpg")))
    assert a.files, "no *.jpg in %s" % a.data
    return a


def caption(path):
    with open(path[:-4] + ".txt", encoding="utf-8") as file:
        return file.read()


def small(image, size):
    """A PIL image whose shorter side is at most `size`."""
    from PIL import Image
    scale = size / min(image.size)
    return image.convert("RGB").resize([round(scale * s) for s in image.size], Image.BICUBIC)


def jpeg(path, size, quality):
    """The bytes of an image to write."""
    with open(path, "rb") as file:
        data = file.read()
    if size:
        from PIL import Image
        with Image.open(io.BytesIO(data)) as image:
            if min(image.size) > size:
                new = io.BytesIO()
                small(image, size).save(new, "JPEG", quality=quality)
                data = new.getvalue()
    return data


def divided(a, write):
    """Calls write(number of the part, its files) in a process each."""
    import multiprocessing
    parts = [(k, a.files[len(a.files) * k // a.workers:len(a.files) * (k + 1) // a.workers]) for k in range(a.workers)]
    with multiprocessing.Pool(a.workers) as pool:
        pool.starmap(write, parts)
        pool.close()
        pool.join()
