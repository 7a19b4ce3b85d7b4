# What a program starts in Python imports nothing from the folder in which it was called.
. "$SRC/tests/support/cli.sh"
[ -f "$BIN/../python/ccstream/attach.py" ] || { echo "skipped: the Python package is not built"; exit 77; }
mkdir d
printf 'id,caption\n1,a\n' >t.csv
printf 'PAR1' >t.parquet
for module in argparse struct csv os numpy pyarrow json; do
    echo "open('imported', 'a').write(__name__ + chr(10))" >"$module.py"
done
"$BIN/ccpack" attach d t.csv --as caption >out.txt 2>err.txt || true
"$BIN/ccpack" -o out t.parquet >>out.txt 2>>err.txt || true
[ ! -e imported ] || fail "imported from here: $(tr '\n' ' ' <imported)"
# The same files are imported by a Python that looks here.
python3 -c "import numpy" 2>err.txt || true
[ -e imported ] || fail "the files of this test are not found by any Python"
