"""The 38 test sets that DataComp averages, and published results on them.

Keys, names, main metrics and groups are those of mlfoundations/datacomp 4a8df19 (tasklist.yml, aggregate_scores.py). Two more
rows of its list, FairFace and UTKFace, have no main metric and are not part of any average.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Set:
    """key and name: as in eval_results.jsonl; folders: accepted folder names; main: the metric of the average."""

    key: str
    name: str
    main: str | None = "acc1"
    groups: tuple[str, ...] = ()

    @property
    def folders(self) -> list[str]:
        short = self.key.removeprefix("fairness/").removeprefix("misc/").replace("/", "-")
        return [short, *{short.removeprefix("vtab-"), *_CLIP_BENCHMARK.get(self.key, [])} - {short}]


_CLIP_BENCHMARK = {  # folders of clip-benchmark's own names
    "cifar10": ["vtab-cifar10"],
    "retrieval/flickr_1k_test_image_text_retrieval": ["flickr30k"],
    "retrieval/mscoco_2014_5k_test_image_text_retrieval": ["mscoco_captions"],
}
RECALL = "mean_per_class_recall"
SETS = [
    Set("vtab/caltech101", "Caltech-101", RECALL, ("vtab",)),
    Set("cifar10", "CIFAR-10"),
    Set("vtab/cifar100", "CIFAR-100", groups=("vtab",)),
    Set("vtab/clevr_count_all", "CLEVR Counts", groups=("vtab",)),
    Set("vtab/clevr_closest_object_distance", "CLEVR Distance", groups=("vtab",)),
    Set("country211", "Country211"),
    Set("vtab/dtd", "Describable Textures", groups=("vtab",)),
    Set("vtab/eurosat", "EuroSAT", groups=("vtab",)),
    Set("fgvc_aircraft", "FGVC Aircraft", RECALL),
    Set("food101", "Food-101"),
    Set("gtsrb", "GTSRB"),
    Set("imagenet1k", "ImageNet 1k", groups=("imagenet",)),
    Set("imagenet_sketch", "ImageNet Sketch", groups=("shifts",)),
    Set("imagenetv2", "ImageNet v2", groups=("shifts",)),
    Set("imagenet-a", "ImageNet-A", groups=("shifts",)),
    Set("imagenet-o", "ImageNet-O", groups=("shifts",)),
    Set("imagenet-r", "ImageNet-R", groups=("shifts",)),
    Set("vtab/kitti_closest_vehicle_distance", "KITTI Vehicle Distance", groups=("vtab",)),
    Set("mnist", "MNIST"),
    Set("objectnet", "ObjectNet", groups=("shifts",)),
    Set("vtab/flowers", "Oxford Flowers-102", RECALL, ("vtab",)),
    Set("vtab/pets", "Oxford-IIIT Pet", RECALL, ("vtab",)),
    Set("voc2007", "Pascal VOC 2007"),
    Set("vtab/pcam", "PatchCamelyon", groups=("vtab",)),
    Set("renderedsst2", "Rendered SST2"),
    Set("vtab/resisc45", "RESISC45", groups=("vtab",)),
    Set("cars", "Stanford Cars"),
    Set("stl10", "STL-10"),
    Set("sun397", "SUN397", groups=("vtab",)),
    Set("vtab/svhn", "SVHN", groups=("vtab",)),
    Set("retrieval/flickr_1k_test_image_text_retrieval", "Flickr", "mean_recall@1", ("retrieval",)),
    Set("retrieval/mscoco_2014_5k_test_image_text_retrieval", "MSCOCO", "mean_recall@1", ("retrieval",)),
    Set("misc/winogavil", "WinoGAViL", "jaccard_score_10-12", ("retrieval",)),
    Set("wilds/iwildcam", "iWildCam", "F1-macro_all", ("wilds",)),
    Set("wilds/camelyon17", "Camelyon17", groups=("wilds",)),
    Set("wilds/fmow", "FMoW", "acc_worst_region", ("wilds",)),
    Set("fairness/dollar_street", "Dollar Street", "acc_top5_wg", ("fairness",)),
    Set("fairness/geode", "GeoDE", "acc_wg", ("fairness",)),
    Set("fairness/fairface", "FairFace", None, ("fairness",)),
    Set("fairness/utkface", "UTKFace", None, ("fairness",)),
]
EXTRAS = [  # of clip-benchmark, not of DataComp: in no average
    Set("winoground", "Winoground", "acc", ("extras",)),
    Set("sugar_crepe", "SugarCrepe", "mean_acc", ("extras",)),
]
BY_FOLDER = {folder: one for one in SETS + EXTRAS for folder in one.folders}
_PLACES = {one.key: i for i, one in enumerate(SETS + EXTRAS)}
GROUPS = ("imagenet", "shifts", "vtab", "retrieval", "wilds", "fairness", "extras")


def short_name(folder: str) -> str:
    """The folder's name without the prefixes and suffixes of clip-benchmark and DataComp, as in BY_FOLDER."""
    return folder.removeprefix("wds_").removesuffix("_test")


def place(key: str) -> int:
    """Position of the set in the results; unknown sets come last."""
    return _PLACES.get(key, len(_PLACES))


# The rows of the table of averages: DataComp's five, and the two that papers print.
AVERAGES = [
    ("ImageNet", [s for s in SETS if "imagenet" in s.groups]),
    ("ImageNet dist. shifts", [s for s in SETS if "shifts" in s.groups]),
    ("ImageNet & variants", [s for s in SETS if {"imagenet", "shifts"} & set(s.groups)]),
    ("VTAB", [s for s in SETS if "vtab" in s.groups]),
    ("Retrieval", [s for s in SETS if "retrieval" in s.groups]),
    ("Flickr and MSCOCO", [s for s in SETS if s.name in ("Flickr", "MSCOCO")]),
    ("Average", [s for s in SETS if s.main]),
]

# Percent: average of 38, ImageNet, ImageNet & variants, Flickr and MSCOCO, Flickr, MSCOCO; "-": not printed.
_PUBLISHED = """
CC3M 2.72 M, RN50, 37 epochs|FastCLIP, arXiv 2407.01445
SogCLR|23.41 - 16.90 27.48 - -
FastCLIP-v1|24.87 - 18.86 29.28 - -
iSogCLR|23.35 - 17.05 27.92 - -
FastCLIP-v2|24.10 - 18.52 29.32 - -
CC12M 9.19 M, ViT-B/32, 33 epochs|FastCLIP, arXiv 2407.01445
SogCLR|29.91 - 22.98 30.16 - -
FastCLIP-v1|30.65 - 24.26 32.66 - -
iSogCLR|30.32 - 24.96 30.27 - -
FastCLIP-v2|30.94 - 25.52 31.84 - -
CC3M 2.27 M, RN50, 30 epochs|AmorLIP, arXiv 2505.18983, table 1
CLIP|21.48 16.84 14.03 19.86 25.79 13.93
SigLIP|21.32 17.74 15.07 20.80 26.73 14.86
SogCLR|21.47 19.91 17.03 22.04 27.51 16.57
FastCLIP-v3|23.46 20.58 17.74 27.06 34.31 19.80
AmorLIP (f-div)|24.08 21.16 18.35 27.61 35.30 19.91
AmorLIP (l2-log)|24.11 21.50 18.92 27.34 35.01 19.67
CC12M 8.06 M, ViT-B/32, 33 epochs|AmorLIP, arXiv 2505.18983, table 1
CLIP|27.65 25.26 20.45 26.10 34.32 17.89
SigLIP|26.91 25.42 20.95 25.39 32.91 17.86
SogCLR|26.97 27.59 21.96 25.17 33.01 17.33
FastCLIP-v3|29.00 27.74 22.18 28.71 36.64 20.78
AmorLIP (f-div)|29.91 29.21 23.99 30.02 37.93 22.11
AmorLIP (l2-log)|30.66 29.93 24.23 30.09 38.70 21.47
CC3M, 3 seeds|NeuCLIP, arXiv 2511.08417
OpenCLIP|21.84 - - - - -
SigLIP|22.19 - - - - -
FastCLIP-v3|24.74 - - - - -
NeuCLIP|25.08 - - - - -
CC12M, 3 seeds|NeuCLIP, arXiv 2511.08417
OpenCLIP|27.91 - - - - -
SigLIP|28.60 - - - - -
FastCLIP-v3|31.50 - - - - -
NeuCLIP|31.89 - - - - -
CC3M 2.72 M, pretrained RN50 and DistilBERT, 30 epochs|NUCLR, ICLR 2025, table 1
CLIP|- 35.91 - 35.28 46.33 24.23
SigLIP|- 37.53 - 34.08 44.95 23.21
CyCLIP|- 36.63 - 35.79 47.10 24.47
SogCLR|- 40.40 - 40.37 52.20 28.54
iSogCLR|- 40.18 - 40.03 51.56 28.50
NUCLR|- 40.49 - 41.55 53.55 29.55
CC12M 9.18 M, pretrained RN50 and DistilBERT, 30 epochs|NUCLR, ICLR 2025, table 1
CLIP|- 44.28 - 42.76 55.21 30.30
SogCLR|- 49.82 - 46.60 59.28 33.91
NUCLR|- 49.82 - 47.41 60.45 34.36
WIT-400M, ViT-B/32|OpenAI; mlfoundations/open_clip docs/openclip_results.csv
CLIP|52.45 63.32 50.64 54.56 68.84 40.28
"""


def published() -> list[list[str]]:
    """Rows of training data, method, the six numbers and the source."""
    rows, data, source = [], "", ""
    for line in _PUBLISHED.strip().splitlines():
        head, tail = line.split("|")
        numbers = tail.split()
        if len(numbers) == 6:
            rows.append([data, head, *numbers, source])
        else:
            data, source = head, tail
    return rows
