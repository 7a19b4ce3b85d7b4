/*
 * The options of every command that packs images: selection, storage, output of the run; and the
 * conversion of all options to the library's.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "net/listing.h"
#include "tools/ccpack/ccpack_internal.h"
#include "tools/cli/path_kind.h"

static const char *const container_names[] = {"tar.zst", "tar", NULL};

#define FIELD(name) CLI_FIELD(struct ccpack_options, name)

static const struct cli_option rows[] = {
    {"min-side", 0, CLI_U64, FIELD(pack.filter.min_side_px), .min = "0", .max = "65535",
     .default_text = "0", .metavar = "N",
     .help = "exclude images whose shorter side has fewer pixels", .group = "Limits"},
    {"max-aspect", 0, CLI_DOUBLE, FIELD(pack.filter.max_aspect), .min = "0", .max = "65535",
     .default_text = "0", .metavar = "X",
     .help = "exclude images whose longer side is more than X times the shorter; 0: off"},
    {"max-pixels", 0, CLI_U64, FIELD(pack.filter.max_pixels), .min = "1", .max = "134217728",
     .default_text = "134217728", .metavar = "N", .help = "exclude images with more pixels"},
    {"max-caption-bytes", 0, CLI_U64, FIELD(pack.filter.max_caption_bytes), .unit = CLI_UNIT_BYTES,
     .min = "1", .max = "256KiB", .default_text = "256KiB", .metavar = "SIZE",
     .help = "exclude rows with a longer caption"},
    {"resize", 0, CLI_STRING, FIELD(resize), .default_text = "none", .metavar = "HOW",
     .help = "short:N, long:N: downscale so that the shorter or longer side is N; exact:WxH: to "
             "exactly W x H (16 to 8192). Never upscales; all images are re-encoded as JPEG",
     .group = "Images"},
    {"quality", 0, CLI_U64, FIELD(pack.quality), .min = "1", .max = "100", .default_text = "90",
     .metavar = "N", .help = "quality of the JPEGs that --resize writes"},
    {"phash", 0, CLI_FLAG, FIELD(pack.phash),
     .help =
         "store each image's perceptual hash in its metadata, as 'phash': 64 bits, of which few "
         "differ between near-duplicates (the DCT hash of ImageHash); see ccdump duplicates"},
    {"container", 0, CLI_ENUM, FIELD(container), .choices = container_names,
     .default_text = "tar.zst", .metavar = "KIND",
     .help = "shards as zstd frames, or as plain tars for tools that cannot read zstd",
     .group = "Shards"},
    {"zstd-level", 0, CLI_U64, FIELD(pack.level), .min = "1", .max = "19", .default_text = "3",
     .metavar = "N", .help = "level for captions and JSON; images are not recompressed"},
    {"shard-samples", 0, CLI_U64, FIELD(pack.shard_samples), .min = "1", .max = "1048576",
     .default_text = "10000", .metavar = "N", .help = "maximum number of samples per shard"},
    {"shard-size", 0, CLI_U64, FIELD(pack.shard_size_bytes), .unit = CLI_UNIT_BYTES, .min = "64KiB",
     .max = "1TiB", .default_text = "1GiB", .metavar = "SIZE",
     .help = "maximum size of a shard's samples"},
    {"jobs", 'j', CLI_U64, FIELD(pack.jobs), .min = "0", .max = "256", .default_text = "0",
     .metavar = "N", .help = "worker threads; 0: one per core; output does not depend on it",
     .group = "Run"},
    {"json", 0, CLI_FLAG, FIELD(json), .help = "summary as JSON on stdout"},
    {"quiet", 'q', CLI_FLAG, FIELD(quiet), .help = "errors only"},
};

const struct cli_rows ccpack_shape_rows[] = {CLI_ROWS(rows), {NULL, 0}};

/* An unknown total is estimated from the fraction of the sources' bytes. */
static void show_progress(void *run, const struct pack_progress *p) {
    char extra[64] = "";
    uint64_t total = p->done > 0 ? (uint64_t)((double)p->samples / p->done) : 0;
    struct cli_progress *progress = &((struct ccpack_run *)run)->progress;
    progress->begun = p->resumed;
    int n = p->done >= 0 ? snprintf(extra, sizeof(extra), "%.0f %%", 100 * p->done) : 0;
    if (p->rejected > 0) {
        snprintf(extra + n, sizeof(extra) - (size_t)n, "%s%" PRIu64 " rejected", n > 0 ? "  " : "",
                 p->rejected);
    }
    cli_progress_update(progress, p->samples, total, p->bytes, extra);
}

enum { TAKEN_BYTES = 400 };

/* Uses a recorded setting that is not on the command line; appends it to `taken`. */
static enum status take_setting(const struct cli_program *p,
                                struct ccpack_options *o,
                                const struct cli_arguments *a,
                                const char *setting,
                                const char *value,
                                char *taken,
                                struct error *err) {
    const bool flag = value && (strcmp(value, "yes") == 0 || strcmp(value, "no") == 0);
    const char *name = cli_format("%s%s", flag && value[0] == 'n' ? "no-" : "", setting);
    if (!value || cli_given(p, a, name)) {
        return STATUS_OK;
    }
    const enum status s = cli_set(p, o, name, value, err);
    if (s == STATUS_OK && taken && strcmp(value, "none") != 0 && strcmp(value, "row") != 0) {
        const size_t at = strlen(taken);
        snprintf(taken + at, TAKEN_BYTES - at, " --%s%s%.80s", name, flag ? "" : " ",
                 flag ? "" : value);
    }
    return s == STATUS_NOTFOUND ? STATUS_OK : s; /* the program may lack it */
}

enum status ccpack_take_settings(const struct cli_program *p,
                                 struct ccpack_options *o,
                                 const struct cli_arguments *a,
                                 bool same_list,
                                 struct error *err) {
    static struct manifest m; /* options point to its texts */
    const size_t count = o->pack.new_settings ? PACK_FIXED_SETTINGS : SIZE_MAX;
    char taken[TAKEN_BYTES] = "";
    if (manifest_read(&m, file_posix(), o->pack.directory, NULL) != STATUS_OK) {
        return STATUS_OK; /* pack_run reports the reason */
    }
    for (size_t i = 0; i < count && pack_append_settings[i]; i++) {
        const char *name = pack_append_settings[i];
        TRY(take_setting(p, o, a, name, pack_manifest_in_force(&m, name),
                         i < PACK_SHARED_SETTINGS ? taken : NULL, err));
    }
    for (size_t i = 0; same_list && pack_list_settings[i]; i++) {
        const char *name = pack_list_settings[i];
        const char *value = pack_manifest_in_force(&m, name);
        const bool all_lists = value == pack_manifest_option(&m, name);
        TRY(take_setting(p, o, a, name, all_lists ? value : NULL, taken, err));
    }
    if (!cli_given(p, a, "container")) { /* one that is not packed is rejected later */
        (void)cli_set(p, o, "container", shard_container_name(m.container), NULL);
    }
    if (taken[0] != '\0' && !o->quiet) {
        cli_print(stderr, "as the dataset in %s:%s\n", o->pack.directory, taken);
    }
    return STATUS_OK;
}

/* The values of --caption-column as one list, in static memory. Returns OK or USAGE. */
static enum status
join_captions(struct pack_options *out, const struct cli_list *l, struct error *err) {
    static char names[SOURCE_MAX_NAMES_BYTES + 1];
    size_t at = 0;
    for (size_t i = 0; i < l->count && at < sizeof(names); i++) {
        at +=
            (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", i > 0 ? "," : "", l->items[i]);
    }
    FAIL_IF(at >= sizeof(names), err, STATUS_USAGE,
            "--caption-column: the names have more than %d bytes", SOURCE_MAX_NAMES_BYTES);
    out->caption_column = l->count > 0 ? names : NULL;
    return STATUS_OK;
}

enum status ccpack_expand(struct cli_arguments *out,
                          const struct cli_arguments *a,
                          const struct ccpack_options *o,
                          const char *journal,
                          struct error *err) {
    char path[PATH_MAX_BYTES] = "";
    TRY(remote_choice_use(&o->remote, err));
    for (size_t i = 0; i < a->count; i++) { /* before any request */
        TRY(listing_is_pattern(a->items[i]) ? STATUS_OK : path_check_source(a->items[i], err));
    }
    if (o->pack.resume && o->pack.directory) {
        TRY(path_join(path, sizeof(path), o->pack.directory, journal, err));
    }
    *out = *a;
    return listing_expand_all(&out->items, &out->count, a->items, a->count, path, err);
}

enum status ccpack_take(struct pack_options *out,
                        const struct cli_program *p,
                        const struct ccpack_options *o,
                        const struct cli_arguments *a,
                        struct error *err) {
    cpu_set_t set;
    const int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    pack_options_default(out);
    cli_copy(p, o, offsetof(struct ccpack_options, pack), out, sizeof(*out));
    out->jobs = out->jobs > 0 ? out->jobs : cores < PACK_MAX_JOBS ? (uint32_t)cores : PACK_MAX_JOBS;
    out->container = o->container == 1 ? SHARD_CONTAINER_TAR : SHARD_CONTAINER_TAR_ZSTD;
    out->sources = a->items;
    out->source_count = a->count;
    out->interrupted = cli_interrupted_callback;
    out->progress = show_progress;
    for (size_t i = 0; i < a->count; i++) {
        TRY(path_check_source(a->items[i], err));
    }
    TRY(join_captions(out, &o->captions, err));
    TRY(o->max_bad ? pack_parse_max_bad(&out->max_bad, o->max_bad, err) : STATUS_OK);
    return o->resize ? pack_parse_resize(&out->resize, o->resize, err) : STATUS_OK;
}
