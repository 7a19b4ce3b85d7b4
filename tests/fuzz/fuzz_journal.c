/*
 * pack.journal of any lines: each gets its hash, so that the fuzzer need not guess it. An accepted
 * journal names a row that the sources can have, and as many shards as it has lines about them;
 * lines without hashes are refused.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pack/journal/journal_internal.h"
#include "pack/run/decide_internal.h"

enum { SOURCES = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static const char *const sources[SOURCES] = {"a.tar", "b.tar", "c.tar"};

static void
parse(const uint8_t *head, size_t head_bytes, const struct byte_buffer *text, uint32_t parts) {
    struct pack_options opt;
    struct pack_plan p = {.opt = &opt};
    pack_options_default(&opt);
    opt.directory = "d";
    opt.sources = sources;
    opt.source_count = SOURCES;
    opt.part = (struct pack_part){parts, parts};
    p.end.source = SOURCES;
    p.sources = calloc(SOURCES, sizeof(*p.sources));
    p.notes = calloc(SOURCES, sizeof(*p.notes));
    demand(p.sources != NULL && p.notes != NULL);
    pack_classes_init(&p.classes);
    demand(manifest_init(&p.manifest, opt.container, opt.created_by, NULL) == STATUS_OK);
    demand(byte_buffer_append(&p.head, head, head_bytes, NULL) == STATUS_OK);
    if (pack_journal_parse(&p, "fuzz", text->data, text->size_bytes, NULL) == STATUS_OK) {
        demand(p.journal_bytes > 0 && p.journal_bytes <= text->size_bytes);
        demand(p.point.source <= SOURCES && p.next_number == p.manifest.shard_count);
        demand(p.point.source < SOURCES || p.point.row == 0);
        demand(p.point.row <= SHARD_MAX_ID);
    }
    pack_plan_fini(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct byte_buffer text = {0};
    struct byte_buffer raw = {0};
    size_t head_bytes = 0;
    for (size_t at = 0; at < size_bytes;) {
        const uint8_t *end = memchr(data + at, '\n', size_bytes - at);
        size_t line_bytes = (end ? (size_t)(end - data) : size_bytes) - at;
        demand(pack_journal_wrap(&text, data + at, line_bytes, NULL) == STATUS_OK);
        head_bytes = at == 0 ? line_bytes : head_bytes;
        at += line_bytes + 1;
    }
    parse(data, head_bytes, &text, 0);
    parse(data, head_bytes, &text, 2);
    /* Every difference in the head gives a message. */
    static const char other[] =
        "{\"journal\":\"pack\",\"created_by\":\"x\",\"container\":\"tar.zst\","
        "\"settings\":{\"ids\":\"row\"},\"sources\":[{\"name\":\"a\"}]}";
    parse((const uint8_t *)other, sizeof(other) - 1, &text, 0);
    demand(byte_buffer_append(&raw, data, size_bytes, NULL) == STATUS_OK);
    parse(data, head_bytes, &raw, 0);
    byte_buffer_fini(&text);
    byte_buffer_fini(&raw);
    return 0;
}
