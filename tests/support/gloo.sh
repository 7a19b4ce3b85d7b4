# For shell tests that start ranks without MPI: . "$SRC/tests/support/gloo.sh"
# Skips the test without the Gloo module.
if [ ! -e "$BIN/libccstream_gloo.so" ]; then
    echo "skipped: this build has no Gloo module"
    exit 77
fi
# gloo WORLD COMMAND...: WORLD processes with the variables that torchrun sets. Returns the exit code of the first rank
# that failed.
gloo() {
    local world=$1 pids="" rank pid one code=0
    shift
    for ((rank = 0; rank < world; rank++)); do
        RANK=$rank WORLD_SIZE=$world LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "$@" </dev/null &
        pids="$pids $!"
    done
    for pid in $pids; do
        one=0
        wait "$pid" || one=$?
        [ "$code" -ne 0 ] || code=$one
    done
    return "$code"
}
