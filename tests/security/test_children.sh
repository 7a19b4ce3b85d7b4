# What programs start gets no secrets, and finds neither programs nor libraries nor modules of Python in the current folder, whatever
# the environment's lists of folders say.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
secrets="AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_PROFILE HF_TOKEN HUGGING_FACE_HUB_TOKEN WANDB_API_KEY GITHUB_TOKEN SLURM_JWT MY_PASSWORD
    db_passwd GOOGLE_APPLICATION_CREDENTIALS https_proxy SSH_AUTH_SOCK"
hostile() { # hostile COMMAND...: with secrets, and lists that lead to the current folder
    (
        for name in $secrets; do
            export "$name=a-secret"
        done
        PYTHONPATH=":sub:/nowhere/p:" LD_LIBRARY_PATH="/nowhere/l::." PYTHONSTARTUP=x.py BASH_ENV=x.sh LD_AUDIT=./libx.so \
            PATH=".:bin:$PATH:" KEPT=kept "$@"
    ) >out.txt 2>err.txt || true
}
clean() { # clean FILE WHAT: the environment of a child
    [ -s "$1" ] || fail "$2 was not started: $(cat out.txt err.txt)"
    hasnt "$1" a-secret
    ! grep -E '^(PYTHONSTARTUP|BASH_ENV|LD_AUDIT)=|^[A-Z_]*PATH=(.*:)?(:|[^/:][^:]*:|[^/:][^:]*$)|^[A-Z_]*PATH=(.*:)?$' "$1" || fail "$2 looks in the current folder"
    has "$1" KEPT=kept
}
cat >shows.sh <<SCRIPT
#!/bin/sh
/usr/bin/env >>"$PWD/environment.txt"
exit 69
SCRIPT
chmod +x shows.sh

# Python for Parquet: by CCSTREAM_PYTHON, and by name, which is not looked for here.
printf 'PAR1' >t.parquet
CCSTREAM_PYTHON=$PWD/shows.sh hostile "$BIN/ccpack" -o out t.parquet
clean environment.txt "the reader of Parquet"
has environment.txt "LD_LIBRARY_PATH=/nowhere/l"
has environment.txt "PYTHONPATH=/nowhere/p"
mkdir bin
for folder in . bin; do
    printf '#!/bin/sh\ntouch "%s/planted.txt"\n' "$PWD" >$folder/python3
    chmod +x $folder/python3
done
hostile "$BIN/ccpack" -o out t.parquet
[ ! -e planted.txt ] || fail "python3 of the current folder was run"

# What writes pages, which needs no server; its errors and its absence.
mkdir alone
cp "$BIN/ccdump" shows.sh alone
cp alone/shows.sh alone/ccstream-report
"$TESTBIN/make_scenes" val 3 1 24 few.tar >made.txt
rm -f environment.txt
hostile alone/ccdump show few.tar 0 --html page.html
clean environment.txt "what writes a page"
mkdir -p venv/lib/python3/site-packages/ccstream.scripts venv/bin # the layout of a wheel that auditwheel has repaired
cp alone/ccdump venv/lib/python3/site-packages/ccstream.scripts
cp alone/shows.sh venv/bin/ccstream-report
rm environment.txt
hostile venv/lib/python3/site-packages/ccstream.scripts/ccdump show few.tar 0 --html page.html
clean environment.txt "what writes a page of a wheel's ccdump"
for program in "#!/nowhere/python3" ""; do # no interpreter, no program
    rm alone/ccstream-report
    [ -z "$program" ] || { echo "$program" >alone/ccstream-report && chmod +x alone/ccstream-report; }
    expect 69 alone/ccdump stats few.tar --html page.html
    has err.txt "install Python 3.11 or later"
    [ "$(wc -l <err.txt)" = 1 ] || fail "more than a line: $(cat err.txt)"
    [ -z "$program" ] || cmp -s out.txt <("$BIN/ccdump" stats few.tar 2>err.txt) || fail "no numbers without a page"
done
[ -z "$(find . -name "*page.html*")" ] || fail "a page without its writer"

# attach, suite and an alias, by the environment of the process that they become.
if [ -f "$BIN/../python/ccstream/attach.py" ]; then
    mkdir plain
    python=$(sed -n '1s/^#!//p' "$BIN/ccstudy")
    printf 'import os\nwith open("%s/environment.txt", "w") as f:\n    f.writelines(f"{n}={v}\\n" for n, v in os.environ.items())\n' "$PWD" >plain/sitecustomize.py
    for command in "ccpack attach d t.csv --as caption" "ccstream-eval suite m --sets s"; do
        rm -f environment.txt
        set -- $command
        program=$1
        shift
        (export PYTHONPATH="$PWD/plain::sub"
            for name in $secrets; do export "$name=a-secret"; done
            PYTHONSTARTUP=x.py BASH_ENV=x.sh KEPT=kept "$BIN/$program" "$@") >out.txt 2>err.txt || true
        [ "$program" = ccpack ] || sed -i '/a-secret/d' environment.txt # its own programs read from servers
        clean environment.txt "$command"
    done

    # Programs that a study starts: keys of servers only where a location is named.
    cat >started.py <<'PYTHON'
import os, sys
sys.path.insert(0, sys.argv[1] + "/ccstream")
import studies.study as study
sys.argv[0] = os.path.realpath("x")
for words, file in ((["shows.sh", "d"], "local.txt"), (["shows.sh", "s3://b/d"], "remote.txt")):
    study.start(words).wait()
    os.rename("environment.txt", file)
PYTHON
    rm -f environment.txt
    hostile "$python" started.py "$BIN/../python"
    clean local.txt "a program of a study"
    has remote.txt AWS_SECRET_ACCESS_KEY=a-secret
    has remote.txt HF_TOKEN=a-secret
    hasnt remote.txt WANDB_API_KEY
fi
