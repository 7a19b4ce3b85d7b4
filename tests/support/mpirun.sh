# For shell tests that start ranks: . "$SRC/tests/support/mpirun.sh"
# Skips the test without mpirun or the MPI module.
if ! command -v mpirun >/dev/null; then
    echo "skipped: mpirun is not installed"
    exit 77
fi
if [ ! -e "$BIN/libccstream_mpi.so" ]; then
    echo "skipped: this build has no MPI module"
    exit 77
fi
# Root in a container, no ptrace between processes. There may be fewer cores than ranks: --oversubscribe --bind-to none.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1
export PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
