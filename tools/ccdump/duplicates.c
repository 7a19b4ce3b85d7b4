/*
 * ccdump duplicates: groups of samples whose images are byte-identical, or look alike by the
 * perceptual hashes stored by `ccpack --phash`.
 *
 * Two 64-bit hashes that differ in at most B bits agree in at least one of B + 1 blocks. So for
 * each block hashes are sorted by it, and only hashes that agree there are compared. Near samples
 * join groups (union-find): two members may be near only to a third one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/sort.h"
#include "formats/json/json_reader.h"
#include "tools/ccdump/ccdump_internal.h"

struct options {
    struct sample_choice choice;
    int64_t phash_bits; /* -1: byte-identical */
    bool json;
    bool quiet;
};

static const struct cli_option rows[] = {
    {"phash", 0, CLI_I64, CLI_FIELD(struct options, phash_bits), .min = "-1", .max = "8",
     .default_text = "-1", .metavar = "BITS",
     .help = "images whose perceptual hashes (ccpack --phash) differ in at most BITS of 64 bits; "
             "-1: byte-identical images"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "one JSON object per group"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct options, quiet), .help = "no progress"},
};

static const struct cli_program program = {
    .name = "ccdump duplicates",
    .purpose = "lists exact and near-duplicate images",
    .usage = CLI_TEXTS("DIR|SHARD|TAR [--phash BITS] [--json]"),
    CLI_OPTIONS(rows),
    .shared = sample_choice_rows,
    .arguments = {1, 1},
    .examples = CLI_TEXTS("ccdump duplicates cc3m",
                          "ccdump duplicates cc3m --phash 4",
                          "ccdump duplicates cc3m --phash 2 --json | jq '.ids[1:][]'"),
    .notes = CLI_TEXTS(
        "Each line is a group of ids, with each one's Hamming distance to the first. Groups "
        "are connected components, so two members may differ in more than BITS.",
        "Photographs within 4 bits are mostly resized or recompressed copies; blank images all "
        "match each other. Check before removing.",
        "Memory: 40 bytes per sample. --phash reads every sample; comparing takes longer with more "
        "BITS.",
        "The exit code is 0 if a group was found and 66 if none was."),
};

struct entry {
    uint64_t hash, id;
    uint64_t first_id; /* the smallest of its group */
};

struct duplicates {
    struct entry *entries;  /* a sample each, by hash */
    struct byte_buffer all; /* their memory */
    size_t count;
    uint64_t *hashes; /* (unique) ascending */
    size_t *parents;  /* (unique) of the union-find */
    size_t *order;    /* (unique) workspace: sorted by a block */
    size_t unique;
    uint64_t without; /* samples without a perceptual hash */
};

/* ---- reading --------------------------------------------------------------------------------- */

static bool read_phash(uint64_t *out, const struct shard_text *json) {
    struct json_document *document = NULL;
    size_t size = 0;
    if (!json->data ||
        json_document_parse(&document, "meta", json->data, json->size_bytes, NULL) != STATUS_OK) {
        return false;
    }
    const char *text =
        json_value_string(json_value_get(json_document_root(document), "phash"), &size);
    const bool has = text && parse_hash(text, out);
    json_document_destroy(document);
    return has;
}

static enum status add(struct duplicates *d, uint64_t hash, uint64_t id, struct error *err) {
    const struct entry one = {.hash = hash, .id = id};
    TRY(byte_buffer_append(&d->all, &one, sizeof(one), err));
    d->entries = (struct entry *)(void *)d->all.data;
    d->count++;
    return STATUS_OK;
}

static enum status
read_hashes(struct duplicates *d, const struct options *o, struct input *in, struct error *err) {
    struct sample_walk walk;
    struct sample_facts facts;
    struct sample_content content;
    enum status s = sample_walk_init(&walk, in, &o->choice, o->quiet, err);
    while (s == STATUS_OK && (s = sample_walk_next(&walk, &facts, err)) == STATUS_OK) {
        uint64_t hash = facts.image_hash;
        bool has = facts.image_bytes > 0;
        if (has && o->phash_bits >= 0) {
            s = input_read(in, &content, err);
            has = s == STATUS_OK && read_phash(&hash, &content.json);
        }
        d->without += !has;
        s = s == STATUS_OK && has ? add(d, hash, facts.id, err) : s;
    }
    sample_walk_fini(&walk);
    return s == STATUS_END ? STATUS_OK : s;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int by_group(const void *a, const void *b) {
    const struct entry *x = a;
    const struct entry *y = b;
    return x->first_id != y->first_id ? (x->first_id > y->first_id) - (x->first_id < y->first_id)
                                      : (x->id > y->id) - (x->id < y->id);
}

struct block {
    const uint64_t *hashes;
    uint64_t mask;
};

static int by_block(const void *a, const void *b, void *cookie) {
    const struct block *block = cookie;
    const uint64_t x = block->hashes[*(const size_t *)a] & block->mask;
    const uint64_t y = block->hashes[*(const size_t *)b] & block->mask;
    return (x > y) - (x < y);
}

static size_t root_of(struct duplicates *d, size_t i) {
    while (d->parents[i] != i) {
        d->parents[i] = d->parents[d->parents[i]];
        i = d->parents[i];
    }
    return i;
}

/* Joins near samples among hashes that agree in the block. */
static enum status join(struct duplicates *d, uint64_t mask, int bits, struct error *err) {
    struct block block = {d->hashes, mask};
    for (size_t i = 0; i < d->unique; i++) {
        d->order[i] = i;
    }
    qsort_r(d->order, d->unique, sizeof(*d->order), by_block, &block);
    for (size_t i = 0; i < d->unique; i++) {
        const uint64_t hash = d->hashes[d->order[i]];
        FAIL_IF(cli_interrupted(), err, STATUS_INTERRUPTED, "interrupted");
        for (size_t k = i + 1; k < d->unique; k++) {
            const uint64_t other = hash ^ d->hashes[d->order[k]];
            if ((other & mask) != 0) {
                break;
            }
            if (__builtin_popcountll(other) <= bits) {
                d->parents[root_of(d, d->order[k])] = root_of(d, d->order[i]);
            }
        }
    }
    return STATUS_OK;
}

/* Sorts the entries by group; a group's entries have the same first_id. */
static enum status group(struct duplicates *d, int bits, struct error *err) {
    d->hashes = calloc(d->count + 1, sizeof(*d->hashes));
    d->parents = calloc(d->count + 1, sizeof(*d->parents));
    d->order = calloc(d->count + 1, sizeof(*d->order));
    TRY_MEMORY(d->hashes && d->parents && d->order, err, "out of memory for %zu hashes", d->count);
    qsort(d->entries, d->count, sizeof(*d->entries), compare_u64);
    for (size_t i = 0; i < d->count; i++) {
        if (i == 0 || d->entries[i].hash != d->entries[i - 1].hash) {
            d->parents[d->unique] = d->unique;
            d->hashes[d->unique++] = d->entries[i].hash;
        }
    }
    for (int k = 0; k <= bits && bits > 0; k++) {
        const int from = 64 * k / (bits + 1);
        const int end = 64 * (k + 1) / (bits + 1);
        TRY(join(d, ((UINT64_C(1) << (end - from)) - 1) << from, bits, err));
    }
    uint64_t *first = calloc(d->unique + 1, sizeof(*first)); /* of each group, at its root */
    TRY_MEMORY(first, err, "out of memory for %zu hashes", d->count);
    memset(first, 0xFF, d->unique * sizeof(*first));
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0, u = 0; i < d->count; i++) {
            struct entry *e = &d->entries[i];
            u += i > 0 && e->hash != e[-1].hash;
            uint64_t *smallest = &first[root_of(d, u)];
            *smallest = e->id < *smallest ? e->id : *smallest;
            e->first_id = *smallest;
        }
    }
    free(first);
    qsort(d->entries, d->count, sizeof(*d->entries), by_group);
    return STATUS_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

static enum status put_group(const struct entry *e,
                             size_t count,
                             bool json,
                             struct json_writer *w,
                             struct error *err) {
    if (!json) {
        printf("%" PRIu64, e[0].id);
        for (size_t i = 1; i < count; i++) {
            printf("  %" PRIu64 " (%d)", e[i].id, __builtin_popcountll(e[i].hash ^ e[0].hash));
        }
        putchar('\n');
        return STATUS_OK;
    }
    json_open_object(w, NULL);
    json_open_array(w, "ids");
    for (size_t i = 0; i < count; i++) {
        json_u64(w, NULL, e[i].id);
    }
    json_close_array(w);
    json_open_array(w, "bits");
    for (size_t i = 0; i < count; i++) {
        json_u64(w, NULL, (uint64_t)__builtin_popcountll(e[i].hash ^ e[0].hash));
    }
    json_close_array(w);
    json_close_object(w);
    return cli_put_json(w, err);
}

static enum status put_groups(const struct duplicates *d,
                              const struct options *o,
                              const char *path,
                              struct error *err) {
    struct json_writer w;
    uint64_t groups = 0, samples = 0;
    enum status s = STATUS_OK;
    json_writer_init(&w, 0);
    for (size_t i = 0, n; i < d->count && s == STATUS_OK; i += n) {
        for (n = 1; i + n < d->count && d->entries[i + n].first_id == d->entries[i].first_id; n++) {
        }
        if (n > 1) {
            s = put_group(&d->entries[i], n, o->json, &w, err);
            groups++;
            samples += n;
        }
    }
    json_writer_fini(&w);
    FAIL_IF(s == STATUS_OK && groups == 0, err, STATUS_NOTFOUND, "%s: no two images are %s", path,
            o->phash_bits >= 0 ? "near each other" : "equal");
    if (s == STATUS_OK && !o->quiet) {
        cli_print(stderr, "%s with %s\n", cli_format_counted(groups, "group"),
                  cli_format_counted(samples, "sample"));
    }
    return s;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct duplicates d = {.all.max_bytes = SIZE_MAX};
    struct input *in = NULL;
    TRY(remote_choice_use(&o->choice.remote, err));
    TRY(input_open(&in, a->items[0], err));
    enum status s = read_hashes(&d, o, in, err);
    input_close(in);
    if (s == STATUS_OK && o->phash_bits >= 0 && d.count == 0) {
        s = error_set(err, STATUS_NOTFOUND,
                      "%s: no sample has a perceptual hash: pack with --phash", a->items[0]);
    } else if (s == STATUS_OK && o->phash_bits >= 0 && d.without > 0 && !o->quiet) {
        cli_print(stderr, "without a perceptual hash: %s\n",
                  cli_format_counted(d.without, "sample"));
    }
    s = s == STATUS_OK ? group(&d, (int)o->phash_bits, err) : s;
    s = s == STATUS_OK ? put_groups(&d, o, a->items[0], err) : s;
    byte_buffer_fini(&d.all);
    free(d.hashes);
    free(d.parents);
    free(d.order);
    return s;
}

CLI_MAIN(ccdump_duplicates, program, struct options, run)
