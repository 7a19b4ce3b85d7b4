#!/bin/bash
# by hand: the curves of docs/losses: every loss trained alike on rendered scenes, its mean R@1 among captions that no
# image of the training set has, and a figure for each page.
#
# usage: BIN=build/release/bin TESTBIN=build/release/tests/bin tests/bench/loss_curves.sh DIR [FIGURES]
#   DIR        runs; started again with the same DIR, it keeps finished ones, and resumes the others
#   FIGURES    folder for NAME.svg; DIR/figures without it
#   LOSSES     only train these
#
# About 40 s of processor time for a loss, twice that for emc2 and negcache, which encode more.
set -eu
dir=$1
mkdir -p "$dir" "${2:-$dir/figures}"
bin=$(readlink -f "$BIN")
make_scenes=$(readlink -f "$TESTBIN/make_scenes")
figures=$(readlink -f "${2:-$dir/figures}")
cd "$dir"
if [ ! -e packed ]; then
    "$make_scenes" train 1024 1 32 train.tar
    "$make_scenes" val 256 1 32 val.tar
    "$bin/ccpack" -q --overwrite -o train train.tar
    "$bin/ccpack" -q --overwrite -o val val.tar
    "$bin/ccpack" tokenizer train --vocab-size 200 >/dev/null
    touch packed
fi

all="clip siglip cyclip dcl hcl rince sogclr isogclr nuclr nuclr-frozen nuclr-noxi fastclip-v0 fastclip-v1 fastclip-v2
    fastclip-v3 emc2 negcache clip-tau-0.01 clip-tau-0.2 clip-learned"
for loss in ${LOSSES:-$all}; do
    own="--loss $loss"
    case $loss in
    dcl | hcl) own="$own --tau-plus 0.01" ;; # of 1,424 captions
    clip-tau-*) own="--loss clip --tau ${loss#clip-tau-}" ;; # cpu-demo has 0.05
    clip-learned) own="--loss clip --temperature global" ;;
    esac
    if [ -e "$loss/config.json" ]; then
        "$bin/ccstream-train" -q --resume "$loss"
    else
        # shellcheck disable=SC2086 # several words
        "$bin/ccstream-train" -q --preset cpu-demo --epochs 12 --threads 1 $own --data train \
            --val val --out "$loss"
    fi
done

finished() {
    [ -e "$1/metrics.jsonl" ] && [ "$(grep -c '"mean_r1":' "$1/metrics.jsonl")" = 12 ]
}

cat >figure.py <<'PYTHON'
"""figure.py RUN...: mean R@1 over steps as SVG."""
import html, json, sys
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#e69f00", "#777"]
runs = {}
for run in sys.argv[1:]:
    entries = [json.loads(line) for line in open(run + "/metrics.jsonl") if '"retrieval":' in line]
    runs[run] = [(e["step"], e["retrieval"]["mean_r1"]) for e in entries]
most = [max(point[i] for points in runs.values() for point in points) for i in (0, 1)]
top = 22 * ((len(runs) + 3) // 4) + 30
x = lambda step: 60 + 560 * step / most[0]
y = lambda recall: top + 310 * (1 - recall / most[1])
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {top + 360}" font-family="sans-serif" font-size="13">')
print(f'<rect width="100%" height="100%" fill="#fff"/><text x="4" y="{top - 10}">recall, %</text>')
print(f'<text x="340" y="{top + 350}" text-anchor="middle">step</text>')
for i in range(5):
    step, recall = most[0] * i / 4, most[1] * i / 4
    print(f'<path d="M{x(step):.1f} {y(0)}V{top}M60 {y(recall):.1f}H620" stroke="#d0d6dd"/>')
    print(f'<text x="{x(step):.1f}" y="{y(0) + 18}" text-anchor="middle">{step:.0f}</text>')
    print(f'<text x="54" y="{y(recall) + 4:.1f}" text-anchor="end">{recall:.1f}</text>')
for i, (run, points) in enumerate(runs.items()):
    at = f'{20 + 150 * (i % 4)} {6 + 22 * (i // 4)}'
    print(f'<g stroke="{COLOURS[i % 8]}" stroke-width="2" fill="none"><path transform="translate({at})" d="M0 7H32"/>')
    print(f'<path d="M{"L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)}"/></g>')
    print(f'<text transform="translate({at})" x="38" y="12">{html.escape(run)}</text>')
print("</svg>")
PYTHON
# figure NAME BASELINES LOSS...: of the losses that are trained
figure() {
    local name=$1 baselines=$2 loss
    shift 2
    for loss in "$@"; do
        ! finished "$loss" || set -- "$@" "$loss"
        shift
    done
    [ $# -ge 1 ] || return 0
    # shellcheck disable=SC2086 # several words
    python3 figure.py $baselines "$@" >"$figures/$name.svg"
}
figure clip clip clip-tau-0.01 clip-tau-0.2 clip-learned
figure siglip clip siglip
figure cyclip clip cyclip
figure hcl clip dcl hcl
figure rince clip rince
figure sogclr clip sogclr
figure isogclr "clip sogclr" isogclr
figure nuclr "clip sogclr" nuclr nuclr-frozen nuclr-noxi
figure fastclip "clip sogclr" fastclip-v0 fastclip-v1 fastclip-v2 fastclip-v3
figure emc2 "clip sogclr" emc2 negcache

for loss in $all; do
    ! finished "$loss" || echo "$loss: mean R@1 at epochs 4, 8, 12:$(grep -o '"mean_r1":[0-9.]*' "$loss/metrics.jsonl" |
        awk -F : 'NR % 4 == 0 { printf " %.1f", $2 }')"
done
