/*
 * ccbench loader: the loader's rate as a fraction of its own functions' rate. First the loader runs
 * as in training, from files to a consumer that may hash, list and sleep. Then the same functions
 * process the same samples from memory on as many threads, without a loader.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/file_io.h"
#include "formats/base/hash.h"
#include "tools/ccbench/ccbench_internal.h"
#include "tools/cli/data_list.h"
#include "tools/cli/output.h"
#include "tools/cli/remote_choice.h"
#include "tools/inspect/samples.h"

struct options {
    struct cli_list data;
    const char *filter;
    const char *order;
    const char *load;
    const char *from;
    uint64_t seed;
    uint64_t batch;
    uint64_t size;
    int augment;
    uint64_t views;
    bool keep_last;
    uint64_t ranks, rank;
    uint64_t epochs, steps;
    uint64_t threads;
    int io;
    bool direct;
    uint64_t prefetch;
    double consumer_ms;
    const char *dump_ids;
    const char *quarantine;
    bool digest, no_limit;
    bool json;
    struct remote_choice remote;
    bool force;
};

/* In the order of enum loader_engine. */
static const char *const engines[] = {"auto", "io_uring", "pread", NULL};
static const char *const engine_aliases[] = {"auto", "uring", "pread", NULL};

/* Names of augment_kind_of. */
static const char *const augments[] = {"none",         "crop",      "paper", "simclr",
                                       "eval-squash",  "eval-crop", "clip",  "eval-clip",
                                       "eval-longest", NULL};

#define FIELD(name) CLI_FIELD(struct options, name)

static const struct cli_option rows[] = {
    {"data", 0, CLI_LIST, FIELD(data), .metavar = "DIR[:WEIGHT]", .group = "Data",
     .help = "dataset and its weight in the mix"},
    {"filter", 0, CLI_STRING, FIELD(filter), .metavar = "LIST",
     .help = "use only samples that match: min-side=N, max-aspect=X, captions=A..B, "
             "caption-bytes=A..B, label=A..B"},
    {"order", 0, CLI_STRING, FIELD(order), .metavar = "ORDER", .default_text = "global",
     .help = "sample order: global (full shuffle), sequential, or block:SIZE[:WINDOW] (blocks of "
             "SIZE samples, shuffled within WINDOW blocks, default 16)"},
    {"seed", 0, CLI_U64, FIELD(seed), .default_text = "0", .metavar = "N",
     .help = "random seed of order, crops and captions"},

    {"batch-size", 'b', CLI_U64, FIELD(batch), .alias = "batch", .min = "1", .max = "1048576",
     .default_text = "128", .metavar = "N", .group = "Batches",
     .help = "pairs per batch, over all ranks"},
    {"size", 0, CLI_U64, FIELD(size), .min = "8", .max = "2048", .default_text = "256",
     .metavar = "PX", .help = "width and height of the delivered images"},
    {"augment", 0, CLI_ENUM, FIELD(augment), .choices = augments, .default_text = "crop",
     .metavar = "NAME", .help = "augmentation of images; none: resize only, as eval-squash"},
    {"views", 0, CLI_U64, FIELD(views), .min = "0", .max = "2", .default_text = "0", .metavar = "N",
     .help = "views of each image; 0: two for simclr, one otherwise"},
    {"keep-last", 0, CLI_FLAG, FIELD(keep_last),
     .help =
         "deliver a last batch that is not full; always on for eval-squash, eval-crop and none"},
    {"load", 0, CLI_STRING, FIELD(load), .metavar = "COLUMN,...",
     .help = "also deliver these attached columns of numbers; not part of the limit"},
    {"ranks", 0, CLI_U64, FIELD(ranks), .min = "1", .max = "65536", .default_text = "1",
     .metavar = "W", .help = "number of ranks that divide each batch"},
    {"rank", 0, CLI_U64, FIELD(rank), .max = "65535", .default_text = "0", .metavar = "R",
     .help = "0-based rank of this process"},
    {"epochs", 0, CLI_U64, FIELD(epochs), .min = "0", .max = "1000000", .default_text = "0",
     .metavar = "N",
     .help = "epochs to run, of which the first may be partial (--from); 0: one, or as many as "
             "--steps needs"},
    {"steps", 0, CLI_U64, FIELD(steps), .max = "1000000000", .default_text = "0", .metavar = "N",
     .help = "stop after N batches; 0: at the end of the epochs"},
    {"from", 0, CLI_STRING, FIELD(from), .metavar = "EPOCH:STEP", .help = "position to start at"},

    {"threads", 't', CLI_U64, FIELD(threads), .min = "0", .max = "1024", .default_text = "0",
     .metavar = "N", .group = "Machine", .help = "decoding threads; 0: one per CPU"},
    {"io-engine", 0, CLI_ENUM, FIELD(io), .alias = "io", .choices = engines,
     .aliases = engine_aliases, .default_text = "auto", .metavar = "NAME",
     .help = "I/O engine; auto: io_uring if the kernel allows it, else pread"},
    {"direct", 0, CLI_FLAG, FIELD(direct), .help = "read past the page cache (O_DIRECT)"},
    {"prefetch", 0, CLI_U64, FIELD(prefetch), .min = "1", .max = "64", .default_text = "3",
     .metavar = "N", .help = "batches prepared ahead of the consumer"},
    {"consumer-ms", 0, CLI_DOUBLE, FIELD(consumer_ms), .min = "0", .max = "60000",
     .default_text = "0", .metavar = "X", .help = "sleep after each batch, like a training step"},

    {"digest", 0, CLI_FLAG, FIELD(digest), .group = "Results",
     .help = "print a hash of everything delivered, in order, instead of the limit"},
    {"no-limit", 0, CLI_FLAG, FIELD(no_limit),
     .help = "do not measure the limit, which has to read the images again"},
    {"dump-ids", 0, CLI_STRING, FIELD(dump_ids), .metavar = "FILE",
     .help = "write one JSON object per batch: epoch, step, rank, ids"},
    {"quarantine", 0, CLI_STRING, FIELD(quarantine), .metavar = "FILE",
     .help = "append one JSON object per damaged sample"},
    OUTPUT_FORCE_ROW(struct options, force),
    {"json", 0, CLI_FLAG, FIELD(json), .help = "one JSON object on one line"},
    CLI_REMOTE_ROWS(struct options, remote),
};

static const struct cli_program program = {
    .name = "ccbench loader",
    .purpose = "measures the loader, relative to the rate of decoding, augmentation and "
               "tokenization alone",
    .usage = CLI_TEXTS("DIR [--json]", "--data DIR:WEIGHT --data DIR:WEIGHT"),
    .examples = CLI_TEXTS("ccbench loader cc3m --threads 8 --steps 200",
                          "ccbench loader cc3m --augment none --digest --json",
                          "ccbench loader --data cc3m:0.7 --data coco:0.3 "
                          "--order block:1024 --from 3:100"),
    .notes = CLI_TEXTS(
        "The limit is the rate of the same functions over the same samples, called in a loop on "
        "the same number of threads, with up to 1 GiB of images already in memory. Both rates are "
        "measured from the start of the threads to the last sample. cpu_s and limit_cpu_s, the CPU "
        "time of all threads, are comparable even if other programs run.",
        "The digest is an XXH64 over the delivered pixels, tokens, lengths, labels and ids. It "
        "does not depend on threads, engine or batch size.",
        "stall_fraction is the fraction of the run during which the consumer waited, without the "
        "first batch. peak_rss_bytes is measured before the limit; rss_bytes lists the memory in "
        "use after every rss_batches batches."),
    CLI_OPTIONS(rows),
    .arguments = {0, LOADER_MAX_SOURCES},
};

enum { MAX_RSS_SAMPLES = 64 };

/* Memory in use during a run of any length: if the list is full, every second entry is dropped. */
struct rss {
    uint64_t bytes[MAX_RSS_SAMPLES];
    uint64_t every_batches;
    uint32_t count;
};

struct result {
    double pairs_per_s, limit_pairs_per_s;
    double cpu_s, limit_cpu_s; /* of all threads together */
    double open_s;
    uint64_t pairs, batches;
    uint64_t digest;
    uint64_t peak_rss_bytes;
    struct rss rss;
    struct loader_info info;
    struct loader_stats stats;
};

/* The consumer of batches. */
struct consumer {
    const struct options *o;
    const struct loader_options *opt;
    struct hasher *digest;   /* NULL: none */
    struct file *dump;       /* NULL: none */
    struct json_writer line; /* of the dump */
};

/* --- options --- */

static enum status read_data(struct data_list *list,
                             const struct options *o,
                             const struct cli_arguments *a,
                             struct error *err) {
    TRY(data_list_add(list, a->items, a->count, err));
    TRY(data_list_add(list, o->data.items, o->data.count, err));
    return list->count > 0 ? STATUS_OK : error_set(err, STATUS_USAGE, "name a dataset");
}

/* "EPOCH:STEP" */
static enum status read_from(struct loader_state *out, const char *text, struct error *err) {
    char epoch[24];
    size_t length = strcspn(text, ":");
    if (length < sizeof(epoch) && text[length] == ':') {
        memcpy(epoch, text, length);
        epoch[length] = '\0';
        if (cli_parse_u64(epoch, CLI_UNIT_NONE, &out->epoch) &&
            cli_parse_u64(text + length + 1, CLI_UNIT_NONE, &out->step)) {
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_USAGE, "--from requires EPOCH:STEP, not '%s'", text);
}

static enum status
loader_options_of(struct loader_options *opt, const struct options *o, struct error *err) {
    loader_options_default(opt);
    TRY(loader_order_parse(opt, o->order, err));
    REQUIRE(augment_kind_of(&opt->augment, augments[o->augment]));
    if (o->filter != NULL) {
        TRY(loader_filter_parse(&opt->filter, o->filter, err));
    }
    FAIL_IF(o->rank >= o->ranks, err, STATUS_USAGE,
            "--rank %" PRIu64 " must be less than --ranks %" PRIu64, o->rank, o->ranks);
    bool is_evaluation = opt->augment == AUGMENT_EVAL_SQUASH || opt->augment == AUGMENT_EVAL_CROP ||
                         opt->augment >= AUGMENT_EVAL_CLIP;
    bool is_pairs = opt->augment == AUGMENT_SIMCLR;
    opt->batch_count = (uint32_t)o->batch;
    opt->image_size_px = (uint32_t)o->size;
    opt->views = o->views != 0 ? (uint32_t)o->views : is_pairs ? 2 : 1;
    opt->drop_last = !o->keep_last && !is_evaluation;
    opt->world = (uint32_t)o->ranks;
    opt->rank = (uint32_t)o->rank;
    opt->seed = o->seed;
    opt->threads = (uint32_t)o->threads;
    opt->engine = (enum loader_engine)o->io;
    opt->direct = o->direct;
    opt->prefetch_batches = (uint32_t)o->prefetch;
    opt->quarantine_path = o->quarantine;
    opt->columns = o->load;
    return STATUS_OK;
}

static uint64_t rss_now_bytes(void) {
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL) {
        return 0;
    }
    if (fscanf(f, "%*u %llu", &pages) != 1) {
        pages = 0;
    }
    (void)fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* After batch number `batches`. */
static void sample_rss(struct rss *r, uint64_t batches) {
    if (r->every_batches == 0) {
        r->every_batches = 1;
    }
    if (batches % r->every_batches != 0) {
        return;
    }
    if (r->count == MAX_RSS_SAMPLES) {
        r->count /= 2;
        for (uint32_t i = 0; i < r->count; i++) {
            r->bytes[i] = r->bytes[2 * i + 1];
        }
        r->every_batches *= 2;
        if (batches % r->every_batches != 0) {
            return;
        }
    }
    r->bytes[r->count++] = rss_now_bytes();
}

/* --- the consumer --- */

/* Hashes sample by sample, so that the batch size does not matter. */
static void digest_batch(struct consumer *c, const struct loader_batch *b) {
    size_t pixels = (size_t)c->opt->image_size_px * c->opt->image_size_px * 3;
    size_t tokens = c->opt->max_tokens;
    for (size_t i = 0; i < b->count; i++) {
        hasher_update(c->digest, b->images + i * pixels, pixels);
        if (b->images2 != NULL) {
            hasher_update(c->digest, b->images2 + i * pixels, pixels);
        }
        hasher_update(c->digest, b->tokens + i * tokens, tokens * sizeof(*b->tokens));
        hasher_update(c->digest, b->lengths + i, sizeof(*b->lengths));
        hasher_update(c->digest, b->labels + i, sizeof(*b->labels));
        hasher_update(c->digest, b->sample_ids + i, sizeof(*b->sample_ids));
        hasher_update(c->digest, b->text_ids + i, sizeof(*b->text_ids));
    }
}

static enum status dump_batch(struct consumer *c, const struct loader_batch *b, struct error *err) {
    struct json_writer *w = &c->line;
    json_writer_reset(w);
    json_open_object(w, NULL);
    json_u64(w, "epoch", b->epoch);
    json_u64(w, "step", b->step);
    json_u64(w, "rank", c->opt->rank);
    json_u64s(w, "ids", b->sample_ids, b->count);
    json_close_object(w);
    json_newline(w);
    TRY(json_writer_status(w, err));
    return file_posix()->write(c->dump, w->out.data, w->out.size_bytes, err);
}

static enum status consume(struct consumer *c, const struct loader_batch *b, struct error *err) {
    if (c->digest != NULL) {
        digest_batch(c, b);
    }
    if (c->dump != NULL) {
        TRY(dump_batch(c, b, err));
    }
    if (c->o->consumer_ms > 0) {
        int64_t ns = (int64_t)(c->o->consumer_ms * 1e6);
        struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
        while (nanosleep(&t, &t) != 0 && errno == EINTR && !cli_interrupted()) {
        }
    }
    return STATUS_OK;
}

static enum status
run_loader(struct result *r, struct loader *l, struct consumer *c, struct error *err) {
    struct loader_batch b;
    struct rusage usage;
    const int64_t before_ns = clock_process_cpu_ns();
    int64_t begin_ns = clock_now_ns();
    enum status s = STATUS_OK;
    while (s == STATUS_OK && (c->o->steps == 0 || r->batches < c->o->steps)) {
        FAIL_IF(cli_interrupted(), err, STATUS_INTERRUPTED, "interrupted");
        s = loader_acquire(l, &b, err);
        if (s == STATUS_OK) {
            s = consume(c, &b, err);
            r->pairs += b.count;
            r->batches++;
            sample_rss(&r->rss, r->batches);
            loader_release(l, &b);
        }
    }
    double elapsed_s = (double)(clock_now_ns() - begin_ns) / 1e9;
    r->cpu_s = (double)(clock_process_cpu_ns() - before_ns) / 1e9;
    loader_stats(l, &r->stats);
    r->pairs_per_s = elapsed_s > 0 ? (double)r->pairs / elapsed_s : 0;
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        r->peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    }
    if (c->digest != NULL) {
        r->digest = hasher_value(c->digest);
    }
    return s == STATUS_END ? STATUS_OK : s;
}

/* --- result --- */

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

static double stall_fraction(const struct result *r) {
    return ratio((double)r->stats.consumer_stall_ns, (double)r->stats.elapsed_ns);
}

static enum status print_result(const struct result *r,
                                const struct options *o,
                                const struct loader_options *opt,
                                struct error *err) {
    struct json_writer w;
    const bool limit = !o->no_limit && !o->digest;
    cli_begin_json(&w);
    json_u64(&w, "pairs", r->pairs);
    json_double(&w, "pairs_per_s", r->pairs_per_s);
    if (limit) {
        json_double(&w, "limit_pairs_per_s", r->limit_pairs_per_s);
        json_double(&w, "ratio", ratio(r->pairs_per_s, r->limit_pairs_per_s));
    }
    json_double(&w, "cpu_s", r->cpu_s);
    if (limit) {
        json_double(&w, "limit_cpu_s", r->limit_cpu_s);
    }
    json_double(&w, "stall_fraction", stall_fraction(r));
    json_u64(&w, "peak_rss_bytes", r->peak_rss_bytes);
    json_u64(&w, "rss_batches", r->rss.every_batches);
    json_u64s(&w, "rss_bytes", r->rss.bytes, r->rss.count);
    if (o->digest) {
        json_hex64(&w, "digest", r->digest);
    } else {
        json_null(&w, "digest");
    }
    loader_stages_json(&w, "stages", &r->stats);
    json_string(&w, "engine", r->info.engine);
    json_bool(&w, "direct", opt->direct);
    json_u64(&w, "threads", r->info.threads);
    json_u64(&w, "batches", r->batches);
    json_u64(&w, "batch", opt->batch_count);
    json_u64(&w, "size", opt->image_size_px);
    json_string(&w, "augment", augment_kind_name(opt->augment));
    json_u64(&w, "views", opt->views);
    json_string(&w, "order", o->order);
    json_string(&w, "load", o->load);
    json_u64(&w, "ranks", opt->world);
    json_u64(&w, "rank", opt->rank);
    json_u64(&w, "seed", opt->seed);
    json_u64(&w, "samples", r->info.sample_count);
    json_u64(&w, "cached_datasets", r->info.cached_count);
    json_u64(&w, "steps_per_epoch", r->info.steps_per_epoch);
    json_hex64(&w, "fingerprint", r->info.fingerprint);
    json_double(&w, "open_s", r->open_s);
    json_double(&w, "first_batch_s", (double)r->stats.first_batch_ns / 1e9);
    json_u64(&w, "replaced", r->stats.replaced_count);
    json_u64(&w, "corrupt", r->stats.corrupt_count);
    json_u64(&w, "requests", r->stats.requests_count);
    json_u64(&w, "retried_reads", r->stats.retried_reads_count);
    return end_result(&w, o->json, err);
}

/* --- the whole --- */

static enum status open_consumer(struct consumer *c, struct error *err) {
    const struct file_system *fs = file_posix();
    json_writer_init(&c->line, 0);
    if (c->o->digest) {
        TRY(hasher_create(&c->digest, err));
    }
    if (c->o->dump_ids != NULL) {
        TRY(output_check_file(c->o->dump_ids, c->o->force, err));
        TRY(file_make_parents(fs, c->o->dump_ids, err));
    }
    return c->o->dump_ids != NULL
               ? fs->open(fs->context, &c->dump, c->o->dump_ids, FILE_REPLACE, err)
               : STATUS_OK;
}

static void close_consumer(struct consumer *c) {
    hasher_destroy(c->digest);
    file_posix()->close(c->dump);
    json_writer_fini(&c->line);
}

/* Opens the loader, which provides the fingerprint for a state, and then seeks. */
static enum status open_at(struct loader **out,
                           struct loader_state *place,
                           const struct data_list *list,
                           struct loader_options *opt,
                           const struct options *o,
                           struct error *err) {
    struct loader_state from = {0};
    if (o->from != NULL) {
        TRY(read_from(&from, o->from, err));
    }
    /* Each epoch has at least one batch. */
    opt->epochs = from.epoch + (o->epochs != 0 ? o->epochs : o->steps != 0 ? o->steps + 1 : 1);
    TRY(loader_open_mix(out, list->items, list->count, opt, err));
    *place = loader_state(*out);
    place->epoch = from.epoch;
    place->step = from.step;
    return o->from != NULL ? loader_seek(*out, place, err) : STATUS_OK;
}

/* Seeks to the end, so that the loader prepares nothing while the limit is measured. */
static enum status rest(struct loader *l, const struct loader_options *opt, struct error *err) {
    struct loader_state end = loader_state(l);
    end.epoch = opt->epochs;
    end.step = 0;
    return loader_seek(l, &end, err);
}

static enum status
measure(const struct options *o, const struct data_list *list, struct error *err) {
    struct result r = {0};
    struct loader *l = NULL;
    struct loader_options opt;
    struct loader_state place;
    struct consumer consumer = {.o = o, .opt = &opt};
    struct log_sink log = log_stderr("ccbench", LOG_LEVEL_INFO);
    enum status s;
    TRY(loader_options_of(&opt, o, err));
    opt.log = &log;
    int64_t begin_ns = clock_now_ns();
    TRY_OR_FAIL(s, open_at(&l, &place, list, &opt, o, err));
    r.open_s = (double)(clock_now_ns() - begin_ns) / 1e9;
    loader_info(l, &r.info);
    TRY_OR_FAIL(s, open_consumer(&consumer, err));
    TRY_OR_FAIL(s, run_loader(&r, l, &consumer, err));
    TRY_OR_FAIL(s, rest(l, &opt, err));
    if (!o->no_limit && !o->digest && r.pairs > 0) {
        double seconds = 0.0;
        TRY_OR_FAIL(s, bench_limit(&seconds, &r.limit_cpu_s, &opt, r.info.threads,
                                   loader_sources(l), loader_tokenizer(l),
                                   place.epoch * r.info.steps_per_epoch + place.step, r.batches,
                                   r.pairs, err));
        r.limit_pairs_per_s = seconds > 0.0 ? (double)r.pairs / seconds : 0.0;
    }
    s = print_result(&r, o, &opt, err);
fail:
    close_consumer(&consumer);
    loader_close(l);
    return s;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    cli_signals_install();
    TRY(remote_choice_use(&o->remote, err));
    struct data_list *list = calloc(1, sizeof(*list));
    TRY_MEMORY(list, err, "out of memory");
    enum status s = read_data(list, o, a, err);
    THEN(s, measure(o, list, err));
    free(list);
    return s;
}

CLI_MAIN(ccbench_loader, program, struct options, run)
