#!/bin/bash
# The numbers of texts by caption (--text-state): with one caption an image nothing changes; with several each caption
# has the numbers of the steps that showed it; resumed, on two ranks, and after samples came and went; what shows them.
. "$SRC/tests/support/cli.sh"

captions() { # captions TAR SEED: 32 images with 1, 2, 3, 1, ... captions
    "$TESTBIN/make_scenes" train 32 "$2" 32 one.tar
    rm -rf all
    mkdir all
    tar -xf one.tar -C all
    awk '{
        name = substr(FILENAME, 1, length(FILENAME) - 4)
        if (n % 3 >= 1) { printf "again: %s", $0 >(name ".1.txt"); close(name ".1.txt") }
        if (n % 3 >= 2) { printf "and once more: %s", $0 >(name ".2.txt"); close(name ".2.txt") }
        n++
    }' all/*.txt
    (cd all && tar -cf "../$1" --sort=name *)
}
captions more.tar 3
"$BIN/ccpack" -q -o single one.tar
"$BIN/ccpack" -q -o data more.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null
cp data/tokenizer.model single/
small_model model.json
options="--augment crop --model model.json --tokenizer data/tokenizer.model
    --batch-size 8 --epochs 4 --lr 0.001 --tau 0.1 --seed 2 --threads 1 --zeta-freeze-epochs 0"
train() { # train NAME OPTION...
    local name=$1
    shift
    expect 0 $last "$BIN/ccstream-train" -q $options "$@" --out "$name"
}

# ---- one caption an image: the same bytes
train one --data single --text-state caption
train one-sample --data single --text-state sample
cmp one/last one-sample/last || fail "--text-state changes a run with one caption an image"

# ---- several: who has what
train by-caption --data data --text-state caption --checkpoint-every 4
train by-sample --data data --text-state sample
expect 0 "$BIN/ccdump" state by-caption --json
for column in image.log_u image.zeta visits; do
    has out.txt "\"$column\":{\"ids\":32,\"visited\":32,"
done
has out.txt '"text.zeta":{"captions":63,'
# Sixteen steps of eight pairs; the captions that were shown are those that ccdump order has for the steps.
awk '{ match($0, /"text.visits":[^}]*"mean":[^,]*/); $0 = substr($0, RSTART, RLENGTH)
    match($0, /"visited":[0-9]+/); visited = substr($0, RSTART + 10, RLENGTH - 10); sub(/.*"mean":/, "")
    exit !(visited * $0 > 127.9 && visited * $0 < 128.1) }' out.txt || fail "not 128 visits: $(cat out.txt)"
expect 0 "$BIN/ccdump" state by-sample --json
has out.txt '"text.zeta":{"ids":32,'
hasnt out.txt 'text.visits'

# An image of three captions has numbers for each, and their mean is its own.
expect 0 "$BIN/ccdump" why by-caption data 2 --encode 0 --near 0 --json
sed 's/.*"text.log_u":{"value":\([^,]*\),[^[]*\[\([^]]*\)\].*/\1,\2/' out.txt | tr , '\n' | grep -v null |
    awk 'NR == 1 { mean = $1 } NR > 1 { sum += $1 } END { d = sum / (NR - 1) - mean; exit !(NR > 1 && d * d < 1e-8) }' ||
    fail "text.log_u of sample 2: $(cat out.txt)"
expect 0 "$BIN/ccdump" popularity by-caption data --top 63 --json
has out.txt '"caption":"and once more: '
has out.txt '"caption":"again: '
[ "$(grep '"id":2,' out.txt | sort -u | wc -l)" -ge 2 ] || fail "captions of sample 2: $(grep '"id":2,' out.txt)"
expect 0 "$BIN/ccpack" subset data --where 'text.visits >= 1' --state by-caption -o part
expect 0 "$BIN/ccdump" info part --json
has out.txt '"samples":32,'
expect 0 "$BIN/ccstream-eval" objective by-caption --data data --json
has out.txt '"nuclr":'
expect 0 "$BIN/ccstream-report" by-caption -o page.html
has page.html 'text.visits'

# In Python: the entries of sample 2 are what ccdump why shows.
python=$(for p in python3 /usr/bin/python3; do "$p" -c "import numpy" 2>/dev/null && echo "$p" && break; done || true)
if [ -n "$python" ] && [ -e "$BIN/../python/ccstream" ]; then
    expect 0 "$BIN/ccdump" why by-caption data 2 --encode 0 --near 0 --json
    PYTHONPATH="$BIN/../python" "$python" - <<'PYTHON' || fail "Python reads other numbers: $(cat out.txt)"
import json, sys
try:
    import ccstream
except ImportError:
    sys.exit(0)  # built for another Python
state, plain = ccstream.State("by-caption"), ccstream.State("by-sample")
why = json.load(open("out.txt"))["state"]
first, end = state.first_caption[2:4]
assert plain.first_caption is None and len(state.first_caption) == 33 and state.first_caption[-1] == 63
assert [int(x) for x in state["text.visits"][first:end]] == [x or 0 for x in why["text.visits"]["captions"]]
assert [float(x) for x in state["text.zeta"][first:end]] == why["text.zeta"]["captions"]
assert len(plain["text.zeta"]) == 32
PYTHON
fi

# ---- resumed; on two ranks; with pairs of noise
resumes by-caption 12
train alone --data data --text-state caption --micro-batch 2
if [ -x "$(command -v mpirun)" ] && [ -e "$BIN/libccstream_mpi.so" ]; then
    . "$SRC/tests/support/mpirun.sh"
    expect 0 mpirun --oversubscribe --bind-to none -n 2 "$BIN/ccstream-train" -q --data data $options --text-state caption \
        --micro-batch 2 --out ranks </dev/null
    cmp alone/last ranks/last || fail "two ranks end in other bytes than one"
fi
train noise --data data --text-state caption --pair-noise 0.5 --loss sogclr
train code --data data --text-state caption --variant code --batch-size 16

# ---- samples come and go: a caption keeps its numbers
of() { # of RUN DATASET ID
    "$BIN/ccdump" why "$1" "$2" "$3" --encode 0 --near 0 --json | grep -o '"text.zeta":{"value":[^,]*\|"captions":\[[-0-9.e,nul]*\]'
}
captions later.tar 9
cp -r data grown
printf '0\n4\n' >gone
"$BIN/ccpack" -q --append -o grown later.tar
"$BIN/ccpack" remove grown --ids gone >/dev/null
cp -r by-caption went-on
for id in 1 2 31; do
    of by-caption data $id
done >before.txt
expect 0 "$BIN/ccstream-train" -q --resume went-on --data grown --epochs 5
train carried --data grown --init by-caption --init-state --text-state caption --steps 1 --zeta-lr 0
for id in 1 2 31; do
    of carried grown $id
done >after.txt
cmp before.txt after.txt || fail "captions changed their numbers: $(diff before.txt after.txt)"
expect 65 $last "$BIN/ccstream-train" -q --init by-caption --init-state --data data $options --text-state sample --out refused
has err.txt 'keeps the numbers of texts by caption'

# ---- where it means nothing
expect 0 $last "$BIN/ccstream-train" --data data $options --loss clip --text-state caption --steps 1 --out clip
has err.txt '--text-state has no effect'
