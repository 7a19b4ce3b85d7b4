# ccbench step: its keys, its towers, steps fed by the loader, and refusals.
# not under sanitizers: it computes; the kernels and losses have unit tests
set -eu
. "$SRC/tests/support/cli.sh"
step() { # step OPTION...
    expect 0 "$BIN/ccbench" step --image-tower tiny --text-tower tiny --stem small --image-size 16 --batch-size 4 \
        --tokens 8 --vocab "${vocab:-50}" --steps 1 --threads 1 "$@"
}
step --json --micro-batch 3
lines out.txt 1
for key in pairs_per_s gflops step_ms conv_only_pairs_per_s conv_only_ratio ops caption_tokens micro_batch \
    matmul_gflops copy_gb_per_s planned_bytes loss_value gb_per_s of_matmul of_copy state cuda_graph; do
    has out.txt "\"$key\":"
done
hasnt out.txt '"fed_ratio":' # nothing was fed
for op in conv_bn conv_bn_bwd linear linear_bwd attention_bwd embedding_bwd l2_normalize adamw matmul; do
    has out.txt "{\"name\":\"$op\",\"calls\":"
done
step --tower image --machine off
hasnt out.txt matmul_gflops
hasnt out.txt conv_only
hasnt out.txt attention # an image tower has none
step --tower text --padding longest --full --machine off
grep -q "^tower: *text" out.txt
hasnt out.txt conv # a text tower has none

# a model of open_clip
model='{"embed_dim":8,"vision_cfg":{"layers":1,"width":32,"head_width":16,"patch_size":8},"text_cfg":{"width":32,"heads":2,"layers":1}}'
for tower in both image text; do
    expect 0 "$BIN/ccbench" step --model "$model" --tower $tower --image-size 16 --batch-size 4 --tokens 8 --vocab 50 --steps 1 \
        --threads 1 --machine off --json
    has out.txt '"name":"attention_bwd"'
    hasnt out.txt '"name":"conv_bn"'
done
expect_message 64 "neither a file nor" "$BIN/ccbench" step --model ViT-X --batch-size 4

# fed by the loader
"$TESTBIN/make_scenes" train 64 3 32 d.tar
expect 0 "$BIN/ccpack" -q -o d d.tar
expect 66 "$BIN/ccbench" step --data nowhere
expect 64 "$BIN/ccbench" step --image-size 16 --batch-size 4 --data d
has err.txt "ccpack tokenizer d"
expect 0 "$BIN/ccpack" tokenizer d --vocab-size 300
vocab=1000
step --json --data d --loss nuclr --machine off
hasnt out.txt matmul_gflops
for key in fed_ratio held_pairs_per_s stall_fraction; do
    has out.txt "\"$key\":"
done
has out.txt '"loss":"nuclr"'
expect 64 "$BIN/ccbench" step --data d --vocab 2 --batch-size 4
has err.txt "give --vocab"
expect 64 "$BIN/ccbench" step --tower image --data d
expect 64 "$BIN/ccbench" step --loss nothing --text-tower tiny --image-tower tiny --batch-size 2
expect 64 "$BIN/ccbench" step --image-tower resnet51
expect 69 "$BIN/ccbench" step --device none
expect 64 "$BIN/ccbench" step --state-memory pinned --text-tower tiny --image-tower tiny --batch-size 2
has err.txt "--state-memory"
expect 64 "$BIN/ccbench" step --tower text --micro-batch 2
