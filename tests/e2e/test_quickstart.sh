#!/bin/bash
# tools/quickstart on images of one's own, with the programs of this build: what it shows and says at the end.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 96 3 32 scenes.tar
# Links, pipes and names of several lines that a stranger's tar may have: nothing outside of it is read.
mkdir stranger outside
echo "a secret caption" >outside/secret.txt
tar -xOf scenes.tar --wildcards --occurrence=1 '*.png' '*.jpg' >outside/secret.jpg 2>err.txt || true
[ -s outside/secret.jpg ] || fail "no image in scenes.tar"
for name in link hidden pipe; do
    cp outside/secret.jpg stranger/$name.jpg
done
ln -s "$PWD/outside/secret.txt" stranger/link.txt
ln -s "$PWD/outside" stranger/folder
mkfifo stranger/pipe.txt
mkdir -p "stranger/x
$PWD/outside"
echo "two lines" >"stranger/x
$PWD/outside/secret.txt"
tar -C stranger -rf scenes.tar .
bin=tree/build/release/bin
mkdir -p tree/tools "$bin" fake
cp "$SRC/tools/quickstart" tree/tools/
ln -s "$BIN"/* "$bin"
rm "$bin/ccstream-train"
# Nothing to install or to build here, fewer epochs and a smaller tower.
printf '#!/bin/sh\n' | tee tree/tools/install-deps >fake/cmake
cat >"$bin/ccstream-train" <<SCRIPT
#!/bin/sh
case "\$*" in
*--resume*) exec "$BIN/ccstream-train" "\$@" ;;
*) exec "$BIN/ccstream-train" "\$@" --image-tower tiny --epochs 8 ;;
esac
SCRIPT
chmod +x tree/tools/install-deps fake/cmake "$bin/ccstream-train"

PATH="$PWD/fake:$PATH" tree/tools/quickstart scenes.tar >out.txt 2>err.txt || fail "$(tail -n 3 out.txt err.txt)"
! grep -rq "a secret caption" tree/build/quickstart/*.tsv || fail "a file outside of the tar became a caption"
found=tree/build/quickstart/found.html
[ "$(grep -o '"text":"[FM][a-z]*: ' "$found" | head -n 1)" = '"text":"Found: ' ] || fail "found.html does not lead with what was found"

# The last lines say what the numbers mean.
pairs=$(wc -l <tree/build/quickstart/train.tsv)
unseen=$(wc -l <tree/build/quickstart/val.tsv)
for line in "What the numbers mean" "partners of $unseen images" "has learned from $pairs pairs" 'among its 10 best in [0-9]* of 100'; do
    grep -q "$line" out.txt || fail "it does not say '$line': $(tail -n 30 out.txt)"
done

# Popularities are spread: the largest is at least a tenth above the smallest.
sed -n 's/.*least popular has \([0-9.]*\), the most popular \([0-9.]*\)\.$/\1 \2/p' out.txt >ends.txt
awk '{ spread = $2 / $1 } END { exit !(spread > 1.1) }' ends.txt || fail "popularities: $(cat ends.txt)"

# A finished run is only evaluated again.
cp tree/build/quickstart/run/metrics.jsonl before.jsonl
PATH="$PWD/fake:$PATH" tree/tools/quickstart scenes.tar >again.txt 2>err.txt || fail "$(tail -n 3 again.txt err.txt)"
cmp before.jsonl tree/build/quickstart/run/metrics.jsonl || fail "a finished run was trained again"
