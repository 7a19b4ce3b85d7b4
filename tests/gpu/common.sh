# shellcheck shell=bash disable=SC2154
# Shared by tests/gpu/run and tests/gpu/measure: finding programs, libraries and the device, and steps that
# may fail or take too long without ending the script. Sourced, not run.
#
# The sourcing script sets: name, top, out, build, device, only, seconds, jobs.
#
# A script writes two files while it runs: NAME.txt, a line for every step, and NAME.log, what each step
# printed (of more than 400 KB the first and last part).

# parse OPTION...: the options of both scripts; others go to own_option, which sets `took` to the number of
# words it used, 0 for an unknown word.
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
            [ "$took" -gt 0 ] || { echo "gpu/$name: unknown argument '$1'; see --help" >&2; exit 64; }
            shift "$took"
            ;;
        esac
    done
    case $seconds$jobs${sanitize:-} in
    *[!0-9]*) echo "gpu/$name: --seconds, --jobs and --sanitize are numbers" >&2; exit 64 ;;
    esac
}

# find_programs: BIN, TESTBIN, SRC, the libraries' folders and the device's line. Ends with 77 where programs or a
# GPU are missing, and with 1 where the machine has a GPU that our programs do not list.
find_programs() {
    export BIN=$build/bin TESTBIN=$build/tests/bin SRC=$top device
    export CCSTREAM_CUDA_MODULE=${CCSTREAM_CUDA_MODULE:-$BIN/libccstream_cuda.so}
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
    # for our programs; Python has libraries of its own, see tests/gpu/measure
    export libraries_before=${LD_LIBRARY_PATH:-}
    export LD_LIBRARY_PATH=$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    devices=$("$BIN/ccstream-train" --list-devices)
    if [ "$device" != cpu ] && ! printf '%s\n' "$devices" | grep -q '^cuda:0 '; then
        echo "gpu/$name: $(printf '%s\n' "$devices" | grep '^cuda')"
        nvidia-smi -L 2>/dev/null | grep '^GPU' && echo "gpu/$name: FAIL: this GPU is not listed" && exit 1
        exit 77
    fi
}

# begin: makes the folder of results and a work folder, which is removed at the end; describes the machine.
begin() {
    out=$(readlink -m "${out:-$top/tests/bench/results/gpu-$(date -u +%Y-%m-%d)}")
    mkdir -p "$out"
    summary=$out/$name.txt
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work" || exit 1
    began=$(date +%s)
    : >"$out/$name.log"
    {
        echo "$(date -u +%FT%TZ) commit $(cat "$build/commit" 2>/dev/null ||
            git -C "$top" rev-parse HEAD 2>/dev/null || echo unknown)"
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

# offers "PROGRAM [COMMAND]" WORD...: whether its --help has all of these options and names of values; prints
# the missing one.
offers() {
    local help word
    # shellcheck disable=SC2086 # $1 may be two words
    help=$("$BIN"/$1 --help)
    shift
    for word in "$@"; do
        printf '%s\n' "$help" | grep -qw -e "$word" || { echo "this build has no $word"; return 1; }
    done
}

# only_on_gpu COMMAND...: a skip where the script itself is tested
only_on_gpu() {
    [ "$device" != cpu ] || { echo "the CPU has no such choice"; return 77; }
    "$@"
}
export -f offers only_on_gpu

# step PART SECONDS WHAT COMMAND...: runs it for at most that long, or for the rest of --seconds. One line goes
# to the summary, everything else to the log; of a failure the end is printed too. Exit code 77 is a skip, with
# the last line of output as its reason.
step() {
    local part=$1 limit=$2 what=$3 code=0 from reason log
    shift 3
    wanted "$part" || return 0
    from=$(date +%s)
    if [ "$seconds" -gt 0 ] && [ $((seconds - from + began)) -lt "$limit" ]; then
        limit=$((seconds - from + began))
    fi
    if [ "$limit" -lt 3 ]; then
        verdict "$part: $what" 0 "not run: no time is left"
        return 0
    fi
    log=$(mktemp "$work/step.XXXXXX")
    # in a new shell, which has the exported functions
    timeout -k 5 "$limit" bash -c '"$@"' "$part" "$@" >"$log" 2>&1 || code=$?
    case $code in
    0) reason=pass ;;
    77) reason="skip: $(tail -n 1 "$log" | cut -c 1-120)" ;;
    124 | 137) reason="FAIL: no end after $limit s" ;;
    *) reason="FAIL ($code): $(tail -n 1 "$log" | cut -c 1-160)" ;;
    esac
    verdict "$part: $what" $(($(date +%s) - from)) "$reason" "$log"
    rm -f "$log"
}

# verdict WHAT SECONDS REASON [LOG]: of parallel steps, one after the other.
verdict() {
    {
        flock 9
        printf '%-52s %4d s  %s\n' "$1" "$2" "$3" | tee -a "$summary"
        if [ -n "${4:-}" ]; then
            echo "==== $1: $3"
            if [ "$(stat -c %s "$4")" -gt 400000 ]; then
                head -c 150000 "$4"
                echo "[...]"
                tail -c 250000 "$4"
            else
                cat "$4"
            fi
        fi >>"$out/$name.log"
        case $3 in
        FAIL*) tail -n 25 "$4" | cut -c 1-400 | sed 's/^/    | /' ;;
        esac
    } 9>>"$work/lock"
}

# beside STEP'S ARGUMENTS: a step that runs in parallel with up to $jobs others; `wait` ends them. For steps that
# are not timed.
beside() {
    wanted "$1" || return 0
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n
    done
    step "$@" &
}

# finish: the totals, the failures again, the exit code
finish() {
    wait
    local bad
    bad=$(grep -cE ' s  (FAIL|not run)' "$summary")
    echo "$(grep -c ' s  pass$' "$summary") passed, $(grep -c ' s  skip:' "$summary") skipped," \
        "$bad failed or not run; $(($(date +%s) - began)) s; $out" | tee -a "$summary"
    grep -E ' s  (FAIL|not run)' "$summary" | sed 's/^/  /'
    [ "$bad" -eq 0 ]
    exit
}
