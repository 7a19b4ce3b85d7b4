#!/bin/bash
# Several pairs of every sample in a batch: an interrupted run ends with the same bytes, and what does not fit is
# refused.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 32 3 32 one.tar
mkdir all
tar -xf one.tar -C all
awk '{ # three captions an image
    name = substr(FILENAME, 1, length(FILENAME) - 4)
    printf "again: %s", $0 >(name ".1.txt")
    printf "and once more: %s", $0 >(name ".2.txt")
    close(name ".1.txt")
    close(name ".2.txt")
}' all/*.txt
(cd all && tar -cf ../train.tar --sort=name *)
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccdump" info data --json >info.json
has info.json '"texts":96'
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null

# 8 steps of 8 samples, each with 3 pairs.
options="--data data --augment crop --image-tower tiny --text-tower tiny --image-size 8 --stem small
    --max-tokens 12 --batch-size 24 --epochs 2 --lr 0.001 --tau 0.1 --seed 2 --threads 1 --checkpoint-every 4 --keep-checkpoints 2"

run() { # run NAME OPTIONS...
    local name=$1
    shift
    expect 0 $last "$BIN/ccstream-train" -q $options "$@" --out "$name"
    [ "$(readlink "$name/last")" = checkpoints/step-8.safetensors ] || fail "last names $(readlink "$name/last")"
    resumes "$name" 4
}
run dcl --loss dcl --positives 3
run nuclr --loss nuclr --positives 3 --zeta-freeze-epochs 1 --zeta-lr 0.01
if grep -Eq 'nan|inf|null' nuclr/metrics.jsonl; then
    fail "metrics are not numbers"
fi

# A zeta for every pair, which move apart, and what reads them.
expect 0 "$BIN/ccdump" state nuclr --json
for column in image.log_u text.log_u image.zeta text.zeta text.zeta_momentum text.zeta.2 text.zeta.3; do
    has out.txt "\"$column\":{\"ids\":32,\"visited\":32,"
done
if grep -q 'zeta.4' out.txt; then
    fail "a fourth pair: $(cat out.txt)"
fi
for pair in 1 2 3; do
    expect 0 "$BIN/ccdump" popularity nuclr data --top 2 --pair "$pair" --json
    cp out.txt "popular-$pair"
done
has popular-3 '"caption":"and once more: '
for pair in 1 2; do
    if cmp -s "popular-$pair" popular-3; then
        fail "pairs $pair and 3 have the same zeta"
    fi
done
expect 64 "$BIN/ccdump" popularity nuclr data --pair 4
has err.txt 'text.zeta.4'
expect 0 "$BIN/ccstream-eval" objective nuclr --data data --json
has out.txt '"nuclr":'
expect 0 "$BIN/ccdump" state dcl --json
has out.txt '"visits":{"ids":32,"visited":32,'

# Pairs with the same caption differ by their dropout alone: without it they end with the same zeta.
"$BIN/ccpack" -q -o single one.tar
"$BIN/ccpack" tokenizer single --vocab-size 100 >/dev/null
pairs() { # pairs NAME OPTION...: NAME-1 and NAME-2 list the zeta of either pair
    local name=$1
    shift
    expect 0 $last "$BIN/ccstream-train" -q $options --data single --loss nuclr --positives 2 --zeta-freeze-epochs 0 \
        --zeta-lr 0.01 --steps 2 "$@" --out "$name"
    "$BIN/ccdump" popularity "$name" single --top 32 --json >"$name-1"
    "$BIN/ccdump" popularity "$name" single --top 32 --json --pair 2 >"$name-2"
}
pairs dropping
pairs keeping --dropout 0
if cmp -s dropping-1 dropping-2; then
    fail "the pairs of a sample share their dropout"
fi
cmp keeping-1 keeping-2 || fail "equal captions have different zetas"

refused() { # refused CODE WORDS OPTION...
    code=$1
    words=$2
    shift 2
    expect "$code" $last "$BIN/ccstream-train" $options "$@"
    has err.txt "$words"
}
refused 64 'batch-size 24 is not a multiple of --positives 5' --loss dcl --positives 5 --out refused
refused 64 'positives 3, of at least 2 samples' --loss dcl --positives 3 --batch-size 3 --out refused
refused 64 'positives' --loss dcl --positives 9 --out refused
expect 0 $last "$BIN/ccstream-train" $options --loss dcl --positives 3 --dry-run
[ "$(grep -c '^ *\(6\|12\|24\|48\|96\) ' out.txt)" -eq 5 ] || fail "not five sizes of batches: $(cat out.txt)"
expect 0 $last "$BIN/ccstream-train" $options --loss dcl --positives 8 --dry-run
[ "$(grep -c '^ *\(6\|12\|24\|48\|96\) ' out.txt)" -eq 3 ] || fail "batches with parts of samples: $(cat out.txt)"
expect 64 $last "$BIN/ccstream-train" -q --resume dcl --positives 2
has err.txt '--positives cannot be changed by --resume'
expect 0 $last "$BIN/ccstream-train" $options --loss clip --positives 3 --steps 1 --out clip
has err.txt '--positives has no effect: loss clip does not read it here'
