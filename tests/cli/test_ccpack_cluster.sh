#!/bin/bash
# The recipes of pack/RUNS.md, run as they are written there: each gives the dataset of one process, although
# part 2 ended early before. No Slurm is required: a program 'sbatch' runs the tasks of an array one after another.
. "$SRC/tests/support/cli.sh"
PATH=$PWD/bin:$BIN:$PATH
top=$PWD
unset "${!SLURM_@}" "${!PMI@}" "${!OMPI_@}" JOB_COMPLETION_INDEX

recipe() { # recipe HEADING N FILE: the Nth block of code after the line that begins with **HEADING
    awk -v heading="**$1" -v nth="$2" '
        index($0, heading) == 1 { found = 1 }
        found && /^```$/ && inside { exit }
        found && /^```/ { closing = !closing; inside = closing && ++blocks == nth; next }
        inside' "$SRC/pack/RUNS.md" >"$3"
    [ -s "$3" ] || fail "pack/RUNS.md has no block $2 after '**$1'"
}

mkdir bin tars
cat >bin/sbatch <<'SBATCH'
#!/bin/bash
# Tasks as Slurm starts them, with the variables of a batch script; then the number of the job.
set -e
while [ $# -gt 0 ]; do
    case $1 in
    --parsable) ;;
    --dependency=afterok:17) ;;
    --array=*) array=${1#*=} ;;
    --wrap) exec bash -c "$2" ;;
    -*) echo "unknown option $1" >&2 && exit 1 ;;
    *) script=$1 ;;
    esac
    shift
done
array=${array:-$(sed -n 's/^#SBATCH --array=//p' "$script")}
case $array in
*-*:*) range=${array%:*} ids=$(seq "${range%-*}" "${array#*:}" "${range#*-}") step=${array#*:} ;;
*-*) ids=$(seq "${array%-*}" "${array#*-}") step=1 ;;
*) ids=${array//,/ } step=1 ;;
esac
set -- $ids
export SLURM_ARRAY_TASK_MIN=$1 SLURM_ARRAY_TASK_MAX=${!#} SLURM_ARRAY_TASK_COUNT=$#
export SLURM_ARRAY_TASK_STEP=$step SLURM_ARRAY_JOB_ID=17 SLURM_PROCID=0 SLURM_NTASKS=1
for id; do
    SLURM_ARRAY_TASK_ID=$id bash "$script" >&2
done
echo 17
SBATCH
chmod +x bin/sbatch

# Row 30, in part 2 of 4, has no caption.
"$TESTBIN/make_scenes" val 30 1 48 tars/a.tar >/dev/null
"$TESTBIN/make_scenes" train 71 2 48 tars/c.tar >/dev/null
tar xf tars/a.tar && mv "$(ls ./*.jpg | head -1)" bare.jpg && tar cf tars/b.tar bare.jpg
mkdir one && expect 0 ccpack -q --json -o one/train tars/*.tar
print=$(field out.txt fingerprint)
lines one/train/rejects.jsonl 1
ccdump ls one/train >ls.txt

begin() { # begin NAME: a folder with the sources, where part 2 ended early
    mkdir "$top/$1"
    cd "$top/$1"
    ln -s ../tars tars
    expect 65 ccpack -q --on-bad fail --part 2/4 -o train-part-2-of-4 tars/*.tar
    expect 65 ccpack merge --json -o train train-part-*
    has err.txt "unfinished: part 2/4: train-part-2-of-4: its run ended early"
    has err.txt "missing: parts 1,3-4 of 4"
    has err.txt "--array=1,3-4,2"
    has out.txt '{"parts":4,"missing":[1,3,4],"unfinished":[2],"repeated":[],"foreign":[]}'
}
check() { # check NAME: the dataset of one process
    ccdump verify train >/dev/null || fail "$1: the merged dataset does not verify"
    ccdump info --json train >info.txt
    grep -q "\"$print\"" info.txt || fail "$1: its fingerprint is not that of one process, $print: $(cat info.txt)"
    cmp "$top/one/train/rejects.jsonl" train/rejects.jsonl || fail "$1: other rejects"
    ccdump ls train | cmp "$top/ls.txt" - || fail "$1: other samples"
    ls -d train-part-*-of-4 | lines /dev/stdin 4
}

begin slurm
recipe "Slurm array" 1 pack.sbatch
recipe "Slurm array" 2 submit.sh
expect 0 bash -e submit.sh
has err.txt "ccpack: SLURM_ARRAY_TASK_ID=3: part 3 of 4, in train-part-3-of-4"
check "Slurm array"
rm -r train train-part-2-of-4 train-part-3-of-4
expect 0 sbatch --array=2,3 pack.sbatch # as the text says, these parts again
expect 0 ccpack merge -o train train-part-*
check "Slurm array, parts 2 and 3 again"
sed -i 's,auto/4,auto,' pack.sbatch
rm -r train train-part-*
expect 0 sbatch --array=0-30:10 pack.sbatch
expect 0 ccpack merge -o train train-part-*
check "Slurm array with steps"
expect 64 sbatch --array=1,3,4 pack.sbatch
has err.txt "not evenly spaced"

begin kubernetes
recipe "Kubernetes" 1 job.yaml
sed -n 's/.*command: \[sh, -c, "\(.*\)"\]$/\1/p' job.yaml >command.sh
lines command.sh 1
for index in 3 1 0 2; do
    JOB_COMPLETION_INDEX=$index expect 0 sh command.sh
    has err.txt "JOB_COMPLETION_INDEX=$index: part $((index + 1)) of 4"
done
JOB_COMPLETION_INDEX=4 expect 64 sh command.sh
expect 0 ccpack merge -o train train-part-*-of-4
check "Kubernetes"

if command -v mpirun >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 # OpenMPI 5
    export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    begin mpirun
    recipe "mpirun" 1 run.sh
    expect 0 bash -e run.sh
    has err.txt "part 3 of 4, in train-part-3-of-4"
    check "mpirun"
else
    echo "not run: the recipe for mpirun, which is not installed"
fi

if parallel --version 2>/dev/null | grep -q '^GNU parallel'; then
    begin parallel
    recipe "GNU parallel" 1 run.sh
    echo : >hosts.txt
    expect 0 bash -e run.sh
    check "GNU parallel"
else
    echo "not run: the recipe for GNU parallel, which is not installed"
fi
