# For shell tests: . "$SRC/tests/support/cli.sh"
# The last command's output is in out.txt and err.txt.
set -eu
export CCSTREAM_REPORT=/bin/true # trainings make no page, which would take as long as many of them; tests of pages unset it
last="bash $SRC/tests/support/last.sh" # $last PROGRAM OPTION...: later options replace earlier ones
fail() {
    echo "FAILED: $*"
    exit 1
}
expect() { # expect CODE COMMAND...
    want=$1
    shift
    code=0
    "$@" >out.txt 2>err.txt || code=$?
    [ "$code" = "$want" ] || { head -c 2000 out.txt err.txt; fail "exit code $code, not $want: $*"; }
}
expect_message() { # expect_message CODE PATTERN COMMAND...: with a message that matches PATTERN
    want=$1
    pattern=$2
    shift 2
    expect "$want" "$@"
    grep -qe "$pattern" err.txt || { head -c 2000 err.txt; fail "no '$pattern' in the message of: $*"; }
}
has() { # has FILE TEXT
    grep -qF -- "$2" "$1" || { head -c 2000 "$1"; fail "no '$2' in $1"; }
}
hasnt() { # hasnt FILE TEXT
    grep -qF -- "$2" "$1" && { head -c 2000 "$1"; fail "'$2' in $1"; } || true
}
lines() { # lines FILE COUNT
    [ "$(wc -l <"$1")" = "$2" ] || { head -c 2000 "$1"; fail "$(wc -l <"$1") lines, not $2 in $1"; }
}
field() { # field FILE NAME: a number or text of a one-line JSON file
    sed -n 's/.*"'"$2"'":"\{0,1\}\([^",}]*\).*/\1/p' "$1" | head -1
}
small_model() { # small_model FILE: of open_clip's form, for --model with a tokenizer of 100; a run takes half the time of one of tiny towers
    cat >"$1" <<'EOF'
{"embed_dim": 32, "vision_cfg": {"image_size": 16, "patch_size": 8, "layers": 1, "width": 32, "head_width": 16},
 "text_cfg": {"context_length": 12, "vocab_size": 100, "width": 32, "heads": 2, "layers": 1}}
EOF
}
scene_words() { # scene_words FILE: a tokenizer (WordPiece) of make_scenes' captions, which opens 25 ms faster than SentencePiece's
    printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' a on left of background solid hollow plain striped dotted circle square triangle cross star \
        red green blue yellow purple orange black white >"$1"
}
scene_folders() { # scene_folders TAR FOLDER CLASS [END]: make_scenes' images (END '*': and captions) in folders named CLASS, for awk
    mkdir scenes
    tar -xf "$1" -C scenes
    awk -v folder="$2" -v end="${4:-jpg}" "{ class = $3; sub(/txt\$/, end, FILENAME) }"'
        class != "" { files[class] = files[class] " " FILENAME }
        END { for (class in files) print "mkdir -p " folder "/" class " && mv" files[class] " " folder "/" class }' scenes/*.txt | sh -e
    rm -r scenes
}
without_figures() { # without_figures: from here on no matplotlib is installed, whose import takes most of the time of a short study
    mkdir without
    echo 'raise ModuleNotFoundError("no matplotlib", name="matplotlib")' >without/matplotlib.py
    export PYTHONPATH="$PWD/without${PYTHONPATH:+:$PYTHONPATH}"
}
interrupted() { # interrupted RUN STEP PARTS: PARTS is what RUN was when killed after its checkpoint of STEP
    mkdir -p "$3/checkpoints"
    cp "$1/config.json" "$1/metrics.jsonl" "$3/"
    mv "$1/checkpoints/step-$2.safetensors" "$3/checkpoints/"
    ln -s "checkpoints/step-$2.safetensors" "$3/last"
}
resumes() { # resumes RUN STEP OPTION...: RUN, resumed after STEP in RUN-parts, ends with the same bytes
    whole=$1
    step=$2
    shift 2
    interrupted "$whole" "$step" "$whole-parts"
    expect 0 "$BIN/ccstream-train" -q --json --resume "$whole-parts" "$@"
    has out.txt "\"resumed_step\":$step,"
    cmp "$whole/last" "$whole-parts/last" || fail "$whole: a resumed run is not the uninterrupted one"
}
