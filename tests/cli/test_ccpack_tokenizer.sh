#!/bin/bash
# ccpack tokenizer: learning, importing, replacing; what is recorded, what is refused.
. "$SRC/tests/support/cli.sh"

# recorded DIR KIND: the manifest records the file in DIR.
recorded() {
    local hash
    hash=$(sed -n 's/.*"tokenizer":{"file":"tokenizer.model","kind":"'"$2"'","xxh64":"\([0-9a-f]*\)".*/\1/p' "$1/dataset.json")
    [ -n "$hash" ] || fail "$1/dataset.json records no $2 tokenizer"
    ! command -v xxhsum >/dev/null || [ "$(xxhsum -q "$1/tokenizer.model" | cut -d' ' -f1)" = "$hash" ] ||
        fail "$1: recorded hash $hash is not the file's"
}

fingerprint() {
    sed -n 's/.*"fingerprint":"\([0-9a-f]*\)".*/\1/p' "$1/dataset.json" | head -1
}

"$TESTBIN/make_scenes" val 60 1 48 all.tar >/dev/null || exit 1
"$BIN/ccpack" -q -o plain all.tar || exit 1
cp -r plain again
before=$(fingerprint plain)

# --- learning: the same captions give the same bytes; fewer pieces than --vocab-size are no error
"$BIN/ccpack" tokenizer plain --vocab-size 100 --json >out.json 2>err.txt || fail "tokenizer: $(cat err.txt)"
grep -q '"kind":"sentencepiece","pieces":[0-9]*,"captions":60,' out.json || fail "summary: $(cat out.json)"
recorded plain sentencepiece
[ "$(fingerprint plain)" = "$before" ] || fail "a tokenizer changes the fingerprint"
"$BIN/ccdump" verify plain >/dev/null 2>err.txt || fail "ccdump verify: $(cat err.txt)"
"$BIN/ccpack" tokenizer -q again --vocab-size 100 || fail "tokenizer"
cmp plain/tokenizer.model again/tokenizer.model || fail "equal captions give another tokenizer"
"$BIN/ccpack" tokenizer --overwrite again --vocab-size 50000 --json >out.json 2>err.txt || fail "ceiling: $(cat err.txt)"
grep -q -- 'fewer than --vocab-size' err.txt || fail "fewer pieces are not reported: $(cat err.txt)"
"$BIN/ccpack" tokenizer -q --overwrite again --vocab-size 100 --model-type bpe || fail "bpe"
recorded again sentencepiece
cmp -s plain/tokenizer.model again/tokenizer.model && fail "bpe gives a unigram model"

# --- replacing requires --overwrite
cp plain/tokenizer.model kept.model
expect_message 73 "has a tokenizer; --overwrite" "$BIN/ccpack" tokenizer plain
expect_message 73 "has another tokenizer; --overwrite" "$BIN/ccpack" tokenizer plain --tokenizer again/tokenizer.model
cmp plain/tokenizer.model kept.model || fail "a refused run changed the tokenizer"
"$BIN/ccpack" tokenizer -q plain --tokenizer kept.model || fail "the same tokenizer again is refused"

# --- importing SentencePiece and WordPiece
printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nred\n##s\ncircle\n' >vocab.txt
"$BIN/ccpack" tokenizer plain --overwrite --tokenizer vocab.txt --json >out.json 2>err.txt || fail "vocab.txt: $(cat err.txt)"
grep -q '"kind":"wordpiece","pieces":8,"captions":0,"bytes":41,' out.json || fail "summary: $(cat out.json)"
cmp vocab.txt plain/tokenizer.model || fail "a vocabulary is stored changed"
recorded plain wordpiece
"$BIN/ccpack" tokenizer -q plain --overwrite --tokenizer kept.model || fail "a model is refused"
recorded plain sentencepiece

# --- importing CLIP's: every form is one table; its own cleaning, whatever --no-clean says
"$BIN/ccpack" tokenizer plain --overwrite --tokenizer clip --cache --json >out.json 2>err.txt || fail "clip: $(cat err.txt)"
grep -q '"kind":"clip-bpe","pieces":49408,"captions":0,"bytes":195584,' out.json || fail "summary: $(cat out.json)"
recorded plain clip-bpe
cmp plain/tokenizer.model "$SRC/formats/tokenizer/clip/merges.bin" || fail "another table"
cp plain/tokens.cct clip.cct
"$BIN/ccpack" tokenizer -q plain --overwrite --tokenizer clip --cache --no-clean || fail "clip --no-clean"
cmp clip.cct plain/tokens.cct || fail "the paper's cleaning comes before CLIP's tokenizer"
"$BIN/ccdump" verify plain >/dev/null 2>err.txt || fail "ccdump verify: $(cat err.txt)"
cp -r plain tokens
"$BIN/ccpack" tokenizer -q plain --overwrite --tokenizer "$SRC/tests/golden/tokenizer/byte_bpe.json" || fail "tokenizer.json"
recorded plain byte-bpe
printf '#version: 0.2\ni n\nt h\n' >merges.txt
expect_message 65 "merges.txt: tokenizer: 2 merges, expected CLIP's 48894" "$BIN/ccpack" tokenizer plain --overwrite --tokenizer merges.txt
"$BIN/ccpack" tokenizer -q plain --overwrite --tokenizer kept.model || fail "a model is refused"

# --- refusals
expect_message 66 "nowhere" "$BIN/ccpack" tokenizer nowhere
expect_message 66 "nothing.txt" "$BIN/ccpack" tokenizer plain --overwrite --tokenizer nothing.txt
expect_message 65 "neither a SentencePiece model nor a vocabulary" "$BIN/ccpack" tokenizer plain --overwrite --tokenizer all.tar
printf '[PAD]\n[UNK]\n[CLS]\n' >cut.txt
expect_message 69 "no line '\[SEP\]'" "$BIN/ccpack" tokenizer plain --overwrite --tokenizer cut.txt
expect_message 64 "are for learning one" "$BIN/ccpack" tokenizer plain --tokenizer vocab.txt --vocab-size 50
expect_message 64 "vocab-size" "$BIN/ccpack" tokenizer plain --vocab-size 3
expect_message 65 "too few for the characters" "$BIN/ccpack" tokenizer plain --overwrite --vocab-size 16
cmp plain/tokenizer.model kept.model || fail "a failed run changed the tokenizer"
recorded plain sentencepiece

# --- tokens.cct: made with an existing or a new tokenizer, removed with its tokenizer
"$BIN/ccpack" tokenizer plain --cache --json >out.json 2>err.txt || fail "--cache: $(cat err.txt)"
grep -q '"captions":0,.*"cached_captions":60,"cached_tokens":[1-9]' out.json || fail "cache: $(cat out.json)"
grep -q 'kept' err.txt || fail "the tokenizer was not kept: $(cat err.txt)"
cmp plain/tokenizer.model kept.model || fail "--cache changed the tokenizer"
cp plain/tokens.cct one.cct
"$BIN/ccpack" tokenizer -q plain --cache && cmp one.cct plain/tokens.cct || fail "the same captions give another cache"
"$BIN/ccpack" tokenizer -q plain --cache --no-clean || fail "--cache --no-clean"
cmp -s one.cct plain/tokens.cct && fail "--no-clean makes the same cache"
expect_message 73 "has a tokenizer; --overwrite" "$BIN/ccpack" tokenizer plain --cache --vocab-size 60
# a run that was killed after it had stored the tokenizer
cp -r plain killed && rm killed/tokens.cct && head -c 100 plain/tokens.cct >killed/tokens.cct.01abcdef.tmp
expect_message 73 "tokenizer" "$BIN/ccpack" tokenizer killed --cache --model-type bpe
cmp killed/tokenizer.model plain/tokenizer.model || fail "a refused run changed the tokenizer"
"$BIN/ccpack" tokenizer -q killed --vocab-size 100 --cache || fail "a killed run is not made again"
cmp killed/tokenizer.model plain/tokenizer.model || fail "the same run gives another tokenizer"
[ -e killed/tokens.cct ] && [ ! -e killed/tokens.cct.01abcdef.tmp ] || fail "no tokens.cct after a killed run"
"$BIN/ccpack" tokenizer -q plain --tokenizer kept.model && [ -e plain/tokens.cct ] || fail "a cache that fits is gone"
"$BIN/ccpack" tokenizer -q plain --overwrite --tokenizer vocab.txt || fail "vocab.txt"
[ ! -e plain/tokens.cct ] || fail "the cache of another tokenizer stays"
"$BIN/ccpack" tokenizer -q plain --overwrite --tokenizer kept.model --cache || fail "--tokenizer --cache"
cmp one.cct plain/tokens.cct || fail "the same tokenizer gives another cache"
expect_message 64 "are for learning one" "$BIN/ccpack" tokenizer plain --tokenizer kept.model --no-clean
[ -z "$(ls plain | grep tmp)" ] || fail "temporaries are left"
"$BIN/ccpack" -q --overwrite -o again all.tar && cp plain/tokens.cct again/ || exit 1
"$BIN/ccpack" -q --overwrite -o again all.tar || exit 1
[ ! -e again/tokens.cct ] || fail "ccpack --overwrite leaves tokens.cct"

# --- ccdump verify checks both
"$BIN/ccdump" verify plain >/dev/null 2>err.txt || fail "ccdump verify: $(cat err.txt)"
cp -r plain hurt
printf '\377' | dd of=hurt/tokens.cct bs=1 seek=5 conv=notrunc status=none
"$BIN/ccdump" verify hurt >out.txt 2>/dev/null && fail "ccdump verify passes a damaged tokens.cct"
grep -q 'row of text 0' out.txt || fail "ccdump verify: $(cat out.txt)"
rm hurt/tokens.cct && cp vocab.txt hurt/tokenizer.model
"$BIN/ccdump" verify hurt >out.txt 2>/dev/null && fail "ccdump verify passes another tokenizer"
grep -q 'tokenizer.model' out.txt || fail "ccdump verify: $(cat out.txt)"

# --- the record is kept when the dataset grows
cp -r plain grown
"$BIN/ccpack" -q --append --allow-repeat -o grown all.tar || fail "--append"
recorded grown sentencepiece

# --- a file that differs from the record
cp vocab.txt plain/tokenizer.model
expect_message 65 "bring that one back" "$BIN/ccpack" tokenizer plain
"$BIN/ccpack" tokenizer -q plain --overwrite --tokenizer vocab.txt || fail "a foreign file cannot be replaced"
recorded plain wordpiece
