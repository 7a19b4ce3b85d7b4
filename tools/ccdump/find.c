/*
 * ccdump find: the samples that match every condition. The cheapest conditions are tested first: on
 * the index, then captions, and last the key, for which the sample is read.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/ccdump/ccdump_internal.h"
#include "tools/cli/cli_text.h"

struct options {
    struct sample_choice choice;
    const char *key;
    const char *caption;
    uint64_t min_side_px, max_side_px;
    int format;
    int64_t label;
    const char *class_name;
    const char *hash;
    bool keys;
    bool json;
    bool quiet;
};

enum { FORMAT_ANY = 0 };

/* Index k + 1 is image_format k. */
static const char *const format_names[] = {"any", "unknown", "jpeg", "png", "webp", "gif", NULL};

static const struct cli_option rows[] = {
    {"key", 'k', CLI_STRING, CLI_FIELD(struct options, key), .metavar = "GLOB",
     .help = "match the key, or the original key in the metadata, as a glob pattern",
     .group = "Conditions"},
    {"caption", 'c', CLI_STRING, CLI_FIELD(struct options, caption), .metavar = "TEXT",
     .help = "a caption contains this text, ignoring the case of a-z"},
    {"min-side", 0, CLI_U64, CLI_FIELD(struct options, min_side_px), .default_text = "0",
     .metavar = "PX", .help = "minimum length of the shorter side in pixels"},
    {"max-side", 0, CLI_U64, CLI_FIELD(struct options, max_side_px), .default_text = "0",
     .metavar = "PX", .help = "maximum length of the longer side in pixels; 0: any"},
    {"format", 0, CLI_ENUM, CLI_FIELD(struct options, format), .default_text = "any",
     .choices = format_names, .metavar = "NAME", .help = "image format"},
    {"label", 0, CLI_I64, CLI_FIELD(struct options, label), .min = "-1", .max = "2147483647",
     .default_text = "-1", .metavar = "N", .help = "class number; -1: any"},
    {"class", 0, CLI_STRING, CLI_FIELD(struct options, class_name), .metavar = "GLOB",
     .help = "match the class name as a glob pattern"},
    {"hash", 0, CLI_STRING, CLI_FIELD(struct options, hash), .metavar = "HEX",
     .help = "XXH64 of the image file, 16 hexadecimal digits; finds duplicates"},
    {"keys", 0, CLI_FLAG, CLI_FIELD(struct options, keys),
     .help = "show keys too, with --json columns", .group = "Output"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "one JSON object per line"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct options, quiet), .help = "no progress"},
};

static const struct cli_program program = {
    .name = "ccdump find",
    .purpose = "lists the samples that match every condition given",
    .usage = CLI_TEXTS("DIR|SHARD|TAR [--key GLOB] [--caption TEXT] [...] [--json]"),
    CLI_OPTIONS(rows),
    .shared = sample_choice_rows,
    .arguments = {1, 1},
    .examples = CLI_TEXTS("ccdump find cc3m --caption 'red car' --min-side 256",
                          "ccdump find cc3m --key '00012*' --json"),
    .notes = CLI_TEXTS(
        "The exit code is 0 if a sample was found and 66 if none was.",
        "The index has no keys: --key reads every sample that matches the other conditions."),
};

/* ---- the conditions -------------------------------------------------------------------------- */

struct conditions {
    const struct options *options;
    bool by_hash;
    uint64_t hash;
};

static bool fits_facts(const struct conditions *c, const struct sample_facts *f) {
    const struct options *o = c->options;
    uint32_t shorter = f->width_px < f->height_px ? f->width_px : f->height_px;
    uint32_t longer = f->width_px < f->height_px ? f->height_px : f->width_px;
    if (shorter < o->min_side_px || (o->max_side_px > 0 && longer > o->max_side_px) ||
        (o->max_side_px > 0 && longer == 0)) {
        return false;
    }
    if (o->format != FORMAT_ANY && (f->image_bytes == 0 || (int)f->format != o->format - 1)) {
        return false;
    }
    if (o->label >= 0 && f->label != o->label) {
        return false;
    }
    if (o->class_name && (!f->class_name || fnmatch(o->class_name, f->class_name, 0) != 0)) {
        return false;
    }
    return !c->by_hash || (f->image_bytes > 0 && f->image_hash == c->hash);
}

static enum status fits_caption(bool *out,
                                const struct options *o,
                                struct input *in,
                                const struct sample_facts *f,
                                struct error *err) {
    *out = !o->caption;
    for (uint32_t k = 0; !*out && k < f->caption_count; k++) {
        struct shard_text text;
        TRY(input_caption(in, &text, k, err));
        *out = cli_text_holds(text.data, text.size_bytes, o->caption);
    }
    return STATUS_OK;
}

static bool is_key(const char *wanted, const char *key) {
    return strcmp(wanted, key) == 0 || fnmatch(wanted, key, 0) == 0;
}

static enum status
fits_key(bool *out, const struct options *o, struct input *in, struct error *err) {
    struct sample_content content;
    char original[INPUT_MAX_KEY_BYTES];
    *out = !o->key;
    if (!*out) {
        TRY(input_read(in, &content, err));
        *out = is_key(o->key, content.key) ||
               (sample_original_key(original, &content.json) && is_key(o->key, original));
    }
    return STATUS_OK;
}

static enum status fits(bool *out,
                        const struct conditions *c,
                        struct input *in,
                        const struct sample_facts *f,
                        struct error *err) {
    *out = fits_facts(c, f);
    if (*out) {
        TRY(fits_caption(out, c->options, in, f, err));
    }
    return *out ? fits_key(out, c->options, in, err) : STATUS_OK;
}

/* ---- the search ------------------------------------------------------------------------------ */

static enum status
find_samples(const struct conditions *c, struct input *in, uint64_t *found, struct error *err) {
    const struct options *o = c->options;
    struct sample_choice choice = o->choice;
    struct sample_list_how how = {o->json, o->keys || o->key, cli_columns()};
    struct sample_walk walk;
    struct sample_facts facts;
    struct json_writer w;
    enum status s = STATUS_OK;
    uint64_t limit = choice.count > 0 ? choice.count : UINT64_MAX;
    choice.count = 0; /* --count limits the matches, not the samples tested */
    TRY(sample_walk_init(&walk, in, &choice, o->quiet, err));
    json_writer_init(&w, 0);
    while (*found < limit && (s = sample_walk_next(&walk, &facts, err)) == STATUS_OK) {
        bool good = false;
        TRY_OR_FAIL(s, fits(&good, c, in, &facts, err));
        if (good) {
            cli_progress_clear(&walk.progress);
            (*found)++;
            TRY_OR_FAIL(s, sample_list(in, &facts, &how, &w, err));
        }
    }
fail:
    json_writer_fini(&w);
    sample_walk_fini(&walk);
    return s == STATUS_END ? STATUS_OK : s;
}

bool parse_hash(const char *text, uint64_t *out) {
    *out = 0;
    if (strlen(text) != 16 || strspn(text, "0123456789abcdefABCDEF") != 16) {
        return false;
    }
    return sscanf(text, "%" SCNx64, out) == 1;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct conditions c = {.options = o, .by_hash = o->hash != NULL};
    struct input *in = NULL;
    uint64_t found = 0;
    FAIL_IF(c.by_hash && !parse_hash(o->hash, &c.hash), err, STATUS_USAGE,
            "--hash requires 16 hexadecimal digits, not '%s'", o->hash);
    TRY(remote_choice_use(&o->choice.remote, err));
    TRY(input_open(&in, a->items[0], err));
    enum status s = find_samples(&c, in, &found, err);
    input_close(in);
    FAIL_IF(s == STATUS_OK && found == 0, err, STATUS_NOTFOUND, "%s: no sample fits", a->items[0]);
    return s;
}

CLI_MAIN(ccdump_find, program, struct options, run)
