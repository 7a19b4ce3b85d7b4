#!/bin/bash
# Parquet samples of real sets: the process that reads a file sends every value of all 16; ccpack packs, fetches and
# attaches them, and every column of the datasets is that of the file; the 10 damaged ones end with a message.
# not under sanitizers: attach is Python, which would need their library before all others
. "$SRC/tests/support/cli.sh"
real=${CCSTREAM_PYTHON:-python3}
"$real" -c 'import pyarrow.parquet' 2>/dev/null || { echo "skipped: no pyarrow in $real (CCSTREAM_PYTHON)"; exit 77; }
make=${CCSTREAM_TEST_DATA:-none}/../tools/parquet-samples/make_parquet_samples.py
[ -f "$make" ] || { echo "skipped: no make_parquet_samples.py beside CCSTREAM_TEST_DATA"; exit 77; }
export CCSTREAM_PYTHON=$real PYTHONDONTWRITEBYTECODE=1

"$real" "$make" samples
"$real" "$SRC/tests/support/parquet_samples.py" "$SRC/bindings/python/src/ccstream/parquet_rows.py" samples
expect 0 env PYTHONPATH="$BIN/../python" "$real" "$SRC/tests/support/parquet_pack.py" "$BIN" "$make"
cat out.txt

damaged=0
for file in samples/bad-*.parquet; do
    for command in "" fetch; do
        expect 65 "$BIN/ccpack" $command -o "new-$(basename "$file")" "$file"
        has err.txt "$file: "
    done
    damaged=$((damaged + 1))
done
[ $damaged = 10 ] || fail "$damaged damaged files"
