#!/bin/bash
# What a resumed run may change (its place, that of its data, the schedule that is ahead of it), and what is
# refused with the reason.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 64 3 16 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer -q data --vocab-size 60
options="--data data --image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 12
    --embed-dim 16 --batch-size 16 --epochs 3 --lr 0.001 --tau 0.05 --zeta-freeze-epochs 1 --seed 7 --threads 1"
train="$BIN/ccstream-train"
$last "$train" -q $options --out whole --keep-checkpoints 20 --checkpoint-every 6
[ "$(readlink whole/last)" = checkpoints/step-12.safetensors ] || fail "last names $(readlink whole/last)"

back_to() { # back_to STEP RUN: a copy of the whole run as it was after STEP
    cp -rl whole "$2" # checkpoints of 60 MB each, which no run changes
    cp --remove-destination whole/*.json* "$2"
    ln -sfn "checkpoints/step-$1.safetensors" "$2/last"
}

# From another folder: paths are recorded as absolute ones, and the tokenizer is that of the checkpoint.
$last "$train" -q $options --tokenizer data/tokenizer.model --out away --steps 5
mkdir elsewhere
mv data/tokenizer.model kept.model
(cd elsewhere && $last "$train" -q --resume ../away) || fail "no resume from another folder"
mv kept.model data/tokenizer.model
cmp whole/last away/last || fail "resumed from another folder, a run is another one"
"$BIN/ccstream-eval" retrieval whole --data data --json >here.json
(cd elsewhere && "$BIN/ccstream-eval" retrieval ../whole --data ../data --json) >there.json
cmp here.json there.json || fail "evaluated from another folder: $(cat there.json)"

# A dataset that was moved is named; --data points to it once and for all.
back_to 6 followed
mv data moved
expect 66 $last "$train" -q --resume followed
has err.txt '/data: '
has err.txt '; followed was trained on it, and --data DIR names its new place'
(cd elsewhere && $last "$train" -q --resume ../followed --data ../moved --steps 8)
$last "$train" -q --resume followed
cmp whole/last followed/last || fail "a run whose dataset was moved is another one"
mv moved data

# Where zeta is frozen in all epochs, its learning rate matters once there are more.
expect 0 $last "$train" $options --epochs 1 --out frozen
has err.txt 'zeta stays frozen for the whole run: --zeta-freeze-epochs is 1'
has frozen/config.json '"zeta-lr":"auto"'
expect 0 $last "$train" --resume frozen --epochs 3
has err.txt 'zeta: learning rate auto ('

# A longer schedule. It is recorded, so that an interruption changes nothing; the warm-up stays as it was.
back_to 12 longer
expect 0 $last "$train" --resume longer --epochs 4
has err.txt '--epochs 4 instead of 3: the schedule ends at step 16 instead of 12'
has err.txt 'learning rate of step 13: 0.000'
[ "$(readlink longer/last)" = checkpoints/step-16.safetensors ] || fail "last names $(readlink longer/last)"
has longer/config.json '"warmup-steps":1,'
has longer/config.json '"gamma-epochs":1'
has longer/config.json '"beta-epochs":3'
back_to 12 twice
$last "$train" -q --resume twice --epochs 4 --steps 14
$last "$train" -q --resume twice
cmp longer/last twice/last || fail "an extended run that was interrupted is another one"

# Another learning rate.
back_to 6 faster
expect 0 $last "$train" --resume faster --lr 0.01 --min-lr 0.01 --steps 7
has err.txt 'learning rate from 0.01 down to 0.01 instead of from 0.001 down to 1e-06'
$last "$train" -q --resume faster --steps 8
grep '"loss":' faster/metrics.jsonl | tail -n 1 >step.txt
has step.txt '"lr":0.01,'
has step.txt '"step":8,'

# What affects no number, and what the run has already.
back_to 6 same
$last "$train" -q $options --resume same --loader-threads 3 --checkpoint-every 2 --eval-every 3 --val data ||
    fail "the run's own options are refused"
cmp whole/last same/last || fail "a run resumed with its own options is another one"
has same/metrics.jsonl '{"step":12,"retrieval":'

refused() { # refused WORDS OPTIONS...
    words=$1
    shift
    expect 64 $last "$train" -q --resume whole "$@"
    has err.txt "$words"
    has err.txt 'To start a new run from these weights: --init whole --data DIR --out NEW'
}
expect 64 $last "$train" -q --resume whole --steps 1
has err.txt '--steps 1: '
has err.txt '; pass a larger value, or omit it'
refused '--batch-size cannot be changed by --resume: the position in the epoch is counted in batches' --batch-size 8
refused '--seed cannot be changed by --resume: order, augmentation and dropout follow from it' --seed 8
refused '--tau cannot be changed by --resume: the per-sample state in the checkpoint' --tau 0.1
refused '--embed-dim cannot be changed by --resume: the weights in the checkpoint' --embed-dim 32
refused '--beta2 cannot be changed by --resume: the optimiser state in the checkpoint' --beta2 0.9
refused '--out cannot be changed by --resume: RUN itself is continued' --out other
refused "--preset cannot be changed by --resume: a run's options are in RUN/config.json" --preset cpu-demo
expect 64 $last "$train" -q --resume whole --epochs 2
has err.txt 'step 12, beyond the 8 of --epochs 2'
