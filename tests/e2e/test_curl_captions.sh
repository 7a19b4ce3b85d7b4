#!/bin/bash
# --task blocks --block-of captions: blocks of captions of one class train the text tower alone, an interrupted run ends with the
# same bytes, the mean classifier tells the classes of other captions apart, and what cannot work is refused.
. "$SRC/tests/support/cli.sh"

scenes() { # scenes NAME COUNT SEED: class folders by the pattern of the background, which captions name
    "$TESTBIN/make_scenes" "$1" "$2" "$3" 24 "$1.tar"
    scene_folders "$1.tar" "$1-folders" '$7' '*'
    "$BIN/ccpack" -q -o "$1" --from folders "$1-folders"
}
scenes train 256 3
scenes val 96 4
scene_words words.txt
"$BIN/ccpack" tokenizer -q train --tokenizer words.txt

options="--task blocks --block-of captions --text-tower tiny --text-pool mean --max-tokens 48 --embed-dim 32 --threads 1
    --loader-threads 1 --lr 0.002 --block-size 3 --block-negatives 5 --batch-size 32"
train() { # train NAME OPTION...
    name=$1
    shift
    expect 0 $last "$BIN/ccstream-train" -q --data train $options "$@" --out "$name"
}
train whole --epochs 2 --checkpoint-every 9 --keep-checkpoints 9
resumes whole 9
has whole/config.json '"block-of":"captions"'
"$BIN/ccdump" state whole --json >state.json
has state.json '"visits":{"ids":256,"visited":256,"min":2,"mean":2,"max":2,'

losses() { grep -o '"loss":[^,]*' "$1/metrics.jsonl" | cut -d: -f2; }
losses whole | awk '{ l[NR] = $1 } END { for (i = 1; i <= 8; i++) { first += l[i]; last += l[NR - i + 1] } exit !(last < 0.8 * first) }' ||
    fail "the loss does not fall: $(losses whole)"

# Of the choices between two classes the first weights already make nine of ten rightly (chance: half).
train first --epochs 2 --steps 1 --lr 0 --min-lr 0
mean() { # mean RUN RELATION OPTION...: RELATION of AVG-2
    run=$1
    relation=$2
    shift 2
    "$BIN/ccstream-eval" mean -q "$run" --train train --data val --layer captions --json "$@" >mean.json
    has mean.json '"images":96,"classes":3'
    awk -v avg2="$(grep -o '"avg2":[0-9.]*' mean.json | head -n 1 | cut -d: -f2)" "BEGIN { exit !(avg2 $relation) }" ||
        fail "mean $run: not $relation: $(cat mean.json)"
}
mean first '< 95'
mean whole '> 97'
mean whole '> 97' --shots 5
for other in linear knn; do
    expect 0 "$BIN/ccstream-eval" $other -q whole --train train --data val --layer captions
    grep -qw 96 out.txt
done

# What is drawn, micro-batches and QT change the losses or not, as they should.
train micro --epochs 2 --steps 3 --micro-batch 8
train again --epochs 2 --steps 3
[ "$(losses again)" = "$(losses whole | head -n 3)" ] || fail "the same run has other losses"
paste <(losses micro) <(losses again) | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) bad = 1 } END { exit bad }' ||
    fail "micro-batches change the loss: $(losses micro) $(losses again)"
train paired --epochs 2 --steps 1 --block-pairs
train hinge --epochs 2 --steps 1 --block-loss hinge
[ "$(for run in again paired hinge; do losses $run | head -n 1; done | sort -u | wc -l)" -eq 3 ] || fail "losses are the same"
expect 0 $last "$BIN/ccstream-train" --data train $options --image-tower tiny --dry-run --out none
has err.txt '--image-tower has no effect with --block-of captions'
expect 0 $last "$BIN/ccstream-train" -q --data train --init whole --block-size 3 --batch-size 32 --threads 1 --epochs 1 --steps 1 --out from-init
has from-init/config.json '"block-of":"captions"'

# There is a tower for captions alone.
expect 0 "$BIN/ccstream-export" -q whole --format safetensors -o exported
has exported/config.json '"raw_embeddings":true,"text_tower":"tiny"'
hasnt exported/config.json image_tower
for format in timm transformers open_clip; do
    expect 69 "$BIN/ccstream-export" -q whole --format $format -o other
    has err.txt 'trained on captions alone'
done
for command in "mean --train train" retrieval "embed -o x" "zeroshot"; do
    expect 64 "$BIN/ccstream-eval" ${command%% *} whole --data train $(echo "$command" | cut -s -d' ' -f2-)
    has err.txt 'trained on captions alone and has no tower for images'
done
expect 0 "$BIN/ccdump" why whole train 3 --encode 1000
has out.txt 'the checkpoint has no image tower'
expect 65 $last "$BIN/ccstream-train" -q --data train --init whole --task pairs --image-tower tiny --image-size 16 --batch-size 32 --out pair
has err.txt 'has a different model (towers)'

# What cannot work.
refused() { # refused WORDS OPTION...
    words=$1
    shift
    expect 64 $last "$BIN/ccstream-train" -q $options "$@" --out refused
    has err.txt "$words"
}
"$BIN/ccpack" -q -o pairs train.tar
"$BIN/ccpack" tokenizer -q pairs --tokenizer words.txt
refused 'has no label' --data pairs
rm train-folders/*/*.txt
"$BIN/ccpack" -q -o mute --from folders train-folders
refused 'mute has no captions' --data mute
refused '--batch-size 30 is not a number of captions in blocks of 4' --data train --batch-size 30
refused '--val is for images with captions, not for --task blocks; --knn TRAIN:TEST evaluates features' --data train --val pairs
refused '--pair-noise is for images with captions' --data train --pair-noise 0.5
refused '--init-image: --block-of captions has no image tower' --data train --init-image whole
expect 0 "$BIN/ccstream-train" -q --data pairs --block-of captions --image-tower tiny --image-size 16 --text-tower tiny --batch-size 32 \
    --dry-run --out plain
has err.txt '--block-of has no effect without --task blocks'
