# Python never unpickles what it reads: no pickle in the package, studies and examples, and the loaders of NumPy and torch
# are told so.
cd "$SRC"
files=$(find bindings/python tools -name '*.py')
bad=$(grep -nE '(^|[^_a-z])(pickle|marshal|shelve|dill|joblib)\b|[^_a-z.](eval|exec)\([a-z]' $files | grep -v 'allow_pickle=False' || true
    grep -nE 'torch\.load\(' $files | grep -v 'weights_only=True' || true
    grep -nE 'np\.load\(|numpy\.load\(' $files | grep -v 'allow_pickle=False' || true)
[ -z "$bad" ] || { echo "$bad"; echo "FAILED: these may run code of a file"; exit 1; }
