/*
 * The options of a run: their defaults, parsing of those that are text, and the list of those that
 * shape the bytes.
 */
#include "pack/options_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/image/image_codec.h"
#include "formats/shard/shard_writer.h"
#include "pack/fetch/fetch.h"

void pack_options_default(struct pack_options *opt) {
    *opt = (struct pack_options){
        .fs = file_posix(),
        .check = true,
        .filter = {.max_pixels = PACK_MAX_PIXELS, .max_caption_bytes = SOURCE_MAX_TEXT_BYTES},
        .quality = IMAGE_JPEG_QUALITY_DEFAULT,
        .container = SHARD_CONTAINER_TAR_ZSTD,
        .level = SHARD_LEVEL_DEFAULT,
        .jobs = 1,
        .shard_samples = 10000,
        .shard_size_bytes = (uint64_t)1 << 30,
        .max_bad = {.percent = 10},
        .created_by = "ccpack " CCSTREAM_VERSION,
    };
}

enum status pack_parse_max_bad(struct pack_max_bad *out, const char *text, struct error *err) {
    REQUIRE(out && text);
    *out = (struct pack_max_bad){.percent = -1};
    char *end = NULL;
    size_t length = strlen(text);
    bool plain = length > 0 && length < 20 && text[0] != '%' && text[0] != '.' &&
                 strspn(text, "0123456789.") + (strchr(text, '%') ? 1 : 0) == length;
    if (plain && text[length - 1] == '%') {
        out->percent = strtod(text, &end);
        if (end == text + length - 1 && out->percent <= 100) {
            return STATUS_OK;
        }
    } else if (plain) {
        out->rows = strtoull(text, &end, 10);
        if (*end == '\0') {
            return STATUS_OK;
        }
    }
    return error_set(
        err, STATUS_USAGE,
        "--max-bad %.40s: must be a count such as 20 or a percentage from 0%% to 100%%", text);
}

/* Parses digits followed by `end`. False for none, more than nine, or a value out of range. */
static bool parse_number(uint32_t *out, const char **text, char end, uint32_t min, uint32_t max) {
    size_t digits = strspn(*text, "0123456789");
    if (digits == 0 || digits > 9 || (*text)[digits] != end) {
        return false;
    }
    *out = (uint32_t)strtoul(*text, NULL, 10);
    *text += digits + (end != '\0');
    return *out >= min && *out <= max;
}

static bool parse_side(int32_t *out, const char **text, char end) {
    uint32_t side = 0;
    bool good = parse_number(&side, text, end, PACK_MIN_RESIZE_PX, PACK_MAX_RESIZE_PX);
    *out = (int32_t)side;
    return good;
}

enum status pack_parse_resize(struct pack_resize *out, const char *text, struct error *err) {
    REQUIRE(out && text);
    *out = (struct pack_resize){.kind = PACK_RESIZE_NONE};
    const char *rest = text + strcspn(text, ":");
    size_t word_bytes = (size_t)(rest - text);
    rest += *rest == ':';
    bool good = false;
    if (strcmp(text, "none") == 0) {
        good = true;
    } else if (word_bytes == 5 && memcmp(text, "short", 5) == 0) {
        out->kind = PACK_RESIZE_SHORT;
        good = parse_side(&out->width_px, &rest, '\0');
    } else if (word_bytes == 4 && memcmp(text, "long", 4) == 0) {
        out->kind = PACK_RESIZE_LONG;
        good = parse_side(&out->width_px, &rest, '\0');
    } else if (word_bytes == 5 && memcmp(text, "exact", 5) == 0) {
        out->kind = PACK_RESIZE_EXACT;
        good = parse_side(&out->width_px, &rest, 'x') && parse_side(&out->height_px, &rest, '\0');
    }
    FAIL_IF(!good, err, STATUS_USAGE,
            "--resize %.40s: must be 'none', 'short:N', 'long:N' or 'exact:WxH', with "
            "sides from %d to %d",
            text, PACK_MIN_RESIZE_PX, PACK_MAX_RESIZE_PX);
    return STATUS_OK;
}

enum status pack_parse_part(struct pack_part *out, const char *text, struct error *err) {
    REQUIRE(out && text);
    const char *rest = text;
    *out = (struct pack_part){0};
    FAIL_IF(
        !parse_number(&out->number, &rest, '/', 1, PACK_MAX_PARTS) ||
            !parse_number(&out->count, &rest, '\0', 1, PACK_MAX_PARTS) || out->number > out->count,
        err, STATUS_USAGE, "--part %.40s: must be K/N with K from 1 to N and N up to %d, or auto",
        text, PACK_MAX_PARTS);
    return STATUS_OK;
}

bool pack_reason_is_choice(enum source_reason r) {
    return r == REASON_IMAGE_SMALL || r == REASON_IMAGE_LARGE || r == REASON_IMAGE_ASPECT ||
           r == REASON_CAPTION_LONG || r == REASON_DUPLICATE || r == REASON_FETCH_EXCLUDED;
}

/* ---- as a list ---- */

static struct pack_setting *
add(struct pack_settings *l, const char *name, const char *text, bool stored) {
    struct pack_setting *s = &l->items[l->count++];
    *s = (struct pack_setting){.name = name, .stored = stored};
    s->value = text ? text : s->buffer;
    return s;
}

static void add_number(struct pack_settings *l, const char *name, uint64_t n, bool stored) {
    struct pack_setting *s = add(l, name, NULL, stored);
    snprintf(s->buffer, sizeof(s->buffer), "%" PRIu64, n);
}

static void add_resize(struct pack_settings *l, const struct pack_options *o) {
    const struct pack_resize *r = &o->resize;
    const bool stored = true;
    struct pack_setting *s = add(l, "resize", NULL, stored);
    const int size_bytes = (int)sizeof(s->buffer);
    switch (r->kind) {
    case PACK_RESIZE_NONE:
        snprintf(s->buffer, (size_t)size_bytes, "none");
        return;
    case PACK_RESIZE_SHORT:
        snprintf(s->buffer, (size_t)size_bytes, "short:%" PRId32, r->width_px);
        break;
    case PACK_RESIZE_LONG:
        snprintf(s->buffer, (size_t)size_bytes, "long:%" PRId32, r->width_px);
        break;
    case PACK_RESIZE_EXACT:
        snprintf(s->buffer, (size_t)size_bytes, "exact:%" PRId32 "x%" PRId32, r->width_px,
                 r->height_px);
        break;
    }
    add_number(l, "quality", (uint64_t)o->quality, stored);
}

static void add_filter(struct pack_settings *l, const struct pack_filter *f) {
    const bool stored = true;
    if (f->min_side_px > 0) {
        add_number(l, "min-side", f->min_side_px, stored);
    }
    if (f->max_aspect > 0) {
        struct pack_setting *s = add(l, "max-aspect", NULL, stored);
        snprintf(s->buffer, sizeof(s->buffer), "%.17g", f->max_aspect);
    }
    if (f->max_pixels != PACK_MAX_PIXELS) {
        add_number(l, "max-pixels", f->max_pixels, stored);
    }
    if (f->max_caption_bytes != SOURCE_MAX_TEXT_BYTES) {
        add_number(l, "max-caption-bytes", f->max_caption_bytes, stored);
    }
}

void pack_settings_of(struct pack_settings *l, const struct pack_options *o) {
    l->count = 0;
    add(l, "ids", o->ids == PACK_IDS_KEY ? "key" : "row", true);
    add_resize(l, o);
    add_number(l, "shard-samples", o->shard_samples, true);
    add_number(l, "shard-size", o->shard_size_bytes, true);
    add_number(l, "zstd-level", (uint64_t)o->level, true);
    if (!o->check) {
        add(l, "check", "no", true);
    }
    add_filter(l, &o->filter);
    if (o->dedup == PACK_DEDUP_EXACT) {
        add(l, "dedup", "exact", true);
    }
    if (o->phash) {
        add(l, "phash", "yes", true);
    }
    const char *const texts[][2] = {{"split", o->split},
                                    {"columns", o->columns},
                                    {"delimiter", o->delimiter},
                                    {"caption-column", o->caption_column},
                                    {o->fetch ? "url-column" : "image-column", o->image_column},
                                    {"keep-columns", o->keep_columns}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i][1]) {
            add(l, texts[i][0], texts[i][1], true);
        }
    }
    if (o->grouping != SOURCE_GROUP_AUTO) {
        add(l, "group-captions", source_grouping_names[o->grouping], true);
    }
    if (o->lines != SOURCE_LINES_AUTO) {
        add(l, "caption-lines", source_lines_names[o->lines], true);
    }
    if (o->split_names != SOURCE_SPLIT_FIRST_DOT) {
        add(l, "split-names", source_name_split_names[o->split_names], true);
    }
    if (o->follow_links) {
        add(l, "follow-links", "yes", true);
    }
    if (o->fetch) {
        const struct fetch_options *fetch = fetch_options_of(o->fetch);
        if (fetch->max_bytes != FETCH_MAX_BYTES_DEFAULT) {
            add_number(l, "max-size", fetch->max_bytes, true);
        }
        if (fetch->opt_out) {
            add(l, "opt-out", "FILE", true);
        }
    }
    if (o->part.count > 0) {
        struct pack_setting *s = add(l, PACK_SETTING_PART, NULL, true);
        snprintf(s->buffer, sizeof(s->buffer), "%" PRIu32 "/%" PRIu32, o->part.number,
                 o->part.count);
    }
    if (o->kind != SOURCE_AUTO) {
        add(l, "from", source_kind_names[o->kind], false);
    }
    if (o->images) {
        add(l, "images", o->images, false);
    }
}

const char *pack_settings_value(const struct pack_settings *l, const char *name) {
    for (size_t i = 0; i < l->count; i++) {
        if (strcmp(l->items[i].name, name) == 0) {
            return l->items[i].value;
        }
    }
    return NULL;
}

const char *pack_manifest_option(const struct manifest *m, const char *name) {
    for (size_t i = 0; i < m->option_count; i++) {
        if (strcmp(m->options[i].name, name) == 0) {
            return m->options[i].value;
        }
    }
    return NULL;
}

const char *const pack_append_settings[] = {
    "ids",        "resize",     "quality",           "min-side", "max-aspect",
    "max-pixels", "check",      "max-caption-bytes", "dedup",    "phash",
    "zstd-level", "shard-size", "shard-samples",     NULL};

const char *const pack_list_settings[] = {
    "columns", "delimiter", "caption-column", "url-column", "keep-columns", "max-size", NULL};

/* A later generation's option is NAME@GENERATION. */
const char *pack_manifest_in_force(const struct manifest *m, const char *name) {
    const size_t n = strlen(name);
    const char *value = NULL;
    for (size_t i = 0; i < m->option_count; i++) {
        const struct manifest_option *o = &m->options[i];
        if (strncmp(o->name, name, n) == 0 && (o->name[n] == '\0' || o->name[n] == '@')) {
            value = strcmp(o->value, PACK_NOT_GIVEN) == 0 ? NULL : o->value;
        }
    }
    return value;
}

int pack_manifest_level(const struct manifest *m) {
    const char *text = pack_manifest_option(m, "zstd-level");
    const long level = text ? strtol(text, NULL, 10) : SHARD_LEVEL_DEFAULT;
    return level >= SHARD_LEVEL_MIN && level <= SHARD_LEVEL_MAX ? (int)level : SHARD_LEVEL_DEFAULT;
}

void pack_source_name(char out[PACK_SOURCE_NAME_BYTES], const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') {
        end--;
    }
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') {
        start--;
    }
    if (strcmp(path, "-") == 0 || start == end) {
        strcpy(out, start == end ? "root" : "stdin");
        return;
    }
    snprintf(out, PACK_SOURCE_NAME_BYTES, "%.*s", (int)(end - start), path + start);
}

void pack_exchange_shards(struct manifest *m, struct manifest *now) {
    struct shard_summary *shards = m->shards;
    m->shards = now->shards;
    m->shard_count = now->shard_count;
    now->shards = shards;
    now->shard_count = 0;
    m->removed.samples = m->removed.texts = m->removed.image_bytes = 0;
}

enum status pack_check_stop(bool (*interrupted)(void *cookie), void *cookie, struct error *err) {
    return interrupted && interrupted(cookie)
               ? error_set(err, STATUS_INTERRUPTED, "stopped on request")
               : STATUS_OK;
}
