#!/bin/bash
# Towers that start from the weights of a file.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 32 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
scene_words words.txt
"$BIN/ccpack" tokenizer -q data --tokenizer words.txt

options="--data data --image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 12
    --batch-size 16 --epochs 1 --threads 1"

train() { # train OUT OPTIONS...
    local out=$1
    shift
    $last "$BIN/ccstream-train" $options --out "$out" "$@" 2>"$out.log"
}

train first --seed 1
train plain --seed 2 --steps 1
train both --seed 2 --steps 1 --init-image first --init-text first/last
[ "$(grep -c "loaded only the .* tower of this checkpoint (not .* projections, .* --init loads the whole model" both.log)" -eq 2 ] ||
    fail "what is not taken is not named: $(cat both.log)"
if cmp -s plain/last both/last; then
    fail "--init-image and --init-text have no effect"
fi

# The run resumes from its own checkpoint, even if the files are gone.
train whole --seed 2 --init-image first/last --init-text first/last
cp first/last copy.safetensors
mv first moved
$last "$BIN/ccstream-train" -q --resume both
cmp whole/last both/last || fail "a resumed run is not the uninterrupted one"
for run in moved both; do
    "$BIN/ccstream-eval" embed -q $run --data data --texts -o $run >/dev/null
done
if cmp -s moved.texts.npy both.texts.npy; then
    fail "--init-text alone gives the whole text side"
fi

# --init takes the whole model and its options: without a learning rate it stays as it is to the last bit. So does the temperature.
towers=$options
small_model model.json
options="--data data --model model.json --tokenizer words.txt --batch-size 16 --epochs 1 --threads 1"
train first --seed 1
env -u CCSTREAM_REPORT $last "$BIN/ccstream-train" --data data --batch-size 16 --epochs 1 --threads 1 --lr 0 --min-lr 0 --seed 2 --steps 1 \
    --init first --out all 2>all.log
grep -q 'taken both towers, both projections, the temperature; not taken: the state of samples and of the loss (--init-state), ' all.log ||
    fail "what is taken is not named: $(cat all.log)"
# The augmentation is the run's too, and the end has the model, the page and the next command.
augment() { grep -o '"augment":"[a-z]*"' "$1/config.json"; }
[ "$(augment all)" = "$(augment first)" ] || fail "--init has the augmentation $(augment all), not $(augment first)"
grep -q -- '--init: image size, tokenizer and augmentation are taken from first' all.log || fail "$(cat all.log)"
tail -n 2 all.log | head -n 1 | grep -q 'model: all/last, page: all/report.html' || fail "the end: $(cat all.log)"
tail -n 1 all.log | grep -q 'next: ccstream-eval retrieval all --data data' || fail "the end: $(cat all.log)"
for run in first all; do
    "$BIN/ccstream-eval" embed -q $run --data data --texts -o $run >/dev/null
done
cmp first.texts.npy all.texts.npy || fail "--init changes the text side"
cmp first.images.npy all.images.npy || fail "--init changes the image side"
tau() {
    sed -n 's/.*"tau":\([^,]*\),.*/\1/p' "$1/metrics.jsonl" | head -n 1
}
train warm --tau 0.25 --steps 2
train after --init warm --steps 1
[ "$(tau after)" = 0.25 ] || fail "the temperature is $(tau after)"
train chosen --init warm --tau 0.5 --steps 1
[ "$(tau chosen)" = 0.5 ] || fail "--tau: the temperature is $(tau chosen)"
$last "$BIN/ccstream-train" -q --resume after
[ "$(tail -n 1 after/metrics.jsonl | sed 's/.*"step":\([0-9]*\).*/\1/')" = 2 ] || fail "after does not resume"
grep '"loss":' after/metrics.jsonl | tail -n 1 | grep -q '"tau":0.25,' || fail "resumed, the temperature is another: $(cat after/metrics.jsonl)"

# --init-state takes the state of samples where data and loss are the same.
visited() {
    "$BIN/ccdump" state "$1" --json | sed 's/.*"visits":{"ids":[0-9]*,"visited":\([0-9]*\),.*/\1/'
}
train stateless --init first --steps 1
[ "$(visited stateless)" -eq 16 ] || fail "--init alone: $(visited stateless) samples are visited"
train state --init first --init-state --steps 1 --seed 3
[ "$(visited state)" -eq 32 ] || fail "--init-state: $(visited state) samples are visited"
grep -q 'taken .*, the state of samples; not taken' state.log || fail "$(cat state.log)"

# --recover-state: the first epoch computes moments and state and leaves weights and temperature alone; what it computes serves the next
# one; a run that is interrupted in it resumes it.
train recovered --init first --recover-state 1 --epochs 2 --temperature global --loss fastclip-v3 --gamma 0.5 --keep-checkpoints 9 --checkpoint-every 1 --seed 4
for step in 1 2; do
    "$BIN/ccstream-eval" embed -q recovered/checkpoints/step-$step.safetensors --data data --texts -o recovered-$step >/dev/null
    cmp first.texts.npy recovered-$step.texts.npy || fail "--recover-state: step $step changes the text side"
done
"$BIN/ccstream-eval" embed -q recovered --data data --texts -o recovered-4 >/dev/null
! cmp -s first.texts.npy recovered-4.texts.npy || fail "--recover-state freezes all epochs"
[ "$(grep '"loss":' recovered/metrics.jsonl | sed 's/.*"lr":\([^,]*\),.*/\1/' | head -n 3 | tr '\n' ' ' | cut -d' ' -f1,2)" = "0 0" ] ||
    fail "the learning rate: $(cat recovered/metrics.jsonl)"
[ "$(grep '"loss":' recovered/metrics.jsonl | sed 's/.*"tau":\([^,]*\),.*/\1/' | head -n 3 | sort -u | wc -l)" = 1 ] ||
    fail "the temperature moves: $(cat recovered/metrics.jsonl)"
train cold --init first --epochs 1 --temperature global --loss fastclip-v3 --gamma 0.5 --seed 4
first_update() { # the state after two epochs, or one, is that of all visits
    "$BIN/ccdump" state "$1" --json | grep -o '"visits":{[^}]*}'
}
[ "$(first_update recovered)" != "$(first_update cold)" ] || fail "--recover-state visits no sample"
train halved --init first --recover-state 1 --epochs 2 --temperature global --loss fastclip-v3 --gamma 0.5 --seed 4 --steps 1
$last "$BIN/ccstream-train" -q --resume halved
cmp <("$BIN/ccdump" state halved --json) <("$BIN/ccdump" state recovered --json) || fail "a resumed recovery has another state"
"$BIN/ccstream-eval" embed -q halved --data data --texts -o halved >/dev/null
cmp halved.texts.npy recovered-4.texts.npy || fail "a resumed recovery has other weights"

# Weights that do not fit are named, and no files are left.
refused() { # refused CODE PATTERN OPTIONS...
    local wanted=$1 pattern=$2 code=0
    shift 2
    $last "$BIN/ccstream-train" -q $options --out x "$@" 2>err.txt || code=$?
    [ "$code" -eq "$wanted" ] || fail "$*: exit code $code, not $wanted: $(cat err.txt)"
    grep -q -- "$pattern" err.txt || fail "$*: no '$pattern': $(cat err.txt)"
    [ ! -e x ] || fail "$*: left a directory"
}
refused 65 "trained with loss nuclr, this run has loss clip" --init first --init-state --loss clip
refused 64 "init-state requires --init" --init-state
refused 64 "recover-state requires --init" --recover-state 1
refused 64 "recover-state 1 uses all of the 1 epochs" --init first --recover-state 1
refused 65 "has a different model (towers)" --init moved
"$TESTBIN/make_scenes" train 32 4 32 other.tar
"$BIN/ccpack" -q -o other other.tar # without a tokenizer: the checkpoint has one
options=${options/--data data/--data other}
options=${options/--tokenizer words.txt/}
train others --init first --steps 1
refused 65 "was trained on dataset [0-9a-f]* (32 samples), other is" --init first --init-state
options=$towers
refused 65 "conv1.weight is missing" --init-image first
head -n 26 words.txt >fewer.txt
refused 65 "the model has (26, 192)" --init-text copy.safetensors --tokenizer fewer.txt
refused 66 "none" --init-text none
head -c 5000 copy.safetensors >cut.safetensors
refused 65 "cut.safetensors" --init-image cut.safetensors
refused 64 "omit --init-text" --init moved --init-text moved
printf 'PK\003\004' >weights.pth
refused 69 "is a PyTorch pickle" --init-image weights.pth
grep -q "python3 -c .*save_file.* 'weights.pth' weights.safetensors" err.txt || fail "no line that converts: $(cat err.txt)"

# An exported model begins another run; what a program cannot hold is refused.
"$BIN/ccstream-export" -q moved --format safetensors -o deep/plain || fail "ccstream-export: $?"
train plainly --init-image deep/plain/model.safetensors --init-text deep/plain/model.safetensors --steps 1
code=0
"$BIN/ccstream-export" moved --format timm -o timm 2>err.txt || code=$?
[ "$code" -eq 69 ] || fail "tiny for timm: exit code $code: $(cat err.txt)"
grep -q "timm has no tower of the name tiny" err.txt || fail "$(cat err.txt)"
[ ! -e timm ] || fail "a refused export left a folder"

# --projection-bias off: training leaves both biases at 0, so that VisionTextDualEncoderModel can have the model.
train unbiased --image-tower resnet10t --stem standard --projection-bias off --steps 2
"$BIN/ccstream-export" -q unbiased --format transformers -o unbiased-dual 2>err.txt || fail "ccstream-export: $(cat err.txt)"
[ -e unbiased-dual/model.safetensors ] || fail "without bias, there is no dual encoder: $(cat err.txt)"
