#!/bin/bash
# Every subcommand of ccstream-eval on a model that has learned a little.
. "$SRC/tests/support/cli.sh"

number() { # number KEY FILE: the first value of a key
    grep -o "\"$1\":[-0-9.e+]*" "$2" | head -n 1 | cut -d: -f2
}

keys() { # keys FILE KEY...: all of them, with numbers
    local file=$1 key
    shift
    for key in "$@"; do
        [ -n "$(number "$key" "$file")" ] || fail "no $key in $(cat "$file")"
    done
}

above() { # above A B
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > b) }'
}

"$TESTBIN/make_scenes" train 256 3 32 train.tar
"$TESTBIN/make_scenes" train 160 5 32 test.tar
"$BIN/ccpack" -q -o data train.tar
scene_words words.txt
"$BIN/ccpack" tokenizer -q data --tokenizer words.txt
"$BIN/ccpack" -q -o held test.tar

# Class folders: the scenes by the colour of their first object.
colour='match($0, /red|green|blue|yellow/) ? substr($0, RSTART, RLENGTH) : ""'
scene_folders train.tar train-classes "$colour"
scene_folders test.tar test-classes "$colour"
"$BIN/ccpack" -q -o train-labelled train-classes
"$BIN/ccpack" -q -o test-labelled test-classes

small_model model.json
model="--augment crop --model model.json --tokenizer words.txt --batch-size 64 --threads 1"
# shellcheck disable=SC2086 # options
"$BIN/ccstream-train" -q --data data --out run $model --epochs 6 --lr 0.002 --loss nuclr --tau 0.05 --zeta-freeze-epochs 1

evaluate() {
    command=$1
    shift
    "$BIN/ccstream-eval" "$command" "$@" --threads 1
}

evaluate retrieval run --data held --json >retrieval.json
keys retrieval.json i2t_r1 i2t_r5 i2t_r10 t2i_r1 t2i_r5 t2i_r10 mean_r1 images texts
awk -v a="$(number i2t_r1 retrieval.json)" -v b="$(number t2i_r1 retrieval.json)" -v c="$(number mean_r1 retrieval.json)" \
    'BEGIN { d = (a + b) / 2 - c; exit !(d < 1e-9 && d > -1e-9) }' || fail "retrieval: $(cat retrieval.json)"
above "$(number i2t_r10 retrieval.json)" 0 || fail "retrieval: $(cat retrieval.json)"

evaluate retrieval run --data held --html found.html --examples 4 >retrieval.txt
[ "$(grep -o '"group":"[^"]*"' found.html | uniq | wc -l)" -eq 4 ] || fail "found.html has not four captions"
[ "$(grep -o ', its caption is number' found.html | wc -l)" -eq 4 ] || fail "found.html has not four images with captions"
[ "$(grep -o '"src":"data:image/jpeg;base64,' found.html | wc -l)" -eq 28 ] || fail "found.html has not 24 + 4 images"
grep -q 'its image is number [0-9]*"' found.html || fail "found.html shows no rank"
# Found examples before missed ones; what is wrong is marked; every image has a caption; what was evaluated.
[ "$(grep -o '"text":"[FM][a-z]*: ' found.html | cut -d '"' -f 4 | tr -d '\n')" = 'Found: Missed: Found: Missed: ' ] ||
    fail "found.html does not begin with what was found"
grep -q '"mark":"wrong"' found.html || fail "found.html marks nothing"
[ "$(grep -o '"caption":"[a-z]' found.html | wc -l)" -eq 28 ] || fail "found.html has images without a caption"
for part in '<dd>run/last</dd>' '<dd>held</dd>' '<dd>nuclr, tau 0.05</dd>' '<dt>epochs done</dt>' '"t2i_r10"' '"chance"' \
    'prefers-color-scheme: dark' 'cosine of the two'; do
    grep -qF "$part" found.html || fail "found.html lacks $part"
done

# Chance is a quarter.
evaluate linear run --train train-labelled --data test-labelled --json --per-class >linear.json 2>linear.log
keys linear.json top1 top5
above "$(number top1 linear.json)" 35 || fail "linear: $(cat linear.json)"
grep -q '"class":"green"' linear.json || fail "linear: no classes in $(cat linear.json)"
evaluate mean run --train train-labelled --data test-labelled --json >mean.json
above "$(number top1 mean.json)" 25 || fail "mean: $(cat mean.json)"
keys mean.json top1 top5 avg2
above "$(number avg2 mean.json)" 50 || fail "mean: $(cat mean.json)"
evaluate knn run --train train-labelled --data test-labelled -k 20 --layer projection --json >knn.json
grep -q '"nn1":{"top1":' knn.json || fail "knn: $(cat knn.json)"
sed 's/.*"knn"://' knn.json >knn20.json
above "$(number top1 knn20.json)" 25 || fail "knn: $(cat knn.json)"

# Zero-shot, with the built-in prompts and with the user's.
evaluate zeroshot run --data test-labelled --json >zeroshot.json
keys zeroshot.json top1 top5 images
[ "$(number top5 zeroshot.json)" = 100 ] || fail "zeroshot: five of four classes: $(cat zeroshot.json)"
[ "$(number classes zeroshot.json)" = 4 ] || fail "zeroshot: $(cat zeroshot.json)"
printf '# prompts\na {} thing\n' >prompts.txt
printf 'blue\tblue\ngreen\tgreen\nred\tred\nyellow\tyellow\n' >names.txt
evaluate zeroshot run --data test-labelled --templates prompts.txt --class-names names.txt \
    --transform squash --per-class >zeroshot.txt
grep -q 'yellow' zeroshot.txt || fail "zeroshot: $(cat zeroshot.txt)"

# Groups: solid and hollow objects on three patterns. The accuracies are consistent, and equal those of zeroshot
# if nothing is removed.
scene_folders test.tar groups '$2 "@" $7'
scene_folders test.tar fills '$2'
"$BIN/ccpack" -q -o test-groups groups
"$BIN/ccpack" -q -o test-fills fills
printf 'a striped background\na dotted background\n' >spurious.txt
printf 'a solid thing on plain\ta solid thing on dotted\na hollow thing\ta hollow thing on dotted\ta hollow thing on striped\n' >pairs.tsv
evaluate debias run --data test-groups --spurious spurious.txt --pairs pairs.tsv --templates prompts.txt --json >debias.json
grep -q '"images":160,"classes":2,"spurious":2,"pairs":4,"lambda":1000' debias.json || fail "debias: $(cat debias.json)"
# Six groups, GROUP CLASS IMAGES ZEROSHOT DEBIASED: averages and the worst group follow from them.
tr '{' '\n' <debias.json | sed -n \
    's/^"group":"\([^"]*\)","class":"\([^"]*\)","images":\([0-9]*\),"zeroshot":\([0-9.]*\),"debiased":\([0-9.]*\)}.*/\1 \2 \3 \4 \5/p' >groups.txt
tr '{' '\n' <debias.json | sed -n \
    's/^"average":\([0-9.]*\),"worst_group":\([0-9.]*\),"worst":"\([^"]*\)".*/\1 \2 \3/p' >judged.txt
awk 'function near(x, y) { return x - y < 1e-9 && y - x < 1e-9 }
    FNR == NR { average[FNR] = $1; worst[FNR] = $2; name[FNR] = $3; next }
    { split($1, part, "@"); if (part[1] != $2) exit 1
      n += $3; sum[1] += $3 * $4; sum[2] += $3 * $5; rows++
      for (k = 1; k <= 2; k++) { v = $(3 + k); if (rows == 1 || v < least[k]) least[k] = v; of[k, $1] = v } }
    END {
        good = rows == 6 && average[1] != average[2]
        for (k = 1; k <= 2; k++)
            good = good && near(average[k], sum[k] / n) && near(worst[k], least[k]) &&
                near(of[k, name[k]], least[k])
        exit !good
    }' judged.txt groups.txt || fail "debias: $(cat debias.json)"
evaluate zeroshot run --data test-fills --templates prompts.txt --json >fills.json
awk -v a="$(number top1 fills.json)" -v b="$(sed 's/.*"zeroshot":{"average":\([0-9.]*\).*/\1/' debias.json)" \
    'BEGIN { exit !(a - b < 1e-9 && b - a < 1e-9) }' || fail "debias before is not zero-shot: $(cat debias.json fills.json)"
printf '%s\n' 'a picture' 'something large' >queries.txt
evaluate debias run --data test-groups --spurious spurious.txt --pairs pairs.tsv --templates prompts.txt --queries queries.txt \
    --top 40 --json >skews.json
[ "$(sed 's/"max_skew":{.*}\]},//' skews.json)" = "$(cat debias.json)" ] || fail "--queries changes other numbers: $(cat skews.json)"
grep -q '"max_skew":{"top":40,"zeroshot":[0-9.]*,"debiased":[0-9.]*,"queries":\[{"text":"a picture",' skews.json || fail "$(cat skews.json)"
evaluate debias run --data test-groups --pairs pairs.tsv --lambda 0 --templates prompts.txt --json >same.json
[ "$(grep -o '"average":[^,]*' same.json | sort -u | wc -l)" -eq 1 ] || fail "debias without weight: $(cat same.json)"
evaluate debias run --data test-groups --spurious spurious.txt >debias.txt
grep -q 'worst_group: ' debias.txt || fail "debias as text: $(cat debias.txt)"

# Training reports the same numbers: between epochs, and for a finished run what it lacks.
cp -r run watched
"$BIN/ccstream-train" --resume watched --zeroshot test-labelled 2>log.txt
grep -q 'zero-shot top-1 [0-9.]* %, top-5 [0-9.]* %, mean over classes [0-9.]* %' log.txt || fail "$(cat log.txt)"
evaluate zeroshot run --data test-labelled --json >zeroshot.json
[ "$(sed -n 's/.*"zeroshot":\({[^}]*}\).*/\1/p' watched/metrics.jsonl)" = "$(cat zeroshot.json)" ] ||
    fail "zero-shot while training: $(tail -n 1 watched/metrics.jsonl), ccstream-eval: $(cat zeroshot.json)"
"$BIN/ccstream-train" -q --resume watched --json >json.txt
[ "$(grep -c '"zeroshot":' watched/metrics.jsonl)" -eq 1 ] || fail "a finished run was evaluated again"
code=0
"$BIN/ccstream-train" -q --resume watched --zeroshot held 2>err.txt || code=$?
[ "$code" -eq 64 ] || fail "--zeroshot without classes: exit code $code"
grep -q -- '--zeroshot: held has no class names' err.txt || fail "$(cat err.txt)"

# Embeddings: sizes match the headers; rows have length 1 by the similarity of an array with itself.
evaluate embed run --data held --texts --features -o out --json >embed.json
[ "$(number images embed.json)" = 160 ] || fail "embed: $(cat embed.json)"
[ "$(stat -c %s out.images.npy)" -eq $((128 + 160 * 32 * 4)) ] || fail "out.images.npy has $(stat -c %s out.images.npy) bytes"
[ "$(stat -c %s out.ids.npy)" -eq $((128 + 160 * 8)) ] || fail "out.ids.npy has $(stat -c %s out.ids.npy) bytes"
# The ids are those of the dataset, in its order.
tail -c +129 out.ids.npy | od -An -v -t u8 -w8 | tr -d ' ' >ids.txt
seq 0 159 | cmp - ids.txt || fail "out.ids.npy: $(head -n 5 ids.txt)"
head -c 128 out.images.npy | grep -aq "'shape': (160, 32)" || fail "out.images.npy: $(head -c 128 out.images.npy)"
if python3 -c 'import numpy' 2>/dev/null; then
    python3 -c "
import numpy as n
x = n.load('out.images.npy'); t = n.load('out.texts.npy'); o = n.load('out.owners.npy'); i = n.load('out.ids.npy')
assert abs((x * x).sum(1) - 1).max() < 1e-5 and abs((t * t).sum(1) - 1).max() < 1e-5
assert (n.diff(i.astype('i8')) > 0).all() and len(o) == len(t) and n.load('out.features.npy').shape == (160, 32)
r = ((x[o] * t).sum(1)[:, None] > x[o] @ t.T).sum(1)
"
fi

# Scores: entry i is the mean cosine of sample i's image and captions, by the embeddings.
rows() { tail -c +129 "out.$1.npy" | od -An -v -t "$2" -w"$3"; }
evaluate score run --data held -o scores.npy --json >score.json
[ "$(number scored score.json)" = 160 ] || fail "score: $(cat score.json)"
tail -c +129 scores.npy | od -An -v -t f4 -w4 >scores.txt
{ rows images f4 128; echo end; paste <(rows owners d4 4) <(rows texts f4 128); } | awk '
    $1 == "end" { texts = 1; next }
    !texts { for (k = 1; k <= NF; k++) image[NR - 1, k] = $k; next }
    { for (k = 2; k <= NF; k++) sum[$1] += image[$1, k - 1] * $k; captions[$1]++ }
    END {
        while ((getline line <"scores.txt") > 0) { d = line - sum[i] / captions[i]; i++; if (d * d > 1e-10) wrong++ }
        if (i != 160 || wrong) { print i " scores, " wrong + 0 " wrong"; exit 1 }
    }' || fail "scores differ from the cosines of the embeddings"
# An id without a sample has no score.
cp -r held fewer && echo 3 >three.txt
"$BIN/ccpack" remove fewer --ids three.txt -q && evaluate score run --data fewer -o fewer.npy >score.txt
grep -q '^scored: *159$' score.txt || fail "$(cat score.txt)"
# Batches now end elsewhere, which may move the last bit of a product.
tail -c +129 fewer.npy | od -An -v -t f4 -w4 | paste scores.txt - |
    awk 'NR == 4 { next } { d = $1 - $2; if (d * d > 1e-12) wrong++ } END { exit NR != 160 || wrong > 0 }' ||
    fail "scores of the other samples changed"
tail -c +129 fewer.npy | od -An -v -t f4 -w4 | sed -n 4p | grep -q nan || fail "an id without a sample has a score"

# Images are normalised as in training, unless --image-norm names another dataset.
embedded() { # embedded RUN OPTIONS...
    local run=$1
    shift
    evaluate embed "$run" --data held -o norm --force "$@" >/dev/null
    cksum <norm.images.npy
}
own=$(cksum <out.images.npy)
[ "$(embedded run --image-norm clip)" = "$own" ] || fail "--image-norm clip is not what a run without it is trained with"
[ "$(embedded run --image-norm imagenet)" != "$own" ] || fail "--image-norm imagenet changes nothing"
# shellcheck disable=SC2086 # options
"$BIN/ccstream-train" -q --data data --out run-cifar $model --epochs 1 --steps 1 --image-norm cifar10
own=$(embedded run-cifar)
[ "$(embedded run-cifar --image-norm cifar10)" = "$own" ] || fail "the checkpoint does not keep --image-norm"
[ "$(embedded run-cifar --image-norm cifar100)" != "$own" ] || fail "--image-norm cifar100 is cifar10"
[ "$(embedded run-cifar --image-norm none)" != "$own" ] || fail "--image-norm none changes nothing"

# Margins of two checkpoints: the accuracies are those of the linear probe, whose draws differ. The page is that of a machine without
# matplotlib, whose files of figures take most of the time (cli.ccstudy has them).
mkdir none && echo 'raise ModuleNotFoundError("none", name="matplotlib")' >none/matplotlib.py
PYTHONPATH=none "$BIN/ccstudy" margin run run-cifar --train train-labelled --data test-labelled --quick --json --fit 1 -t 1 -o studies \
    >margin.json 2>err.txt
has err.txt 'no figures as SVG and PNG: matplotlib is not installed'
grep -q '"train_accuracy":[0-9]' margin.json || fail "margin: $(cat margin.json)"
cmp margin.json studies/margin.json || fail "margin: --json is not what the file has"
awk -v a="$(sed -n 's/.*"checkpoint":"run","accuracy":\([0-9.]*\),.*/\1/p' margin.json)" \
    -v b="$(sed -n 's/^{"top1":\([0-9.]*\),.*/\1/p' linear.json)" 'BEGIN { exit !(a > b - 10 && a < b + 10) }' ||
    fail "margin: $(cat margin.json), linear: $(cat linear.json)"
grep -qE '"rank_correlation":\{"margin":-?1,"gn_margin":-?1,"sn_margin":-?1,"tv_gn_margin":-?1,"kv_margin":-?1,"kv_gn_margin":-?1\}' margin.json || fail "margin: $(cat margin.json)"
tr '{' '\n' <margin.json | sed -n 's/.*"variance":\([0-9.e-]*\),"lipschitz":\([0-9.e-]*\).*/\1 \2/p' |
    awk '$1 > 0 && $2 > 0 { rows++ } END { exit rows != 2 }' || fail "margin: $(cat margin.json)"
[ "$(grep -o '"kind":"scatter"' studies/margin.html | wc -l)" -eq 6 ] || fail "figures of margin"
# A classifier that learns longer fits better; one that does not fit learns twice as long, anew, while --steps allow it.
"$BIN/ccstudy" margin run run-cifar --train train-labelled --data test-labelled --quick --json --fit 0 -t 1 --epochs 256 >longer.json
"$BIN/ccstudy" margin run run-cifar --train train-labelled --data test-labelled --quick --json --fit 100 -t 1 --steps 256 >doubled.json
cmp longer.json doubled.json || fail "margin --fit: $(cat longer.json doubled.json)"
[ "$(grep -o '"epochs":[0-9]*' margin.json | sort -u)" = '"epochs":32' ] || fail "margin --fit 1: $(cat margin.json)"
trained() { grep -o '"train_accuracy":[0-9.]*' "$1" | head -n 1 | cut -d: -f2; }
above "$(trained longer.json)" "$(trained margin.json)" || fail "margin --epochs: $(cat margin.json longer.json)"
code=0
"$BIN/ccstudy" margin run run-cifar --train held --data test-labelled -t 1 2>err.txt || code=$?
[ "$code" -eq 64 ] || fail "margin without classes: exit code $code"
grep -q 'fewer than two classes' err.txt || fail "$(cat err.txt)"

# The objectives: nuclr has its zeta on the training set only.
evaluate objective run --data data --json >objective.json
grep -q '"nuclr":' objective.json || fail "objective: $(cat objective.json)"
grep -q '"tau":0.05,' objective.json || fail "objective: not the run's temperature: $(cat objective.json)"
evaluate objective run --data held --tau 0.05 --json >held.json
if grep -q '"nuclr":' held.json; then
    fail "objective: zeta of another dataset in $(cat held.json)"
fi
awk -v a="$(number gcl held.json)" -v b="$(number gcl_image held.json)" -v c="$(number gcl_text held.json)" \
    'BEGIN { exit !(a - b - c < 1e-9 && b + c - a < 1e-9) }' || fail "objective: $(cat held.json)"

# ccdump state and popularity on the checkpoint.
"$BIN/ccdump" state run --json >state.json
grep -q '"text.zeta_momentum":{"ids":256,"visited":256,' state.json || fail "state: $(cat state.json)"
grep -q '"scalars":{"image.xi":' state.json || fail "state: $(cat state.json)"
"$BIN/ccdump" state run | grep -qE 'text.log_u +256 +256' || fail "state for people"
"$BIN/ccdump" popularity run data --top 3 --html popularity.html >popularity.txt
for part in '<dd>nuclr, tau 0.05</dd>' 'the median' 'exp(zeta / tau)'; do
    grep -qF "$part" popularity.html || fail "popularity.html lacks $part"
done
[ "$(grep -o '"src":"data:image/jpeg;base64,' popularity.html | wc -l)" -eq 6 ] || fail "popularity.html has not six images"
[ "$(grep -o '"caption":"[a-z]' popularity.html | wc -l)" -eq 6 ] || fail "popularity.html has images without a caption"
grep -q 'a .* on a ' popularity.txt || fail "popularity: $(cat popularity.txt)"
"$BIN/ccdump" popularity run data --side image --json >popularity.jsonl
[ "$(wc -l <popularity.jsonl)" -eq 24 ] || fail "popularity --json: $(wc -l <popularity.jsonl) lines"
code=0
"$BIN/ccdump" popularity run held 2>err.txt || code=$?
[ "$code" -eq 65 ] || fail "popularity on another dataset: exit code $code"

# Refusals: a message, and exit code 64, 65 or 66.
refused() { # refused CODE WORDS COMMAND...
    local want=$1 words=$2
    shift 2
    code=0
    "$BIN/ccstream-eval" "$@" >out.txt 2>err.txt || code=$?
    [ "$code" -eq "$want" ] || fail "$*: exit code $code, not $want: $(cat err.txt)"
    grep -q -- "$words" err.txt || fail "$*: $(cat err.txt)"
}
refused 64 'no class names' zeroshot run --data held
refused 64 'has no {}' zeroshot run --data test-labelled --templates names.txt --class-names names.txt
refused 64 'no labels' linear run --train held --data test-labelled
refused 66 'no-such' knn run --train no-such --data test-labelled
refused 66 'no-such' embed no-such --data held -o x
refused 64 'has no captions' score run --data test-labelled -o x
refused 64 'CLASS@GROUP' debias run --data test-labelled --spurious spurious.txt
refused 64 'top requires --queries' debias run --data test-groups --spurious spurious.txt --top 5
refused 64 'pass --spurious FILE' debias run --data test-groups
refused 64 'is a single prompt' debias run --data test-groups --pairs spurious.txt
refused 66 'no-such' debias run --data test-groups --spurious no-such
refused 64 'no captions' retrieval run --data test-labelled
refused 66 'no-such' retrieval run --data no-such
refused 64 '--tau' objective run --data held --tau -1
# A flipped bit in the towers is found; one in data that only training reads does not matter.
cp -r run damaged
newest=damaged/$(readlink damaged/last)
printf '\377' | dd of="$newest" bs=1 seek=$(($(stat -c %s "$newest") / 8)) conv=notrunc status=none
for command in 'retrieval damaged --data held' 'zeroshot damaged --data test-labelled' 'embed damaged --data held -o x' \
    'linear damaged --train train-labelled --data test-labelled' 'objective damaged --data held'; do
    # shellcheck disable=SC2086 # several words
    refused 65 'damaged/last' $command
done
refused 64 'has no captions' objective run --data test-labelled
