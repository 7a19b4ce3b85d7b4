# The planned memory of open_clip's towers is what a step uses: between a small and a larger batch, peak resident
# memory grows as the plan does, within 5 %; of residual networks within 8 %. Here it grows 2.3 % faster: a part of that is
# workspace of the input gradients that are added, which is not planned; the convolutions' own workspace is next to nothing.
# not under sanitizers: they take memory of their own
set -eu
cat >model.py <<'PY'
import json, os, subprocess, sys

bench = sys.argv[1]
# with "cpu" the convolutions alone are measured as well, in memory of their own
device = ["--device", "auto"]
vision = {"image_size": 64, "layers": 1, "width": 64, "patch_size": 32, "head_width": 64}
text = {"context_length": 77, "vocab_size": 1000, "width": 64, "heads": 1, "layers": 1}
cases = {
    "vit": (dict(vision, layers=4, width=128, patch_size=8), text, 48),
    "text": (vision, dict(text, width=128, heads=2, layers=4), 48),
    "resnet": ({"image_size": 64, "layers": [1, 1, 1, 1], "width": 16, "patch_size": None}, text, 64)}


def step(name, batch):
    process = subprocess.Popen([bench, "step", "--json", "--machine", "off", "--model", name + ".json", "--image-size", "64",
                                "--tokens", "77", "--vocab", "1000", "--full", "--dropout", "0", "--threads", "1",
                                "--steps", "1", "--batch-size", str(batch)] + device, stdout=subprocess.PIPE, text=True)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (name, process.returncode)
    return json.loads(out)["planned_bytes"], usage.ru_maxrss * 1024


for name, (image, caption, batch) in cases.items():
    with open(name + ".json", "w") as f:
        json.dump({"embed_dim": 64, "vision_cfg": image, "text_cfg": caption}, f)
    few, many = step(name, 4), step(name, batch)
    planned, used = many[0] - few[0], many[1] - few[1]
    print(f"{name}: {planned / 1e6:.1f} MB planned, {used / 1e6:.1f} MB used, {used / planned:.3f}")
    assert planned > 30e6 and abs(used / planned - 1) < (0.08 if name == "resnet" else 0.05), name
PY
CUDA_VISIBLE_DEVICES= python3 model.py "$BIN/ccbench"

# The plan of a whole run is the most that its process holds, with initial values, loader and checkpoint: a copy of the word
# embeddings is a sixth of it and would show. A little is never touched: captions here have fewer than 77 tokens.
cat >run.py <<'PY'
import json, os, subprocess, sys

train = sys.argv[1]
with open("words.json", "w") as f:
    json.dump({"embed_dim": 64, "vision_cfg": {"image_size": 64, "layers": 2, "width": 192, "patch_size": 8},
               "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 384, "heads": 6, "layers": 1}}, f)
options = [train, "--data", "data", "--out", "run", "--model", "words.json", "--loss", "clip", "--batch-size", "16", "--steps", "1",
           "--threads", "1"]
plan = subprocess.run([*options, "--dry-run"], stdout=subprocess.PIPE, text=True, check=True).stdout
(number, unit), = [line.split()[1:] for line in plan.splitlines() if line.startswith("total ")]
planned = float(number) * {"MiB": 1 << 20, "GiB": 1 << 30}[unit]
process = subprocess.Popen([*options, "-q"])
_, status, usage = os.wait4(process.pid, 0)
process.returncode = os.waitstatus_to_exitcode(status)
assert process.returncode == 0
used = usage.ru_maxrss * 1024
print(f"run: {planned / 1e6:.1f} MB planned, {used / 1e6:.1f} MB used, {used / planned:.3f}")
assert 0.88 < used / planned < 1.03
PY
"$TESTBIN/make_scenes" train 64 3 64 train.tar
"$BIN/ccpack" -q -o data train.tar
CCSTREAM_REPORT=/bin/true CUDA_VISIBLE_DEVICES= python3 run.py "$BIN/ccstream-train"
