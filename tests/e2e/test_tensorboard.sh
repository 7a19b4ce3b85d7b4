#!/bin/bash
# --tensorboard: event files have the numbers and histograms of metrics.jsonl, also of a run that was resumed from an
# earlier step; a folder that cannot be made is an error.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }

"$TESTBIN/make_scenes" train 64 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer -q data --vocab-size 100
expect 0 "$BIN/ccstream-train" -q --data data --val data --out run --tensorboard board/a --image-tower tiny --text-tower tiny \
    --image-size 8 --stem small --max-tokens 12 --batch-size 16 --epochs 2 --zeta-freeze-epochs 1 --threads 1 --checkpoint-every 5 \
    --keep-checkpoints 2 --seed 2
expect 0 python3 "$SRC/tests/e2e/read_events.py" board/a run/metrics.jsonl
interrupted run 5 parts # as if killed after the checkpoint of step 5
sleep 1 # names begin with the second
expect 0 "$BIN/ccstream-train" -q --resume parts --tensorboard board/a # a copy is not followed to places outside of it
[ "$(ls board/a | wc -l)" = 2 ] || fail "files: $(ls board/a)"
expect 0 python3 "$SRC/tests/e2e/read_events.py" board/a parts/metrics.jsonl
read -r events values <out.txt
[ "$events" -ge 12 ] && [ "$values" -ge 150 ] || fail "$events events, $values values"

# The follower for Weights & Biases sends every step once, also of a run that was cut while it followed.
cp -r parts followed
head -n 8 parts/metrics.jsonl >followed/metrics.jsonl
python3 "$SRC/tools/wandb-follow" followed --dry-run >sent.txt 2>err.txt &
pid=$!
until [ -s sent.txt ]; do sleep 0.05; done
head -n 4 parts/metrics.jsonl >followed/metrics.jsonl
sleep 3
cp parts/metrics.jsonl followed/metrics.jsonl
until [ "$(wc -l <sent.txt)" -ge 7 ]; do sleep 0.05; done
kill $pid
wait $pid || fail "$(cat err.txt)"
[ "$(sed 's/{"step": \([0-9]*\),.*/\1/' sent.txt | paste -s -d ' ')" = "1 2 3 4 5 6 7 8" ] || fail "sent: $(cat sent.txt)"
has sent.txt '"retrieval/mean_r1":'
has sent.txt '"state/image.log_u/histogram": {"low":'

# Captions that no image of examples has room for: the run continues, and says so once.
mkdir long
tar -xf train.tar -C long
for text in long/*.txt; do
    yes "$(cat "$text")" | head -c 250000 >caption || true
    mv caption "$text"
done
"$BIN/ccpack" -q -o wordy long
expect 0 "$BIN/ccstream-train" -q --data data --val wordy --out third --tensorboard board/b --image-tower tiny --text-tower tiny \
    --image-size 8 --stem small --max-tokens 12 --batch-size 16 --epochs 2 --threads 1
[ "$(grep -c 'no example image in the event files' err.txt)" = 1 ] || fail "warnings: $(cat err.txt)"
[ "$(grep -c '"retrieval":' third/metrics.jsonl)" = 2 ] || fail "the evaluations are not recorded"

echo x >file
code=0
"$BIN/ccstream-train" -q --data data --out other --tensorboard file/board \
    --image-tower tiny --text-tower tiny --image-size 8 --stem small --batch-size 16 2>err.txt || code=$?
[ $code != 0 ] || fail "a folder in a file was accepted"
has err.txt "file/board"
