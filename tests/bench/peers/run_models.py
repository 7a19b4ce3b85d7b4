#!/usr/bin/env python3
"""Models of open_clip: `ccbench step` and PyTorch on the CPU in turn, in short slices:

    python3 run_models.py build/release/bin/ccbench [--rounds 4] [--steps 3] [--threads 2] [--only TEXT] [--json FILE]

in a Python with torch and open_clip_torch. A step is forward, backward and AdamW of one tower (or of the whole
model with CLIP's loss), in PyTorch of open_clip's own modules, eager and by torch.compile, bf16 by autocast.
PyTorch's captions are padded to 77 tokens, as open_clip pads them; ccstream packs them.

Both PyTorch processes live as long as a case; in every round each of the three takes --steps steps, in an order
that rotates. `cpu` is the ratio of the processes' CPU times of a step, the median over the rounds: other programs on
the machine disturb it least, but it does not see threads that wait asleep. `wall` is the ratio of the fastest steps.
Both are those of the better one of eager and compiled. `memory` is the ratio of peak resident memory, ccstream's to
that of eager PyTorch, libraries included.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

IMAGE = "--tower image --image-size 224"
TEXT = "--tower text --tokens 32 --vocab 49408"
CASES = [("ViT-B-32 image, batch 32", f"--model ViT-B-32 {IMAGE} --batch 32", "", ("f32", "bf16")),
         ("ViT-B-16 image, batch 32", f"--model ViT-B-16 {IMAGE} --batch 32", "", ("f32", "bf16")),
         ("RN50 image, batch 16", f"--model RN50 {IMAGE} --batch 16", "", ("f32", "bf16")),
         ("ViT-B-32 text, batch 32", f"--model ViT-B-32 {TEXT} --batch 32", "--pad 77", ("f32", "bf16")),
         ("ViT-B-32 both, batch 32", f"--model ViT-B-32 --image-size 224 --tokens 32 --vocab 49408 --batch 32",
          "--pad 77", ("f32", "bf16"))]
# Waiting threads of either OpenMP library soon sleep, so that the CPU time is that of work alone.
ENVIRONMENT = {**os.environ, "GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}


class Torch:
    def __init__(self, options):
        here = os.path.dirname(os.path.abspath(__file__))
        self.process = subprocess.Popen([sys.executable, os.path.join(here, "torch_step.py"), "--towers", "open_clip",
                                         "--serve"] + options, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT)

    def steps(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{' '.join(self.process.args)} ended: run it by hand without --serve")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Ours:
    def __init__(self, ccbench, options):
        self.command = [ccbench, "step", "--json", "--machine", "off", "--dropout", "0"] + options

    def steps(self, count):
        process = subprocess.Popen(self.command + ["--steps", str(count)], stdout=subprocess.PIPE, text=True,
                                   env=ENVIRONMENT)
        lines = process.stdout.read().strip().splitlines()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{' '.join(self.command)} failed")
        result = json.loads(lines[-1])
        fastest = result["step_ms"] * result["pairs_per_s"] / result["fastest_pairs_per_s"]
        return {"wall_ms": [fastest], "cpu_ms": [result["step_cpu_ms"]], "peak_bytes": usage.ru_maxrss * 1024}

    def close(self):
        pass


def measure(a, words, theirs, precision):
    common = ["--precision", precision, "--threads", str(a.threads)]
    options = words.split() + common
    programs = {"ccstream": Ours(a.ccbench, options),
                "eager": Torch(options + theirs.split())}
    if not a.eager:
        programs["compiled"] = Torch(options + theirs.split() + ["--compile", "default"])
    for name in list(programs)[1:]:
        programs[name].steps(1)  # waits until it is warm
    rounds = []
    for r in range(a.rounds):
        order = list(programs)
        order = order[r % len(order):] + order[:r % len(order)]
        rounds.append({name: programs[name].steps(a.steps) for name in order})
    for program in programs.values():
        program.close()
    return rounds


def summarize(rounds):
    others = [name for name in rounds[0] if name != "ccstream"]

    def cpu(r, name):
        return statistics.median(r[name]["cpu_ms"])

    def fastest(name):
        return min(min(r[name]["wall_ms"]) for r in rounds)

    def peak(name):
        return max(r[name]["peak_bytes"] for r in rounds)

    ratios = {name: statistics.median(cpu(r, name) / cpu(r, "ccstream") for r in rounds) for name in others}
    best = min(ratios, key=ratios.get)
    spread = sorted(cpu(r, best) / cpu(r, "ccstream") for r in rounds)
    out = {name + "_cpu_ms": statistics.median(cpu(r, name) for r in rounds) for name in rounds[0]}
    out.update({name + "_peak_bytes": peak(name) for name in rounds[0]})
    out.update({name + "_fastest_ms": fastest(name) for name in rounds[0]})
    out.update(cpu=ratios[best], cpu_least=spread[0], cpu_most=spread[-1], better=best,
               wall=min(fastest(name) for name in others) / fastest("ccstream"),
               memory=peak("ccstream") / peak("eager"))
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("ccbench")
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--steps", type=int, default=3, help="of each program in a round")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--only", default="", help="cases whose name has this")
    p.add_argument("--eager", action="store_true", help="without torch.compile")
    p.add_argument("--json", help="file to which every case is appended as a line")
    a = p.parse_args()
    print(f"{'CPU ms of a step':<30} {'ccstream':>9} {'eager':>9} {'compiled':>9} {'cpu':>6} {'least':>6} {'most':>6} "
          f"{'wall':>6} {'memory':>6}", flush=True)
    for name, words, theirs, precisions in CASES:
        for precision in precisions:
            case = f"{name}, {precision}"
            if a.only not in case:
                continue
            s = summarize(measure(a, words, theirs, precision))
            compiled = f"{s['compiled_cpu_ms']:>9.0f}" if "compiled_cpu_ms" in s else f"{'':>9}"
            print(f"{case:<30} {s['ccstream_cpu_ms']:>9.0f} {s['eager_cpu_ms']:>9.0f} {compiled} {s['cpu']:>6.2f} "
                  f"{s['cpu_least']:>6.2f} {s['cpu_most']:>6.2f} {s['wall']:>6.2f} {s['memory']:>6.2f}", flush=True)
            if a.json:
                with open(a.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"case": case, "rounds": a.rounds, "steps": a.steps,
                                           "threads": a.threads, **s}) + "\n")


if __name__ == "__main__":
    main()
