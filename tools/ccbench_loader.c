/*
 * ccbench loader: how much of the bare speed of its own functions the loader delivers.
 *
 *   digest     one whole epoch through the loader; its pixels, tokens and ids in order, hashed.
 *              Also brings the files into memory, so that the disk is not what is measured.
 *   repeats    loader | limit | loader | limit ... : what the machine does besides hits both.
 *              Each starts fresh; its first batches, made ahead, are not counted.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "formats/base/json_writer.h"
#include "formats/dataset.h"
#include "tools/ccbench_internal.h"

enum { REPEATS = 5 };

struct options {
    uint64_t threads;
    uint64_t image_size;
    uint64_t batch;
    int engine;
    uint64_t seed;
    uint64_t seconds_ms;
    uint64_t digest_batches;
    bool json;
};

/* In the order of enum loader_engine. */
static const char *const engines[] = {"auto", "io_uring", "pread", NULL};

static const struct cli_option rows[] = {
    {"threads", 't', CLI_U64, CLI_FIELD(struct options, threads), .min = "0", .max = "1024",
     .default_text = "0", .metavar = "N", .help = "decoding threads; 0: one per CPU"},
    {"image-size", 0, CLI_U64, CLI_FIELD(struct options, image_size), .min = "8", .max = "2048",
     .default_text = "256", .metavar = "PX", .help = "side of the pictures delivered"},
    {"batch", 'b', CLI_U64, CLI_FIELD(struct options, batch), .min = "1", .max = "1048576",
     .default_text = "128", .metavar = "N", .help = "pairs per batch; at most those there are"},
    {"engine", 0, CLI_ENUM, CLI_FIELD(struct options, engine), .choices = engines,
     .default_text = "auto", .metavar = "NAME",
     .help = "how files are read; auto: io_uring, or pread where there is none"},
    {"seed", 0, CLI_U64, CLI_FIELD(struct options, seed), .default_text = "0", .metavar = "N",
     .help = "of the order, the crops and the captions"},
    {"seconds", 0, CLI_U64, CLI_FIELD(struct options, seconds_ms), .unit = CLI_UNIT_MS,
     .min = "100ms", .max = "1h", .default_text = "10", .metavar = "T",
     .help = "time to measure for, loader and limit together"},
    {"digest-batches", 0, CLI_U64, CLI_FIELD(struct options, digest_batches), .default_text = "0",
     .metavar = "N", .help = "batches in the digest; 0: the whole first epoch"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "one JSON object on one line"},
};

static const struct cli_program program = {
    .name = "ccbench loader",
    .purpose = "measures the loader against the bare rate of its own decoding, augmenting and "
               "tokenizing",
    .usage = (const char *const[]){"DIR [--json]", NULL},
    .notes =
        (const char *const[]){
            "The limit is the rate of the same functions, called in a loop on as many threads, on "
            "images that are in memory already. Both rates are medians of five interleaved "
            "repeats; ratio is the one over the other.",
            "The digest is a hash over the pixels, tokens, lengths and ids of the first epoch in "
            "order. It does not depend on threads, engine, batch or seconds.",
            NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
    .min_arguments = 1,
    .max_arguments = 1,
};

struct result {
    double pairs_per_s, limit_pairs_per_s;
    double loader_rates[REPEATS], limit_rates[REPEATS];
    uint64_t digest, digest_pairs;
    uint32_t batch;
    struct loader_info info;
    struct loader_stats stats; /* of the last repeat */
};

static enum status check_stop(struct error *err) {
    return cli_interrupted() ? error_set(err, STATUS_INTERRUPTED, "stopped on request") : STATUS_OK;
}

/* --- digest --- */

/* Sample by sample, so that the cut into batches does not matter. */
static void
digest_batch(struct hasher *h, const struct loader_batch *b, size_t side, size_t tokens) {
    for (size_t i = 0; i < b->count; i++) {
        hasher_update(h, b->images + i * side * side * 3, side * side * 3);
        hasher_update(h, b->tokens + i * tokens, tokens * sizeof(*b->tokens));
        hasher_update(h, b->lengths + i, sizeof(*b->lengths));
        hasher_update(h, b->sample_ids + i, sizeof(*b->sample_ids));
        hasher_update(h, b->text_ids + i, sizeof(*b->text_ids));
    }
}

static enum status digest_epoch(struct result *r,
                                struct loader *l,
                                const struct loader_options *opt,
                                uint64_t max_batches,
                                struct error *err) {
    struct hasher *h = NULL;
    struct loader_batch b;
    enum status s = STATUS_OK;
    TRY(hasher_create(&h, err));
    for (uint64_t i = 0; s == STATUS_OK && (max_batches == 0 || i < max_batches); i++) {
        s = check_stop(err);
        if (s == STATUS_OK) {
            s = loader_acquire(l, &b, err);
        }
        if (s == STATUS_OK) {
            digest_batch(h, &b, opt->image_size_px, opt->max_tokens);
            r->digest_pairs += b.count;
            loader_release(l, &b);
        }
    }
    r->digest = hasher_value(h);
    hasher_destroy(h);
    return s == STATUS_END ? STATUS_OK : s;
}

/* --- rates --- */

static enum status take_batch(struct loader *l, uint64_t *pairs, struct error *err) {
    struct loader_batch b;
    TRY(check_stop(err));
    TRY(loader_acquire(l, &b, err));
    *pairs += b.count;
    loader_release(l, &b);
    return STATUS_OK;
}

static enum status measure_open(struct loader *l,
                                double *pairs_per_s,
                                uint32_t warm_batches,
                                int64_t ns,
                                struct error *err) {
    uint64_t pairs = 0;
    for (uint32_t i = 0; i < warm_batches; i++) {
        TRY(take_batch(l, &pairs, err));
    }
    pairs = 0;
    int64_t begin_ns = clock_now_ns();
    int64_t now_ns = begin_ns;
    while (now_ns - begin_ns < ns) {
        TRY(take_batch(l, &pairs, err));
        now_ns = clock_now_ns();
    }
    *pairs_per_s = (double)pairs / ((double)(now_ns - begin_ns) / 1e9);
    return STATUS_OK;
}

static enum status measure_loader(struct result *r,
                                  double *pairs_per_s,
                                  const char *dir,
                                  const struct loader_options *opt,
                                  int64_t ns,
                                  struct error *err) {
    struct loader *l = NULL;
    TRY(loader_open(&l, dir, opt, err));
    /* All that was made ahead before the first one was taken. */
    enum status s = measure_open(l, pairs_per_s, opt->prefetch_batches + 2, ns, err);
    loader_stats(l, &r->stats);
    loader_close(l);
    return s;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

static double median(const double rates[REPEATS]) {
    double sorted[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        sorted[i] = rates[i];
    }
    qsort(sorted, REPEATS, sizeof(sorted[0]), compare_doubles);
    return sorted[REPEATS / 2];
}

static enum status measure_all(struct result *r,
                               struct bench_limit *limit,
                               const char *dir,
                               const struct loader_options *opt,
                               int64_t slice_ns,
                               struct error *err) {
    for (int i = 0; i < REPEATS; i++) {
        TRY(measure_loader(r, &r->loader_rates[i], dir, opt, slice_ns, err));
        TRY(bench_limit_run(limit, &r->limit_rates[i], slice_ns / 4, slice_ns, err));
        TRY(check_stop(err));
    }
    r->pairs_per_s = median(r->loader_rates);
    r->limit_pairs_per_s = median(r->limit_rates);
    return STATUS_OK;
}

/* --- result --- */

static double ratio_of(const struct result *r) {
    return r->limit_pairs_per_s > 0 ? r->pairs_per_s / r->limit_pairs_per_s : 0;
}

static void rates_json(struct json_writer *w, const char *key, const double rates[REPEATS]) {
    json_open_array(w, key);
    for (int i = 0; i < REPEATS; i++) {
        json_double(w, NULL, rates[i]);
    }
    json_close_array(w);
}

static enum status print_json(const struct result *r, const struct options *o, struct error *err) {
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    json_double(&w, "pairs_per_s", r->pairs_per_s);
    json_double(&w, "limit_pairs_per_s", r->limit_pairs_per_s);
    json_double(&w, "ratio", ratio_of(r));
    json_hex64(&w, "digest", r->digest);
    json_u64(&w, "digest_pairs", r->digest_pairs);
    json_string(&w, "engine", r->info.engine);
    json_u64(&w, "threads", r->info.threads);
    json_u64(&w, "image_size", o->image_size);
    json_u64(&w, "batch", r->batch);
    json_u64(&w, "seed", o->seed);
    json_u64(&w, "samples", r->info.sample_count);
    json_hex64(&w, "fingerprint", r->info.fingerprint);
    rates_json(&w, "repeats_pairs_per_s", r->loader_rates);
    rates_json(&w, "limit_repeats_pairs_per_s", r->limit_rates);
    loader_stats_json(&w, "loader", &r->stats);
    json_close_object(&w);
    json_newline(&w);
    enum status s = json_writer_status(&w, err);
    if (s == STATUS_OK) {
        fwrite(w.out.data, 1, w.out.size_bytes, stdout);
    }
    json_writer_fini(&w);
    return s;
}

static void print_text(const struct result *r, const struct options *o) {
    char count[CLI_TEXT_BYTES];
    char line[256];
    loader_stats_line(&r->stats, line, sizeof(line));
    printf("%s samples, %" PRIu64 " px, batches of %u, %u threads, %s\n",
           cli_format_count(count, r->info.sample_count), o->image_size, r->batch, r->info.threads,
           r->info.engine);
    printf("  loader  %10.1f pairs/s\n", r->pairs_per_s);
    printf("  limit   %10.1f pairs/s  (its decoding, augmenting and tokenizing alone)\n",
           r->limit_pairs_per_s);
    printf("  ratio   %10.3f\n", ratio_of(r));
    printf("  digest  %016" PRIx64 "  over %" PRIu64 " pairs\n", r->digest, r->digest_pairs);
    printf("  last repeat: %s\n", line);
}

/* --- the whole --- */

static void loader_options_of(struct loader_options *opt, const struct options *o) {
    loader_options_default(opt);
    opt->batch_count = (uint32_t)o->batch;
    opt->image_size_px = (uint32_t)o->image_size;
    opt->threads = (uint32_t)o->threads;
    opt->engine = (enum loader_engine)o->engine;
    opt->seed = o->seed;
}

/* The loader of the digest stays open for its dataset and tokenizer; its threads sleep. */
static enum status measure_with(struct result *r,
                                struct loader *l,
                                const char *dir,
                                struct loader_options *opt,
                                const struct options *o,
                                struct error *err) {
    struct bench_limit *limit = NULL;
    TRY(digest_epoch(r, l, opt, o->digest_batches, err));
    opt->epochs = 0;
    opt->drop_last = true;
    if (opt->batch_count > r->info.sample_count) {
        opt->batch_count = (uint32_t)r->info.sample_count;
    }
    r->batch = opt->batch_count;
    enum status s = bench_limit_create(&limit, opt, r->info.threads, loader_dataset(l, 0),
                                       loader_tokenizer(l), err);
    if (s == STATUS_OK) {
        int64_t slice_ns = (int64_t)o->seconds_ms * 1000000 / (2 * REPEATS);
        s = measure_all(r, limit, dir, opt, slice_ns, err);
    }
    bench_limit_destroy(limit);
    return s;
}

static enum status run(const struct options *o, const char *dir, struct error *err) {
    struct result r = {0};
    struct loader *l = NULL;
    struct loader_options opt;
    struct log_sink log = log_stderr("ccbench", LOG_LEVEL_INFO);
    loader_options_of(&opt, o);
    opt.log = &log;
    opt.epochs = 1;
    opt.drop_last = false;
    TRY(loader_open(&l, dir, &opt, err));
    loader_info(l, &r.info);
    opt.log = NULL; /* said once */
    enum status s = measure_with(&r, l, dir, &opt, o, err);
    loader_close(l);
    TRY(s);
    if (o->json) {
        TRY(print_json(&r, o, err));
    } else {
        print_text(&r, o);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return error_set_errno(err, "cannot write to stdout");
    }
    return STATUS_OK;
}

int ccbench_loader(int argc, char **argv) {
    struct options o;
    struct cli_arguments a = {0};
    struct error err = {0};
    enum status s = cli_parse(&program, &o, &a, argc, argv, &err);
    if (s != STATUS_OK) {
        return cli_exit(&program, s, &err);
    }
    cli_signals_install();
    s = run(&o, a.items[0], &err);
    cli_arguments_fini(&a);
    return cli_exit(&program, s, &err);
}
