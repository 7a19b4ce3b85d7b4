#!/bin/bash
# Accuracy while training: --knn and --probe have the figures of ccstream-eval, with every task, with several ranks and after
# a kill; --keep-best keeps the checkpoint of the best, --patience ends the run.
. "$SRC/tests/support/cli.sh"

labelled() { # labelled COUNT SEED NAME: NAME with labels; NAME-pairs with captions
    "$TESTBIN/make_scenes" train "$1" "$2" 16 "$3.tar"
    mkdir all
    tar -xf "$3.tar" -C all
    for class in plain striped dotted; do
        mkdir -p "$3-folders/$class"
        mv $(grep -l "$class" all/*.txt | sed 's/txt$/[jp]*g/') "$3-folders/$class/"
    done
    rm -r all
    "$BIN/ccpack" -q -o "$3" "$3-folders"
}
labelled 48 3 train
labelled 24 5 test
"$BIN/ccpack" -q -o pairs train.tar
"$BIN/ccpack" tokenizer -q pairs --vocab-size 100

towers="--image-tower tiny --text-tower tiny --image-size 8 --stem small --embed-dim 16 --batch-size 24 --lr 0.002
    --threads 1 --loader-threads 1"
views="--data train --task two-views --hidden-dim 16 --loss simclr $towers"
figures() { # figures RUN: the numbers of its evaluations by features
    grep -o '^{"step":[0-9]*,"features":{[^}]*}' "$1/metrics.jsonl"
}

# ---- the figures are those of ccstream-eval on the same checkpoint
expect 0 env -u CCSTREAM_REPORT $last "$BIN/ccstream-train" -q $views --epochs 4 --knn train:test --probe --keep-best probe --keep-checkpoints 1 --json --out whole
[ "$(figures whole | wc -l)" = 4 ] || fail "not one evaluation per epoch: $(cat whole/metrics.jsonl)"
newest=$(figures whole | tail -1)
has out.txt "${newest#*,}"
"$BIN/ccstream-eval" knn whole --train train --data test --json -q --threads 1 >knn.json
"$BIN/ccstream-eval" linear whole --train train --data test --json -q --threads 1 >linear.json
for name in nn1 nn10 knn; do
    value=$(sed -n 's/.*"'$name'":{"top1":\([^,]*\),.*/\1/p' knn.json)
    case $newest in *"\"$name\":$value,"*) ;; *) fail "$name of ccstream-eval is $value: $newest" ;; esac
done
case $newest in *"\"probe\":$(field linear.json top1),\"probe_top5\":$(field linear.json top5),"*) ;; *) fail "probe: $(cat linear.json) $newest" ;; esac
has whole/report.html '"title":"Classification by features"'
has whole/report.html '"also":{"epoch":[1,2,3,4],"samples":[48,96,144,192],"training time, s":['

# ---- RUN/best is the first with the highest value, is kept, and is a checkpoint for all programs
best=$(figures whole | sed 's/.*"step":\([0-9]*\),.*"probe":\([^,]*\),.*/\2 \1/' | sort -k1,1gr -k2,2n | head -1 | cut -d' ' -f2)
[ "$(readlink whole/best)" = "checkpoints/step-$best.safetensors" ] || fail "best is $(readlink whole/best), not step $best"
[ -e whole/best ] || fail "retention deleted the best"
"$BIN/ccstream-eval" linear whole/best --train train --data test --json -q --threads 1 >linear.json
has out.txt "\"best\":{\"step\":$best,\"value\":$(field linear.json top1)}"
expect 0 "$BIN/ccstream-export" whole/best -o exported
expect 0 "$BIN/ccdump" state whole/best

# ---- killed between an evaluation and RUN/best, and resumed; with other retention
expect 0 $last "$BIN/ccstream-train" -q $views --epochs 4 --knn train:test --probe --keep-best probe --keep-checkpoints 9 --out all
cmp <(figures whole) <(figures all) || fail "retention changes figures"
interrupted all "$best" killed
sed -i "/^{\"step\":$best,\"stages\"/,\$d" killed/metrics.jsonl
expect 0 $last "$BIN/ccstream-train" -q --resume killed
cmp <(figures whole) <(figures killed) || fail "another history after a kill: $(figures killed)"
[ "$(readlink killed/best)" = "$(readlink whole/best)" ] || fail "best after a kill: $(readlink killed/best)"
cmp whole/last killed/last || fail "another model after a kill"

# ---- patience: a learning rate of 0 has its best at the first evaluation
expect 0 $last "$BIN/ccstream-train" $views --lr 0 --min-lr 0 --epochs 9 --knn train:test --keep-best nn10 --patience 2 --out patient
has err.txt '2 evaluations without a better nn10'
has err.txt 'its best checkpoint is patient/best'
[ "$(figures patient | wc -l)" = 3 ] && [ "$(readlink patient/best)" = checkpoints/step-2.safetensors ] || fail "patience: $(figures patient)"
expect 0 "$BIN/ccstream-report" --follow patient
has err.txt 'patient is finished after 6 steps'
expect 0 $last "$BIN/ccstream-train" -q --resume patient
[ "$(figures patient | wc -l)" = 3 ] || fail "a resumed run forgot the count"
expect 0 $last "$BIN/ccstream-train" -q --resume patient --patience 3
[ "$(figures patient | wc -l)" = 4 ] || fail "more patience: $(figures patient)"
[ -e patient/best ] || fail "retention deleted the best"
expect_message 64 '--keep-best cannot be changed by --resume: RUN/best is the best by this figure' \
    "$BIN/ccstream-train" --resume patient --keep-best knn

# ---- pairs and blocks, of captions too
expect 0 $last "$BIN/ccstream-train" -q --data pairs --val pairs $towers --epochs 1 --knn train:test --zeroshot test --keep-best mean_r1 --out both
[ "$(figures both | wc -l)" = 1 ] && [ -e both/best ] || fail "pairs have no figures"
expect 0 $last "$BIN/ccstream-train" -q --data train --task curl --hidden-dim 16 $towers --batch-size 18 --epochs 1 --knn train:test --out blocks
[ "$(figures blocks | wc -l)" = 1 ] || fail "blocks have no figures"

# ---- two ranks have the figures of one
if command -v mpirun >/dev/null && [ -e "$BIN/libccstream_mpi.so" ]; then
    . "$SRC/tests/support/mpirun.sh"
    two="$views --micro-batch 6 --epochs 2 --knn train:test --probe --keep-best nn1 --patience 1"
    expect 0 $last "$BIN/ccstream-train" -q $two --out one
    expect 0 timeout 600 mpirun --oversubscribe --bind-to none -n 2 $last "$BIN/ccstream-train" -q $two --out two
    cmp <(figures one) <(figures two) || fail "two ranks: $(figures two), one: $(figures one)"
    [ "$(readlink one/best)" = "$(readlink two/best)" ] || fail "two ranks keep another checkpoint"
fi

# ---- what cannot be
refuses() { # refuses CODE PATTERN OPTION...: also by --dry-run
    expect_message "$1" "$2" $last "$BIN/ccstream-train" $views "${@:3}" --out refused
    expect_message "$1" "$2" $last "$BIN/ccstream-train" $views "${@:3}" --out refused --dry-run
    [ ! -e refused ] || fail "a refused run left a folder"
}
refuses 64 'expected TRAIN:TEST, two datasets with labels' --knn train
refuses 64 'expected TRAIN:TEST' --knn :test
refuses 66 'nowhere: no such dataset' --knn train:nowhere
refuses 64 '--probe requires --knn' --probe
refuses 64 '--keep-best mean_r1 requires --val' --keep-best mean_r1
refuses 64 '--keep-best probe requires --probe' --keep-best probe --knn train:test
refuses 64 '--patience requires --keep-best' --patience 2
refuses 64 'and --eval-every' --patience 2 --keep-best nn1 --knn train:test --eval-every 0
expect_message 64 '--knn: pairs has no class names' $last "$BIN/ccstream-train" $views --knn pairs:test --out refused
