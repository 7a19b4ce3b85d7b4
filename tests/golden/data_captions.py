"""Every caption of the test data (the folder in CCSTREAM_TEST_DATA), in the order in which
tests/support/captions.c walks them."""
import json
import os
import tarfile

SOURCES = ["pairs/000000.tar", "pairs/000001.tar", "pairs/000002.tar", "pairs/000003.tar",
           "pairs_vi/000000.tar", "retrieval/captions.json",
           "formats/coco_mini_captions_val2017.json", "raw/captions.tsv",
           "formats/cc3m_validation_first5000.tsv"]


def captions(root, name):
    path = os.path.join(root, name)
    if name.endswith(".tar"):
        with tarfile.open(path) as tar:
            for member in tar:
                if member.name.endswith(".json"):
                    yield from json.load(tar.extractfile(member))["captions"]
    elif name.endswith(".json"):
        with open(path, "rb") as f:
            for annotation in json.load(f)["annotations"]:
                yield annotation["caption"]
    else:
        with open(path, "rb") as f:
            for line in f.read().decode().split("\n"):
                if line:
                    yield line.split("\t")[0]
