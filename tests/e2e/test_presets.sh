#!/bin/bash
# Every preset trains a step, on small data and a smaller model than the paper's; images without captions.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 32 3 24 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null

presets=$("$BIN/ccstream-train" --help | tr '\n' ' ' | sed 's/.*\[none|\(nuclr[^],]*\),.*/\1/; s/ //g; s/|/ /g')
[ "$(echo "$presets" | wc -w)" -ge 7 ] || fail "presets of --help: $presets"
cat >model.json <<'EOF'
{"embed_dim": 16, "vision_cfg": {"image_size": 16, "patch_size": 8, "layers": 1, "width": 32, "head_width": 16},
 "text_cfg": {"width": 32, "heads": 2, "layers": 1}}
EOF
for preset in $presets; do
    case $preset in
    clip-*) small="--model model.json" ;; # with the preset's tokenizer, clip
    fastclip-* | scent-*) small="--model model.json --tokenizer data/tokenizer.model" ;;
    *) small="--image-tower tiny --text-tower tiny" ;;
    esac
    expect 0 "$BIN/ccstream-train" -q --preset "$preset" --data data --out "$preset" $small --image-size 16 --batch-size 8 --epochs 1 --steps 2 --threads 1
    [ "$(grep -c '"loss":' "$preset/metrics.jsonl")" = 2 ] || fail "$preset: $(cat "$preset/metrics.jsonl")"
    if grep -Eq 'nan|inf|null' "$preset/metrics.jsonl"; then
        fail "$preset: $(cat "$preset/metrics.jsonl")"
    fi
done

# A preset's --model is the model, with its sizes and tokenizer.
expect 0 "$BIN/ccstream-train" --preset fastclip-cc12m --data data --out no --batch-size 8 --dry-run
has out.txt "151,277,312"
expect 0 "$BIN/ccstream-train" --preset clip-cc3m --data data --out no --batch-size 8 --dry-run
has out.txt "102,007,136"

# The head and embedding of the paper's towers, and LARS, are what the options name.
expect 0 "$BIN/ccdump" state emc2-imagenet100 --json
has out.txt '"image.chain_id"'
[ "$(field emc2-imagenet100/config.json hidden-dim)" = 2048 ] || fail "$(cat emc2-imagenet100/config.json)"

# The published towers, one step of the smallest row: batch 4 of resnet18 at 96 px.
expect 0 "$BIN/ccstream-train" -q --preset emc2-stl10-subset --data data --out subset --steps 1 --threads 1

# A baseline of the paper with the settings of its row.
expect 0 "$BIN/ccstream-train" -q --preset emc2-stl10 --loss negcache --data data --out cached --image-tower tiny \
    --image-size 16 --batch-size 8 --epochs 1 --steps 1 --threads 1
[ ! -s err.txt ] || fail "an option without effect: $(cat err.txt)"
