#!/bin/bash
# by hand: the curves of docs/losses: every loss trained alike on rendered scenes, its mean R@1 among captions that no
# picture of the training set has, and a figure for each page, drawn by ccstream-report.
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

# figure NAME BASELINES LOSS...: of the losses that are trained, the report's chart of R@1 as a picture of its own, with the
# legend that the page has beside it
figure() {
    local name=$1 baselines=$2 loss line chart legend item mark i=0 rows
    shift 2
    for loss in "$@"; do
        ! finished "$loss" || set -- "$@" "$loss"
        shift
    done
    [ $# -ge 1 ] || return 0
    # shellcheck disable=SC2086 # several words
    set -- $baselines "$@"
    rows=$((($# + 3) / 4))
    "$bin/ccstream-report" -o page.html "$@" >/dev/null
    line=$(grep -F '<figcaption>Retrieval, mean of both directions: R@1<' page.html)
    legend=${line%%</div>*}
    chart=${line#*</div><svg }
    {
        echo "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 $((400 + 22 * rows))\" font-family=\"sans-serif\""
        echo 'font-size="13"><style>:root{--line:#d0d6dd;--c1:#0072b2;--c2:#d55e00;--c3:#009e73;--c4:#cc79a7;--c5:#8a6d00;'
        echo '--c6:#56b4e9;--c7:#e69f00;--c8:#777}</style><rect width="100%" height="100%" fill="#fff"/>'
        while [[ $legend == *"<span>"* ]]; do
            legend=${legend#*<span>}
            item=${legend%%</span>*}
            mark=${item#<svg*>}
            echo "<g transform=\"translate($((20 + 150 * (i % 4))) $((6 + 22 * (i / 4))))\">${mark%</svg>*}"
            echo "<text x=\"38\" y=\"12\">${item##*>}</text></g>"
            i=$((i + 1))
        done
        echo "<svg y=\"$((22 * rows))\" width=\"640\" height=\"400\" ${chart%%</svg>*}</svg></svg>"
    } >"$figures/$name.svg"
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
