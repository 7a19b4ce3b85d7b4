#!/bin/bash
# Whether the loader's memory stays flat: bench_loader_memory.sh DIR [BATCHES [BATCH]]
#
# Runs as many batches as a trainer needs in an hour at four steps per second (14,400), of only 32 pairs so that it takes
# minutes, and samples the memory in use 32 to 64 times: prints the first, last, least and largest value. The spread omits the
# first half, in which buffers of the decoder and of SentencePiece grow to the largest image and the longest caption. BIN
# names the folder of ccbench. Exits with 1 if the second half spreads over more than 1 MiB.
set -eu

dir=$1
batches=${2:-14400}
batch=${3:-32}
bin=${BIN:-build/release/bin}

"$bin/ccbench" loader "$dir" --threads 2 --augment paper --batch-size "$batch" --steps "$batches" --json | python3 -c '
import json, sys
r = json.loads(sys.stdin.read())
rss = r["rss_bytes"]
half = rss[len(rss) // 2:]
mib = lambda n: "%.2f MiB" % (n / 2**20)
print("%d batches of %d, %d pairs at %.0f a second; %s, %d threads" % (
    r["batches"], r["batch"], r["pairs"], r["pairs_per_s"], r["engine"], r["threads"]))
print("memory: first %s, last %s, least %s, most %s" % (mib(rss[0]), mib(rss[-1]), mib(min(rss)), mib(max(rss))))
print("second half: %d samples, spread %s" % (len(half), mib(max(half) - min(half))))
print("first batch after %.3f s" % (r["open_s"] + r["first_batch_s"]))
sys.exit(max(half) - min(half) > 2**20)
'
