# Tokenizer models of strangers, which drive SentencePiece out of its memory, are refused before it sees them: by programs
# that import one, and by those that find one in a dataset.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
"$TESTBIN/make_scenes" val 20 1 48 all.tar >scenes.txt
expect 0 "$BIN/ccpack" -q -o d all.tar
expect 0 "$BIN/ccpack" tokenizer -q d --vocab-size 60
cp d/tokenizer.model good.model
python3 "$SRC/tests/security/make_tokenizers.py" good.model models
count=0
for model in models/*.model; do
    name=$(basename "$model" .model)
    want=65
    case $name in good) want=0 ;; esac
    expect $want "$BIN/ccpack" tokenizer -q d --tokenizer "$model" --overwrite --cache
    [ $want = 0 ] || has err.txt "neither a SentencePiece model"
    count=$((count + 1))
done
[ $count -ge 11 ] || fail "only $count models"
# In a dataset, whose manifest its maker wrote too.
python3 - <<'PYTHON'
import json, os, shutil
good = json.load(open("d/dataset.json"))
for name in ("cycle-of-ends", "nested", "root-is-leaf-far"):
    shutil.copytree("d", name)
    os.path.exists(name + "/tokens.cct") and os.remove(name + "/tokens.cct")
    shutil.copy(f"models/{name}.model", name + "/tokenizer.model")
PYTHON
for name in cycle-of-ends nested root-is-leaf-far; do
    expect 65 "$BIN/ccdump" verify "$name"
    expect 65 "$BIN/ccstream-train" -q --preset cpu-demo --image-tower tiny --data "$name" --out "r-$name" --steps 1 --batch 4
done
