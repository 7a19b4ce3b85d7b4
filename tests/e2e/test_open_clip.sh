#!/bin/bash
# Models of open_clip and Hugging Face as folders: a run goes there and comes back unchanged, is evaluated and trained on
# from there; what does not fit is refused by name.
. "$SRC/tests/support/cli.sh"
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
tensors() { python3 -ES "$SRC/tests/support/tensors.py" "$@"; }
equal() { cmp -s "$1" "$2" || tensors equal "$1" "$2"; } # equal A B: tensor files, also with other metadata

"$TESTBIN/make_scenes" train 96 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
cat >small.json <<'JSON'
{"embed_dim": 24, "quick_gelu": true, "vision_cfg": {"image_size": 32, "patch_size": 8, "layers": 2, "width": 32, "head_width": 16},
 "text_cfg": {"context_length": 20, "vocab_size": 49408, "width": 16, "heads": 1, "layers": 2}}
JSON
sed 's/49408/100/' small.json >own.json # most runs have their own tokenizer: CLIP's takes 0.1 s to open
scene_words words.txt
train() { # train OUT OPTIONS...
    local out=$1
    shift
    $last "$BIN/ccstream-train" --data data --batch-size 32 --epochs 2 --threads 1 --augment none --seed 1 --out "$out" "$@" \
        >/dev/null 2>"$out.log" || fail "$out: $(cat "$out.log")"
}
export_to() { "$BIN/ccstream-export" -q "$1" --format open_clip -o "$2" || fail "$1 is not exported"; }
config_of() { sed 's/"hf_tokenizer_name":"[^"]*",//' "$1/open_clip_config.json"; } # it is the folder's name
same() { # same A B: folders
    equal "$1/open_clip_model.safetensors" "$2/open_clip_model.safetensors" || fail "tensors of $2 are not those of $1"
    cmp <(config_of "$1") <(config_of "$2") || fail "the configuration of $2 is not that of $1"
}

# A run as open_clip's folder, with its names and shapes (those of open_clip, see the list), and its preprocessing.
train run --model small.json --tokenizer clip --loss clip --tau 0.07 --temperature global --lr 1e-3
"$BIN/ccstream-export" run --format open_clip -o there >use.txt 2>/dev/null || fail "run is not exported"
has use.txt "open_clip.create_model_and_transforms('local-dir:there')"
tensors names there/open_clip_model.safetensors >names.txt
diff "$SRC/tests/golden/export/open_clip_native.txt" names.txt || fail "other names or shapes than open_clip's"
has there/open_clip_config.json '"quick_gelu":true'
has there/open_clip_config.json '"interpolation":"bicubic","resize_mode":"shortest"'

# From there it goes on unchanged: by folder, under Hugging Face's names, and with an own tokenizer by file and in f16.
export_to there again
same there again
tensors hugging-face there hf
export_to hf from-hf
same there from-hf
train base --model own.json --tokenizer words.txt --loss clip --tau 0.07 --temperature global --lr 1e-3
export_to base own
export_to own/open_clip_model.safetensors by-file
same own by-file
"$BIN/ccstream-export" -q base --format safetensors -o plain || fail "base is not exported as safetensors"
export_to plain from-plain
same own from-plain
mkdir half && cp own/open_clip_config.json own/vocab.txt half/
tensors edit own/open_clip_model.safetensors half/model.safetensors --f16
export_to half from-half
train kept --init own --loss clip --lr 0 --min-lr 0 --val data
has kept.log 'taken both towers, both projections, the temperature'
export_to kept kept-there
tensors edit own/open_clip_model.safetensors a --drop logit_scale
tensors edit kept-there/open_clip_model.safetensors b --drop logit_scale
equal a b || fail "--init and --lr 0 change the model"

# Evaluation is the same from everywhere, and is that of training.
numbers() { "$BIN/ccstream-eval" "$@" --data data --json | sed 's/"\(checkpoint\|model\|step\)":[^,}]*,*//g'; }
numbers retrieval run >retrieval.json
for other in there hf; do
    numbers retrieval $other >other.json
    cmp retrieval.json other.json || fail "$other: $(cat other.json)"
done
numbers retrieval own >retrieval.json
grep '"retrieval"' kept/metrics.jsonl >val.json
has val.json '"mean_r10":'
[ "$(field val.json mean_r10)" = "$(field retrieval.json mean_r10)" ] || fail "training evaluates otherwise: $(cat retrieval.json val.json)"
"$BIN/ccstream-eval" embed own --data data --out embedded >/dev/null 2>&1 || fail "no embeddings"

# The modes of resizing: of a folder, of a run from it, and exported again.
for mode in longest squash; do
    rm -rf mode && cp -r own mode
    sed "s/shortest/$mode/" own/open_clip_config.json >mode/open_clip_config.json
    export_to mode mode-1
    train mode-run-$mode --init mode --loss clip --lr 0 --min-lr 0 --steps 1
    export_to mode-run-$mode mode-2
    for other in mode-1 mode-2; do has $other/open_clip_config.json "\"resize_mode\":\"$mode\""; done
done
$last "$BIN/ccstream-train" -q --resume mode-run-longest --steps 2 || fail "no resume with --resize-mode"

# The same of a file for --model: its preprocess_cfg counts unless an option is given, and is refused alike.
config_of own | sed 's/"mean":[^]]*],"std":[^]]*]/"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5]/; s/shortest/longest/' >images.json
train from-file --model images.json --tokenizer words.txt --loss clip --steps 1
export_to from-file from-file-there
has from-file-there/open_clip_config.json '"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"interpolation":"bicubic","resize_mode":"longest"'
train given --model images.json --tokenizer words.txt --loss clip --steps 1 --resize-mode squash --image-norm imagenet
export_to given given-there
has given-there/open_clip_config.json '"mean":[0.485'
has given-there/open_clip_config.json '"resize_mode":"squash"'
sed 's/bicubic/bilinear/' images.json >bad.json
expect_message 69 'bad.json: preprocess_cfg.interpolation is bilinear' "$BIN/ccstream-train" --data data --out no --model bad.json
sed 's/"embed_dim": 24/"embed_dim": 24.5/' own.json >bad.json # a count that would be cut off
expect_message 69 'embed_dim is 24.5; expected an integer, 1 to 65536' "$BIN/ccstream-train" --data data --out no --model bad.json

# Another image size, of a folder and of a run; the run resumes.
train larger --init own --image-size 48 --loss clip --steps 2
has larger.log 'position embeddings for images of 32 px interpolated to 48 px'
"$BIN/ccstream-train" -q --resume larger 2>/dev/null || fail "larger does not resume"
export_to larger larger-there
has larger-there/open_clip_config.json '"image_size":48'
tensors names larger-there/open_clip_model.safetensors >names.txt
has names.txt 'visual.positional_embedding [37,32]'
train smaller --init larger --image-size 32 --loss clip --steps 1
has smaller.log 'position embeddings for images of 48 px interpolated to 32 px'

# siglip's bias goes along; a tokenizer of another kind is named.
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null
train biased --model own.json --tokenizer data/tokenizer.model --loss siglip --steps 2
export_to biased own-there 2>own.txt
has own-there/open_clip_config.json '"init_logit_bias":-'
has own-there/open_clip_config.json '"pool_type":"eos","eos_id":3'
has own-there/open_clip_config.json '"hf_tokenizer_name":"own-there"'
export_to own-there own-again 2>own.txt
equal own-there/open_clip_model.safetensors own-again/open_clip_model.safetensors
train sig --init own-there --loss siglip --steps 1
has sig.log 'the bias of siglip'
has sig/config.json '"bias0":-'

# SigLIP's: a tokenizer without a begin piece, all rows of a text, the MAP pool, a bias.
cat >siglip.json <<'JSON'
{"embed_dim": 32, "custom_text": true, "init_logit_bias": -10,
 "vision_cfg": {"image_size": 32, "patch_size": 8, "layers": 2, "width": 32, "head_width": 16, "timm_pool": "map", "timm_proj": "none"},
 "text_cfg": {"context_length": 16, "vocab_size": 100, "width": 16, "heads": 1, "layers": 2, "no_causal_mask": true, "proj_bias": true,
  "pool_type": "last", "norm_kwargs": {"eps": 1e-6}, "hf_tokenizer_name": "timm/ViT-B-16-SigLIP", "tokenizer_kwargs": {"clean": "canonicalize"}}}
JSON
python3 - <<'PYTHON'
model = open("data/tokenizer.model", "rb").read()
at = model.rindex(b"[CLS]")
open("siglip.model", "wb").write(model[:at] + b"[XXX]" + model[at + 5:])
PYTHON
train siglip --model siglip.json --tokenizer siglip.model --loss siglip --lr 3e-3 --epochs 20 --steps 30 --image-norm inception
sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' siglip/metrics.jsonl | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < 0.7 * first) }' ||
    fail "siglip does not learn"
train siglip-micro --model siglip.json --tokenizer siglip.model --loss siglip --lr 3e-3 --epochs 20 --steps 3 --micro-batch 8 --image-norm inception
for run in siglip siglip-micro; do sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' $run/metrics.jsonl | head -n 3 >$run.txt; done
paste siglip.txt siglip-micro.txt | awk '{ d = $1 - $2 } d > 1e-4 || d < -1e-4 { exit 1 }' || fail "micro-batches: $(cat siglip.txt siglip-micro.txt)"
"$BIN/ccstream-export" siglip --format open_clip -o siglip-there >use.txt 2>siglip.log
has siglip.log "encode(text)[:15] + [eos_id] of texts that"
has siglip.log 'ccstream reads this folder, open_clip does not: timm has no SigLIP image tower'
lines use.txt 0 # no advice to load it there
has siglip-there/open_clip_config.json '"no_causal_mask":true'
has siglip-there/open_clip_config.json '"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"interpolation":"bicubic","resize_mode":"squash"'
has siglip-there/open_clip_config.json '"hf_tokenizer_name":"timm/ViT-B-16-SigLIP"'
tensors names siglip-there/open_clip_model.safetensors >names.txt
for name in 'visual.trunk.pos_embed [1,16,32]' 'visual.trunk.attn_pool.kv.weight [64,32]' 'text.text_projection.bias [32]' 'logit_bias []'; do
    has names.txt "$name"
done
numbers retrieval siglip >retrieval.json
numbers retrieval siglip-there >other.json
cmp retrieval.json other.json || fail "siglip: $(cat other.json)"
cp other.json siglip-there.json
# A SiglipModel of Hugging Face, with the tanh GELU in its text tower alone, which is its default in both.
sed 's/"mlp_ratio":4,"hf_tok/"mlp_ratio":4,"act_kwargs":{"approximate":"tanh"},"hf_tok/' siglip-there/open_clip_config.json >tanh.json
cp -r siglip-there siglip-tanh && cp tanh.json siglip-tanh/open_clip_config.json
for model in siglip-there siglip-tanh; do
    tensors hugging-face $model hf-$model && cp siglip-there/tokenizer.model hf-$model/
    export_to $model $model-1 2>/dev/null
    export_to hf-$model $model-2 2>/dev/null
    same $model-1 $model-2
    [ -e $model.json ] || numbers retrieval $model >$model.json
    numbers retrieval hf-$model >two.json
    cmp $model.json two.json || fail "hf-$model: $(cat two.json)"
done
equal siglip-there/open_clip_model.safetensors siglip-there-1/open_clip_model.safetensors # the bias is f32 there
has siglip-tanh-2/open_clip_config.json '"act_kwargs":{"approximate":"tanh"}'
has siglip-tanh-2/open_clip_config.json '"mean":[0.5,0.5,0.5]'
rm hf-siglip-tanh/tokenizer.model # a model without a tokenizer is one, and needs it to encode captions
export_to hf-siglip-tanh without 2>/dev/null
equal siglip-tanh-1/open_clip_model.safetensors without/open_clip_model.safetensors
expect_message 64 'the model has none' "$BIN/ccstream-eval" retrieval hf-siglip-tanh --data data
hugging() { # hugging CODE PATTERN SED: hf-siglip-there, with another configuration
    rm -rf bad && cp -r hf-siglip-there bad
    sed "$3" hf-siglip-there/config.json >bad/config.json
    expect_message "$1" "$2" "$BIN/ccstream-eval" retrieval bad --data data
}
hugging 69 'hidden_act of a tower is relu; only gelu' 's/"hidden_act": "gelu"/"hidden_act": "relu"/'
hugging 69 "vision_config.layer_norm_eps is not this model's 1e-06" 's/"hidden_act"/"layer_norm_eps": 1e-5, "hidden_act"/'
hugging 69 'vision_config.image_size is not a number from 1' 's/"image_size": 32/"image_size": [32, 48]/'
hugging 69 'embed_dim is 16, its image tower has 32' 's/"projection_size": 32/"projection_size": 16/'
tensors edit hf-siglip-there/model.safetensors bad/model.safetensors --shape vision_model.head.attention.in_proj_weight=32,96
cp hf-siglip-there/config.json bad/
expect_message 65 'in_proj_weight is (32, 96), the model has (96, 32)' "$BIN/ccstream-eval" retrieval bad --data data
"$BIN/ccpack" tokenizer data --overwrite --tokenizer siglip.model >/dev/null # its tokens are stored
"$BIN/ccstream-eval" retrieval siglip-there --data data --json >/dev/null || fail "no evaluation with stored tokens"
expect_message 64 "vocab_size is 32000, and CLIP's tokenizer has 49408 tokens; give the model's own" \
    "$BIN/ccstream-train" --data data --out no --model ViT-B-16-SigLIP --loss siglip
"$BIN/ccstream-train" --data data --out no --model ViT-B-16-SigLIP --loss siglip --tokenizer siglip.model --dry-run >plan.txt 2>&1 || fail "$(cat plan.txt)"
sed 's/"pool_type": "last", //' siglip.json >bad.json
expect_message 69 'text_cfg.pool_type is missing' "$BIN/ccstream-train" --data data --out no --model bad.json --tokenizer siglip.model
sed 's/"timm_proj"/"timm_model_name": "vit_so400m_patch14_siglip_384", "timm_proj"/' siglip.json >bad.json
expect_message 69 'timm_model_name is "*vit_so400m' "$BIN/ccstream-train" --data data --out no --model bad.json --tokenizer siglip.model

# A locked residual network: nothing of it changes, nor its statistics, but the projection if that is free.
sed 's/"patch_size": 8, "layers": 2, "width": 32, "head_width": 16/"layers": [1, 1, 1, 1], "width": 8/' own.json >resnet.json
for groups in 0 1; do
    train rn-$groups --model resnet.json --tokenizer words.txt --loss clip --lr 1e-3 --steps 3 --lock-image $groups --checkpoint-every 1 \
        --keep-checkpoints 3
    for step in 1 3; do export_to rn-$groups/checkpoints/step-$step.safetensors rn-$groups-$step-there; done
    python3 - $groups <<'PYTHON' || fail "--lock-image $groups of a residual network"
import json, struct, sys
def load(folder):
    with open(folder + "/open_clip_model.safetensors", "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    return {k: data[slice(*v["data_offsets"])] for k, v in header.items() if k != "__metadata__"}
one, three = (load(f"rn-{sys.argv[1]}-{n}-there") for n in (1, 3))
changed = {k for k in one if one[k] != three[k]}
free = {k for k in changed if k.startswith("visual.")}
assert "text_projection" in changed and "visual.bn1.running_mean" in one
assert free == ({"visual.attnpool.c_proj.weight", "visual.attnpool.c_proj.bias"} if sys.argv[1] == "1" else set()), free
PYTHON
done

# What does not fit.
refused() { # refused CODE PATTERN EDIT...: own, edited
    local code=$1 pattern=$2
    shift 2
    rm -rf bad && mkdir bad && cp own/open_clip_config.json own/vocab.txt bad/
    tensors edit own/open_clip_model.safetensors bad/open_clip_model.safetensors "$@"
    expect_message "$code" "$pattern" "$BIN/ccstream-eval" retrieval bad --data data
}
refused 65 'visual.ln_pre.bias is missing, of shape (32)' --drop visual.ln_pre.bias
refused 65 'visual.extra (3, 2) is not a tensor of the model' --add visual.extra=3,2
refused 65 'visual.proj is (24, 32), the model has (32, 24)' --shape visual.proj=24,32
refused 65 'element 0 of ln_final.weight is nan; weights must be finite' --nan ln_final.weight
refused 65 'logit_scale is nan' --nan logit_scale
refused 65 'logit_scale is missing' --drop logit_scale
refused 65 'positional_embedding is (10, 32)' --shape text_projection=16,24 --drop positional_embedding --add positional_embedding=10,32
rm bad/*.safetensors && expect_message 66 'holds none of open_clip_model.safetensors' "$BIN/ccstream-eval" retrieval bad --data data
head -c 1000 own/open_clip_model.safetensors >bad/open_clip_model.safetensors
expect 65 "$BIN/ccstream-eval" retrieval bad --data data
config() { # config CODE PATTERN SED: own, with another configuration
    rm -rf bad && cp -r own bad
    sed "$3" own/open_clip_config.json >bad/open_clip_config.json
    expect_message "$1" "$2" "$BIN/ccstream-train" --data data --init bad --batch-size 32 --out no
}
config 69 'mean and std are none of those' 's/0\.4814/0.9/'
config 69 'resize_mode is widest, not known here' 's/"shortest"/"widest"/'
config 69 'interpolation is nearest, not known here' 's/"bicubic"/"nearest"/'
config 69 'fill_color is 128; only 0' 's/"shortest"/"longest","fill_color":128/'
config 69 'fill_color is .0,0,9.; only 0' 's/"shortest"/"longest","fill_color":[0,0,9]/'
config 69 'image_size is .32,48.; expected an integer' 's/"image_size":32/"image_size":[32,48]/'
for form in own 's/\("image_size"\|"patch_size"\):\([0-9]*\)/\1:[\2,\2]/g; s/"shortest"/"longest","fill_color":[0,0,0]/' \
    hf 's/\("image_size"\|"patch_size"\): \([0-9]*\)/\1: [\2, \2]/g'; do # two equal numbers are one
    case "$form" in own | hf) pair=$form && continue ;; esac
    rm -rf pair pair-1 && cp -r $pair pair
    sed -i "$form" pair/*config.json
    grep -qE '"image_size": ?\[32, ?32\]' pair/*config.json || fail "$pair: $(cat pair/*config.json)"
    export_to pair pair-1
    equal ${pair/hf/there}/open_clip_model.safetensors pair-1/open_clip_model.safetensors
    has pair-1/open_clip_config.json '"image_size":32,'
done
config 69 'vision_cfg.timm_model_name is' 's/"patch_size"/"timm_model_name":"convnext","patch_size"/'
config 65 'visual.conv1.weight is' 's/"patch_size":8/"patch_size":4/'
config 65 'no model_cfg' 's/model_cfg/other/'
config 65 'open_clip_config.json' 's/}$//'
sed -i 's/"clip"/"blip"/' hf/config.json
expect_message 69 'model_type is blip; of transformers. models only clip' "$BIN/ccstream-eval" retrieval hf --data data
expect_message 69 'without the state of a run' "$BIN/ccdump" state own
expect_message 64 'without per-sample state' "$BIN/ccstream-train" --data data --init own --init-state --loss clip --batch-size 32 --out no
expect_message 66 'a model of open_clip or Hugging Face, not a dataset' "$BIN/ccstream-train" --data own --out no
