# ccstudy: every experiment prints its numbers, leaves them in a file, and draws a page about them.
# not under sanitizers: it computes; the kernels and losses have unit tests
. "$SRC/tests/support/cli.sh"
[ -x "$BIN/ccstudy" ] || { echo "skipped: ccstudy is not built"; exit 77; }
coproc STUDIES { exec "$(sed -n '1s/^#!//p' "$BIN/ccstudy")" "$SRC/tests/support/studies.py" "$BIN/ccstudy"; }
ccstudy() { # ccstudy WORD...: as the program, without its imports
    local code line
    printf -v line '%s\t' "$BASHPID" "$@"
    { # 1 is another file while echo writes
        echo "$line" >&"${STUDIES[1]}"
        read -r code <&"${STUDIES[0]}"
    } 8>&1 9>&2
    return "$code"
}

figures() { # figures FOLDER NAME COUNT [WITHIN]: those of a page, and where matplotlib is installed as files; WITHIN: and in figures
    grep 'id="ccstream-page"' "$1/$2.html" >data.txt
    [ "$(grep -oE '"kind":"(lines|scatter|bars|histogram|area|map|multiples)"' data.txt | wc -l)" = $(($3 + ${4:-0})) ] || fail "figures of $2"
    hasnt data.txt 'NaN'
    hasnt data.txt 'http'
    if ! grep -q 'matplotlib' err.txt; then
        [ "$(find "$1" -name "$2-*.svg" -size +4k | wc -l)" = "$3" ] || fail "SVG files of $2"
        [ "$(find "$1" -name "$2-*.png" -size +4k | wc -l)" = "$3" ] || fail "PNG files of $2"
    fi
}

# ---- toy: small sets of pairs agree with what is known, and a seed repeats every number
expect 0 ccstudy toy --quick --json -o studies/new
has out.txt '"risk":{"0.2":-0.08089445'
has out.txt '"1":-0.02057714'
cmp out.txt studies/new/toy.json || fail "--json is not what the file has"
[ "$(grep -o '"tau":' out.txt | wc -l)" = 10 ] || fail "rows of toy"
tr '{' '\n' <out.txt | grep '"tau":0.2,"n":400,' | tr -d '}]' | tr ',' '\n' | tr -d '"' >cell.txt
awk -F: '{ v[$1] = $2 } END { exit !(v["gcl"] > 0.04 && v["nuclr"] < 0.02 && v["error_nuclr"] < v["error_gcl"] / 10 &&
    v["correlation"] > 0.99 && v["repeats"] == 5) }' cell.txt || { cat cell.txt; fail "400 pairs at tau 0.2"; }
mv out.txt first.txt
expect 0 ccstudy toy --quick --json
cmp first.txt out.txt || fail "the same seed, other numbers"
expect 0 ccstudy toy --quick --json --seed 1
cmp -s first.txt out.txt && fail "another seed, the same numbers"
figures studies/new toy 12

# ---- what is drawn for people; what cannot be written is known before the work
expect 0 ccstudy toy --quick -r 2
has out.txt 'error gcl'
lines out.txt 11
echo >file
expect 73 ccstudy toy --quick -o file

# ---- chains: those that encode have all of the mass and come near the exact gradient, those that skip do not; the negative cache
expect 0 ccstudy chains --quick --json -o studies
cmp out.txt studies/chains.json || fail "--json is not what the file has"
mv out.txt first.txt
sed 's/"skip".*//' first.txt | grep -o '{"views"[^}]*}' | tr -d '{}"' >encode.txt
sed 's/"negcache".*//;s/.*"skip"//' first.txt | grep -o '{"views"[^}]*}' | tr -d '{}"' >skip.txt
sed 's/"trace".*//;s/.*"negcache"//' first.txt | grep -o '{"views"[^}]*}' | tr -d '{}"' >cache.txt
lines encode.txt 4
lines skip.txt 4
lines cache.txt 4
cat encode.txt cache.txt | tr ',' ' ' | awk '{ for (i = 1; i <= NF; i++) { split($i, a, ":"); v[a[1]] = a[2] }
    if (v["mass"] < 0.999999 || v["mass"] > 1.000001 || v["error"] > 0.2 || v["steps"] != 2000) { print; exit 1 } }' ||
    fail "chains that encode, or the negative cache"
tr ',' ' ' <skip.txt | awk '{ for (i = 1; i <= NF; i++) { split($i, a, ":"); v[a[1]] = a[2] }
    if (v["mass"] > 0.9) { print; exit 1 } }' || fail "chains that skip"
expect 0 ccstudy chains --quick --json
cmp first.txt out.txt || fail "the same seed, other numbers"
expect 64 ccstudy chains --samples 60
has err.txt 'not a multiple of --batch 8'
figures studies chains 3

# ---- blocks: the bound falls with their size in every row, and bounds the mean classifier; larger blocks classify better
expect 0 ccstudy blocks --quick --steps 100 --json -o studies/blocks
cmp out.txt studies/blocks/blocks.json || fail "--json is not what the file has"
tr '{' '\n' <out.txt | tr -d '}]"' >rows.txt
awk -F'[,:]' '{ delete v; for (i = 1; i < NF; i += 2) v[$i] = $(i + 1); name = v["method"] " " v["b"] }
    "avg2" in v { avg2[name] = v["avg2"]; mean[name] = v["mean_loss"]; rows++ }
    "size" in v { if (v["bound"] < mean[name] || (v["size"] > 1 && v["bound"] >= before)) { print; exit 1 }
        before = v["bound"]; bounds++ }
    END { exit !(rows == 8 && bounds == 32 && avg2["blocks 10"] > avg2["blocks 1"] && avg2["blocks 1"] == avg2["pairs 1"]) }' rows.txt ||
    { cat rows.txt; fail "rows of blocks"; }
figures studies/blocks blocks 2
expect 0 ccstudy blocks --quick --json --steps 3 -r 1
mv out.txt first.txt
hasnt first.txt '_sd'
expect 0 ccstudy blocks --quick --json --steps 3 -r 1
cmp first.txt out.txt || fail "the same seed, other numbers"
for other in "--seed 1" "--loss hinge" "--negatives 2" "--equal points" "--lr 0.01" "--blocks 20"; do
    expect 0 ccstudy blocks --quick --json --steps 3 -r 1 $other
    cmp -s first.txt out.txt && fail "blocks $other: the same numbers"
done
expect 64 ccstudy blocks --captions
has err.txt '--captions requires --data'
expect 64 ccstudy blocks --topics dog,cat
has err.txt '--topics requires --captions'
expect 64 ccstudy blocks --size 32
has err.txt '--size applies only to the images'
expect 64 ccstudy blocks --blocks 4
has err.txt 'at most 3 others'

# ---- zeta: learned popularity is the exact one where pairs are as drawn, and with the unbiased gradient
expect 0 ccstudy zeta --quick --epochs 70 --json -o studies
cmp out.txt studies/zeta.json || fail "--json is not what the file has"
sed 's/"trace".*//' out.txt | grep -o '{"problem":"[a-z]*","gradient"[^}]*}' | tr -d '{}"' >rows.txt
lines rows.txt 8
tr ',' ' ' <rows.txt | awk '{ for (i = 1; i <= NF; i++) { split($i, a, ":"); v[a[1]] = a[2] }
    exact = v["correlation_image"] > 0.98 && v["correlation_text"] > 0.98
    drifts = v["problem"] == "fitted" && v["gradient"] == "paper"
    if (exact == drifts || v["xi_norm_text"] < 0.05 || v["xi_signed_text"] < v["xi_all_text"]) { print; exit 1 } }' || fail "rows of zeta"
figures studies zeta 8
expect 0 ccstudy zeta --quick --json --epochs 3
mv out.txt first.txt
expect 0 ccstudy zeta --quick --json --epochs 3
cmp first.txt out.txt || fail "the same seed, other numbers"
expect 0 ccstudy zeta --quick --json --epochs 3 --seed 1
cmp -s first.txt out.txt && fail "another seed, the same numbers"
expect 0 ccstudy zeta --quick -e 3
lines out.txt 9

# ---- batch: a finite grid; what was interrupted continues to the same bytes; other options are refused
expect 0 ccstudy batch --quick --json -o studies/batch
cmp out.txt studies/batch/batch.json || fail "--json is not what the file has"
mv out.txt first.txt
[ "$(grep -o '"seeds":2' first.txt | wc -l)" = 18 ] || fail "rows of batch"
[ "$(grep -o '"gcl":' first.txt | wc -l)" = 36 ] || fail "fits of batch"
hasnt first.txt 'null'
lines studies/batch/batch.cells 73
figures studies/batch batch 7
cp studies/batch/batch.cells whole.cells
head -n 70 whole.cells >studies/batch/batch.cells
expect 0 ccstudy batch --quick --json -o studies/batch
cmp first.txt out.txt || fail "resumed, other numbers"
cmp whole.cells studies/batch/batch.cells || fail "resumed, other runs"
expect 64 ccstudy batch --quick --seed 1 -o studies/batch
has err.txt 'belongs to a study with other options'
cmp whole.cells studies/batch/batch.cells || fail "a refused command changed the runs"
expect 0 ccstudy batch --cells whole.cells --json
cmp first.txt out.txt || fail "the same runs, other numbers"
expect 0 ccstudy batch --cells whole.cells
lines out.txt 19
expect 0 ccstudy batch --quick --json -b 128 --tau 0.2 --gamma 0.5 --samples captions --train-images 256
has out.txt '256 pairs for training'
has out.txt '--samples captions, --train-images 256, --batch 128, --tau 0.2, --gamma 0.5'
[ "$(grep -o '"tau":0.2,"lr":[0-9.]*,"gamma":0.5' out.txt | wc -l)" = 4 ] || fail "given temperature and gamma"
awk '$6 != "0"' whole.cells >fixed.cells
expect 0 ccstudy batch --cells fixed.cells --json
[ "$(tr '{' '\n' <out.txt | grep '"seeds":2' | grep -o '"recall":[^,]*')" = "$(tr '{' '\n' <first.txt | grep '"seeds":2' | grep -o '"recall":[^,]*')" ] ||
    fail "one setting without runs that tune"
echo 'clip 8' >>whole.cells
expect 65 ccstudy batch --cells whole.cells
has err.txt 'line 74'

# ---- noise: recall falls with the share of wrong pairs for every loss; the row of clip is what others are compared with
expect 0 ccstudy noise --quick --json -o studies/noise
cmp out.txt studies/noise/noise.json || fail "--json is not what the file has"
mv out.txt first.txt
hasnt first.txt 'null'
tr '{' '\n' <first.txt | tr -d '}]"' | awk -F'[,:]' '{ delete v; for (i = 1; i < NF; i += 2) v[$i] = $(i + 1) }
    "loss" in v { name = v["loss"] " " v["q"]; rows++
        if (v["noise"] == 0) clean = v["recall"]
        else if (v["recall"] > clean - 5 || v["recall"] > before || (v["lost"] - clean + v["recall"]) ^ 2 > 1e-12) { print; exit 1 }
        if (v["loss"] == "clip") { clip[v["noise"]] = v["recall"] }
        if ((v["over_clip"] - v["recall"] + clip[v["noise"]]) ^ 2 > 1e-12) { print; exit 1 }
        before = v["recall"] }
    END { if (rows != 15) exit 1 }' || fail "rows of noise: $(cat first.txt)"
figures studies/noise noise 2
small="--quick --json --pairs 512 --held-out 128 --epochs 2"
expect 0 ccstudy noise $small
mv out.txt first.txt
expect 0 ccstudy noise $small
cmp first.txt out.txt || fail "the same seed, other numbers"
sed 's/.*"rows"//' first.txt >first.rows
for other in "--seed 1" "--batch 64" "--lr 0.01" "--hidden 16" "--dim 32" "--epochs 3" "--held-out 120" "--pairs 640"; do
    expect 0 ccstudy noise $small $other
    sed 's/.*"rows"//' out.txt | cmp -s - first.rows && fail "noise $other: the same numbers"
done
expect 0 ccstudy noise --quick --epochs 2
lines out.txt 17

# ---- noise of labels: accuracy falls with the share for every loss; files of its own
labels="--noise label --quick --json --held-out 700 --epochs 2"
expect 0 ccstudy noise $labels -o studies/label
cmp out.txt studies/label/noise-label.json || fail "--json is not what the file has"
mv out.txt first.txt
hasnt first.txt 'null'
hasnt first.txt '"recall"'
tr '{' '\n' <first.txt | tr -d '}]"' | awk -F'[,:]' -v untrained="$(field first.txt untrained)" '
    { delete v; for (i = 1; i < NF; i += 2) v[$i] = $(i + 1) }
    "loss" in v { rows++
        if (v["noise"] == 0) clean = v["accuracy"]
        if (v["noise"] == 0 && clean < untrained + 3) { print; exit 1 }
        if (v["noise"] == 0.8 && v["accuracy"] > clean - 3) { print; exit 1 } }
    END { if (rows != 15 || untrained < 5) exit 1 }' || fail "rows of noise: $(cat first.txt)"
figures studies/label noise-label 2
expect 64 ccstudy noise --noise label --pairs 600
has err.txt '--pairs has no effect'

# ---- labels: supervised columns, both losses while training, class collision
expect 0 ccstudy labels --steps 40 --repeats 1 --json -o studies/labels
cmp out.txt studies/labels/labels.json || fail "--json is not what the file has"
hasnt out.txt 'null'
[ "$(grep -o '"mu5_top1":' out.txt | wc -l)" = 3 ] || fail "rows of labels"
[ "$(grep -o '"step":' out.txt | wc -l)" = 21 ] || fail "losses of labels"
figures studies/labels labels 3

# ---- noise of crops: two of one point are a pair, which no files of features have
expect 0 ccstudy noise --noise augment --quick --json --held-out 1200 --epochs 2 -o studies/augment
cmp out.txt studies/augment/noise-augment.json || fail "--json is not what the file has"
hasnt out.txt 'null'
[ "$(grep -o '"accuracy":' out.txt | wc -l)" = 15 ] || fail "rows of noise"
figures studies/augment noise-augment 2
expect 64 ccstudy noise --noise augment --features f
has err.txt '--features has no effect'

# ---- negatives: those of the anchor's class cost accuracy
expect 0 ccstudy negatives --quick --epochs 3 --json -o studies/negatives
cmp out.txt studies/negatives/negatives.json || fail "--json is not what the file has"
tr '{' '\n' <out.txt | tr -d '}]"' | awk -F'[,:]' '{ delete v; for (i = 1; i < NF; i += 2) v[$i] = $(i + 1) }
    v["method"] == "unbiased" { rows++; if (v["over_biased"] < 8) { print; exit 1 } }
    END { exit rows != 2 }' || fail "negatives: $(cat out.txt)"
figures studies/negatives negatives 2

# ---- normalizer: the batch alone is worst, and better the larger it is
expect 0 ccstudy normalizer --quick --pairs 256 --epochs 3 --json -o studies/normalizer
cmp out.txt studies/normalizer/normalizer.json || fail "--json is not what the file has"
tr '{' '\n' <out.txt | tr -d '}]"' | awk -F'[,:]' '{ delete v; for (i = 1; i < NF; i += 2) v[$i] = $(i + 1) }
    "rms" in v { rows++; rms[v["method"] v["batch"]] = v["rms"] }
    END { exit !(rows == 18 && rms["sogclr-38"] > rms["neuclip8"] && rms["clip8"] > rms["clip32"] && rms["clip32"] > rms["clip128"] && rms["clip8"] > rms["sogclr-38"] &&
                 rms["clip32"] > rms["sogclr-332"]) }' || fail "normalizer: $(cat out.txt)"
figures studies/normalizer normalizer 2

# ---- coldstart: CLIP has no u; moments have an effect
expect 0 ccstudy coldstart --quick --json -o studies/coldstart
cmp out.txt studies/coldstart/coldstart.json || fail "--json is not what the file has"
tr '{' '\n' <out.txt | tr -d '}]"' | awk -F'[,:]' '{ delete v; for (i = 1; i < NF; i += 2) v[$i] = $(i + 1) }
    "start" in v { rows++; gained[v["loss"] v["start"]] = v["gained"] }
    END { exit !(rows == 12 && gained["clipnothing"] == gained["clipstate"] && gained["clipnothing"] != gained["clipmoments"] &&
                 gained["sogclrnothing"] != gained["sogclrstate"] && gained["sogclrmoments"] > 2) }' || fail "coldstart: $(cat out.txt)"
figures studies/coldstart coldstart 3

# ---- longtail: zeta finds the popularity of captions
expect 0 ccstudy longtail --quick --generic 0.5 --json -o studies/longtail
cmp out.txt studies/longtail/longtail.json || fail "--json is not what the file has"
tr '{' '\n' <out.txt | tr -d '}]"' | awk -F'[,:]' '{ delete v; for (i = 1; i < NF; i += 2) v[$i] = $(i + 1) }
    v["method"] == "nuclr" { rows++; if (v["correlation"] < 0.5 || v["recall"] < 40) { print; exit 1 } }
    v["method"] == "frozen" { rows++; if (v["correlation"] != "null") { print; exit 1 } }
    END { exit rows != 2 }' || fail "longtail: $(cat out.txt)"
figures studies/longtail longtail 2
expect 64 ccstudy longtail --generic 1
has err.txt "--generic '1' is not a number in"

# ---- margin: without checkpoints, of towers trained here; classifiers fit, and k-variance ranks better than the margin alone
expect 0 ccstudy margin --quick --json -o studies/margin
cmp out.txt studies/margin/margin.json || fail "--json is not what the file has"
tr '{' '\n' <out.txt | tr -d '}]"' | awk -F'[,:]' '{ delete v; for (i = 1; i < NF; i += 2) v[$i] = $(i + 1) }
    "train_accuracy" in v { rows++; if (v["train_accuracy"] < 90 || v["kv_margin"] <= 0) { print; exit 1 } }
    "kv_gn_margin" in v && !("train_accuracy" in v) { ranked = v["kv_gn_margin"] > v["margin"] + 0.1 }
    END { exit !(rows == 10 && ranked) }' || fail "margin of towers: $(cat out.txt)"
figures studies/margin margin 8 12
tr '{' '\n' <out.txt | tr -d '}]"' | awk -F'[,:]' '{ delete v; for (i = 1; i < NF; i += 2) v[$i] = $(i + 1) }
    "labels" in v && "train_accuracy" in v { rows++; kv[rows] = v["kv_gn_margin"]; if (v["train_accuracy"] < 99) { print; exit 1 } }
    END { exit !(rows == 2 && kv[1] > 1.15 * kv[2]) }' || fail "right and random labels: $(cat out.txt)"
eval "exec ${STUDIES[1]}>&-"
wait "$STUDIES_PID" || fail "support/studies.py"
