#!/bin/bash
# The manual: its commands run, one page after the other in one folder, on rendered scenes instead of the tutorial's
# download; its messages are in the sources, its options in tools/OPTIONS.md, its links lead somewhere,
# and mkdocs renders it, where that is installed.
# not under sanitizers: other tests run the same commands
. "$SRC/tests/support/cli.sh"
docs=$SRC/docs

# What the tutorial's first commands leave: pairs, held-out pairs, and folders of classes.
mkdir -p pairs held-out classes x
"$TESTBIN/make_scenes" train 128 3 32 pairs/00000.tar
"$TESTBIN/make_scenes" val 24 4 32 held-out/00000.tar
tar -xf held-out/00000.tar -C x
for text in x/*.txt; do
    class=$(grep -oE 'square|circle|triangle|cross|star' "$text")
    mkdir -p "classes/$class"
    cp "${text%.txt}".[jp]*g "classes/$class/"
done
rm -r x
mkdir few # 3 epochs: the pages' commands are for a person with minutes
cat >few/ccstream-train <<SCRIPT
#!/bin/sh
case "\$*" in
*--resume* | *--dry-run* | *--attach*) exec "$BIN/ccstream-train" "\$@" ;;
esac
for word; do # without --epochs N and --zeta-freeze-epochs N of the page
    shift
    case "\$last" in --epochs | --zeta-freeze-epochs) ;; *)
        case "\$word" in --epochs* | --zeta-freeze-epochs*) ;; *) set -- "\$@" "\$word" ;; esac ;;
    esac
    last=\$word
done
exec "$BIN/ccstream-train" "\$@" --epochs 3 --zeta-freeze-epochs 1
SCRIPT
chmod +x few/ccstream-train
export PATH="$PWD/few:$BIN:$PATH"
served=
fetching=
if command -v python3 >/dev/null; then
    fetching=fetching # its commands start a server
    served=remote     # its nginx is not started, so here is another server
    coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" .; }
    read -r port <&"${SERVER[0]}"
    trap '[ -z "${SERVER_PID:-}" ] || kill "$SERVER_PID"' EXIT
fi
for page in tutorial $fetching index coming-from runs pages formats troubleshooting python losses $served; do
    bash "$SRC/tests/run_docs.sh" "$docs/$page.md" --without-data >"$page.sh"
    sed -i 's/--epochs 31/--epochs 7/; s/--epochs 32/--epochs 8/' "$page.sh"
    sed -i "s/127\.0\.0\.1:8642/127.0.0.1:${port:-8642}/g" "$page.sh"
    command -v zstd >/dev/null || sed -i '/^zstd/d' "$page.sh"
    sed -i "1i trap 'kill \$(jobs -p) 2>/dev/null || true' EXIT" "$page.sh"
    bash -eux "$page.sh" >log.txt 2>&1 || fail "$page.md: $(tail -n 5 log.txt)"
done
if [ "$fetching" ]; then # all 24 rows in the end; one is excluded in the second dataset
    expect 0 "$BIN/ccdump" info --json fetched
    has out.txt '"samples":24'
    expect 0 "$BIN/ccdump" info --json hashed
    has out.txt '"samples":23'
fi
[ -s found.html ] && [ -s why.html ] && [ -s report.html ] && [ -s stats.html ] && [ -s samples.html ] && [ -s popularity.html ] || fail "a page of the tutorial is missing"

# Reasons of the page about lists are those of the ledger and of rejects.jsonl.
sed -n '/^| reason/,/^$/p' "$docs/fetching.md" | cut -d '|' -f 2 | grep -o '`[a-z_-]*`' | tr -d '`' | while IFS= read -r reason; do
    cat "$SRC/pack/FETCH.md" "$SRC/pack/SOURCES.md" | grep -qF "\`$reason\`" || fail "fetching.md: no reason $reason"
done

# A message of the tables is in a source, as a string or in parts of one.
find "$SRC"/{train,loader,net,pack,tools,kernels} -name '*.c' -exec cat {} + | tr -d '\n' | sed 's/" *"//g' >sources.txt
{
    cat "$docs/troubleshooting.md"
    sed -n '/^| you see/,$p' "$docs/remote.md"
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
        grep -qE -- "$option $value[,;. ]|$option [A-Z]+ [^[]*(0: $value, or|\[[^]]*default $value\])" flat.txt ||
            fail "docs/losses: $option has no default $value"
    done
done

for loss in $("$BIN/ccstream-train" --help | sed -n '/^Losses:/,/^$/s/^  \([a-z][a-z0-9-]*\) .*/\1/p'); do
    cat "$docs"/losses/*.md | grep -q -- "$loss" || fail "docs/losses: no page has $loss"
done

# A block of commands is run (sh, python) or says that it is not (shell); another word than one would not be rendered.
grep -n '^```' "$docs"/*.md "$docs"/losses/*.md | grep -vE ':```(sh|shell|python|)$' && fail "docs: a block of another kind"
for page in "$docs"/*.md "$docs"/losses/*.md; do
    awk '/^```/ { inside = !inside; if (inside && $0 == "```") exit 1 }' "$page" || fail "$page: a block without a kind"
done
find "$docs" -name '*.md' -printf '%P\n' | sort >pages.txt
grep -oE '[A-Za-z0-9/-]+\.md$' "$SRC/mkdocs.yml" | sort | diff pages.txt - || fail "mkdocs.yml: other pages than docs"
if mkdocs --version 2>/dev/null | grep -q 'version 1\.[6-9]'; then
    expect 0 mkdocs build --strict -f "$SRC/mkdocs.yml" -d "$PWD/site"
fi

for page in "$docs"/*.md "$docs"/losses/*.md "$docs"/reference/*.md; do
    folder=$(dirname "$page")
    grep -oE '\]\([^)]+\)' "$page" | sed 's/^](//; s/)$//' | while IFS= read -r link; do
        file=${link%%#*}
        case $link in http*) continue ;; esac
        [ -e "$folder/${file:-$(basename "$page")}" ] || fail "$(basename "$page"): no $file"
        case $link in
        *'#'*) sed -n 's/^## \(.*\)/\L\1/p' "$folder/${file:-$(basename "$page")}" | sed 's/[^a-z0-9 _-]//g' | tr ' ' - | grep -qx -- "${link#*#}" || fail "$(basename "$page"): no heading $link" ;;
        esac
    done
done

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
