#!/usr/bin/env python3
"""Makes decode.tsv: what Pillow (and the libjpeg-turbo and libpng in it) decodes the test pictures to.

    pip install pillow xxhash; tests/golden/images/make_decode.py TESTDATA

Columns: archive, file, width, height, XXH64 of the RGB rows after the EXIF orientation. Transparent
pictures are laid over white with exact rounding. Only pictures that Pillow takes without complaint
and that are not damaged by the set's own manifest are listed, nor the one in DAMAGED.
"""
import io
import os
import sys
import tarfile

import xxhash
from PIL import Image, ImageOps


# The manifest speaks of its EXIF alone, but the picture itself is stripes of noise: bad Huffman codes,
# and hundreds of bytes left over before every restart marker.
DAMAGED = {"Pillow__hopper_bad_exif.jpg"}


def rgb(image):
    image = ImageOps.exif_transpose(image)
    if image.mode in ("RGBA", "LA") or (image.mode == "P" and "transparency" in image.info):
        source = image.convert("RGBA").tobytes()
        out = bytearray()
        for i in range(0, len(source), 4):
            a = source[i + 3]
            out += bytes((v * a + 255 * (255 - a) + 127) // 255 for v in source[i:i + 3])
        return image.size, bytes(out)
    return image.size, image.convert("RGB").tobytes()


here = os.path.dirname(os.path.abspath(__file__))
data = sys.argv[1]
wanted = set()  # of the hostile set
with open(os.path.join(data, "hostile/manifest.tsv"), encoding="utf-8") as manifest:
    for line in manifest:
        cells = line.split("\t")
        if cells[2] in ("JPEG", "PNG", "WebP", "GIF") and cells[6] in "CGODFX" and cells[7] == "ok":
            wanted.add(cells[0])
with open(os.path.join(here, "decode.tsv"), "w") as out:
    for archive in ("raw/images.tar", "hostile/files.tar"):
        with tarfile.open(os.path.join(data, archive)) as tar:
            for member in tar:
                name = os.path.basename(member.name)
                good = not archive.startswith("hostile") or name in wanted - DAMAGED
                if not member.isfile() or not good:
                    continue
                image = Image.open(io.BytesIO(tar.extractfile(member).read()))
                (width, height), pixels = rgb(image)
                digest = xxhash.xxh64(pixels).hexdigest()
                out.write(f"{archive}\t{member.name}\t{width}\t{height}\t{digest}\n")
