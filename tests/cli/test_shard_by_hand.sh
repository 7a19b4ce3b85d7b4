# Runs the commands of the worked example in formats/SHARD_FORMAT.md, which must print what the page shows.
. "$SRC/tests/support/cli.sh"
command -v zstd >/dev/null || { echo "skipped: no zstd program"; exit 77; }

work=$PWD
sed -n '/^### Reading it by hand/,$p' "$SRC/formats/SHARD_FORMAT.md" |
    sed -n '/^```sh$/,/^```$/p' | sed -e '/^```/d' -e "s|/tmp/|$work/|" >commands
[ "$(wc -l <commands)" -gt 10 ] || fail "no example in SHARD_FORMAT.md"
(cd "$SRC" && sh -eu "$work/commands") >out.txt || { cat out.txt; fail "a command of the page"; }
squeezed=$(tr -s ' \n' '  ' <out.txt)
for expected in ' 329 4 455 168 69 one red pixel ' '000000003.1.txt' 'a b l u e d o t' \
    '__ccstream-index__ 6656 329 8704 3584 69 512 69 1024 '; do
    case $squeezed in
    *"$expected"*) ;;
    *) cat out.txt; fail "the page promises '$expected'" ;;
    esac
done
"$BIN/ccdump" cat "$SRC/tests/golden/shard/v1/ok" --id 3 --image >image
cmp image red.png
echo passed
