#!/bin/bash
# The Python package's types and those of its examples: mypy (strict, see pyproject.toml) and pyright find nothing, with torch and
# NumPy installed; and what they must find in a wrong use. CCSTREAM_PEERS: an environment that has them. A minute of CPU time.
python=${CCSTREAM_PEERS:-}/bin/python
"$python" -c 'import mypy, torch, pyright' 2>/dev/null || {
    echo "skipped: CCSTREAM_PEERS names no environment with mypy, pyright and torch"
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$SRC/bindings/python" || exit 1
cat >"$work/wrong.py" <<'PY'
import ccstream

dl = ccstream.DataLoader("d", dtype="float65")
ds: ccstream.Dataset = ccstream.Dataset(17)
image: int = ds[0].image
PY
export MYPYPATH=$PWD/src PYTHONPATH=$PWD/src # for wrong.py
"$python" -m mypy --cache-dir "$work/cache" src/ccstream examples || exit 1
found=$("$python" -m mypy --cache-dir "$work/cache" "$work/wrong.py")
for line in 3 4 5; do
    grep -q "wrong.py:$line: error" <<<"$found" || {
        echo "mypy finds nothing in line $line of a wrong use: $found"
        exit 1
    }
done
"$python" -m pyright -p pyproject.toml --pythonpath "$python"
