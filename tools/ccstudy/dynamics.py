"""How a run's per-sample state changes, for `ccstream-report`: quantiles over checkpoints, the samples that moved most between
two of them, and how well zeta agrees with the minimiser of NUCLR's eq. (8) on a probe set.

    RUN/metrics.jsonl                   histograms at every checkpoint --> quantiles
    RUN/checkpoints/step-N.safetensors  columns by sample id --> samples that moved, and zeta of the probe's pairs
    datasets of RUN --> `ccpack subset`, `ccstream-eval embed` --> similarities --> minimiser --> RUN/probe.jsonl

Runs are untrusted: a file that is not a checkpoint is skipped. Only the probe needs NumPy.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import popularity
from .run_log import Histogram, RunLog, member, number, parse
from .study import StudyError, np, start

SIDES = ("image", "text")
_MAX_HEADER_BYTES = 16 << 20
_CODES = {"F32": "f", "U32": "I", "U64": "Q"}
_PROBE_ITERATIONS, _PROBE_GAP = 500, 1e-3
MIN_PROBE = 16


def quantiles(h: Histogram, shares: Iterable[float]) -> list[float]:
    """Quantiles of a histogram; values are assumed uniform within each bin."""
    total = math.fsum(h.shares)
    out = []
    for share in shares:
        left, place = share * total, 0.0
        for k, bin_ in enumerate(h.shares):
            place = k + (left / bin_ if bin_ > 0 else 0.0)
            if left <= bin_:
                break
            left -= bin_
        out.append(h.low + h.width * min(place, len(h.shares)))
    return out


# ---- checkpoints


class Columns:
    """The columns of one checkpoint. Raises ValueError or OSError if the file is not one."""

    def __init__(self, path: Path):
        if not path.is_file():
            raise ValueError("not a file")
        self._file = path.open("rb")
        try:
            self._read_header(path.stat().st_size)
        except BaseException:
            self._file.close()
            raise

    def _read_header(self, size: int) -> None:
        (length,) = struct.unpack("<Q", self._file.read(8).ljust(8, b"\xff"))
        if length > min(_MAX_HEADER_BYTES, size - 8):
            raise ValueError("not a safetensors file")
        header = json.loads(self._file.read(length))
        if not isinstance(header, dict):
            raise ValueError("not a safetensors file")
        self._begin, self._size, self._tensors = 8 + length, size, header
        self.metadata = header.get("__metadata__") or {}
        self.step = int(member(self.metadata, "train.step"))

    def __enter__(self) -> Columns:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()

    def state(self) -> str:
        """Identifies the file, to detect that a checkpoint was replaced by another one of the same step."""
        return hashlib.blake2b(self.read("state.text.zeta").tobytes(), digest_size=8).hexdigest()

    def tau(self) -> float:
        scale = self.metadata.get("loss.state.log_scale")
        return float(self.metadata["loss.tau"]) if scale is None else math.exp(-float(scale))

    def has(self, name: str) -> bool:
        return isinstance(self._tensors.get(name), dict)

    def read(self, name: str) -> array[Any]:
        """A tensor of numbers; empty if there is none."""
        t = self._tensors.get(name)
        if not isinstance(t, dict):
            return array("f")
        begin, end = (int(x) for x in t["data_offsets"])
        if not 0 <= begin <= end <= self._size - self._begin:
            raise ValueError(f"{name} is beyond the end")
        out = array(_CODES[t["dtype"]])
        self._file.seek(self._begin + begin)
        out.frombytes(self._file.read(end - begin))
        if sys.byteorder == "big":
            out.byteswap()
        return out

    def owners(self, side: str) -> list[int] | None:
        """For columns by caption: the first entry of each id, then the number of entries. None: one entry per id."""
        return list(itertools.accumulate(self.read("captions"), initial=0)) if side == "text" and self.has("captions") else None

    def offsets(self) -> list[int]:
        """The first id of each dataset of a mix."""
        count = int(self.metadata.get("dataset.count", 1))
        return [int(self.metadata.get(f"dataset.{i}.id_offset", 0)) for i in range(min(count, 16))]


def checkpoints(run: str) -> list[Path]:
    """The run's checkpoints, by step."""
    try:
        names = os.listdir(os.path.join(run, "checkpoints"))
    except OSError:
        return []
    steps = sorted(int(found[1]) for name in names if (found := re.fullmatch(r"step-(\d{1,18})\.safetensors", name)))
    return [Path(run) / "checkpoints" / f"step-{step}.safetensors" for step in steps]


def _opened(path: Path) -> Columns | None:
    try:
        return Columns(path)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


# ---- who moved


@dataclass
class Move:
    place: int  # of the dataset, in the order of --data
    id: int  # in that dataset
    caption: int
    before: float
    after: float


@dataclass
class Moves:
    first: int  # steps
    last: int
    of: dict[str, list[Move]]  # by column, "text.zeta"; the largest move first


def _owner(entry: int, owners: list[int] | None, offsets: list[int]) -> tuple[int, int, int]:
    """(dataset, id in it, caption)."""
    sample, caption = entry, 0
    if owners is not None:
        low, high = 0, len(owners) - 1  # owners[low] <= entry < owners[high]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if owners[middle] <= entry else (low, middle)
        sample, caption = low, entry - owners[low]
    place = max(k for k, first in enumerate(offsets) if first <= sample)
    return place, sample - offsets[place], caption


def _largest(before: Columns, after: Columns, name: str, count: int) -> list[Move]:
    old, new = before.read(f"state.{name}"), after.read(f"state.{name}")
    owners, offsets = after.owners(name.split(".")[0]), after.offsets()
    if before.has("captions") and before.read("captions") != after.read("captions"):
        return []  # the data has grown: entries are at other places
    moved = ((abs(b - a), k) for k, (a, b) in enumerate(zip(old, new)) if math.isfinite(b - a) and a != b)
    return [Move(*_owner(k, owners, offsets), old[k], new[k]) for _, k in heapq.nlargest(count, moved)]


def moves(run: str, names: list[str], count: int) -> Moves | None:
    """The samples that moved between the run's oldest and newest checkpoint. None: at most one checkpoint, or nothing moved."""
    kept = [c for path in checkpoints(run) if (c := _opened(path)) is not None]
    try:
        if len(kept) < 2:
            return None
        found = {name: _largest(kept[0], kept[-1], name, count) for name in names}
        return Moves(kept[0].step, kept[-1].step, {k: v for k, v in found.items() if v}) if any(found.values()) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    finally:
        for c in kept:
            c.__exit__()


# ---- the probe


def probed(run: str, pairs: int | None = None) -> list[dict[str, Any]]:
    """The lines of RUN/probe.jsonl by step; of a repeated step the last one. pairs: only lines with this number of pairs."""
    try:
        text = (Path(run) / "probe.jsonl").read_bytes()[:1 << 26]
    except OSError:
        return []
    out: dict[float, dict[str, Any]] = {}
    for line in map(parse, text.splitlines()):
        step = number(member(line, "step"))
        if step is not None and isinstance(line.get("state"), str) and pairs in (None, line.get("pairs")):
            out[step] = line
    return [out[step] for step in sorted(out)]


def _choose(c: Columns, pairs: int) -> list[int]:
    """Ids of samples whose zeta has moved on both sides, in a fixed order of ids, so that checkpoints share them."""
    owners = c.owners("text")
    image, text = (c.read(f"state.{side}.zeta_momentum") for side in SIDES)
    out = []
    for id_ in random.Random(0).sample(range(len(image)), min(len(image), 8 * pairs + 1000)):
        entry = id_ if owners is None else owners[id_]
        if entry < len(text) and math.isfinite(image[id_]) and math.isfinite(text[entry]):
            out.append(id_)
            if len(out) == pairs:
                break
    return out


def _call(words: list[str]) -> None:
    with start(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as child:
        said = [line for line in child.communicate()[1].decode("utf-8", "replace").splitlines() if "lists every option" not in line]
    if child.returncode:
        raise StudyError(said[-1] if said else f"{' '.join(words[:2])}: exit code {child.returncode}")


def _embeddings(path: Path, place: str, ids: list[int]) -> tuple[list[int], Any, Any]:
    """Ids, images and first captions (n, d) of the samples of a dataset that have a caption."""
    if not os.path.isdir(place):
        raise StudyError(f"{place} is not a folder: probes read local datasets only")
    with tempfile.TemporaryDirectory(prefix="ccstream-probe.") as folder:
        names = os.path.join(folder, "ids")
        Path(names).write_text("".join(f"{id_}\n" for id_ in ids), "ascii")
        _call(["ccpack", "subset", "--ids", names, "-o", f"{folder}/pairs", "--quiet", "--", place])
        _call(["ccstream-eval", "embed", "--data", f"{folder}/pairs", "--texts", "-o", f"{folder}/e", "--quiet", "--", str(path)])
        image, found, text, owner = (np.load(f"{folder}/e.{name}.npy", allow_pickle=False) for name in ("images", "ids", "texts", "owners"))
    rows, first = np.unique(owner, return_index=True)
    return [int(i) for i in found[rows]], image[rows], text[first]


def _agreement(kernel: Any, zeta: Any, tau: float) -> dict[str, float]:
    """kernel: rows are anchors, columns the candidates that zeta belongs to."""
    q, gap = popularity.approach(kernel, _PROBE_ITERATIONS, _PROBE_GAP)
    exact = tau * np.log(q)
    share = kernel / q
    own = float(np.mean(np.diag(share) / share.sum(1)))
    known = zeta.std() > 0 and exact.std() > 0
    return {"correlation": float(np.corrcoef(zeta, exact)[0, 1]) if known else math.nan, "spread": float(zeta.std()) / tau,
            "minimiser_spread": float(exact.std()) / tau, "own_share": own, "gap": gap}


def measure(path: Path, places: list[str], pairs: int) -> dict[str, Any] | None:
    """A line of probe.jsonl. None: zeta has moved for too few samples so far, or there is no zeta."""
    with Columns(path) as c:
        if not all(c.has(f"state.{side}.zeta_momentum") for side in SIDES):
            return None
        ids, offsets = _choose(c, pairs), c.offsets()
        if len(ids) < min(pairs, MIN_PROBE):
            return None
        owners = c.owners("text")
        zeta = {side: c.read(f"state.{side}.zeta") for side in SIDES}
        tau, state = c.tau(), c.state()
    used, images, texts = [], [], []
    for place, first, end in zip(places, offsets, [*offsets[1:], 1 << 62]):
        own = [id_ - first for id_ in ids if first <= id_ < end]
        if own:
            found, x, t = _embeddings(path, place, own)
            used += [first + id_ for id_ in found]
            images.append(x)
            texts.append(t)
    s = np.concatenate(images).astype(float) @ np.concatenate(texts).astype(float).T / tau
    kernel = {"text": np.exp(s - s.max(1, keepdims=True)), "image": np.exp(s.T - s.max(0)[:, None])}
    at = {"image": used, "text": used if owners is None else [owners[i] for i in used]}
    return {"step": c.step, "pairs": pairs, "used": len(used), "tau": tau, "state": state} | {
        side: _agreement(kernel[side], np.array([zeta[side][k] for k in at[side]]), tau) for side in SIDES}


def probe(run: RunLog, places: list[str], pairs: int) -> list[str]:
    """Adds a line to RUN/probe.jsonl for every checkpoint without one. Returns error messages."""
    known = {line["step"]: line["state"] for line in probed(run.path, pairs)}
    try:
        for path in checkpoints(run.path):
            c = _opened(path)
            if c is None:
                continue
            with c:
                done = known.get(c.step) == c.state()
            line = None if done else measure(path, places, pairs)
            if line is not None:
                with open(os.path.join(run.path, "probe.jsonl"), "a", encoding="ascii") as file:
                    file.write(json.dumps(line).replace("NaN", "null") + "\n")
    except (StudyError, OSError, ValueError, TypeError, KeyError) as error:
        return [f"The probe is missing: {error}"]
    return []
