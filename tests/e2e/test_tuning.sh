#!/bin/bash
# Which weights train and how fast: --lock-image, --lock-text, --image-lr, --text-lr, --layer-decay, and the average of --ema; with
# micro-batches, ranks and --resume. Ten steps against PyTorch: tests/golden/towers/recipes.txt.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 48 3 16 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null
cat >model.json <<'EOF'
{"embed_dim": 16, "vision_cfg": {"image_size": 16, "patch_size": 8, "layers": 2, "width": 32, "head_width": 16},
 "text_cfg": {"context_length": 16, "vocab_size": 100, "width": 32, "heads": 2, "layers": 2}}
EOF
common="--data data --tokenizer data/tokenizer.model --batch-size 16 --epochs 1 --threads 1 --loader-threads 1 --lr 3e-3 --loss clip
    --temperature global --tau 0.07 --keep-checkpoints 9"
clip="--model model.json --augment none"
resnet="--image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 12 --augment none"

train() { # train OUT OPTIONS...
    local out=$1
    shift
    $last "$BIN/ccstream-train" -q $common --out "$out" "$@" 2>"$out.err" || fail "$out: $(cat "$out.err")"
}
# RUN.moved: the names of tensors that differ between steps 1 and 3, and of all moments.
cat >moved.py <<'EOF'
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    body = data[8 + size:]
    return {n: body[slice(*t["data_offsets"])] for n, t in header.items() if n != "__metadata__"}
for run in sys.argv[1:]:
    a, b = (read(f"{run}/checkpoints/step-{n}.safetensors") for n in (1, 3))
    names = sorted(n for n in a if not n.startswith(("state.", "tokenizer", "ema.", "ccstream."))
                   and (n.startswith(("adamw.", "sgdm.")) or a[n] != b[n]))
    print(*names, sep="\n", file=open(run + ".moved", "w"))
EOF
only() { # only RUN PATTERN WHAT: all its moved tensors match
    grep -vE "$2" "$1.moved" >others.txt && fail "$3: $(cat others.txt)"
    return 0
}

# Locked groups keep their bytes and have no moments; all others move.
train free $clip --checkpoint-every 1
train locked $clip --checkpoint-every 1 --lock-image 0 --lock-text 2
train frozen $resnet --checkpoint-every 1 --lock-image 1
train texts $resnet --checkpoint-every 1 --lock-text 1 --optimizer sgdm
python3 moved.py free locked frozen texts
has free.moved visual.class_embedding
has free.moved token_embedding.weight
only locked '^(adamw.[mv].)?(text_projection|ln_final|transformer.resblocks.1)' "locked weights moved"
has locked.moved adamw.v.transformer.resblocks.1.ln_1.weight
has locked.moved transformer.resblocks.1.ln_1.bias
only frozen '^(adamw.[mv].)?(text|image_proj)' "a frozen resnet, or its statistics, moved"
has frozen.moved image_proj.weight
only texts '^(sgdm.m.)?(image|text_proj)' "a frozen text tower moved"
expect_message 64 "frozen completely" "$BIN/ccstream-train" $common $resnet --out no --lock-image 2
expect_message 64 "4 groups, so that nothing" "$BIN/ccstream-train" $common $clip --out no --lock-image 4
expect_message 64 "nothing to train" "$BIN/ccstream-train" $common $clip --out no --lock-image 0 --lock-text 0
expect_message 64 "not for --task two-views" "$BIN/ccstream-train" --data data --out no --task two-views --loss simclr --lock-image 0

# Rates: those of --lr change nothing; others do.
train same $clip --image-lr 3e-3 --text-lr 3e-3
cmp free/last same/last || fail "a tower's rate that is --lr's changes the run"
train rates $clip --image-lr 1e-4 --layer-decay 0.5
cmp -s free/last rates/last && fail "rates have no effect"
expect_message 64 "adamw or adam" "$BIN/ccstream-train" $common $clip --out no --layer-decay 0.5 --optimizer sgdm

# The average: read by --ema alone, and part of a run that is resumed, in parts or by ranks.
all="--ema 0.9 --lock-text 3 --image-lr 1e-3 --layer-decay 0.7 --micro-batch 4"
train whole $clip $all
train half $clip $all --steps 2
"$BIN/ccstream-train" -q --resume half || fail "half does not resume"
cmp whole/last half/last || fail "a resumed run ends in other bytes"
"$BIN/ccstream-export" -q whole --format safetensors -o values
"$BIN/ccstream-export" -q whole --ema --format safetensors -o averages
cat >check.py <<'EOF'
import sys
sys.argv[1:] = []
text = open("moved.py").read().split("for run")[0]
exec(text)
run, values, averages = (read(p) for p in ("whole/last", "values/model.safetensors", "averages/model.safetensors"))
names = [n for n in run if n.startswith("ema.")]
assert len(names) == len([n for n in values if not n.startswith("logit")]), names
for n in names:
    assert averages[n[4:]] == run[n] and values[n[4:]] == run[n[4:]], n
assert any(run[n] != run[n[4:]] for n in names)
EOF
python3 check.py || fail "ccstream-export --ema"
"$BIN/ccstream-eval" embed whole --data data --out values.npy -q || fail "no embeddings"
"$BIN/ccstream-eval" embed whole --ema --data data --out averages.npy -q || fail "no embeddings of the average"
cmp -s values.npy averages.npy && fail "ccstream-eval --ema has no effect"
expect_message 64 "trained without --ema" "$BIN/ccstream-eval" retrieval free --ema --data data
expect_message 64 "trained without --ema" "$BIN/ccstream-export" free --ema -o no

# Activations that are computed again have the same bits, with dropout too, and take less memory.
train again $clip $all --grad-checkpoint
cmp whole/last again/last || fail "--grad-checkpoint ends in other bytes"
train kept $resnet --dropout 0.1
train remade $resnet --dropout 0.1 --grad-checkpoint
cmp kept/last remade/last || fail "--grad-checkpoint ends in other bytes with dropout"
activations() { "$BIN/ccstream-train" $common $clip --dry-run "$@" | awk '$1 == "activations" && NF == 3 { print $2 * ($3 == "MiB" ? 1024 : 1) }'; }
awk -v a="$(activations)" -v b="$(activations --grad-checkpoint)" 'BEGIN { exit !(b < 0.6 * a) }' ||
    fail "activations: $(activations), and with --grad-checkpoint $(activations --grad-checkpoint)"
expect_message 64 "has none" "$BIN/ccstream-train" --data data --out no --task two-views --loss simclr --grad-checkpoint

. "$SRC/tests/support/mpirun.sh"
timeout 300 mpirun --oversubscribe --bind-to none -n 2 "$BIN/ccstream-train" -q $common $clip $all --out ranks </dev/null || fail "2 ranks"
cmp whole/last ranks/last || fail "2 ranks end in other bytes than one"
