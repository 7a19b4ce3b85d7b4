#!/bin/bash
# The manual: its commands run in an installed copy, one page after the other in one folder, on rendered scenes instead of
# the tutorial's download; its messages are in the sources, its options in tools/OPTIONS.md, its links lead somewhere, and
# mkdocs renders it, where that is installed.
# not under sanitizers: other tests run the same commands
. "$SRC/tests/support/cli.sh"
docs=$SRC/docs
[ -e "$(dirname "$BIN")/pages/complete" ] || {
    echo "skipped: this build has the programs of its tests alone"
    exit 77
}
run_page() { # run_page NAME SCRIPT
    sed -i "1i trap 'kill \$(jobs -p) 2>/dev/null || true' EXIT" "$2"
    bash -eux "$2" >log.txt 2>&1 </dev/null || fail "$1: $(tail -n 5 log.txt)"
}

# Every block of commands is run, or a comment before it has the reason why not.
bash "$SRC/tests/run_docs.sh" --not-run $(find "$SRC" -name '*.md' -type f -not -path '*/build/*' -not -name OPTIONS.md) >not-run.txt || fail "$(grep -v 'not run:\|run with' not-run.txt)"
sed "s,^$SRC/,," not-run.txt | sort
[ "$(wc -l <not-run.txt)" -le 32 ] || fail "many blocks are not run"

# The page about installing, in a home of its own, up to where it removes what it installed.
mkdir -p home build
ln -s "$(dirname "$BIN")" build/release
bash "$SRC/tests/run_docs.sh" "$docs/install.md" --without-data >install.sh
sed '/^# ## Removing it/,$d' install.sh >page.sh
HOME=$PWD/home run_page install.md page.sh
installed=$PWD/home/.local
doc=$installed/share/doc/ccstream

# What the tutorial's first commands leave: pairs, held-out pairs, and folders of classes; captions with labels; and the files
# of other programs, random.
mkdir -p pairs held-out more x
"$TESTBIN/make_scenes" train 128 3 32 pairs/00000.tar
"$TESTBIN/make_scenes" val 24 4 32 held-out/00000.tar
"$TESTBIN/make_scenes" train 24 5 32 more/00000.tar
by_class() { # by_class TAR FOLDER WITH: images, and with WITH captions, in folders of their shape
    tar -xf "$1" -C x
    for text in x/*.txt; do
        class=$2/$(grep -oE 'square|circle|triangle|cross|star' "$text")
        mkdir -p "$class"
        cp "${text%.txt}".[jp]*g ${3:+"$text"} "$class/"
    done
    rm -r x/*
}
by_class held-out/00000.tar classes ""
by_class pairs/00000.tar topics-folders captions
by_class more/00000.tar topics-test-folders captions
mkdir roberta-base
cp "$SRC/tests/golden/tokenizer/byte_bpe.json" roberta-base/tokenizer.json
mkdir few # 2 epochs and small towers: the pages' commands are for a person with minutes
small_model few/model.json
cat >few/ccstream-train <<SCRIPT
#!/bin/sh
case "\$*" in
*--resume* | *--dry-run*) exec "$installed/bin/ccstream-train" "\$@" ;;
esac
for word; do # without --epochs N and --zeta-freeze-epochs N of the page
    shift
    case "\$last" in --epochs | --zeta-freeze-epochs) ;; *)
        case "\$word" in --epochs* | --zeta-freeze-epochs*) ;; *) set -- "\$@" "\$word" ;; esac ;;
    esac
    last=\$word
done
case "\$* " in
*--preset\ cpu-demo\ *--image-tower\ *) ;;
*--preset\ cpu-demo\ *--tokenizer\ *) set -- "\$@" --image-tower tiny ;;
*--preset\ cpu-demo\ *)
    data=\${*##*--data }
    set -- "\$@" --model "$PWD/few/model.json" --tokenizer "\${data%% *}/tokenizer.model" ;;
esac
exec "$installed/bin/ccstream-train" "\$@" --epochs 2 --zeta-freeze-epochs 1
SCRIPT
chmod +x few/ccstream-train
export PATH="$PWD/few:$installed/bin:$PATH"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
served=
fetching=
tuning=
attaching=
if command -v python3 >/dev/null; then
    fetching=docs/fetching.md # its commands start a server
    tuning=docs/fine-tuning.md
    [ ! -f "$BIN/ccstudy" ] || "$(sed -n '1s/^#!//p' "$BIN/ccstudy")" -c 'import numpy' 2>/dev/null && attaching=docs/columns.md
    served=docs/remote.md # its nginx is not started, so here is another server
    coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" .; }
    read -r port <&"${SERVER[0]}"
    trap '[ -z "${SERVER_PID:-}" ] || kill "$SERVER_PID"' EXIT
    mkdir timm distilbert
    cat >small.json <<'JSON' # for ViT-S-32
{"embed_dim": 24, "vision_cfg": {"image_size": 32, "patch_size": 8, "layers": 2, "width": 32, "head_width": 16},
 "text_cfg": {"context_length": 20, "vocab_size": 49408, "width": 16, "heads": 1, "layers": 2}}
JSON
    cp "$SRC/tests/golden/tokenizer/vocab.txt" distilbert/
    pretrained=$SRC/tests/support/make_pretrained.py
    python3 "$pretrained" "$SRC/tests/golden/export/timm.txt" timm/model.safetensors --more fc.weight=1000,512 --more fc.bias=1000
    python3 "$pretrained" "$SRC/tests/golden/export/distilbert.txt" distilbert/model.safetensors 12=30 --prefix distilbert. \
        --more vocab_transform.weight=192,192
fi
pages="README.md docs/tutorial.md $tuning $fetching docs/index.md docs/coming-from.md docs/runs.md docs/gpu.md docs/pages.md docs/formats.md docs/tokenizers.md
    docs/troubleshooting.md docs/python.md docs/losses.md docs/losses/two-views.md docs/evaluation.md $attaching $served"
for page in $pages; do
    bash "$SRC/tests/run_docs.sh" "$SRC/$page" --without-data >page.sh
    sed -i 's/--epochs 31/--epochs 3/; s/--epochs 32/--epochs 4/; s/--epochs 33/--epochs 5/' page.sh
    sed -i "s/127\.0\.0\.1:8642/127.0.0.1:${port:-8642}/g" page.sh
    [ "$page" != docs/fine-tuning.md ] || sed -i 's/resnet50/resnet10t/; s/-tower distil/-tower tiny/; s/-size 224/-size 32/; s/ViT-S-32/small.json/' page.sh
    # ccstudy starts the installed program.
    sed -i "s|\"--preset\", \"cpu-demo\"|\"--model\", \"$PWD/few/model.json\", \"--tokenizer\", \"$PWD/train/tokenizer.model\", &|" page.sh
    command -v zstd >/dev/null || sed -i '/^zstd/d' page.sh
    run_page "$page" page.sh
    [ "$page" != docs/python.md ] || cp page.sh python.sh
done
grep -l '^```sh$' -r "$SRC" --include='*.md' --exclude-dir=build | sed "s,^$SRC/,," | sort >with-commands.txt
# test_shard_by_hand.sh runs those of one more.
printf '%s\n' $pages docs/install.md formats/SHARD_FORMAT.md docs/remote.md docs/fetching.md docs/fine-tuning.md docs/columns.md | sort -u | diff - with-commands.txt || fail "these pages have commands, and others are run"
if [ "$fetching" ]; then # all 24 rows in the end; one is excluded in the second dataset
    expect 0 ccdump info --json fetched
    has out.txt '"samples":24'
    expect 0 ccdump info --json hashed
    has out.txt '"samples":23'
fi
for file in found why report stats samples popularity; do
    [ -s $file.html ] || fail "a page of the tutorial is missing: $file.html"
done

# Fine-tuning: without a learning rate what was read is what goes back; what does not fit is refused as the page has it.
if [ "$tuning" ]; then
    towers="--image-tower resnet10t --text-tower tiny --image-size 32 --batch-size 64 --epochs 1"
    expect 0 ccstream-train --data train --tokenizer distilbert/vocab.txt --out kept $towers --lr 0 --min-lr 0 \
        --init-image timm/model.safetensors --init-text distilbert/model.safetensors
    has err.txt 'timm/model.safetensors: not used: fc.weight, fc.bias'
    has err.txt 'distilbert/model.safetensors: not used: vocab_transform.weight'
    expect 0 ccstream-export kept --format timm -o kept-timm
    expect 0 ccstream-export kept --format transformers -o kept-transformers
    expect 0 python3 "$pretrained" --equal timm/model.safetensors kept-timm/model.safetensors --except running_ --except num_batches
    expect 0 python3 "$pretrained" --equal distilbert/model.safetensors kept-transformers/text/model.safetensors
    [ -s tuned-transformers/model.safetensors ] || fail "--projection-bias off: no dual encoder"
    expect_message 65 'the model has ([0-9]*, 192): another vocabulary; pass .* --tokenizer' \
        ccstream-train --data train --out no $towers --init-text distilbert/model.safetensors
    for list in dual_encoder open_clip; do
        python3 "$pretrained" "$SRC/tests/golden/export/$list.txt" other.safetensors
        expect_message 65 'of the tower.s [0-9]* tensors do not fit' ccstream-train --data tune --out no $towers --init-image other.safetensors
        expect_message 65 'of the tower.s [0-9]* tensors do not fit' ccstream-train --data tune --out no $towers --init-text other.safetensors
    done
    expect_message 65 'timm and Hugging Face by --init-image' ccstream-train --data tune --out no --init timm/model.safetensors
fi

# Slurm's script, with programs that stand for srun and scontrol: two launches are stopped by the signals that it names, the
# third one ends the run, and only the first two are requeued.
sed -n '/^```bash$/,/^```$/p' "$docs/runs.md" | sed '/^```/d' >train.sbatch
mkdir slurm
printf '#!/bin/sh\nshift\nexec "$@"\n' >slurm/srun
printf '#!/bin/sh\necho "$@" >>requeued.txt\n' >slurm/scontrol
chmod +x slurm/*
grep -q '^#SBATCH --signal=USR1@' train.sbatch || fail "train.sbatch asks for no signal"
launch() { # launch: the script as Slurm starts it; without end, in another folder than few
    SLURM_JOB_ID=17 SLURM_NTASKS=8 SLURM_PROCID=0 PATH="$PWD/slurm:$installed/bin:$PATH" bash train.sbatch >launch.txt 2>&1
}
steps_of() { grep -c '"loss":' runs/slurm/metrics.jsonl 2>/dev/null || true; }
launches=0
for signal in USR1 TERM; do
    before=$(steps_of)
    launch &
    until [ "$(cat runs/slurm/sessions.jsonl 2>/dev/null | wc -l)" -gt $launches ] && [ "$(steps_of)" -gt "${before:-0}" ]; do sleep 0.05; done
    launches=$((launches + 1))
    kill -"$signal" "$(tail -n 1 runs/slurm/sessions.jsonl | grep -o '"pid":[0-9]*' | cut -d : -f 2)"
    wait $! || fail "after SIG$signal: $(tail -n 3 launch.txt)"
    lines requeued.txt $launches
done
has requeued.txt 'requeue 17'
sed -i "s/--resume \$run/& --steps $(($(steps_of) + 2))/" train.sbatch
launch || fail "$(tail -n 3 launch.txt)"
launch || fail "$(tail -n 3 launch.txt)"
lines requeued.txt 2
has launch.txt 'is finished after'

# Reasons of the page about lists are those of the ledger and of rejects.jsonl.
sed -n '/^| reason/,/^$/p' "$docs/fetching.md" | cut -d '|' -f 2 | grep -o '`[a-z_-]*`' | tr -d '`' | while IFS= read -r reason; do
    cat "$SRC/pack/FETCH.md" "$SRC/pack/SOURCES.md" | grep -qF "\`$reason\`" || fail "fetching.md: no reason $reason"
done

# A message of the tables is in a source, as a string or in parts of one.
find "$SRC"/{formats,train,loader,net,pack,tools,kernels} -name '*.c' -exec cat {} + | tr -d '\n' | sed 's/" *"//g' >sources.txt
{
    cat "$docs/troubleshooting.md"
    sed -n '/^| message | cause/,$p' "$docs/remote.md"
} | sed -n 's/^| `\([^`]*\)`.*/\1/p' | sed 's/ [0-9]*$//' >messages.txt
[ "$(wc -l <messages.txt)" -ge 20 ] || fail "few messages"
while IFS= read -r message; do
    has sources.txt "$message"
done <messages.txt

# Options in the columns that are ours.
{
    grep '^| `' "$docs/coming-from.md" | cut -d '|' -f 3
    cat "$docs"/losses.md "$docs"/losses/*.md
} | grep -oE -- '--[a-z][a-z0-9-]+' | sort -u >options.txt
while IFS= read -r option; do
    has "$SRC/tools/OPTIONS.md" "$option"
done <options.txt

# Defaults in the tables of losses are those of --help: an option's own, or that of the loss that has the page.
tr -s ' \n' ' ' <"$SRC/tools/OPTIONS.md" >flat.txt
sed -n 's/^| \(`--[^|]*\) | \([^|]*\) |.*/\1 | \2/p' "$docs"/losses/*.md | while IFS= read -r row; do
    values=${row#*| }
    for option in $(echo "${row%|*}" | grep -oE -- '--[a-z0-9-]+'); do
        value=${values%%,*}
        values=${values#*, }
        grep -qE -- "$option $value[,;. ]|$option [A-Z]+ [^[]*(see Losses\), else $value|\[[^]]*default $value\])" flat.txt ||
            fail "docs/losses: $option has no default $value"
    done
done

for loss in $("$BIN/ccstream-train" --help | sed -n '/^Losses:/,/^$/s/^  \([a-z][a-z0-9-]*\) .*/\1/p'); do
    cat "$docs"/losses/*.md | grep -q -- "$loss" || fail "docs/losses: no page has $loss"
done

# Another word than one after ``` would not be rendered.
grep -n '^```' "$docs"/*.md "$docs"/losses/*.md | grep -vE ':```(sh|shell|bash|python|)$' && fail "docs: a block of another kind"
find "$docs" -name '*.md' -printf '%P\n' | sort >pages.txt
grep -oE '[A-Za-z0-9_/-]+\.md$' "$SRC/mkdocs.yml" | sort | diff pages.txt - || fail "mkdocs.yml: other pages than docs"
if mkdocs --version 2>/dev/null | grep -q 'version 1\.[6-9]'; then
    expect 0 mkdocs build --strict -f "$SRC/mkdocs.yml" -d "$PWD/site"
fi

if [ "$served" ]; then
    for folder in "$SRC" "$doc"; do
        expect 0 python3 "$SRC/tests/support/links.py" "$folder"
    done
    for name in $(grep -ohE 'reference/[A-Za-z/_-]+\.md' "$SRC/tools/OPTIONS.md" | sort -u); do
        [ -s "$doc/manual/$name" ] || fail "--help names $name, which is not installed"
    done
fi

# Python, where the package was built and some Python has NumPy: the first ids of its batch are those of ccdump order.
package=$(dirname "$BIN")/python
for python in python3 /usr/bin/python3; do
    "$python" -c 'import numpy' 2>/dev/null && [ -e "$package/ccstream/_ccstream.abi3.so" ] || continue
    sed -n '/^```python/,/^```$/p' "$docs/python.md" | sed '/^```/d' >page.py
    expect 0 env PYTHONPATH="$package" "$python" page.py
    sed 's/.*\[\(.*\)\]$/\1/; s/^ *//; s/ \+/ /g' out.txt >ids.txt
    bash -eu python.sh | awk 'NR > 2 && NR < 6 { print $2 }' | paste -s -d ' ' | cmp - ids.txt || fail "other ids: $(cat out.txt)"
    break
done

# The last commands of the page about installing leave nothing.
sed -n '/^# ## Removing it/,$p' install.sh >page.sh
HOME=$PWD/home run_page install.md page.sh
[ -z "$(find home -not -type d)" ] || fail "left: $(find home -not -type d)"
