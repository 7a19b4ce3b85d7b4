#!/bin/bash
# Random histories of append, remove, compact and resume: ccdump order and why answer what the run was delivered in
# every step, by the visits in the checkpoints of all steps; removed samples are marked. CCSTREAM_HISTORIES: how many.
. "$SRC/tests/support/cli.sh"

command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
for part in 0 1 2 3 4; do
    "$TESTBIN/make_scenes" train $((20 + part)) $((part + 3)) 16 $part.tar
done
small_model model.json
python3 - <<'PYTHON' || fail "an answer is not what the run was delivered"
import array, json, os, random, shutil, struct, subprocess, sys
BIN = os.environ["BIN"]

def call(program, *words, codes=(0,)):
    r = subprocess.run([f"{BIN}/{program}", *map(str, words)], capture_output=True, text=True)
    if r.returncode not in codes:
        sys.exit(f"{program} {words}: exit code {r.returncode}: {r.stderr}")
    return r.stdout if r.returncode == 0 else None

def visits(path):
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        begin, end = header["state.visits"]["data_offsets"]
        f.seek(8 + size + begin)
        return array.array("Q", f.read(end - begin)), header["__metadata__"]

def order(run, step, codes=(0,)):
    text = call("ccdump", "order", run, "--step", step, "--json", codes=codes)
    return text and [json.loads(line) for line in text.splitlines()]

def live(data):
    return [json.loads(line)["id"] for line in call("ccdump", "ls", data, "--json").splitlines()]

def history(seed):
    r = random.Random(seed)
    data, run, batch = f"d{seed}", f"r{seed}", 6
    call("ccpack", "-q", "-o", data, "0.tar")
    delivered = []  # (step, ids, launch), in the order of training
    begins = []  # of launches
    before = array.array("Q")
    parts = 1
    changed = False
    words = ["-q", "--data", data, "--out", run, "--task", "two-views", "--loss", "simclr", "--model",
             "model.json", "--embed-dim", 16, "--hidden-dim", 16, "--batch-size", batch, "--epochs", 40, "--optimizer", "sgdm", "--seed",
             seed, "--device", "cpu-ref", "--threads", 1, "--loader-threads", 1, "--checkpoint-every", 1, "--keep-checkpoints", 40]
    begin = 0
    for launch in range(5):
        ids = live(data)
        if launch > 0:
            meta = visits(f"{run}/last")[1]
            begin = int(meta["train.epoch"]) * (len(ids) // batch) if changed else int(meta["train.step"])
            words = ["-q", "--resume", run]
        begins.append(begin)
        end = begin + r.randint(2, 5)
        call("ccstream-train", *words, "--steps", end)
        for step in range(begin, end):
            now, _ = visits(f"{run}/checkpoints/step-{step + 1}.safetensors")
            before.extend([0] * (len(now) - len(before)))
            delivered.append((step, [i for i in range(len(now)) if now[i] > before[i]], launch))
            before = now
        changed = False
        for _ in range(r.choice([0, 1, 1, 2])):
            what = r.choice(["append", "remove", "remove", "compact"])
            if what == "append" and parts < 5:
                call("ccpack", "-q", "--append", "-o", data, f"{parts}.tar")
                parts += 1
                changed = True
            elif what == "remove" and len(live(data)) > 3 * batch:
                with open("ids", "w") as f:
                    f.write("\n".join(map(str, r.sample(live(data), r.randint(1, 4)))))
                call("ccpack", "remove", data, "--ids", "ids")
                changed = True
            elif what == "compact":
                call("ccpack", "compact", data)
    ids = set(live(data))
    for step, rows, launch in delivered:
        if any(begin <= step for begin in begins[launch + 1:]):
            continue  # an epoch began again with fewer samples: a later launch has, or would have, a step of this number
        shown = order(run, step)
        if sorted(x["id"] for x in shown) != rows:
            sys.exit(f"history {seed}, step {step}: delivered {rows}, order has {sorted(x['id'] for x in shown)}")
        for x in shown:
            if x.get("removed", False) != (x["id"] not in ids):
                sys.exit(f"history {seed}, step {step}: sample {x['id']} is wrongly marked as removed or not")
    for sample in r.sample(sorted(ids), 6):
        why = json.loads(call("ccdump", "why", run, data, sample, "--encode", 0, "--near", 0, "--json"))
        seen = [x["step"] for x in why.get("seen", [])]
        real = [step for step, rows, _ in delivered if sample in rows]
        if "steps_unknown" in why or seen != real:
            sys.exit(f"history {seed}: sample {sample} was in steps {real}, why has {why}")

for seed in range(1, 1 + int(os.environ.get("CCSTREAM_HISTORIES", 2))):
    history(seed)
    shutil.rmtree(f"r{seed}")
PYTHON
