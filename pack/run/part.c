/*
 * --part K/N: of all rows of all sources as one sequence, part K has those from
 * total * (K - 1) / N up to total * K / N. Every part first counts the rows of all sources and
 * reads their classes, so ids and labels are those of a run over everything.
 */
#include "pack/run/plan_internal.h"

#include <stdlib.h>

enum { ROWS_AT_A_TIME = 4096 };

/* total * k / n without overflow: total = q * n + r. */
static uint64_t share(uint64_t total, uint32_t k, uint32_t n) {
    return total / n * k + total % n * k / n;
}

/* The source and row after `count` rows; never an empty source, rather the end of all. */
static void locate(struct pack_point *out, const struct pack_plan *p, uint64_t count) {
    size_t i = 0;
    while (i < p->opt->source_count && count >= p->totals[i]) {
        count -= p->totals[i++];
    }
    out->source = i;
    out->row = i < p->opt->source_count ? count : 0;
}

void pack_part_locate(struct pack_plan *p) {
    const struct pack_part *part = &p->opt->part;
    uint64_t total = 0;
    for (size_t i = 0; i < p->opt->source_count; i++) {
        total += p->totals[i];
    }
    uint64_t from = share(total, part->number - 1, part->count);
    uint64_t to = share(total, part->number, part->count);
    locate(&p->first, p, from);
    locate(&p->end, p, to);
    p->point.source = p->first.source;
    p->point.row = p->first.row;
    p->part_rows = to - from;
}

static enum status count_source(struct pack_plan *p, size_t index, struct error *err) {
    struct source *s = NULL;
    struct source_options how;
    pack_plan_source_options(&how, p);
    TRY(source_open(&s, p->opt->sources[index], &how, err));
    enum status status = pack_classes_open_source(&p->classes, s, err);
    while (status == STATUS_OK) {
        uint64_t skipped = 0;
        status = source_skip(s, ROWS_AT_A_TIME, &skipped, err);
        if (status == STATUS_OK && pack_plan_must_stop(p)) {
            status = error_set(err, STATUS_INTERRUPTED, "stopped on request");
        }
    }
    p->totals[index] = source_rows_read(s);
    source_close(s);
    return status == STATUS_END ? STATUS_OK : status;
}

enum status pack_part_find(struct pack_plan *p, struct error *err) {
    size_t count = p->opt->source_count;
    p->totals = calloc(count, sizeof(*p->totals));
    if (!p->totals) {
        return error_set(err, STATUS_NOMEM, "out of memory for rows");
    }
    for (size_t i = 0; i < count; i++) {
        TRY(count_source(p, i, err));
    }
    pack_part_locate(p);
    return pack_classes_publish(&p->classes, &p->manifest, pack_classes_count(&p->classes), err);
}
