#!/bin/bash
# --model: models of open_clip, by name and by file, train, resume, seed other runs and are evaluated.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 96 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
cp -r data bare
scene_words words.txt
"$BIN/ccpack" tokenizer -q data --tokenizer words.txt

model() { # model VISION TEXT TOP: a small one, with more fields
    printf '{"embed_dim": 24, %s"vision_cfg": {"image_size": 32, "patch_size": 8, "layers": 2, "width": 32, "head_width": 16%s},
        "text_cfg": {"context_length": 20, "vocab_size": 100, "width": 48, "heads": 3, "layers": 2%s}}' "$3" "$1" "$2"
}
model "" "" "" >small.json
own="--tokenizer words.txt"

train() { # train OUT OPTIONS...
    local out=$1
    shift
    $last "$BIN/ccstream-train" --data data $own --batch-size 32 --epochs 10 --threads 1 --lr 3e-3 --loss clip --tau 0.1 --augment none \
        --seed 1 --out "$out" "$@" 2>"$out.log" || fail "$(cat "$out.log")"
}
losses() { grep '"event":"step"\|"loss":' "$1/metrics.jsonl" | sed -n 's/.*"loss":\([0-9.]*\).*/\1/p'; }

train whole --model small.json
losses whole | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < 0.8 * first) }' || fail "it does not learn: $(losses whole)"
grep -q 'image tower + text transformer of open_clip' whole.log || fail "$(cat whole.log)"
"$BIN/ccstream-eval" retrieval whole --data data --json >retrieval.json || fail "no evaluation"

# The checkpoint has open_clip's names, shapes and, beside them, the model.
"$BIN/ccstream-export" -q whole --format safetensors -o out
strings -n 4 out/model.safetensors | head -c 20000 >header.txt
for name in visual.class_embedding visual.conv1.weight visual.proj visual.ln_pre.bias text_projection token_embedding.weight \
    visual.transformer.resblocks.1.attn.in_proj_weight transformer.resblocks.1.mlp.c_proj.bias ln_final.weight positional_embedding; do
    has header.txt "\"$name\""
done
has header.txt '"visual.proj":{"dtype":"F32","shape":[32,24]'
has header.txt '"visual.conv1.weight":{"dtype":"F32","shape":[32,3,8,8]'
has out/open_clip_config.json '"model_cfg":{"embed_dim":24'
for format in timm transformers; do
    expect_message 69 "a model of open_clip.s (--model)" "$BIN/ccstream-export" whole --format $format -o "$format"
done

# A resumed run ends in the same bytes, without the file; micro-batches change the sums alone.
train half --model small.json --steps 9
mv small.json moved.json
$last "$BIN/ccstream-train" -q --resume half || fail "half does not resume"
cmp whole/last half/last || fail "a resumed run ends in other bytes"
train micro --model moved.json --micro-batch 8 --steps 3
train padded --model moved.json --captions padded --steps 3
for run in micro padded; do
    paste <(losses whole | head -n 3) <(losses $run) | awk '{ d = $1 - $2 } d > 1e-4 || d < -1e-4 { exit 1 }' ||
        fail "$run: losses $(losses $run), not $(losses whole | head -n 3)"
done
expect_message 64 "--image-tower is not for --model" "$BIN/ccstream-train" --data data $own --out no --model moved.json --image-tower resnet18
expect_message 64 "context_length 20" "$BIN/ccstream-train" --data data $own --out no --model moved.json --max-tokens 30

# Patch dropout: by the file and by option alike, other patches in every step, the same in micro-batches and after a resume.
losses_of() { losses "$1" | head -n 3; }
model ', "patch_dropout": 0.5' "" "" >drop.json
train drop --model drop.json --steps 3
train drop-option --model moved.json --patch-dropout 0.5 --steps 2
$last "$BIN/ccstream-train" -q --resume drop-option --steps 3 || fail "drop-option does not resume"
cmp drop/last drop-option/last || fail "--patch-dropout is not patch_dropout, or a resumed run with it ends in other bytes"
has drop/last '\"patch_dropout\":0.5'
cmp -s <(losses_of drop) <(losses_of whole) && fail "no patches are dropped"
train drop-micro --model drop.json --micro-batch 8 --steps 3
paste <(losses_of drop) <(losses_of drop-micro) | awk '{ d = $1 - $2 } d > 1e-4 || d < -1e-4 { exit 1 }' || fail "other patches in micro-batches"
expect_message 64 "for CLIP.s vision transformers" "$BIN/ccstream-train" --data data --out no --model RN50 --patch-dropout 0.5
expect_message 64 "--patch-dropout is for --model" "$BIN/ccstream-train" --data data --out no --patch-dropout 0.5

# Names, and what cannot be expressed.
for name in ViT-S-16 ViT-B-32-quickgelu RN50; do
    "$BIN/ccstream-train" --data data --out no --model $name --dry-run >plan.txt 2>&1 || fail "$name: $(cat plan.txt)"
done
expect_message 64 "neither a file nor one of ViT-S-32" "$BIN/ccstream-train" --data data --out no --model ViT-B-8
expect_message 64 "whole patches" "$BIN/ccstream-train" --data data --out no --model ViT-B-32 --image-size 40
refused() { # refused PATTERN VISION TEXT TOP
    model "$2" "$3" "$4" >bad.json
    expect_message 69 "bad.json: .*$1" "$BIN/ccstream-train" --data data $own --out no --model bad.json
}
refused 'vision_cfg.ls_init_value is 0.5; only null' ', "ls_init_value": 0.5' "" ""
refused 'text_cfg.pool_type is "last"; only "argmax" or "eos"' "" ', "pool_type": "last"' ""
refused 'init_logit_bias is -10; only null' "" "" '"init_logit_bias": -10, '
refused 'text_cfg.act_kwargs is {"approximate":"cubic"}; only null or {"approximate":"tanh"}' "" ', "act_kwargs": {"approximate": "cubic"}' ""
refused 'vision_cfg.act_kwargs is {"approximate":"tanh"}; only null can' ', "act_kwargs": {"approximate": "tanh"}' "" '"quick_gelu": true, '
refused 'text_cfg.act_layer is "swish"; this field is not known' "" ', "act_layer": "swish"' ""
refused 'vision_cfg.colour is 1; this field is not known' ', "colour": 1' "" ""
model "" "" "" | sed 's/"layers": 2, "width": 32/"layers": [1,1,1,1], "width": 32/' >bad.json
expect_message 64 'size 40 px is not a multiple of 32' "$BIN/ccstream-train" --data data $own --out no --model bad.json --image-size 40
model ', "ls_init_value": null, "patch_dropout": 0.0, "pool_type": "tok"' ', "eos_id": 2' '"quick_gelu": true, ' >plain.json
"$BIN/ccstream-train" --data data $own --out no --model plain.json --dry-run >plan.txt 2>&1 || fail "$(cat plan.txt)"
echo '{"embed_dim": ' >bad.json
expect_message 65 "bad.json" "$BIN/ccstream-train" --data data $own --out no --model bad.json

# Without --tokenizer the captions are CLIP's tokens, whatever the dataset has: here nothing.
model "" "" "" | sed 's/"vocab_size": 100, //; s/"context_length": 20, //; s/"width": 48, "heads": 3/"width": 16, "heads": 1/' >clip.json
expect_message 64 "text_cfg.vocab_size is 100" "$BIN/ccstream-train" --data bare --out no --model moved.json
for data in bare data; do
    "$BIN/ccstream-train" -q --data $data --val bare --batch-size 32 --threads 1 --loss clip --tau 0.1 --steps 2 --out clip-$data --model clip.json ||
        fail "no CLIP tokens for $data"
    $last "$BIN/ccstream-train" -q --resume clip-$data --steps 3 || fail "$data: no resume"
    "$BIN/ccstream-eval" retrieval clip-$data --data $data --json >$data.json || fail "$data: no evaluation"
done
cmp bare.json data.json || fail "the dataset's tokenizer was used"
has clip-bare/last '"model.vocab":"49408"'
"$BIN/ccstream-train" -q --init clip-bare --data bare --batch-size 32 --steps 1 --out clip-again || fail "no CLIP tokens from --init"

# Crops: open_clip's by default. All of a square image is the image, which is never mirrored; 0.9:1 is the default.
crops() { # crops OUT OPTIONS...
    local out=crop-$1
    shift
    "$BIN/ccstream-train" -q --data data $own --model moved.json --batch-size 32 --threads 1 --loss clip --tau 0.1 --steps 2 --out "$out" "$@" || fail "$*"
    losses "$out" >"$out.txt"
}
crops none --augment none
crops whole --crop-scale 1:1
crops auto
crops clip --augment clip --crop-scale 0.9:1
cmp crop-none.txt crop-whole.txt || fail "a crop of all of an image is not the image"
cmp crop-auto.txt crop-clip.txt || fail "--model does not crop as open_clip"
cmp -s crop-none.txt crop-auto.txt && fail "--model does not crop"
"$BIN/ccstream-train" -q --init crop-whole --data data --batch-size 32 --steps 1 --out crop-next || fail "no --init"
has crop-next/config.json '"crop-scale":"1:1"'
has crop-next/config.json '"model":"{\"embed_dim\":24'
expect_message 64 "MIN <= MAX" "$BIN/ccstream-train" --data data $own --out no --model moved.json --crop-scale 0.9:0.5
expect_message 64 "uses whole images" "$BIN/ccstream-train" --data data $own --out no --model moved.json --augment none --crop-scale 0.9:1
