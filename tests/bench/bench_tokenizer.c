/*
 * bench_tokenizer DIR [SECONDS]: how fast the captions of a dataset become rows of 30 token ids on
 * one core, with the dataset's tokenizer: reading, cleaning and encoding one by one, all together
 * in order and at random, and out of tokens.cct if it is there. Rates are per second of this
 * thread's processor time, so that a busy machine changes little.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "augment/caption.h"
#include "formats/dataset/dataset.h"
#include "formats/dataset/dataset_tokenizer.h"
#include "formats/tokenizer/token_cache.h"

enum { MAX_TOKENS = 30, MAX_CAPTIONS = 200000 };

struct bench {
    struct dataset *dataset;
    struct tokenizer *tokenizer;
    struct caption_reader *reader;
    const struct token_cache *cache;
    struct dataset_sample *samples;
    uint64_t sample_count;
    struct tokenizer_text *stored, *cleaned; /* (caption_count) copies */
    uint64_t caption_count;
    uint64_t tokens; /* so far, in rows */
};

static struct error err;
static char workspace[CAPTION_CLEAN_BOUND_BYTES(SHARD_MAX_TEXT_BYTES)];

static void must(enum status s) {
    if (s < STATUS_OK) {
        fprintf(stderr, "bench_tokenizer: %s\n", err.text);
        exit(1);
    }
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct tokenizer_text copy_text(const char *text, size_t size_bytes) {
    char *copy = malloc(size_bytes + 1);
    memcpy(copy, text, size_bytes);
    copy[size_bytes] = '\0';
    return (struct tokenizer_text){copy, size_bytes};
}

static void encode(struct bench *b, const char *text, size_t size_bytes) {
    const struct tokenizer_text one = {text, size_bytes};
    int32_t row[MAX_TOKENS];
    int32_t length = 0;
    must(tokenizer_encode_rows(b->tokenizer, row, &length, &one, 1, MAX_TOKENS, &err));
    b->tokens += (uint64_t)length;
}

static void read_one(struct bench *b, uint64_t i) {
    struct shard_text text;
    const struct dataset_sample *s = &b->samples[i % b->sample_count];
    must(caption_reader_get(b->reader, s, 0, &text, &err));
}

static void clean_one(struct bench *b, uint64_t i) {
    const struct tokenizer_text *t = &b->stored[i % b->caption_count];
    (void)caption_clean(workspace, t->data, t->size_bytes);
}

static void encode_one(struct bench *b, uint64_t i) {
    const struct tokenizer_text *t = &b->cleaned[i % b->caption_count];
    encode(b, t->data, t->size_bytes);
}

static void all_of(struct bench *b, const struct dataset_sample *s) {
    struct shard_text text;
    must(caption_reader_get(b->reader, s, 0, &text, &err));
    encode(b, workspace, caption_clean(workspace, text.data, text.size_bytes));
}

static uint64_t at_random(const struct bench *b, uint64_t i) {
    return (i * 0x9E3779B97F4A7C15u >> 20) % b->sample_count;
}

static void all_in_order(struct bench *b, uint64_t i) {
    all_of(b, &b->samples[i % b->sample_count]);
}

static void all_at_random(struct bench *b, uint64_t i) {
    all_of(b, &b->samples[at_random(b, i)]);
}

static void cached_at_random(struct bench *b, uint64_t i) {
    int32_t row[MAX_TOKENS];
    uint32_t n = 0;
    const struct dataset_sample *s = &b->samples[at_random(b, i)];
    must(token_cache_get(b->cache, row, &n, s->first_text_id, MAX_TOKENS - 2, &err));
    b->tokens += n + 2;
}

static void measure(struct bench *b,
                    const char *name,
                    void (*one)(struct bench *b, uint64_t i),
                    double seconds) {
    double best = 0;
    double tokens = 0;
    for (int round = 0; round < 4; round++) { /* the first one warms up */
        double began = cpu_seconds();
        double now = began;
        uint64_t n = 0;
        b->tokens = 0;
        while (now - began < seconds / 3) {
            for (int k = 0; k < 256; k++) {
                one(b, n++);
            }
            now = cpu_seconds();
        }
        double rate = (double)n / (now - began);
        if (round > 0 && rate > best) {
            best = rate;
            tokens = (double)b->tokens / (now - began);
        }
    }
    printf("{\"what\":\"%s\",\"captions_per_s\":%.0f,\"tokens_per_s\":%.0f}\n", name, best, tokens);
}

static void load(struct bench *b, const char *directory) {
    must(dataset_open(&b->dataset, directory, NULL, &err));
    must(dataset_tokenizer_open(&b->tokenizer, directory, dataset_manifest(b->dataset),
                                file_posix(), &err));
    must(caption_reader_create(&b->reader, b->dataset, &err));
    uint64_t count = dataset_sample_count(b->dataset);
    count = count < MAX_CAPTIONS ? count : MAX_CAPTIONS;
    b->samples = calloc(count, sizeof(*b->samples));
    b->stored = calloc(count, sizeof(*b->stored));
    b->cleaned = calloc(count, sizeof(*b->cleaned));
    for (uint64_t i = 0; i < count; i++) {
        struct shard_text text;
        struct dataset_sample *s = &b->samples[b->sample_count];
        must(dataset_sample_at(b->dataset, i, s, &err));
        if (s->text_count > 0) {
            must(caption_reader_get(b->reader, s, 0, &text, &err));
            b->stored[b->sample_count] = copy_text(text.data, text.size_bytes);
            b->cleaned[b->sample_count] =
                copy_text(workspace, caption_clean(workspace, text.data, text.size_bytes));
            b->sample_count++;
        }
    }
    b->caption_count = b->sample_count;
    if (!b->tokenizer || b->caption_count == 0) {
        fprintf(stderr, "bench_tokenizer: %s has no tokenizer or no captions\n", directory);
        exit(1);
    }
    const struct token_cache *c = dataset_token_cache(b->dataset, NULL);
    const struct token_cache_key key = {
        dataset_fingerprint(b->dataset), dataset_text_count(b->dataset),
        tokenizer_hash(b->tokenizer), tokenizer_vocab_count(b->tokenizer), true};
    b->cache = c && token_cache_fits(c, &key, NULL) == STATUS_OK ? c : NULL;
}

int main(int argc, char **argv) {
    struct bench b = {0};
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: bench_tokenizer DIR [SECONDS]\n");
        return 64;
    }
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 1;
    load(&b, argv[1]);
    printf("{\"kind\":\"%s\",\"pieces\":%u,\"captions\":%" PRIu64 "}\n",
           tokenizer_kind_name(tokenizer_kind(b.tokenizer)), tokenizer_vocab_count(b.tokenizer),
           b.caption_count);
    measure(&b, "read in order", read_one, seconds);
    measure(&b, "clean", clean_one, seconds);
    measure(&b, "encode", encode_one, seconds);
    measure(&b, "read, clean and encode in order", all_in_order, seconds);
    measure(&b, "read, clean and encode at random", all_at_random, seconds);
    if (b.cache) {
        measure(&b, "tokens.cct at random", cached_at_random, seconds);
    }
    return 0;
}
