#!/bin/bash
# What TensorBoard's own reader finds in the event files of ccstream-report --tensorboard: the numbers, histograms and examples of
# RUN/metrics.jsonl, each once, also of a run that was resumed and written again.
# BIN: the programs. CCSTREAM_PEERS: a Python environment with tensorboard. Some seconds.
python=${CCSTREAM_PEERS:-}/bin/python
"$python" -c 'import tensorboard' 2>/dev/null || { echo "skipped: CCSTREAM_PEERS names no environment with tensorboard"; exit 77; }
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"${TESTBIN:-$BIN/../tests/bin}/make_scenes" train 64 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer -q data --vocab-size 100
train() {
    "$BIN/ccstream-train" -q --image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 12 --batch-size 16 --threads 1 "$@"
}
report() { # by the interpreter that has the package
    PATH=$BIN:$PATH PYTHONPATH=$BIN/../python "$python" -m ccstream.studies report "$@"
}
train --data data --val data --out run --epochs 2
report --tensorboard board run
train --resume run --epochs 4
sleep 1 # names of event files begin with the second
report --follow --tensorboard board run
"$python" - board run/metrics.jsonl <<'P'
import json
import sys

from tensorboard.backend.event_processing.plugin_event_accumulator import TENSORS, EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

read = EventAccumulator(sys.argv[1], size_guidance={TENSORS: 0})
read.Reload()
numbers, histograms, examples = {}, {}, []


def collect(step, value, path):
    for key, member in value.items():
        name = f"{path}/{key}" if path else key
        if isinstance(member, dict) and "counts" in member:
            if member["counts"]:
                histograms.setdefault(name, {})[step] = member
        elif isinstance(member, dict):
            collect(step, member, name)
        elif isinstance(member, (int, float)) and name != "step":
            numbers.setdefault(name, {})[step] = member


for line in map(json.loads, open(sys.argv[2], encoding="utf-8")):
    if "examples" in line:
        examples.append(line["step"])
    collect(line["step"], line, "")
shown = [f"examples/{k}" for k in range(1, 7)]
assert set(read.Tags()[TENSORS]) == {*numbers, *histograms, *shown, "examples/captions"}, read.Tags()
count = 0
for name, by_step in numbers.items():
    events = read.Tensors(name)
    assert [e.step for e in events] == list(by_step), f"{name}: steps {[e.step for e in events]}"
    for e in events:
        value = make_ndarray(e.tensor_proto)
        assert abs(value - by_step[e.step]) <= 1e-6 * abs(value), f"{name}, step {e.step}: {value}"
        count += 1
for name, by_step in histograms.items():
    events = read.Tensors(name)
    assert [e.step for e in events] == list(by_step)
    for e in events:
        bins, own = make_ndarray(e.tensor_proto), by_step[e.step]
        last = own["low"] + len(own["counts"]) * own["width"]
        assert [b[2] for b in bins] == own["counts"] and bins[0][0] == own["low"] and abs(bins[-1][1] - last) < 1e-9 * abs(last)
        count += 1
for name in shown:
    events = read.Tensors(name)
    assert [e.step for e in events] == examples, f"images at {[e.step for e in events]}, examples at {examples}"
    for e in events:
        images = e.tensor_proto.string_val[2:]
        assert len(images) == 7 and all(i[:2] == b"\xff\xd8" and i[-2:] == b"\xff\xd9" for i in images)
texts = [e.tensor_proto.string_val for e in read.Tensors("examples/captions")]
assert len(texts) == len(examples) and all(t[0].startswith(b"1. ") and b"own image first; " in t[0] for t in texts)
assert count > 300
print(f"{count} numbers and histograms, {6 * len(examples)} rows of images: as written")
P
