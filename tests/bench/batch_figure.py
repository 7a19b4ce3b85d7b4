#!/usr/bin/env python3
"""by hand: the README's figure of recall over the batch, from the numbers that `ccstudy batch -o DIR` writes.

usage: batch_figure.py DIR/batch.json OUT.svg|OUT.png

That of the README: batch_figure.py tests/bench/results/batch.json docs/images/batch-size.svg (and .png). R@1, the mean of both
directions, with bands of one standard error over seeds. Needs matplotlib.
"""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

LINES = {  # method: label, colour, dashes
    "clip": ("CLIP", "#d55e00", "-"),
    "sogclr": ("SogCLR", "#0072b2", "-"),
    "nuclr-auto": ("NUCLR", "#009e73", "-"),
    "sogclr-forgets": ("SogCLR without memory (gamma 1)", "#777777", "--"),
}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        result = json.load(file)
    most = max(row.get("samples", 0) for row in result["rows"])
    rows = [row for row in result["rows"] if row.get("samples", 0) == most]
    plt.rcParams.update({"svg.hashsalt": "ccstream", "svg.fonttype": "none", "font.size": 11,
                         "font.family": "sans-serif", "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(figsize=(7.2, 4), layout="constrained")
    batches = sorted({row["batch"] for row in rows})
    for method, (label, colour, dashes) in LINES.items():
        own = sorted((row for row in rows if row["method"] == method), key=lambda row: row["batch"])
        if not own:
            continue
        x, y, error = ([row[name] for row in own] for name in ("batch", "r1", "r1_se"))
        axes.fill_between(x, [a - e for a, e in zip(y, error)], [a + e for a, e in zip(y, error)], color=colour, alpha=0.15,
                          linewidth=0)
        axes.plot(x, y, dashes, color=colour, marker="o", markersize=4, linewidth=2, label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(b) for b in batches])
    axes.minorticks_off()
    axes.set_xlabel("batch size")
    axes.set_ylabel("recall at 1 of unseen photographs, %")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    seeds = min(row["seeds"] for row in rows)
    figure.suptitle(f"Equally many pairs whatever the batch; {seeds} seeds, bands of one standard error", x=0.02, ha="left", fontsize=11)
    figure.savefig(sys.argv[2], dpi=140, metadata={"Date": None} if sys.argv[2].endswith(".svg") else None)


if __name__ == "__main__":
    main()
