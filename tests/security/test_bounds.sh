# What a small hostile file may cost: JSON at most 10 times its bytes of memory or 64 MiB, a JPEG of many scans no more
# time than its bytes allow, and a line that never ends none.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
[ -z "${CCS_SANITIZE:-}" ] || { echo "skipped: sanitizers need more memory"; exit 77; }
cat >bombs.py <<'PYTHON'
import os, struct
for name, one in (("objects", "{},"), ("arrays", "[],"), ("numbers", "0,"), ("members", None), ("strings", '"",')):
    n = 12 << 20
    junk = "{" + ",".join(f'"{i}":0' for i in range(n // 10)) + "}" if one is None else "[" + one * (n // len(one)) + one[:-1] + "]"
    os.makedirs(name + "/run", exist_ok=True)
    open(name + "/tokenizer.json", "w").write('{"model":{"type":"BPE","x":' + junk + "}}")
    open(name + "/karpathy.json", "w").write('{"images":[{"filename":"a.jpg","sentences":[{"raw":"a"}],"x":' + junk + '}],"dataset":"x"}')
    open(name + "/list.jsonl", "w").write('{"image":"a.jpg","caption":"a","x":' + junk + "}\n")
    os.makedirs("begun-" + name, exist_ok=True)
    open("begun-" + name + "/pack.journal", "w").write('{"x":' + junk + "}\n")
    open(name + "/dataset.json", "w").write('{"format":"ccstream-dataset","version":1,"created_by":"x","container":"tar","junk":' + junk + "}")
    open(name + "/coco.json", "w").write('{"images":[{"id":1,"file_name":"a.jpg","x":' + junk + '}],"annotations":[{"image_id":1,"caption":"a"}]}')
    open(name + "/run/config.json", "w").write('{"options":{},"x":' + junk + "}")
    open(name + "/run/metrics.jsonl", "w").write('{"step":1,"x":' + junk + "}\n")
    open(name + "/run/sessions.jsonl", "w").write('{"run":"x","x":' + junk + "}\n")
    head = ('{"__metadata__":' + junk + "}").encode()
    open(name + "/x.safetensors", "wb").write(struct.pack("<Q", len(head)) + head)
os.makedirs("endless", exist_ok=True)
open("endless/config.json", "w").write('{"options":{}}')
with open("endless/metrics.jsonl", "w") as f: f.truncate(3 << 30)

def segment(marker, data): return b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data
side = 2048
blocks = (side // 8) ** 2
jpeg = b"\xff\xd8" + segment(0xdb, b"\0" + b"\1" * 64) + segment(0xc2, struct.pack(">BHHB", 8, side, side, 1) + b"\1\x11\0")
jpeg += segment(0xc4, b"\x00\x01" + bytes(15) + b"\x00") + segment(0xc4, b"\x10\x01" + bytes(15) + b"\xe0")
jpeg += segment(0xda, b"\1\1\0\0\0\0") + bytes(blocks // 8)
bits = ""
for _ in range(4): # runs of 2^14 blocks without coefficients
    bits += "0" + format(blocks // 4 - (1 << 14), "014b")
bits += "1" * (-len(bits) % 8)
scan = bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8)).replace(b"\xff", b"\xff\0")
n = 0
for low in range(12, -1, -1):
    for k in range(1, 64):
        if n < 490:
            jpeg += segment(0xda, b"\1\1\0" + bytes([k, k, (0 if low == 12 else low + 1) << 4 | low])) + scan
            n += 1
os.makedirs("scans", exist_ok=True)
open("scans/a.jpg", "wb").write(jpeg + b"\xff\xd9")
open("scans/a.txt", "w").write("x\n")
PYTHON
python3 bombs.py
"$TESTBIN/make_scenes" val 4 1 32 a.tar >scenes.txt
expect 0 "$BIN/ccpack" -q -o d a.tar
bounded() { # bounded MIB SECONDS COMMAND...: ends by itself, with a message
    mib=$1
    seconds=$2
    shift 2
    code=0
    (ulimit -v $((mib * 1024)) && timeout "$seconds" "$@") >out.txt 2>err.txt </dev/null || code=$?
    case $code in 64 | 65 | 66) ;; *) head -c 500 err.txt; fail "exit code $code within $mib MiB and $seconds s: $*" ;; esac
}
for name in objects arrays numbers members strings; do
    bounded 700 20 "$BIN/ccdump" info $name
    has err.txt "the limit is 10 times"
    bounded 1000 20 "$BIN/ccpack" -o o $name/coco.json
    for list in karpathy.json list.jsonl; do
        bounded 1000 20 "$BIN/ccpack" -o o $name/$list
    done
    bounded 1000 20 "$BIN/ccpack" -o begun-$name a.tar --resume
    bounded 700 20 "$BIN/ccpack" tokenizer d --tokenizer $name/tokenizer.json --overwrite
    bounded 700 20 "$BIN/ccdump" state $name/x.safetensors
    bounded 2000 20 "$BIN/ccstream-report" --follow $name/run
    code=0
    (ulimit -v 2000000 && timeout 20 "$BIN/ccstream-report" $name/run -o $name.html) >out.txt 2>err.txt || code=$?
    [ $code -lt 124 ] || fail "exit code $code: ccstream-report of $name"
done
bounded 2000 20 "$BIN/ccstream-report" --follow endless
bounded 2000 3 "$BIN/ccpack" -o o scans --max-bad 100%
has err.txt "image-limit"
