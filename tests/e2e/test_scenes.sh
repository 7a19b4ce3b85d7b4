#!/bin/bash
# From rendered scenes to recall: packs 2,560 renders, trains a small model for three epochs, and requires 10 % mean R@1 among
# 256 held-out captions; of four seeds the lowest has 19 %. Chance is 0.4 %. scenes_80.sh trains residual networks, for longer.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 2560 1 32 train.tar
"$TESTBIN/make_scenes" val 256 1 32 val.tar
"$BIN/ccpack" -q -o train train.tar
"$BIN/ccpack" -q -o val val.tar
"$BIN/ccpack" tokenizer train --model-type bpe --vocab-size 128 >/dev/null # words are single tokens
cat >model.json <<'EOF'
{"embed_dim": 64, "vision_cfg": {"image_size": 16, "patch_size": 4, "layers": 1, "width": 64, "head_width": 32},
 "text_cfg": {"context_length": 16, "vocab_size": 128, "width": 64, "heads": 2, "layers": 1}}
EOF
"$BIN/ccstream-train" -q --json --data train --val val --out run --augment crop --loss nuclr --model model.json \
    --tokenizer train/tokenizer.model --batch-size 64 --epochs 3 --lr 0.002 --tau 0.05 --zeta-freeze-epochs 1 --eval-every 0 \
    --threads 1 >summary.json
cat summary.json
"$BIN/ccstream-eval" retrieval -q run --data val --json | tee eval.json

mean=$(field eval.json mean_r1)
awk -v mean="$mean" 'BEGIN { exit !(mean >= 10) }' || fail "mean R@1 is $mean %, expected at least 10"
