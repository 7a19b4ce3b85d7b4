#!/bin/bash
# cmake --install below DESTDIR: programs, modules, pages and documents run and are found from where they were moved to;
# the target uninstall leaves nothing.
. "$SRC/tests/support/cli.sh"
build=$(dirname "$BIN")
: "${CMAKE:=cmake}"
[ -e "$build/pages/complete" ] || {
    echo "skipped: this build has the programs of its tests alone"
    exit 77
}

export DESTDIR=$PWD/stage
expect 0 "$CMAKE" --install "$build" --prefix /opt/ccstream
[ "$(ls stage)" = opt ] || fail "files outside of DESTDIR: $(ls stage)"
cp -r stage/opt/ccstream "a folder"
bin=$PWD/a\ folder/bin
for program in ccpack ccdump ccstream-train ccstream-eval ccstream-export ccstream-report ccbench ccstudy; do
    expect 0 env -i "$bin/$program" --version
    has out.txt "$program "
done
readelf -d "$bin"/* | grep -E 'R(UN)?PATH' && fail "a program looks for libraries in a fixed place"
"$TESTBIN/make_scenes" train 40 3 24 a.tar
expect 0 env -i "$bin/ccpack" -q -o a a.tar
expect 0 env -i "$bin/ccdump" verify a

# ccstudy brings the Python package, which finds the shared library.
python=$(sed -n '1s/^#!//p' "$bin/ccstudy")
if "$python" -c 'import numpy' 2>import.txt; then
    expect 0 env -i "$bin/ccstudy" chains --quick --steps 100
    [ -z "$(find "a folder" -name __pycache__)" ] || fail "an installed study leaves files"
fi

# Modules are found in lib/ccstream beside bin: what is missing is the driver, not the module.
expect 0 env -i "$bin/ccstream-train" --list-devices
if [ -e "$build/bin/libccstream_cuda.so" ]; then
    hasnt out.txt "libccstream_cuda.so is not"
    mv "a folder/lib/ccstream/libccstream_cuda.so" .
    cp out.txt with.txt
    expect 0 env -i "$bin/ccstream-train" --list-devices
    cmp -s with.txt out.txt && fail "the CUDA module was not looked for: $(cat out.txt)"
fi

# A man page for every program and command, completions for every program, readable by their tools.
share="a folder/share"
[ "$(find "$share/man/man1" -name '*.1.gz' | wc -l)" = "$(grep -c '^## ' "$SRC/tools/OPTIONS.md")" ] || fail "not a page for every --help"
gzip -dc "$share/man/man1/ccdump-find.1.gz" >page.1
has page.1 'a caption contains this text, ignoring the case of a\-z'
[ "$(find "$share" -name '*ccstream-train*' -not -name '*.gz' | wc -l)" = 3 ] || fail "not three completions"
if command -v mandoc >/dev/null; then
    for page in "$share"/man/man1/*.gz; do
        gzip -dc "$page" >page.1
        mandoc -Tlint page.1 >lint.txt 2>&1 || fail "$page: $(cat lint.txt)"
    done
fi
for file in README.md CHANGELOG.md LICENSE manual/tutorial.md manual/losses/nuclr.svg examples/c/captions.c examples/python/train_nuclr.py; do
    [ -s "$share/doc/ccstream/$file" ] || fail "no $file"
done

[ -z "$(find "$share/doc" -type l)" ] || fail "links into the source tree: $(find "$share/doc" -type l)"
(cd "$share/doc/ccstream/manual" && grep -ohE '\]\((\.\./)?(reference|losses)/[^)#]+' *.md losses/*.md) | sed 's|^](||; s|^\.\./||' | sort -u >links.txt
[ "$(wc -l <links.txt)" -ge 20 ] || fail "few links: $(cat links.txt)"
while IFS= read -r link; do
    [ -s "$share/doc/ccstream/manual/$link" ] || fail "the manual lacks $link"
done <links.txt

expect 0 "$CMAKE" --build "$build" --target uninstall
[ -z "$(find stage -not -type d)" ] || fail "left: $(find stage -not -type d)"
[ -z "$(find stage/opt/ccstream -name '*ccstream*' -not -path stage/opt/ccstream)" ] || fail "left: $(find stage)"
expect 1 "$CMAKE" -D "BUILD=$build" -P "$SRC/cmake/uninstall.cmake"
has err.txt "nothing is installed"
