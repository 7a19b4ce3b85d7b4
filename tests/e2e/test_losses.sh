#!/bin/bash
# Every loss trains and learns a little, and an interrupted run ends with the same bytes: of each that keeps a state,
# numbers or a schedule of its own, and of clip.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 64 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
scene_words words.txt

# Two epochs of four steps of a model that is so small that they take less time than oneDNN's start.
cat >model.json <<'EOF'
{"embed_dim": 16, "vision_cfg": {"image_size": 16, "patch_size": 8, "layers": 1, "width": 16, "head_width": 16},
 "text_cfg": {"context_length": 12, "vocab_size": 40, "width": 16, "heads": 1, "layers": 1}}
EOF
options="--data data --augment crop --model model.json --tokenizer words.txt
    --batch-size 16 --epochs 2 --lr 0.003 --zeta-freeze-epochs 1 --zeta-lr 0.0001 --seed 2 --threads 1 --device cpu-ref
    --checkpoint-every 5 --keep-checkpoints 3"

run() { # run NAME OPTIONS...
    local name=$1
    shift
    expect 0 "$BIN/ccstream-train" -q $options "$@" --out "$name-whole"
    case $name in
    cyclip | dcl | hcl | rince) ;; # keep nothing more than clip
    *) resumes "$name-whole" 5 ;;
    esac
    if grep -Eq 'nan|inf|null' "$name-whole/metrics.jsonl"; then
        fail "$name: metrics are not numbers"
    fi
    grep -Ev '"(state|stages)":' "$name-whole/metrics.jsonl" >"$name.steps"
    [ "$(wc -l <"$name.steps")" -eq 8 ] || fail "$name: not one line of metrics a step"
    rm -rf "$name-whole-parts" "$name-whole/checkpoints/"step-[45].safetensors
}

# All that --help lists, but those of two views alone (test_simclr.sh).
losses=$("$BIN/ccstream-train" --help | sed -n '/^Losses:/,/^$/s/^  \([a-z][a-z0-9-]*\) .*/\1/p' | grep -vx simclr)
[ "$(echo "$losses" | wc -l)" -ge 16 ] || fail "--help lists too few losses: $losses"
for loss in $losses; do
    options_of_loss="--tau 0.05"
    case $loss in
    siglip) options_of_loss="--tau 0.1" ;;
    fastclip-*) options_of_loss="--tau 0.05 --gamma-epochs 1" ;;
    esac
    run "$loss" --loss "$loss" $options_of_loss
done
run sogclr-cosine --loss sogclr --tau 0.05 --gamma-schedule cosine --gamma-epochs 2
run hcl-annealed --loss hcl --tau 0.05 --beta-anneal-steps 2
run clip-global --loss clip --tau 0.07 --temperature global --tau-lr 0.01
run sogclr-global --loss sogclr --tau 0.07 --temperature global --tau-lr 0.01
for loss in sogclr isogclr nuclr; do
    run "$loss-reference" --loss "$loss" --tau 0.05 --variant code
done

# Losses that are true values (not surrogates) fall from the first steps to the last.
for loss in clip siglip cyclip dcl hcl rince; do
    sed 's/.*"loss":\([^,]*\),.*/\1/' "$loss.steps" |
        awk -v loss="$loss" 'NR <= 2 { a += $1 } NR > 6 { b += $1 } END { if (b >= a) { print loss, "did not learn:", a / 2, b / 2; exit 1 } }'
done

# A learned temperature moves, a constant one does not.
taus() {
    sed 's/.*"tau":\([^,]*\),.*/\1/' "$1.steps" | sort -u | wc -l
}
[ "$(taus clip-global)" -eq 8 ] || fail "the temperature of clip is not learned"
[ "$(taus sogclr-global)" -eq 8 ] || fail "the temperature of sogclr is not learned"
[ "$(taus clip)" -eq 1 ] || fail "a constant temperature moved"

[ "$(taus fastclip-v0)" -eq 8 ] || fail "the temperature of fastclip-v0 is not learned"
[ "$(taus fastclip-v3)" -eq 8 ] || fail "the temperature of fastclip-v3 is not learned"
"$BIN/ccdump" state fastclip-v2-whole --json >v2.json
grep -q '"text.tau_square":{"ids":64,"visited":64,' v2.json || fail "fastclip-v2: $(cat v2.json)"
# In the second of two epochs the cosine is halfway from 1 to 0.8.
if cmp -s sogclr-whole/last sogclr-cosine-whole/last; then
    fail "--gamma-schedule has no effect"
fi

if cmp -s hcl-whole/last hcl-annealed-whole/last; then
    fail "--beta-anneal-steps has no effect"
fi

# Every step summarises its batch and records the memory.
[ "$(grep -c '"batch":{"image.log_u":[^,]*,"text.log_u":[^,]*,"image.zeta":[^,]*,"text.zeta":' nuclr.steps)" -eq 8 ] ||
    fail "no summary of the batch: $(cat nuclr.steps)"
[ "$(grep -c '"batch":{}.*"peak_rss_bytes":[1-9]' clip.steps)" -eq 8 ] || fail "clip: $(cat clip.steps)"

# Contradictory options are refused before any work.
refused() {
    expect 64 "$BIN/ccstream-train" -q $options --out refused "$@"
    [ ! -e refused ] || fail "$*: left a directory"
}
refused --loss clip --variant code
refused --loss nuclr --temperature global
refused --loss dcl --temperature individual
refused --loss rince --q 1 --tau 0.001
refused --loss isogclr --tau 0.5
refused --loss emc3
refused --loss fastclip-v1 --temperature global
refused --loss fastclip-v2 --tau 0.001
refused --loss fastclip-v3 --variant code
refused --loss nuclr --variant code --gamma-schedule cosine
options="--data data --batch-size 16"
refused --task two-views --loss fastclip-v3
has err.txt "fastclip-v3"
