#!/bin/bash
# No program writes over what it did not make: a file of one's own, the page of another command, anything in a
# dataset or a run. --force replaces files, but never those of datasets and runs. A command that fails makes no
# folder, and one that succeeds makes those above its output.
. "$SRC/tests/support/cli.sh"
export OMP_NUM_THREADS=1 # of ccdump why and ccstream-eval, for a few samples

"$TESTBIN/make_scenes" train 24 1 24 train.tar >/dev/null
"$BIN/ccpack" -q -o d train.tar
"$BIN/ccpack" tokenizer -q d --vocab-size 60
"$BIN/ccpack" -q -o d2 train.tar
train="$BIN/ccstream-train -q --image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 12 --embed-dim 16
    --threads 1 --steps 4 --loss nuclr --zeta-freeze-epochs 0"
$train --batch-size 8 --data d --out r
checksums() { find d d2 r mine.txt mine -type f -exec cksum {} + | sort; }
mkdir mine
echo "my notes" >mine.txt
echo "my notes" >mine/config.json
checksums >before.txt
eval="$BIN/ccstream-eval"

# Every command with an output, as words that end in the option for it.
files=(
    "$BIN/ccstream-report r -o"
    "$BIN/ccdump stats d --html"
    "$BIN/ccdump show d 3 --html"
    "$BIN/ccdump show d 3 --image"
    "$BIN/ccdump why r d 3 --html"
    "$BIN/ccdump why r d 3 --image"
    "$BIN/ccdump popularity r d --html"
    "$BIN/ccdump cat d -q -o"
    "$eval retrieval r --data d --html"
    "$eval score r --data d -o"
    "$BIN/ccbench loader d --size 8 --batch-size 8 --steps 1 --no-limit --dump-ids"
)
for command in "${files[@]}"; do
    for place in mine.txt d/tokenizer.model d/new.html r/config.json r/new.html r/checkpoints/new.html d/sub/new.html; do
        expect 73 $command $place
    done
    for place in d/tokenizer.model r/config.json r/new.html; do
        expect 73 $command $place --force
    done
    expect 73 $command mine
    expect 0 $command new/deep/file
    [ -s new/deep/file ] || fail "$command: no output"
    echo "my notes" >new/deep/file
    expect 0 $command new/deep/file --force
    grep -q "my notes" new/deep/file && fail "$command --force: not replaced"
    rm -r new
done
expect 73 $eval embed r --data d -o r/x
expect 73 $eval embed r --data d -o d/x --force
expect 0 $eval embed r --data d -o new/x
echo "my notes" >new/x.labels.npy
expect 73 $eval embed r --data d -o new/x
has new/x.labels.npy "my notes"
expect 0 $eval embed r --data d -o new/x --force
rm -r new

# A page is replaced by the command that made it, and by no other.
expect 0 "$BIN/ccdump" stats d --html page.html
expect 0 "$BIN/ccdump" stats d2 --html page.html
expect_message 73 "page.html exists and was not written by 'ccdump show'" "$BIN/ccdump" show d 3 --html page.html
expect 0 "$BIN/ccstream-report" r
expect 0 "$BIN/ccstream-report" -o r/report.html r

# Folders.
for place in d r r/checkpoints d/sub; do
    expect 73 "$BIN/ccdump" extract d --id 3 -o $place
    expect 73 "$BIN/ccdump" extract d --id 3 -o $place --overwrite
    expect 73 "$BIN/ccstream-export" r -o $place
    expect 73 "$BIN/ccstream-export" r -o $place --force
    expect 73 $train --batch-size 8 --data d --out $place
done
for place in r r/sub d/sub; do
    expect 73 "$BIN/ccpack" -q -o $place --overwrite train.tar
    expect 73 "$BIN/ccpack" subset -q d --where 'id < 5' -o $place --overwrite
done
expect 73 $train --batch-size 8 --data d --out mine
expect 73 "$BIN/ccstream-export" r -o mine
mkdir mine2
echo "my notes" >mine2/config.json
expect 0 "$BIN/ccstream-export" r -o mine2 --force
expect 0 "$BIN/ccstream-export" r -o mine2
for format in safetensors transformers; do
    expect 0 "$BIN/ccstream-export" r -f $format -o new/$format
    expect 0 "$BIN/ccstream-export" r -f $format -o new/$format
done
rm -r new
rm r/report.html
$train --batch-size 8 --data d --out again
cp again/report.html r/report.html 2>/dev/null || true
sed -i '/r\/report.html/d' before.txt
checksums | sed '/r\/report.html/d' | cmp - before.txt || fail "a dataset, a run or a file of one's own has changed"

# Nothing is made by what fails.
for command in "$BIN/ccdump extract d --id 999 -o new/deep" "$BIN/ccdump cat d --id 999 -o new/x.tar" \
    "$BIN/ccdump popularity r nowhere --html new/x.html" "$BIN/ccdump show d 999 --html new/x.html" \
    "$eval retrieval nowhere --data d --html new/x.html" "$eval embed nowhere --data d -o new/x" \
    "$BIN/ccstream-report nowhere -o new/x.html" "$BIN/ccstream-export -f timm r -o new/deep" \
    "$train --data d --out new/deep --batch-size 1000"; do
    code=0
    $command >out.txt 2>err.txt || code=$?
    [ "$code" -ne 0 ] || fail "$command: ended well"
    [ ! -e new ] || fail "$command: made $(find new)"
done
mkdir studies
echo "my notes" >studies/toy.json
study="$BIN/ccstudy toy --quick -q"
expect_message 73 "toy.json exists and was not written by 'ccstudy toy'" $study -o studies
expect 73 $study -o r/sub
expect 73 $study -o d
