#!/bin/bash
# ccdump order and why: the samples of a step are those whose state the step wrote, of one dataset, of a mix and of
# blocks of classes; a sample's steps are those in which order has it; neighbours; what is refused.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 96 3 24 a.tar
"$TESTBIN/make_scenes" train 60 9 24 b.tar
for set in a b; do
    "$BIN/ccpack" -q -o $set $set.tar
done
"$BIN/ccpack" tokenizer a --vocab-size 100 >/dev/null
cp a/tokenizer.model b/
small_model model.json
model="--model model.json --tokenizer a/tokenizer.model --batch-size 16 --epochs 3 --lr 0.001
    --tau 0.05 --zeta-freeze-epochs 0 --seed 7 --threads 1 --loader-threads 1"

# one STEP-0 check: the run's state is visited for exactly the rows of order.
agrees() { # agrees RUN ROWS
    expect 0 "$BIN/ccdump" order "$1" --json
    sed 's/.*"dataset":"\([^"]*\)","id":\([0-9]*\).*/\1 \2/' out.txt | sort -u >rows.txt
    lines rows.txt "$2"
    has <("$BIN/ccdump" state "$1" --json) "\"visited\":$2,"
    while read -r dir id; do
        "$BIN/ccdump" why "$1" "$dir" "$id" --encode 0 --near 0 --json >why.json
        has why.json '"seen":[{"step":0,"epoch":0,'
        hasnt why.json '.log_u":null'
    done < <(shuf -n 6 --random-source=rows.txt rows.txt)
}
"$BIN/ccstream-train" -q --data a $model --steps 1 --out one
agrees one 16
"$BIN/ccstream-train" -q --data a:0.5 --data b:0.5 $model --steps 1 --out mix
agrees mix 16
has rows.txt "b "

# Every step of a run that has ended: the steps of sample 5 are those in which order has id 5.
"$BIN/ccstream-train" -q --data a $model --steps 16 --out whole
for step in $(seq 0 17); do
    "$BIN/ccdump" order whole --step "$step" --json | grep -q '"id":5,' && echo "$step" >>steps.txt
done
expect 0 "$BIN/ccdump" why whole a 5 --json --html page.html --image image
cp out.txt why.json
grep -o '"step":[0-9]*' why.json | cut -d : -f 2 | cmp - steps.txt || fail "other steps than order: $(cat why.json)"
"$BIN/ccdump" show a 5 --image expected
cmp image expected
for key in nearest_by_zeta nearest_images nearest_texts; do
    [ "$(grep -o "\"$key\":\[[^]]*" why.json | grep -o '"id"' | wc -l)" = 5 ] || fail "not 5 of $key: $(cat why.json)"
done
[ "$(grep -o '"src":"data:image/jpeg' page.html | wc -l)" = 16 ] || fail "$(grep -o '"src":' page.html | wc -l) images on the page"

# The nearest by embedding are those of the embeddings, and the nearest by zeta differ least.
"$BIN/ccstream-eval" embed -q whole --data a -o e >/dev/null
"$(for p in python3 /usr/bin/python3; do "$p" -c "import numpy" 2>/dev/null && echo "$p" && break; done || echo python3)" - why.json <<'PYTHON' || { code=$?; [ $code = 77 ] || fail "other neighbours than the embeddings"; }
import json, sys
try:
    import numpy
except ImportError:
    sys.exit(77)
images, ids = numpy.load("e.images.npy"), numpy.load("e.ids.npy")
cosine = images @ images[list(ids).index(5)]
best = [int(ids[i]) for i in numpy.argsort(-cosine) if ids[i] != 5][:5]
why = json.load(open(sys.argv[1]))
assert [x["id"] for x in why["nearest_images"]] == best, (why["nearest_images"], best)
own = why["state"]["text.zeta"]["value"]
apart = [abs(x["zeta"] - own) for x in why["nearest_by_zeta"]]
assert apart == sorted(apart)
PYTHON

# As text, with the ranks' rows; a dataset without a run has the order of its options.
expect 0 "$BIN/ccdump" why whole a 5 --encode 10
[ "$(sed -n '/^seen:/,/^next:/p' out.txt | awk '$1 ~ /^[0-9]+$/ { print $1 }')" = "$(awk '$1 < 16' steps.txt)" ] || fail "other steps"
has out.txt "not searched: needs encoding 96 samples; pass --encode 96"
expect 0 "$BIN/ccdump" order a --seed 7 --batch-size 16 --step 3 --world 4
awk 'NR > 2 && $2 != int($1 / 4)' out.txt | grep . && fail "other ranks"
awk 'NR > 2 { print $3 }' out.txt >options.txt
expect 0 "$BIN/ccdump" order whole --step 3
awk 'NR > 2 { print $2 }' out.txt | cmp - options.txt

# On data that has changed since, steps are those of the data as it was; what a subset dropped is not known; what is no
# sample, run or step is refused.
seen() { # seen RUN DATASET ID: the steps that why lists
    expect 0 "$BIN/ccdump" why "$1" "$2" "$3" --encode 0 --near 0 --json
    sed 's/.*"seen":\[\([^]]*\)\].*/\1/' out.txt | grep -oE '"step":[0-9]+' | cut -d : -f 2
}
cp -r a grown
"$BIN/ccpack" -q --append -o grown b.tar
seen whole a 5 >before.txt
seen whole grown 5 | cmp - before.txt || fail "after an append: $(cat out.txt)"
has out.txt '"next":[]'
cp -r whole later
expect 0 "$BIN/ccstream-train" -q --resume later --data grown --epochs 4
begun=$(tail -n 1 later/sessions.jsonl | grep -oE '"step":[0-9]+' | cut -d : -f 2)
for step in $(seq 0 15) $(seq "$begun" $((begun + 17))); do
    "$BIN/ccdump" order later --step "$step" --json | grep -q '"id":5,' && echo "$step"
done >both.txt
seen later grown 5 | cmp - both.txt || fail "of both parts: $(cat out.txt)"
expect 64 "$BIN/ccdump" order later --step "$((begun - 1))"
has err.txt "has no step $((begun - 1))"
echo 5 >gone
"$BIN/ccpack" remove grown --ids gone >/dev/null
expect 0 "$BIN/ccdump" order later --step "$(head -n 1 both.txt)"
has out.txt ' 5  (removed since)'
seq 6 95 >kept
"$BIN/ccpack" subset a --ids kept -o subset >/dev/null
sed -i 's|"data":\["[^"]*"|"data":["'"$PWD/subset"'"|' whole/config.json
expect 65 "$BIN/ccdump" order whole --step 3
has err.txt 'does not record which samples its generation'
expect 0 "$BIN/ccdump" why whole subset 7 --encode 0 --near 0 --json
has out.txt '"steps_unknown":"those from step 0 to 16: '
sed -i 's|"data":\["[^"]*"|"data":["'"$PWD/a"'"|' whole/config.json
expect 66 "$BIN/ccdump" why whole a 96
expect 64 "$BIN/ccdump" why whole a x
expect 65 "$BIN/ccdump" why whole b 5
has err.txt "was not trained on b"
expect 64 "$BIN/ccdump" order whole --seed 1
has err.txt "--seed does not apply to a run: whole records its own"
expect 64 "$BIN/ccdump" order whole --step 18
has err.txt "the run ends before step 18"
expect 64 "$BIN/ccdump" order a --batch-size 97
expect 64 "$BIN/ccdump" order a --batch-size 9 --positives 2

# Blocks of classes, with the rest of each class in no step of the epoch.
mkdir all
tar -xf a.tar -C all
for class in plain striped dotted; do
    mkdir -p "folders/$class"
    mv $(grep -l "$class" all/*.txt | sed 's/txt$/[jp]*g/') "folders/$class/"
done
"$BIN/ccpack" -q -o classes folders
"$BIN/ccstream-train" -q --data classes --task blocks --image-tower tiny --image-size 16 --embed-dim 32 \
    --hidden-dim 64 --threads 1 --loader-threads 1 --lr 0.003 --block-size 4 --block-negatives 2 --batch-size 20 --epochs 3 --out curl
visits=0
for id in 0 1 2 3 4 5; do
    "$BIN/ccdump" why curl classes $id --encode 0 --json >why.json
    seen=$(grep -o '"step":' why.json | wc -l)
    [ "$seen" = "$(sed -n 's/.*"visits":{"value":\([0-9]*\).*/\1/p' why.json)" ] || fail "id $id is seen $seen times: $(cat why.json)"
    visits=$((visits + seen))
done
[ "$visits" -gt 6 ] || fail "$visits visits"
