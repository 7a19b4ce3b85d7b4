# Whoever may only read a dataset or a run keeps nobody from writing.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
cat >hold.py <<'PYTHON'
import fcntl, os, struct, sys, time
kept = []
for path in sys.argv[1:]: # all that an open for reading allows
    fd = os.open(path, os.O_RDONLY)
    for act in (lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB),
                lambda: fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))):
        try:
            act()
        except OSError:
            pass
    kept.append(fd)
print("held", flush=True)
parent = os.getppid()
while os.getppid() == parent:  # ends with the test
    time.sleep(0.2)
PYTHON
hold() {
    : >held.txt
    python3 hold.py "$@" >held.txt &
    holder=$!
    until grep -q held held.txt; do
        sleep 0.05
    done
}
"$TESTBIN/make_scenes" val 20 1 48 all.tar >scenes.txt
"$TESTBIN/make_scenes" train 20 2 48 more.tar >scenes.txt
expect 0 "$BIN/ccpack" -q -o d all.tar
hold d d/*
expect 0 "$BIN/ccpack" tokenizer -q d --vocab-size 60
expect 0 "$BIN/ccpack" -q -o d more.tar --append
echo 3 >ids.txt
expect 0 "$BIN/ccpack" remove -q d --ids ids.txt
expect 0 "$BIN/ccpack" compact -q d
kill $holder
expect 0 "$BIN/ccpack" tokenizer -q d --vocab-size 60 --overwrite
expect 0 "$BIN/ccstream-train" -q --preset cpu-demo --image-tower tiny --data d --out r --epochs 9 --steps 1 --batch 4
hold r r/*.json*
expect 0 "$BIN/ccstream-train" -q --resume r --steps 2
kill $holder
[ -z "$(ls -A d | grep lock)" ] || fail "a lock stays in the dataset"
