# What tests/gpu/run and tests/gpu/measure share: finding programs, libraries and the device, and steps that
# may fail or take too long without ending the whole. Sourced, not run.
#
# The sourcing script sets: name, top, out, build, device, only, seconds.

# parse OPTION...: the options that both scripts have; the others go to own_option, which says how many words
# it took (in `took`), 0 for a word it does not know.
parse() {
    while [ $# -gt 0 ]; do
        case "$1" in
        --out) out=${2:?--out needs a folder}; shift 2 ;;
        --build) build=$(readlink -m "${2:?--build needs a folder}"); shift 2 ;;
        --device) device=${2:?--device needs a name}; shift 2 ;;
        --only) only=${2:?--only needs names}; shift 2 ;;
        --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
        -h | --help) sed -n "2,/^set /{/^set /d;s/^# \{0,1\}//p}" "$top/tests/gpu/$name"; exit 0 ;;
        *)
            took=0
            own_option "$@"
            [ $took -gt 0 ] || { echo "gpu/$name: unknown argument '$1'; see --help" >&2; exit 64; }
            shift $took
            ;;
        esac
    done
}

# find_programs: BIN, TESTBIN, SRC, the libraries' folders and the device's line; leaves with 77 where one lacks.
find_programs() {
    export BIN=$build/bin TESTBIN=$build/tests/bin SRC=$top device
    export CCSTREAM_CUDA_MODULE=$BIN/libccstream_cuda.so
    if [ ! -x "$BIN/ccstream-train" ] || [ ! -e "$CCSTREAM_CUDA_MODULE" ]; then
        echo "gpu/$name: $build has no programs: cmake --preset cuda && cmake --build --preset cuda, or unpack a bundle"
        exit 77
    fi
    # Libraries: those of a bundle, then CUDA's of a toolkit or of Python's wheels.
    local folder folders=$build/lib
    for folder in /usr/local/cuda/lib64 $(python3 -c '
import glob, site
for place in site.getsitepackages() + [site.getusersitepackages()]:
    print("\n".join(glob.glob(place + "/nvidia/*/lib")))' 2>/dev/null); do
        [ -d "$folder" ] && folders=$folders:$folder
    done
    export LD_LIBRARY_PATH=$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    devices=$("$BIN/ccstream-train" --list-devices)
    if [ "$device" != cpu ] && ! printf '%s\n' "$devices" | grep -q '^cuda:0 '; then
        echo "gpu/$name: $(printf '%s\n' "$devices" | grep '^cuda')"
        exit 77
    fi
}

# begin: the folder of results and the one to work in, which is left in the end; what machine this is.
begin() {
    out=$(readlink -m "${out:-$top/tests/bench/results/gpu-$(date -u +%Y-%m-%d)}")
    mkdir -p "$out"
    summary=$out/$name.txt
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    began=$(date +%s)
    failed=0
    parts_begun=
    {
        echo "commit $(cat "$build/commit" 2>/dev/null || git -C "$top" rev-parse HEAD 2>/dev/null || echo unknown)"
        printf '%s\n' "$devices" | grep '^cuda'
        nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit,temperature.gpu \
            --format=csv,noheader 2>/dev/null
        echo "$(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    } | tee "$summary"
}

# wanted PART: whether --only names it, or names nothing.
wanted() {
    case ",${only:-$1}," in
    *",$1,"*) return 0 ;;
    esac
    return 1
}

# step PART SECONDS WHAT COMMAND...: runs it for that long at most, or for what --seconds leaves; one line in the
# summary, everything else in PART.log. Exit code 77 is a skip, whose reason is its last line of output.
step() {
    local part=$1 limit=$2 what=$3 code=0 from reason=
    shift 3
    wanted "$part" || return 0
    from=$(date +%s)
    if [ "$seconds" -gt 0 ] && [ $((seconds - from + began)) -lt "$limit" ]; then
        limit=$((seconds - from + began))
    fi
    if [ "$limit" -le 0 ]; then
        failed=1
        line "$part: $what" 0 "not run: no time is left"
        return 0
    fi
    case " $parts_begun " in
    *" $part "*) ;;
    *) parts_begun="$parts_begun $part"; : >"$out/$part.log" ;;
    esac
    # through a shell of its own, which knows the exported functions
    timeout -k 10 "$limit" bash -c '"$@"' "$part" "$@" >"$work/step.log" 2>&1 || code=$?
    { echo "==== $what"; cat "$work/step.log"; } >>"$out/$part.log"
    case $code in
    0) reason=pass ;;
    77) reason="skip: $(tail -n 1 "$work/step.log" | cut -c 1-120)" ;;
    124 | 137) reason="FAIL: no end after $limit s" ;;
    *) reason="FAIL: $(tail -n 1 "$work/step.log" | cut -c 1-120)" ;;
    esac
    [ $code -eq 0 ] || [ $code -eq 77 ] || failed=1
    line "$part: $what" $(($(date +%s) - from)) "$reason"
    return 0
}

line() { # line WHAT SECONDS VERDICT
    printf '%-52s %4d s  %s\n' "$@" | tee -a "$summary"
}

# finish: the last line and the exit code
finish() {
    echo "$(($(date +%s) - began)) s in all" | tee -a "$summary"
    [ $failed -eq 0 ] && echo "all passed; $out" || echo "something failed; see $out"
    exit $failed
}
