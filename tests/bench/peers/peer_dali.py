"""DALI on the CPU, over a folder of JPEG files: fused decode of the crop, resize, mirror."""

import glob
import os

import nvidia.dali as dali
from nvidia.dali import fn, pipeline_def, types

import peer

args = peer.arguments("folder of JPEG files")
files = sorted(f for d in args.data for f in glob.glob(os.path.join(d, "*.jpg")))
assert files, "no *.jpg in %s" % args.data


@pipeline_def(batch_size=args.batch, num_threads=args.workers, device_id=None)
def images():
    data, _ = fn.readers.file(files=files, random_shuffle=True, initial_fill=4096)
    crop = fn.decoders.image_random_crop(data, device="cpu", output_type=types.RGB,
                                         random_area=list(peer.SCALE),
                                         random_aspect_ratio=list(peer.RATIO))
    image = fn.resize(crop, size=[args.size, args.size], interp_type=types.INTERP_CUBIC,
                      antialias=True)
    return fn.flip(image, horizontal=fn.random.coin_flip(probability=0.5))


def batches():
    pipe = images()
    pipe.build()
    while True:
        (out,) = pipe.run()
        yield out.as_array()


def main():
    peer.measure("dali-cpu", "dali " + dali.__version__, args, batches())


if __name__ == "__main__":
    main()
