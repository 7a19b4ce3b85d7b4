# All files that are made under another name first have a name that nobody can guess, by one function; no other place of the source
# makes a file without O_EXCL or O_NOFOLLOW.
. "$SRC/tests/support/cli.sh"
product() { # product PATTERN: FILE:LINE of the product's C code, without comments
    (cd "$SRC" && grep -rnE "$1" formats augment net pack loader kernels train tools bindings --include='*.c' --include='*.cpp' --include='*.cu' --include='*.h') |
        grep -vE ':[0-9]+: *(/?\*|//)' || true
}
product 'O_CREAT' | grep -vE 'O_(EXCL|NOFOLLOW)|heartbeat.c:[0-9]+:.*O_EXCL' >bad.txt || true
[ ! -s bad.txt ] || { cat bad.txt; fail "a planted link would be followed"; }
product '(^|[^a-z_])(mkstemps?|mkdtemp|tmpnam|tempnam|tmpfile)\(|fopen(64)?\([^;]*"[wa]|mkostemp' |
    grep -vE '^loader/remote/open\.c:|^formats/base/file_posix\.c:.*mkdtemp' >bad.txt || true
[ ! -s bad.txt ] || { cat bad.txt; fail "another way to make a file"; }
# Names that end in .tmp: the function, what removes them, and what a resumed run finds again: the list of rejects, and indexes of
# remote tars.
product '"[^"]*\.tmp"' | cut -d: -f1 | sort -u >names.txt
cat >known.txt <<'KNOWN'
formats/base/file_util.c
formats/columns/column_writer.c
loader/remote/cache.c
pack/index/index_tar.c
pack/run/rejects_internal.h
tools/inspect/input.c
KNOWN
sort known.txt | comm -23 names.txt - >bad.txt
[ ! -s bad.txt ] || { cat bad.txt; fail "these make temporary names of their own: file_temporary_ending is for that"; }
# Python's writers.
(cd "$SRC" && grep -rnE "tempfile\.mktemp|mktemp\(|\.tmp['\"]" tools bindings --include='*.py') >bad.txt || true
[ ! -s bad.txt ] || { cat bad.txt; fail "a name that can be guessed"; }

# ccpack index: an index that somebody planted for a tar without samples is not published.
mkdir t
tar -cf t/none.tar -T /dev/null
"$TESTBIN/make_scenes" val 4 1 32 t/some.tar >scenes.txt
echo planted >t/none.cci.tmp
expect 0 "$BIN/ccpack" index -q t/none.tar t/some.tar
[ ! -e t/none.cci ] || fail "a planted index was published"
