#!/bin/bash
# --progress in all its kinds, on a terminal and off it; ccstream-report --follow of runs that train, stop, finish and were killed; a run is
# trained by one process at a time.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 64 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer -q data --vocab-size 100
small_model model.json
small=(--data data --val data --model model.json --tokenizer data/tokenizer.model --batch-size 16 --threads 1 --seed 2)
train() { # not in the background, where it would be the child of a shell
    "$BIN/ccstream-train" "$@"
}

# --- off a terminal: plain lines, objects, messages alone, nothing
train "${small[@]}" --epochs 2 --out plain 2>plain.txt || fail "$(cat plain.txt)"
grep -q 'step 8/8  epoch 2  global loss [0-9.]*  [0-9.,]* pairs/s  stall [0-9]* %  R@1 [0-9.]* %  grad ' plain.txt ||
    fail "no line: $(cat plain.txt)"
grep -q $'[\r\033]' plain.txt && fail "control characters: $(cat -v plain.txt)"
train "${small[@]}" --epochs 2 --out json --progress json 2>json.txt || fail "$(cat json.txt)"
grep -v '^{"step":[0-9]*,"total_steps":8,"epoch":[01],"loss":[0-9.e-]*,"global_loss":[0-9.e-]*,"pairs_per_s":[0-9.e+]*,.*}$' json.txt && fail "no object"
tail -n 1 json.txt | grep -q '"step":8,.*"seconds_left":0' || fail "no last step: $(cat json.txt)"
train "${small[@]}" --epochs 2 --out none --progress none 2>none.txt || fail "$(cat none.txt)"
has none.txt 'step 8  image to text R@1'
grep 'stall' none.txt && fail "progress in spite of none"
train "${small[@]}" --epochs 2 --out quiet -q --progress bar 2>quiet.txt || fail "$(cat quiet.txt)"
[ ! -s quiet.txt ] || fail "not quiet: $(cat quiet.txt)"

# --- a bar: on a terminal, or where it is asked for; it is erased before messages and at the end
train "${small[@]}" --epochs 2 --out bar --progress bar 2>bar.txt || fail "$(cat bar.txt)"
tr '\r' '\n' <bar.txt | grep -q '^\[#*-*\] *[0-9]* %  [0-9]/8 steps  [0-9.]*/\(s\|min\)  ' || fail "no bar: $(cat -v bar.txt)"
grep -q $'\r *\rccstream-train: step [48]  image to text' bar.txt || fail "not erased: $(cat -v bar.txt)"
if script -qec true /dev/null >typed.txt 2>&1 </dev/null; then # a machine may have no terminals to give
    script -qec "stty cols 60; '$BIN/ccstream-train' ${small[*]} --epochs 2 --out shown" /dev/null >shown.txt || fail "$(cat shown.txt)"
    tr '\r' '\n' <shown.txt | grep -q '^[0-9]* %  [0-9]/8 steps' || fail "no line: $(cat -v shown.txt)"
    [ "$(tr '\r' '\n' <shown.txt | grep '/8 steps' | wc -L)" -lt 60 ] || fail "wider than the terminal: $(cat -v shown.txt)"
    TERM=dumb script -qec "'$BIN/ccstream-train' ${small[*]} --epochs 2 --out dumb" /dev/null >dumb.txt || fail "$(cat dumb.txt)"
    has dumb.txt 'step 8/8 '
    script -qec "'$BIN/ccstream-eval' retrieval bar --data data --batch-size 16" /dev/null >eval.txt || fail "$(cat eval.txt)"
    tr '\r' '\n' <eval.txt | grep -q '\] *0 %  0/64 images' || fail "no bar: $(cat -v eval.txt)"
    tr '\r' '\n' <eval.txt | grep -q '\] *0 %  0/64 captions' || fail "no bar of captions: $(cat -v eval.txt)"
fi

# --- another process looks at it: while it trains, until it stops on request
"$BIN/ccstream-train" -q "${small[@]}" --epochs 10000 --out run &
pid=$!
until [ -s run/metrics.jsonl ]; do sleep 0.05; done
trap 'kill -KILL $pid' EXIT
kill -STOP $pid # holding the run, without taking time from the others
code=0
"$BIN/ccstream-train" -q --resume run 2>second.txt &
second=$!
"$BIN/ccstream-report" --follow run 2>followed.txt &
watcher=$!
until [ -s followed.txt ]; do sleep 0.05; done
grep -qE '^step [0-9]+/40000  epoch [0-9]+  global loss [0-9.]+  [0-9]+ pairs/s  stall [0-9]+ %' followed.txt || fail "$(cat followed.txt)"
wait $second || code=$?
[ $code = 73 ] || fail "two processes on one run: $code, $(cat second.txt)"
has second.txt 'run is being trained by another process; '\''ccstream-report --follow run'\'' shows it'
kill -CONT $pid
trap - EXIT
kill -TERM $pid
wait $pid || fail "not stopped"
code=0
wait $watcher || code=$?
[ $code = 65 ] || fail "of a stopped run: $code"
has followed.txt 'run is not being trained; it stopped at step '

# --- killed; finished
"$BIN/ccstream-train" -q --resume run &
pid=$!
until [ "$(wc -l <run/sessions.jsonl)" = 2 ]; do sleep 0.05; done
kill -9 $pid
wait $pid 2>/dev/null && fail "not killed"
expect 65 "$BIN/ccstream-report" --follow run
has err.txt 'run is not being trained; it stopped at step'
expect 0 "$BIN/ccstream-report" --follow plain
has err.txt 'plain is finished after 8 steps'
expect 0 "$BIN/ccstream-report" -q --follow plain
[ ! -s err.txt ] || fail "not quiet: $(cat err.txt)"

# --- what is no run
expect 66 "$BIN/ccstream-report" --follow data
has err.txt 'data is not a run of ccstream-train'
