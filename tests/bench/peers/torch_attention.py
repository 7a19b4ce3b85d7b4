#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention, forward and backward, by each of its backends, at the shapes of our
captions: a JSON line for each. No mask, no dropout; median of runs of calls, one wait at the end of each; on CUDA
a run is one CUDA graph.

    python3 torch_attention.py --device cuda --batch 512 --precision bf16
"""
import argparse
import json
import statistics
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}


def captured(call, calls):
    """`calls` calls as one CUDA graph: launches from Python would take longer than the work."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph.replay


def measure(o, call, runs=5):
    cuda = o.device == "cuda"
    wait = torch.cuda.synchronize if cuda else lambda: None
    run = captured(call, o.calls) if cuda else lambda: [call() for _ in range(o.calls)]
    run()
    wait()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        run()
        wait()
        times.append((time.perf_counter() - begin) / o.calls)
    return statistics.median(times) * 1e3


def one(o, name, tokens):
    shape = (o.batch, tokens, 3, o.heads, 64)
    qkv = torch.randn(shape, device=o.device, dtype=TYPES[o.precision], requires_grad=True)
    grad = torch.randn((o.batch, o.heads, tokens, 64), device=o.device, dtype=TYPES[o.precision])

    def forward():
        q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    with sdpa_kernel(BACKENDS[name]):
        with torch.no_grad():
            forward_ms = measure(o, forward)
        both_ms = measure(o, lambda: torch.autograd.grad(forward(), qkv, grad))
    return {"forward_ms": forward_ms, "both_ms": both_ms}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--precision", choices=TYPES, default="bf16")
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--heads", type=int, default=12)
    p.add_argument("--tokens", type=int, nargs="+", default=[16, 32, 64])
    p.add_argument("--calls", type=int, default=50)
    o = p.parse_args()
    if o.device == "cuda" and not torch.cuda.is_available():
        print("torch_attention: this PyTorch sees no CUDA device")
        return 77
    for tokens in o.tokens:
        for name in BACKENDS:
            line = {"what": f"PyTorch's attention, {name}", "type": o.precision,
                    "shape": f"{o.batch} captions of {tokens} tokens, {o.heads} heads of 64"}
            try:
                line.update(one(o, name, tokens))
            except RuntimeError as e:  # a backend that has no kernel for it
                line["reason"] = str(e).splitlines()[0][:120]
            print(json.dumps(line, separators=(",", ":")), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
