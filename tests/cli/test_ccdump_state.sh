#!/bin/bash
# ccdump state and popularity on the state of a loss without a model, which programs write through
# libccstream, and the refusals of what needs the model.
. "$SRC/tests/support/cli.sh"
state=$SRC/tests/golden/state/nuclr.safetensors
dataset=$SRC/tests/golden/shard/v1/ok

expect 0 "$BIN/ccdump" state "$state"
grep -qz "step: *4.loss: *nuclr.fingerprint: *ebdb9f8ea6029214" out.txt || fail "the head of a state"
has out.txt "image.xi: 0.5"
grep -q "visits *6 *2 *1 *2 *3 *1 *1 *1 *█" out.txt || fail "a row of a state"
expect 0 "$BIN/ccdump" state "$state" --json
has out.txt '"text.log_u":{"ids":6,"visited":2,"min":-1.5,"mean":0.25,"max":2,"std":1.75,"at_min":1,"at_max":1,'
expect 0 "$BIN/ccdump" popularity "$state" "$dataset" --json
has out.txt '"id":5,"zeta":0.5,"popularity":148.413'

for program in "ccstream-eval retrieval $state --data $dataset" "ccstream-export $state --out exported"; do
    code=0
    # shellcheck disable=SC2086
    "$BIN"/$program >out.txt 2>err.txt || code=$?
    [ "$code" != 0 ] || fail "not refused: $program"
    has err.txt "holds the state of a loss and no model"
done
