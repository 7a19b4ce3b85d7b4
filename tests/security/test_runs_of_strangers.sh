#!/bin/bash
# A run of a stranger is data: what looks at it asks no server that only the run names, signs for none, and writes
# nowhere but where it is told; --resume asks before it does.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
"$TESTBIN/make_scenes" train 100 1 32 scenes.tar >/dev/null
expect 0 "$BIN/ccpack" -q -o www/bucket/pairs --shard-samples 100 scenes.tar
small="--task two-views --loss sogclr --image-tower tiny --image-size 32 --batch-size 8 --eval-every 0 -q"
export AWS_ACCESS_KEY_ID=AKIAEXAMPLE AWS_SECRET_ACCESS_KEY=s AWS_SESSION_TOKEN=SESSION AWS_CONFIG_FILE=/dev/null
unset AWS_PROFILE AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 http_proxy

coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" www; }
read -r port <&"${SERVER[0]}"
trap 'kill "$SERVER_PID"' EXIT
server=http://127.0.0.1:$port
requests() { # how many there were since the last call
    python3 - "$server" <<'PYTHON'
import json, sys, urllib.request
print(sum(json.load(urllib.request.urlopen(sys.argv[1] + "/stats?reset"))["paths"].values()))
PYTHON
}
named_by() { # named_by RUN OPTION=JSON...: writes the options into the run's config.json
    python3 - "$@" <<'PYTHON'
import json, sys
path = sys.argv[1] + "/config.json"
config = json.load(open(path))
for option in sys.argv[2:]:
    name, value = option.split("=", 1)
    config["options"][name] = json.loads(value)
json.dump(config, open(path, "w"))
PYTHON
}
quiet() { # quiet COMMAND...: nothing arrived at the server, and nothing was written
    n=$(requests)
    [ "$n" = 0 ] || fail "$n requests: $*"
    [ ! -e planted ] || fail "a folder that the run names was made: $*"
}

expect 0 "$BIN/ccstream-train" --data www/bucket/pairs --out mine $small --steps 2
requests >/dev/null
for data in "s3://bucket/pairs" "$server/bucket/pairs"; do
    rm -rf run
    cp -r mine run
    named_by run "data=[\"$data\"]" "endpoint=\"$server\"" 'cache="planted"' \
        'plan-cache="planted/p"' 'instance-metadata=true'
    expect 0 "$BIN/ccstream-report" -o page.html --force run
    has page.html "only a run's config.json contains this location"
    quiet report "$data"
    expect 64 "$BIN/ccdump" order run --step 0
    has err.txt "only a run's config.json contains this location"
    quiet order "$data"
    expect 0 "$BIN/ccdump" state run/last
    expect 0 "$BIN/ccdump" why run www/bucket/pairs 1
    expect 0 "$BIN/ccstream-eval" embed run --data www/bucket/pairs --out vectors --force
    quiet looking "$data"
    expect_message 64 "was copied, or others may write there, and names a server" "$BIN/ccstream-train" --resume run --steps 3 -q
    quiet resume "$data"
    # What the user's own option names is asked.
    expect 0 "$BIN/ccstream-train" --resume run --steps 3 -q --data "$data" --endpoint "$server"
    has err.txt "its --cache=planted is not used"
    [ ! -e planted ] && [ "$(requests)" -gt 0 ] || fail "resume $data: with options of one's own"
done

# One's own run needs no option twice, unless others may write there.
expect 0 "$BIN/ccstream-train" --data s3://bucket/pairs --endpoint "$server" --out own $small --steps 2 --cache own-cache
expect 0 "$BIN/ccstream-train" --resume own --steps 3 -q
mv own moved
expect 0 "$BIN/ccstream-train" --resume moved --steps 4 -q
requests >/dev/null
chmod g+w moved
expect_message 64 "or others may write there" "$BIN/ccstream-train" --resume moved --steps 5 -q
quiet group
chmod g-w moved

# The viewer's option or profile names the server.
expect 0 "$BIN/ccstream-report" -o page.html --force moved
quiet report
expect 0 "$BIN/ccstream-report" -o page.html --force moved --endpoint "$server"
hasnt page.html "extreme samples are missing"
AWS_ENDPOINT_URL=$server expect 0 "$BIN/ccstream-report" -o page.html --force moved
hasnt page.html "extreme samples are missing"
named_by moved "data=[\"$server/bucket/pairs\"]"
expect 0 "$BIN/ccstream-report" -o page.html --force moved --endpoint "$server"
has page.html "only a run's config.json contains this location"
expect 0 "$BIN/ccstream-report" -o page.html --force moved --data "$server/bucket/pairs"
hasnt page.html "only a run's config.json"
expect 0 "$BIN/ccstream-report" -o page.html --force moved --trust
hasnt page.html "only a run's config.json"
hasnt page.html "extreme samples are missing"
expect 0 "$BIN/ccdump" order moved --step 0 --data "$server/bucket/pairs"
