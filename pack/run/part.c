/*
 * --part K/N: of all rows of all sources as one sequence, part K has those from
 * total * (K - 1) / N up to total * K / N. Every part first counts the rows of all sources and
 * reads their classes, so ids and labels are those of a run over everything.
 */
#include <stdlib.h>

#include "pack/run/identity_internal.h"

/* total * k / n without overflow: total = q * n + r. */
static uint64_t share(uint64_t total, uint32_t k, uint32_t n) {
    return total / n * k + total % n * k / n;
}

/* The source and row after `count` rows; never an empty source, rather the end of all. */
static void locate(struct pack_point *out, const struct pack_plan *p, uint64_t count) {
    size_t i = 0;
    while (i < p->opt->source_count && count >= p->totals[i].rows) {
        count -= p->totals[i++].rows;
    }
    out->source = i;
    out->row = i < p->opt->source_count ? count : 0;
}

void pack_part_locate(struct pack_plan *p) {
    const struct pack_part *part = &p->opt->part;
    uint64_t total = 0;
    for (size_t i = 0; i < p->opt->source_count; i++) {
        total += p->totals[i].rows;
    }
    uint64_t from = share(total, part->number - 1, part->count);
    uint64_t to = share(total, part->number, part->count);
    locate(&p->first, p, from);
    locate(&p->end, p, to);
    p->point.source = p->first.source;
    p->point.row = p->first.row;
    p->part_rows = to - from;
}

enum status pack_part_find(struct pack_plan *p, struct error *err) {
    size_t count = p->opt->source_count;
    p->totals = calloc(count, sizeof(*p->totals));
    TRY_MEMORY(p->totals, err, "out of memory for rows");
    for (size_t i = 0; i < count; i++) {
        TRY(pack_identity_scan(&p->totals[i], p, i, true, err));
    }
    pack_part_locate(p);
    return pack_classes_publish(&p->classes, &p->manifest, pack_classes_count(&p->classes), err);
}
