#!/usr/bin/env python3
"""The five lines that replace WebDataset by ccstream in an open_clip-style script.

    python3 open_clip_data.py cc3m

Before, as in open_clip_train/data.py:

    pipeline = [wds.SimpleShardList(urls), wds.split_by_worker, wds.tarfile_to_samples(), wds.shuffle(5000),
                wds.decode("pilrgb"), wds.to_tuple("jpg", "txt"), wds.map_tuple(preprocess, tokenize), wds.batched(512)]
    loader = wds.WebLoader(wds.DataPipeline(*pipeline), batch_size=None, num_workers=8)
    for images, texts in loader:
        images, texts = images.to(device), texts.to(device)
"""
import sys

import torch

import ccstream  # 1
from ccstream.torch import NormalizeOnDevice

device = "cuda" if torch.cuda.is_available() else "cpu"
normalize = NormalizeOnDevice().to(device)
loader = ccstream.DataLoader(sys.argv[1], batch_size=8, image_size=224, num_threads=2)  # 2
for batch in loader:  # 3
    batch = batch.to(device)  # 4
    images, texts = normalize(batch["image"]), batch["tokens"]  # 5
    print(tuple(images.shape), tuple(texts.shape))  # (8, 3, 224, 224) in channels-last memory, (8, 30)
    break
