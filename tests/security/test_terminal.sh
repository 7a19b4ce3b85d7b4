# No control character of a stranger's names, and no mark that changes the direction of writing, reaches a terminal: not
# in results, warnings, errors and progress.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
clean() { # clean COMMAND...: whatever its exit code
    code=0
    "$@" >said.txt 2>&1 </dev/null || code=$?
    [ "$code" -lt 126 ] || fail "exit code $code: $*"
    if LC_ALL=C grep -qaP '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae\x8e\x8f]|\xe2\x81[\xa6-\xa9]|(^|[\x00-\x7f])[\x80-\x9f]' said.txt; then
        fail "control characters from: $*: $(LC_ALL=C grep -aP '[\x01-\x08\x0b-\x1f\x7f-\x9f]' said.txt | head -1 | od -c | head -5)"
    fi
}
cat >make.py <<'PYTHON'
import io, json, os, struct, sys, tarfile
X = "\x1b]0;own\x07\x1b[31m\u009b2J\u202eevil\u2066\u200f\x7f"
jpeg = open(sys.argv[1], "rb").read()
def tar(path, members):
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as t:
        for name, data in members:
            info = tarfile.TarInfo(name); info.size = len(data); t.addfile(info, io.BytesIO(data))
good = json.load(open("d/dataset.json"))
for at in ("format", "created_by", "container", "options", "sources", "tokenizer", "shards"):
    m = json.loads(json.dumps(good))
    if at == "options": m[at] = {X: X}
    elif at == "sources": m[at] = [{"name": X, "rows": 3}]
    elif at == "tokenizer": m[at] = {"kind": X, "file": X, "hash": X}
    elif at == "shards": m[at][0]["file"] = m[at][0]["name"] = X
    else: m[at] = X
    os.mkdir("m-" + at); json.dump(m, open(f"m-{at}/dataset.json", "w"), ensure_ascii=False)
tar("keys.tar", [(f"{X}{i}.{e}", d) for i in range(3) for e, d in (("jpg", jpeg), ("txt", X.encode()))])
tar("classes.tar", [(f"{X}/{i}.jpg", jpeg) for i in range(3)])
tar("json.tar", [("a.jpg", jpeg), ("a.json", ('{"' + X + '": [' + X).encode())])
tar("images.tar", [("a.jpg", X.encode() * 9), ("a.txt", b"x")])
open("list.tsv", "w").write(f"{X}\t{X}.jpg\n")
open("head.csv", "w").write(f"{X},url\n{X},{X}\n")
open("urls.csv", "w").write(f"url,caption\nhttp://127.0.0.1:9/{X},{X}\n{X},{X}\n")
json.dump({"images": [{"id": 1, "file_name": X}], "annotations": [{"image_id": 1, "caption": X}]},
          open("coco.json", "w"), ensure_ascii=False)
for i, head in enumerate([{"a": {"dtype": X, "shape": [1], "data_offsets": [0, 4]}},
                          {X: {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]}},
                          {"__metadata__": {X: X}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}]):
    h = json.dumps(head, ensure_ascii=False).encode()
    open(f"{i}.safetensors", "wb").write(struct.pack("<Q", len(h)) + h + bytes(4))
os.mkdir("run"); open("run/config.json", "w").write(json.dumps({"options": {X: X, "data": [X]}, "loss": X}, ensure_ascii=False))
open("run/metrics.jsonl", "w").write(json.dumps({"step": 1, X: X}, ensure_ascii=False) + "\n")
open("run/sessions.jsonl", "w").write(json.dumps({"run": X, "argv": [X], "host": X}, ensure_ascii=False) + "\n")
open("bad.model", "w").write(X); open("vocab.txt", "w").write("[PAD]\n" + X + "\n" + X + "\n")
PYTHON
"$TESTBIN/make_scenes" val 4 1 48 all.tar >scenes.txt
expect 0 "$BIN/ccpack" -q -o d all.tar
expect 0 "$BIN/ccdump" show d 0 --image one.jpg
python3 make.py one.jpg
for m in m-*; do
    cp -n d/shard-* "$m/"
    for what in info verify ls stats; do
        clean "$BIN/ccdump" $what "$m"
    done
    clean "$BIN/ccpack" -o "$m" all.tar --append
    clean "$BIN/ccstream-train" --preset cpu-demo --image-tower tiny --data "$m" --out r --steps 1
done
for s in *.safetensors; do
    clean "$BIN/ccdump" state "$s"
    clean "$BIN/ccstream-eval" retrieval "$s" --data d
    clean "$BIN/ccstream-export" "$s" -o x
done
n=0
for s in keys.tar classes.tar json.tar images.tar list.tsv head.csv coco.json; do
    n=$((n + 1))
    clean "$BIN/ccpack" -o o$n "$s" --max-bad 100%
    clean "$BIN/ccpack" -o p$n "$s" --from folders --max-bad 100%
    mkdir i$n && cp "$s" i$n/
    clean "$BIN/ccpack" index "i$n/$s" --max-bad 100%
    for o in o$n p$n i$n; do
        [ ! -e $o/dataset.json ] || for what in "info $o" "show $o 0" "show $o 0 --json" "ls $o --keys" "ls $o --json" "find $o evil" "duplicates $o" "stats $o"; do
            clean "$BIN/ccdump" $what
        done
    done
done
clean "$BIN/ccpack" fetch urls.csv -o f --attempts 1 --allow-private
clean "$BIN/ccpack" tokenizer d --tokenizer bad.model
clean "$BIN/ccpack" tokenizer d --tokenizer vocab.txt
clean "$BIN/ccstream-report" run -o run.html
clean "$BIN/ccstream-report" --follow run
clean "$BIN/ccstream-train" --resume run
clean "$BIN/ccdump" "$(printf 'in\033[31mfo')"
clean "$BIN/ccdump" info "$(printf 'no\033[31mfile')"
clean "$BIN/ccdump" info "$(printf -- '--no\033[31mption')"
ls o1/dataset.json p2/dataset.json >there.txt || fail "the hostile tars were not packed"

# No program has another way to stderr than the functions of tools/cli.
others=$(grep -rnE 'fprintf\((stderr|stdout)|fputs\([^"]*, stderr|[^n]printf\("[^"]*%s[^"]*", *(name|key|path|file|text)\b' "$SRC/tools" --include='*.c' |
    grep -v '/tools/cli/' || true)
[ -z "$others" ] || fail "prints names without cli_print: $others"
