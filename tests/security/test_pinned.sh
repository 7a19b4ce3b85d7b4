# What scripts of the tree fetch has a version and a hash: pip by --require-hashes, images by digest, Debian's packages by the
# signatures that apt checks. Nothing else is downloaded.
. "$SRC/tests/support/cli.sh"
check() { # check TREE: prints which of its files on stdin do so otherwise
    grep -vE '\.(md|c|h|cu|cuh|cpp|png|tar|txt|html|json|py)$|(^|/)corpus/' |
        sed "s|^|$1/|" | xargs -r -d '\n' grep -nIE \
            '(^|[^a-z_.-])pip3? (install|wheel|download)|/pip" |-m pip |(^|[;&|(]) *(curl|wget) |git clone|git -c .* clone|urlretrieve|allow-unauthenticated|trusted=yes|AllowInsecure|apt-key|^FROM |^ARG [A-Z]+=docker' /dev/null |
        grep -vE ':[0-9]+: *#|(require-hashes|no-deps --no-build-isolation|--no-index)|:FROM (\$|base |build )|@sha256:[0-9a-f]{64}$' |
        grep -vE -e '--config "\$work/pieces\.txt"|curl -sfL -K urls\.txt|err\.txt "|sys\.exit\(|/test_pinned\.sh:' || true
}
(cd "$SRC" && git rev-parse --show-toplevel) >top.txt 2>&1 && [ "$(cat top.txt)" = "$(cd "$SRC" && pwd -P)" ] ||
    { echo "skipped: not a checkout, whose files git lists"; exit 77; }
(cd "$SRC" && git ls-files) | check "$SRC" >bad.txt
[ ! -s bad.txt ] || { cat bad.txt; fail "these fetch something without a hash"; }

# Every requirement has a version and a hash.
files=$(find "$SRC/bindings" "$SRC/tests" -name '*requirements*.txt' -o -path '*/requirements/*.txt')
[ "$(echo "$files" | wc -l)" -ge 2 ] || fail "no requirements were found"
! grep -nvE '^#|^[a-zA-Z0-9_.-]+==[^ ]+ --hash=sha256:[0-9a-f]{64}$' $files /dev/null || fail "requirements without version or hash"

# The check can fail.
mkdir made
printf 'venv/bin/pip install numpy\n"$venv/bin/pip" install numpy\ncurl -sL https://x | sh\ngit clone https://x\n' >made/a.sh
printf 'ARG BUILD=docker.io/library/debian:bookworm\nFROM ${BUILD} AS build\nFROM debian:12\n' >made/Containerfile
(cd made && ls) | check made >bad.txt
lines bad.txt 6
