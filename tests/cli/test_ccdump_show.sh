# ccdump show as text: the picture in half blocks, captions and metadata wrapped to the terminal, and no
# control sequences from the data. script(1) provides a terminal.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" val 4 1 48 four.tar >scenes.txt
mkdir x && tar xf four.tar -C x
set -- x/*.jpg
key=$(basename "$1" .jpg)
printf 'A caption that is much longer than forty columns, with a cat \342\200\256 and \033[2J an escape.\n' \
    >"x/$key.txt"
printf '{"url": "http://example.org/\\u001b[31m.jpg", "size": {"width": 640, "list": [1, "two", []]}, "no": null}' \
    >"x/$key.json"
tar cf picture.tar --sort=name -C x .
"$BIN/ccpack" -q -o d picture.tar
block=▀
escape=$(printf '\033')

# --- not on a terminal: no colours, no wrapping
unset NO_COLOR COLORTERM COLUMNS || true
export TERM=xterm
expect 0 "$BIN/ccdump" show d 0
hasnt out.txt "$escape"
hasnt out.txt "$block"
has out.txt "sample 0  key $key  position 0"
has out.txt "48 x 48 jpeg"
has out.txt "caption  A caption that is much longer than forty columns, with a cat and [2J an escape."
has out.txt "url: http://example.org/ [31m.jpg"
has out.txt "             width: 640"
has out.txt "               - two"
has out.txt "               - []"
has out.txt "           no: null"
expect 0 "$BIN/ccdump" show d 0 --preview never
hasnt out.txt "$block"

# --- --preview always: 24 bits if the terminal has them, else 256 colours
expect 0 env COLUMNS=20 COLORTERM=truecolor "$BIN/ccdump" show d 0 --preview always
has out.txt "$escape[38;2;"
[ "$(grep -c "$block" out.txt)" = 10 ] || fail "20 columns of a square picture are 10 lines"
[ "$(grep "$block" out.txt | head -1 | grep -o "$block" | wc -l)" = 20 ] || fail "not 20 columns"
expect 0 env COLUMNS=20 "$BIN/ccdump" show d 0 --preview always
has out.txt "$escape[38;5;"
hasnt out.txt "$escape[38;2;"
expect 0 env COLUMNS=20 NO_COLOR=1 "$BIN/ccdump" show d 0
hasnt out.txt "$escape"
expect 64 "$BIN/ccdump" show d 0 --preview sometimes

# For a picture that does not decode, the reason and the rest are shown.
"$TESTBIN/make_dataset" noise 10 10
expect 0 "$BIN/ccdump" show noise 1 --preview always
has out.txt "preview  "
has out.txt "caption  "
expect 0 "$BIN/ccdump" show noise 1
hasnt out.txt "preview"

# --- on a terminal
if ! script -qec true /dev/null >typed.txt 2>&1 </dev/null; then
    echo "skipped: script(1) gives no terminal here"
    exit 77
fi
typed() { # typed COMMAND: its output on a terminal of 40 columns and 32 lines
    script -qec "stty cols 40 rows 32; $1" /dev/null </dev/null | tr -d '\r' >out.txt
}
typed "'$BIN/ccdump' show d 0"
has out.txt "$escape[38;5;"
[ "$(grep -c "$block" out.txt)" = 20 ] || fail "40 columns of a square picture are 20 lines"
grep -v "$block" out.txt >words.txt
[ "$(LC_ALL=C.UTF-8 wc -L <words.txt)" -le 70 ] || fail "text is not wrapped"
[ "$(grep -A1 'caption  A' words.txt | LC_ALL=C.UTF-8 wc -L)" -le 40 ] || fail "captions are not wrapped"
hasnt words.txt "$escape[2J"
hasnt words.txt "$escape[31m"
typed "NO_COLOR=1 '$BIN/ccdump' show d 0"
hasnt out.txt "$block"
typed "TERM=dumb '$BIN/ccdump' show d 0"
hasnt out.txt "$escape"
typed "'$BIN/ccdump' ls d"
lines out.txt 4
[ "$(LC_ALL=C.UTF-8 wc -L <out.txt)" = 40 ] || fail "ls is not truncated to the terminal's width"
typed "'$BIN/ccdump' show d 0 --image - ; echo code \$?"
has out.txt "code 64"
typed "'$BIN/ccdump' cat d; echo code \$?"
has out.txt "code 64"
echo passed
