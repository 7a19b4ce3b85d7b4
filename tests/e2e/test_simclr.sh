#!/bin/bash
# Two views of images: every loss trains on class folders without captions, an interrupted run ends
# with the same bytes, and the features are evaluated.
. "$SRC/tests/support/cli.sh"

number() { # number KEY FILE: the first value of a key
    sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p" "$2" | head -n 1
}

# Class folders: the scenes by the pattern of their background.
labelled() { # labelled COUNT SEED NAME
    "$TESTBIN/make_scenes" train "$1" "$2" 24 "$3.tar"
    mkdir all
    tar -xf "$3.tar" -C all
    for class in plain striped dotted; do
        mkdir -p "$3-folders/$class"
        mv $(grep -l "$class" all/*.txt | sed 's/txt$/[jp]*g/') "$3-folders/$class/"
    done
    rm -r all
    "$BIN/ccpack" -q -o "$3" "$3-folders"
}
labelled 256 3 train
labelled 128 5 test

labelled 64 7 few
model="--task two-views --image-tower tiny --image-size 16 --embed-dim 32 --hidden-dim 64 --threads 1"
options="--data few --batch-size 16 $model"

train() { # train NAME OPTION...: one epoch, which keeps its checkpoint after two of four steps
    name=$1
    shift
    expect 0 "$BIN/ccstream-train" -q $options --epochs 1 --lr 0.001 --checkpoint-every 2 --keep-checkpoints 2 "$@" --out "$name"
}
for loss in simclr dcl hcl rince sogclr isogclr emc2; do
    train $loss-whole --loss $loss
    resumes $loss-whole 2
    if grep -Eq 'nan|inf|null' $loss-whole/metrics.jsonl; then
        fail "$loss: metrics are not numbers"
    fi
    "$BIN/ccdump" state $loss-whole --json >state.json
    grep -q '"visits":{"ids":64,"visited":64,"min":1,' state.json || fail "$loss: $(cat state.json)"
    rm -r $loss-whole-parts
done
"$BIN/ccdump" state emc2-whole --json | grep -q '"image.chain_id":{"ids":64,"visited":64,' || fail "no chains of emc2"

# Micro-batches (12 does not divide 16: the last part is smaller) and bf16 resume to the same bytes too; one
# micro-batch equals the batch.
losses() {
    grep '"loss":' "$1/metrics.jsonl" | sed 's/.*"loss":\([^,]*\),.*/\1/'
}
near() { # near A B TOLERANCE: the losses of two runs
    paste <(losses "$1") <(losses "$2") |
        awk -v t="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > t) exit 1; n++ } END { if (n == 0) exit 1 }' ||
        fail "losses of $1 and $2: $(paste <(losses "$1") <(losses "$2"))"
}
train micro --loss sogclr --micro-batch 12
resumes micro 2
if cmp -s micro/last sogclr-whole/last; then
    fail "micro-batches of 12 images end in the bytes of the whole batch"
fi
train fixed --loss sogclr --fixed-views on
resumes fixed 2
cmp fixed/last sogclr-whole/last || fail "fixed views are not those of the first epoch"
expect 0 "$BIN/ccstream-train" -q --resume fixed --epochs 2
cp -r sogclr-whole drawn
expect 0 "$BIN/ccstream-train" -q --resume drawn --epochs 2
! cmp -s fixed/last drawn/last || fail "--fixed-views changes nothing"
expect 64 "$BIN/ccstream-train" -q --resume fixed --fixed-views off
has err.txt '--fixed-views cannot be changed by --resume: earlier steps used other views'
train one --loss sogclr --micro-batch 16
cmp one/last sogclr-whole/last || fail "one micro-batch is not the batch"
code=0
"$BIN/ccstream-train" -q $options --epochs 1 --lr 0.001 --loss simclr --precision bf16 --out fast 2>err.txt || code=$?
if [ "$code" -eq 0 ]; then
    near fast simclr-whole 0.1
    ! cmp -s fast/last simclr-whole/last || fail "bf16 ends in the bytes of f32"
    train bf16 --loss simclr --precision bf16 --micro-batch 12
    resumes bf16 2
else
    [ "$code" -eq 69 ] || fail "bf16: exit code $code: $(cat err.txt)"
    [ ! -e fast ] || fail "a refused run left a directory"
fi

# The two views of an image move closer together than those of different images, and neighbours have the
# same class more often than by chance (33 %). Under sanitizers there is time for one epoch.
epochs=12
[ -z "${CCS_SANITIZE:-}" ] || epochs=1
"$BIN/ccstream-train" -q --data train --batch-size 64 $model --epochs $epochs --lr 0.002 --tau 0.2 --loss simclr --out trained
"$BIN/ccstream-eval" knn trained --train train --data test --neighbours 20 --json -q --threads 1 >knn.json
"$BIN/ccstream-eval" linear trained --train train --data test --json -q --threads 1 >linear.json
if [ $epochs -gt 1 ]; then
    grep '"loss"' trained/metrics.jsonl | sed 's/.*"loss":\([^,]*\),.*/\1/' |
        awk '{ v[NR] = $1 } END { n = NR; a = v[1] + v[2] + v[3] + v[4]; b = v[n - 3] + v[n - 2] + v[n - 1] + v[n]
            print "loss of the first and of the last epoch:", a / 4, b / 4
            exit !(b / 4 < a / 4 - 0.1) }' || fail "the loss does not fall"
    for what in knn linear; do
        awk -v a="$(number top1 $what.json)" 'BEGIN { exit !(a > 42) }' || fail "$what: $(cat $what.json)"
    done
fi

"$BIN/ccstream-eval" mean trained --train train --data test --json -q >mean.json
"$BIN/ccstream-eval" mean trained --train train --data test --json -q --shots 1 >few.json
"$BIN/ccstream-eval" mean trained --train train --data test --json -q --shots 1 --seed 1 >other.json
grep -q '"shots":1,"draws":10,"std":{"top1":' few.json || fail "mean of one image a class: $(cat few.json)"
cmp -s few.json other.json && fail "another seed, the same images"
"$BIN/ccstream-eval" mean trained --train train --data test --json -q --shots 1000 --draws 1 >few.json
awk -v a="$(number top1 mean.json)" -v b="$(number top1 few.json)" 'BEGIN { exit !(a - b < 1 && b - a < 1) }' ||
    fail "means of all images differ: $(cat mean.json few.json)"
"$BIN/ccstream-eval" embed trained --data test -q -o embedded
[ -s embedded.images.npy ] || fail "no embeddings"

# The image tower of a model of open_clip.
resnet_options=$options
echo '{"embed_dim":24,"vision_cfg":{"image_size":16,"layers":2,"width":64,"patch_size":4},
    "text_cfg":{"context_length":8,"vocab_size":64,"width":64,"heads":1,"layers":1}}' >vit.json
options="--data few --batch-size 16 --task two-views --model vit.json --embed-dim 32 --hidden-dim 64 --threads 1"
train vit --loss emc2 --micro-batch 12
resumes vit 2
expect 0 "$BIN/ccstream-train" -q --init vit --data train --loss sogclr --batch-size 32 --steps 2 --grad-checkpoint --out after
expect 0 "$BIN/ccstream-eval" embed vit --data test --json -q -o vit-embedded
has out.txt '"embed_dim":32'
has out.txt '"feature_dim":64'
expect 0 "$BIN/ccstream-export" -q vit --format safetensors -o vit-files
has vit-files/config.json '"open_clip":{"embed_dim":24'
expect 69 "$BIN/ccstream-export" -q vit --format open_clip -o no
has err.txt '--format safetensors exports its tower'
expect 64 "$BIN/ccstream-train" -q $options --loss simclr --patch-dropout 0.5 --out no
has err.txt 'patch dropout is for images with captions'
options=$resnet_options

# Contradictory options.
refused() { # refused WORDS COMMAND...
    local words=$1 code=0
    shift
    "$@" >out.txt 2>err.txt || code=$?
    [ $code -eq 64 ] || fail "$*: exit code $code: $(cat err.txt)"
    grep -q -- "$words" err.txt || fail "$*: $(cat err.txt)"
    [ ! -e refused ] || fail "$*: left a directory"
}
train="$BIN/ccstream-train -q"
refused 'needs image-text pairs' $train $options --loss nuclr --out refused
refused 'has no captions; --task two-views trains on images alone' $train --data train --loss simclr --out refused --image-tower tiny --text-tower tiny --batch-size 32
refused '--micro-batch 17 is larger than --batch-size 16' $train $options --loss simclr --micro-batch 17 --out refused
refused 'has no --variant code for two views' $train $options --loss sogclr --variant code --out refused
refused '--val is for images with captions, not for --task two-views; --knn TRAIN:TEST evaluates features' $train $options --loss simclr --val test --out refused
refused '--zeroshot is for images with captions' $train $options --loss simclr --zeroshot test --out refused
refused '--projection-bias off is for images' $train $options --loss simclr --projection-bias off --out refused
refused 'no tower for captions' "$BIN/ccstream-eval" retrieval trained --data test
refused 'need a tokenizer' "$BIN/ccstream-eval" embed trained --data test --texts -o x
"$BIN/ccstream-train" --data train --batch-size 64 $model --loss simclr --micro-batch 16 --dry-run --out planned >plan.txt
grep -q '^total ' plan.txt || fail "no memory plan: $(cat plan.txt)"
for line in " 16           16" " 64           16" "256           16"; do
    grep -q "^ *$line " plan.txt || fail "no line '$line': $(cat plan.txt)"
done

# Exported with the head, whose output is divided by its length.
expect 0 "$BIN/ccstream-export" -q sogclr-whole --format safetensors -o exported
has exported/config.json '"raw_embeddings":false'
