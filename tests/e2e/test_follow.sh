#!/bin/bash
# ccstream-report --follow --json, which event files and W&B are fed by too: every step once with its numbers and histograms, of
# a run that is cut and resumed while it is followed; exit codes; refusals.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 64 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
scene_words words.txt
small_model model.json
train="$BIN/ccstream-train -q --data data --val data --model model.json --tokenizer words.txt --batch-size 16
    --epochs 2 --zeta-freeze-epochs 1 --threads 1 --checkpoint-every 5 --keep-checkpoints 2 --seed 2"
report="$BIN/ccstream-report"
expect 0 $train --out run
steps() { sed 's/{"step": \([0-9]*\),.*/\1/' "$1" | paste -s -d ' '; }

expect 0 "$report" --follow --json run # a finished one
cp out.txt whole.txt
[ "$(steps whole.txt)" = "1 2 3 4 5 6 7 8" ] || fail "steps: $(cat whole.txt)"
has whole.txt '"retrieval/mean_r1":'
has whole.txt '"state/image.log_u/histogram": {"low":'
hasnt whole.txt '"time"'

# A run that is followed: cut after step 4 as by a resumed launch, which replaces the file, and written to its end. Another
# process holds the lock of ccstream-train, so that what comes when is certain.
cp -r run followed
head -n 6 run/metrics.jsonl >followed/metrics.jsonl
python3 - followed/sessions.jsonl <<'P' &
import fcntl, struct, sys, time
file = open(sys.argv[1], "r+b")
fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
open("held", "w").close()
time.sleep(300)
P
holder=$!
until [ -e held ]; do sleep 0.02; done
"$report" --follow --json followed >sent.txt 2>err.txt &
pid=$!
until grep -q '"step": 3,' sent.txt; do sleep 0.05; done
head -n 3 run/metrics.jsonl >cut
mv cut followed/metrics.jsonl
sleep 1.5
tail -n +4 run/metrics.jsonl | head -c -9 >>followed/metrics.jsonl # the last line is half written
until [ "$(wc -l <sent.txt)" -ge 11 ]; do sleep 0.05; done
tail -c 9 run/metrics.jsonl >>followed/metrics.jsonl
kill $holder
wait $pid || fail "a finished run: $(cat err.txt)"
awk '{sent[$2] = $0} END {for (step in sent) print sent[step]}' sent.txt | sort -n -k2 >once.txt
sort -n -k2 whole.txt | cmp - once.txt || fail "sent: $(cat sent.txt)"

head -n 6 run/metrics.jsonl >followed/metrics.jsonl
echo 'no JSON' >>followed/metrics.jsonl
expect 65 "$report" --follow --json followed
has err.txt "it stopped at step 4; resume with --resume followed"
has err.txt "1 lines were skipped"

expect_message 64 "take one RUN" "$report" --follow --json run parts
expect_message 64 "--out applies to pages" "$report" --follow --json -o x.html run
expect_message 66 "is not a run" "$report" --tensorboard board data
[ ! -e board ] || fail "a folder was made"
if ! python3 -c 'import wandb' 2>err.txt; then
    expect_message 69 "wandb is not installed for " "$report" --wandb project run
fi
