# ccdump show as text: captions and metadata wrapped to the terminal, and no control sequences from the data. script(1) provides a terminal.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" val 4 1 48 four.tar >scenes.txt
mkdir x && tar xf four.tar -C x
set -- x/*.jpg
key=$(basename "$1" .jpg)
printf 'A caption that is much longer than forty columns, with a cat \342\200\256 and \033[2J an escape.\n' \
    >"x/$key.txt"
printf '{"url": "http://example.org/\\u001b[31m.jpg", "size": {"width": 640, "id": 9007199254740993, "ratio": 0.5, "list": [1, "two", []]}, "no": null}' \
    >"x/$key.json"
tar cf image.tar --sort=name -C x .
"$BIN/ccpack" -q -o d image.tar
escape=$(printf '\033')

# --- not on a terminal: no wrapping
unset COLUMNS || true
expect 0 "$BIN/ccdump" show d 0
hasnt out.txt "$escape"
grep -qz "id: *0.key: *$key" out.txt
grep -qz "width: *48.height: *48.format: *jpeg" out.txt
has out.txt "  - A caption that is much longer than forty columns, with a cat and [2J an escape."
grep -q "  url: *http://example.org/ \[31m.jpg" out.txt
has out.txt "    width: 640"
has out.txt "    id:    9007199254740993"
has out.txt "    ratio: 0.5"
has out.txt "      - two"
grep -q "^  no: *-" out.txt

# An image that does not decode is shown by its facts.
"$TESTBIN/make_dataset" noise 10 10
expect 0 "$BIN/ccdump" show noise 1
has out.txt "  - "

# --- on a terminal
if ! script -qec true /dev/null >typed.txt 2>&1 </dev/null; then
    echo "skipped: script(1) gives no terminal here"
    exit 77
fi
typed() { # typed COMMAND: its output on a terminal of 40 columns and 32 lines
    script -qec "stty cols 40 rows 32; $1" /dev/null </dev/null | tr -d '\r' >out.txt
}
typed "'$BIN/ccdump' show d 0"
[ "$(LC_ALL=C.UTF-8 wc -L <out.txt)" -le 70 ] || fail "text is not wrapped"
[ "$(grep -A1 '  - A' out.txt | LC_ALL=C.UTF-8 wc -L)" -le 40 ] || fail "captions are not wrapped"
hasnt out.txt "$escape"
typed "'$BIN/ccdump' ls d"
lines out.txt 4
[ "$(LC_ALL=C.UTF-8 wc -L <out.txt)" = 40 ] || fail "ls is not truncated to the terminal's width"
typed "'$BIN/ccdump' show d 0 --image - ; echo code \$?"
has out.txt "code 64"
typed "'$BIN/ccdump' cat d; echo code \$?"
has out.txt "code 64"
echo passed
