#!/bin/bash
# ccstream-train under mpirun: the bytes of one process, other numbers of ranks, runs that are stopped, lose a
# rank and resume. Longer: ranks.sh, by hand.
. "$SRC/tests/support/cli.sh"

. "$SRC/tests/support/mpirun.sh"

ranks() { # ranks W OPTION...
    local world=$1
    shift
    timeout 600 mpirun --oversubscribe --bind-to none -n "$world" $last "$BIN/ccstream-train" "$@" </dev/null
}

"$TESTBIN/make_scenes" train 96 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null
"$TESTBIN/make_scenes" val 24 5 32 more.tar
"$BIN/ccpack" -q -o more more.tar
mkdir -p folders/one folders/two
tar -xf more.tar
cp 00000000[0-3].jpg folders/one
cp 00000000[4-9].jpg folders/two
"$BIN/ccpack" -q -o classes folders

# 4 steps of 24 pairs in micro-batches of 2.
cat >resnet.json <<'EOF'
{"embed_dim": 32, "vision_cfg": {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "patch_size": null},
 "text_cfg": {"context_length": 12, "vocab_size": 100, "width": 32, "heads": 2, "layers": 1}}
EOF
small_model model.json # without batch-norm, which the runs of one, 2, 3 and 4 ranks have
options="--data data --model resnet.json --tokenizer data/tokenizer.model --batch-size 24
    --micro-batch 2 --epochs 1 --lr 0.0002 --tau 0.05 --zeta-freeze-epochs 0 --seed 7 --threads 1 --loader-threads 1"

# All but times, of one rank and of several; without the state of samples at a checkpoint of step 2.
numbers() {
    sed -e '/^{"step":2,"state"/d' -e '/"stages":/d' -e 's/,"pairs_per_s":.*//' -e 's/,"peak_rss_bytes":.*//' -e 's/,"time":.*//' "$1/metrics.jsonl"
}

# One rank; and 2, interrupted, resumed with 4: equal bytes and evaluations.
evaluations="--val data --zeroshot classes"
$last "$BIN/ccstream-train" -q $options $evaluations --out one
grep -q '"zeroshot":' one/metrics.jsonl || fail "no zero-shot evaluation"
[ ! -e one/ranks ] || fail "one rank leaves heartbeats"
ranks 2 $options --out parts --steps 2 2>2.txt || fail "2 ranks: $(cat 2.txt)"
[ "$(readlink parts/last)" = checkpoints/step-2.safetensors ] || fail "last names $(readlink parts/last)"
ranks 4 --resume parts $evaluations 2>4.txt || fail "4 ranks: $(cat 4.txt)"
cmp one/last parts/last || fail "a run of 2 ranks that 4 resumed ends in other bytes than one"
cmp <(numbers one) <(numbers parts) || fail "2 and 4 ranks have other metrics than one"
[ "$(grep -c 'step 4/4' 4.txt)" -eq 1 ] || fail "rank 0 alone reports steps: $(cat 4.txt)"
for world in 2 4; do
    grep -q "rank 0 of $world sent [0-9.]* messages" $world.txt || fail "messages are not counted: $(cat $world.txt)"
    [ "$(grep -c 'batch-norm statistics cover' $world.txt)" -eq 0 ] || fail "other numbers than those of one rank: $(cat $world.txt)"
done
grep -q '"ranks":4,"slowest_rank":[0-3],"slowest_pairs_per_s":' parts/metrics.jsonl || fail "metrics without the slowest rank"

# 3 ranks: gradients are added in another order.
ranks 3 -q $options --out w3
losses() {
    grep -o '"loss":[-0-9.e]*' "$1/metrics.jsonl" | cut -d: -f2
}
paste <(losses one) <(losses w3) | awk '
    { d = $1 - $2; d = d < 0 ? -d : d; m = $1 < 0 ? -$1 : $1; m = m > 0.1 ? m : 0.1
      if (d > 1e-4 * m) { print "step " NR ": loss " $1 " and " $2; bad = 1 } }
    END { exit bad || NR != 4 }' || fail "three ranks have other losses than one"

# Four pairs of each sample, of which ranks of six pairs hold parts.
several="--model model.json --loss nuclr --positives 4 --zeta-lr 0.001 --steps 3"
$last "$BIN/ccstream-train" -q $options $several --out several
ranks 4 -q $options $several --out several-4
cmp several/last several-4/last || fail "4 ranks with parts of samples end in other bytes than one"

# LARS, from the model and the state of another run, on a mix of its data and other data.
next="--init one --init-state --data more --remap-state data --optimizer lars --lr 1 --trust-coeff 0.01 --steps 2"
$last "$BIN/ccstream-train" -q $options $next --out next1
ranks 2 -q $options $next --out next2
cmp next1/last next2/last || fail "lars, another run's state on a mix: 2 ranks end in other bytes than one"

# A failure of all ranks is printed once.
code=0
ranks 4 $options --batch-size 26 --out none 2>err.txt || code=$?
[ "$code" -eq 64 ] || fail "a batch that ranks do not divide: exit code $code"
[ "$(grep -c 'the nearest that they divide are 24 and 28' err.txt)" -eq 1 ] || fail "$(cat err.txt)"

started() { # started FILE: until the last job has left it
    until [ -s "$1" ]; do
        kill -0 $! 2>/dev/null || fail "the job ends without $1: $(cat "${1%%/*}.txt")"
        sleep 0.05
    done
}
long="${options/--epochs 1/--epochs 500} --checkpoint-every 1"

pid_of() { # pid_of RUN RANK
    grep -o '"pid":[0-9]*' "$1/ranks/$2.json" | cut -d: -f2
}

# A checkpoint by time. SIGTERM to one rank: all save once and end with 0. 12 pairs in micro-batches of 5.
ranks 2 $long --micro-batch 5 --checkpoint-every 0 --checkpoint-seconds 1 --out stopped 2>stopped.txt &
pid=$!
started stopped/last
kill -TERM "$(pid_of stopped 1)"
code=0
wait $pid || code=$?
[ "$code" -eq 0 ] || fail "SIGTERM to a rank: exit code $code: $(cat stopped.txt)"
grep -q 'use a --micro-batch that divides 12$' stopped.txt || fail "numbers unlike those of one rank: $(cat stopped.txt)"
[ "$(grep -c 'checkpoint saved; resume with' stopped.txt)" -eq 1 ] || fail "SIGTERM to a rank: $(cat stopped.txt)"

# SIGUSR1 to mpirun, which forwards it: the same, also before the first step.
mpirun --oversubscribe --bind-to none -n 2 $last "$BIN/ccstream-train" $long --model model.json --checkpoint-every 0 --out ended \
    </dev/null 2>ended.txt &
pid=$!
started ended/ranks/0.json
kill -USR1 $pid
code=0
wait $pid || code=$?
[ "$code" -eq 0 ] || fail "SIGUSR1 to mpirun: exit code $code: $(cat ended.txt)"
steps=$(grep -c '"loss":' ended/metrics.jsonl)
[ "$(readlink ended/last)" = "checkpoints/step-$steps.safetensors" ] || fail "SIGUSR1 to mpirun: step $steps is not saved"

# SIGKILL of a rank: the others name it and end; the run resumes.
ranks 3 $long --model model.json --out killed 2>killed.txt &
pid=$!
started killed/last
victim=$(pid_of killed 1)
kill -KILL "$victim"
code=0
wait $pid || code=$?
[ "$code" -ne 0 ] && [ "$code" -ne 124 ] || fail "a lost rank: exit code $code"
for rank in 0 2; do
    grep -q "rank $rank ends: rank 1 (host .*, pid $victim) is gone" killed.txt || fail "rank $rank does not name it: $(cat killed.txt)"
done
saved=$(readlink killed/last | tr -dc 0-9)
ranks 2 -q --resume killed --steps $((saved + 1))
[ "$(readlink killed/last)" = "checkpoints/step-$((saved + 1)).safetensors" ] || fail "a run that lost a rank does not resume"
