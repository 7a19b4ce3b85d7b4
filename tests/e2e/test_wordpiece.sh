#!/bin/bash
# A WordPiece vocabulary from packing to evaluation: stored, used in training, read from the checkpoint by
# evaluation and by a resumed run.
. "$SRC/tests/support/cli.sh"

vocab=$SRC/tests/golden/tokenizer/vocab.txt
towers="--image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 12"
run="--batch-size 16 --lr 0.001 --tau 0.05 --seed 7 --threads 1"
"$TESTBIN/make_scenes" train 40 1 24 train.tar >/dev/null || exit 1
"$BIN/ccpack" -q -o data train.tar || exit 1
"$BIN/ccpack" tokenizer -q data --tokenizer "$vocab" || fail "ccpack tokenizer"
"$BIN/ccstream-train" -q --data data $towers $run --steps 2 --out plain || fail "training"
grep -q '"loss"' plain/metrics.jsonl || fail "no metrics"

# --- evaluation uses the checkpoint's tokenizer: the dataset has none
cp -r data bare && rm bare/tokenizer.model
sed -i 's/"tokenizer":{[^}]*},\{0,1\}//; s/,,/,/' bare/dataset.json
"$BIN/ccstream-eval" retrieval plain --data bare --json >bare.json || fail "evaluation without a tokenizer in the dataset"
"$BIN/ccstream-eval" retrieval plain --data data --json >data.json || fail "evaluation"
diff <(sed 's/"[a-z_]*seconds":[^,}]*//g; s/bare/data/g' bare.json) <(sed 's/"[a-z_]*seconds":[^,}]*//g' data.json) ||
    fail "the dataset's tokenizer has a say in evaluation"

# --- the same run with a token cache
"$BIN/ccpack" tokenizer -q data --cache || fail "--cache"
"$BIN/ccstream-train" -q --data data $towers $run --steps 2 --out cached || fail "training with tokens.cct"
cmp "plain/$(readlink plain/last)" "cached/$(readlink cached/last)" || fail "tokens.cct changes a run"

# --- a run resumes with its own tokenizer, whatever the dataset has by then
cp -r plain same
"$BIN/ccstream-train" -q --resume same --steps 4 || fail "resuming"
sed '$s/.*/another/' "$vocab" >other.txt
"$BIN/ccpack" tokenizer -q data --overwrite --tokenizer other.txt || exit 1
"$BIN/ccstream-train" -q --resume plain --steps 4 || fail "resuming with another tokenizer in the dataset"
cmp "plain/$(readlink plain/last)" "same/$(readlink same/last)" || fail "the dataset's tokenizer changes a resumed run"
