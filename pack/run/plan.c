/*
 * --part K/N: of all rows of all sources as one sequence, part K has those from
 * total * (K - 1) / N up to total * K / N. Of remote tars it has whole ones, by their number.
 */
#include "pack/run/plan_internal.h"

#include <stdio.h>
#include <string.h>

#include "net/location.h"

bool pack_plan_must_stop(void *cookie) {
    const struct pack_plan *p = cookie;
    return atomic_load_explicit(&p->stop, memory_order_relaxed) ||
           (p->opt->interrupted && p->opt->interrupted(p->opt->cookie));
}

void pack_plan_source_options(struct source_options *out, struct pack_plan *p) {
    const struct pack_options *o = p->opt;
    *out = (struct source_options){
        .kind = o->kind,
        .images = o->images,
        .split = o->split,
        .columns = o->columns,
        .delimiter = o->delimiter,
        .grouping = o->grouping,
        .split_names = o->split_names,
        .follow_links = o->follow_links,
        .lines = o->lines,
        .caption_column = o->caption_column,
        .image_column = o->image_column,
        .keep_columns = o->keep_columns,
        .stop = pack_plan_must_stop,
        .stop_cookie = p,
        .fetch = o->fetch,
    };
}

enum status pack_plan_note(struct pack_plan *p, size_t index, const char *note, struct error *err) {
    if (note[0] == '\0' || p->notes[index]) {
        return STATUS_OK;
    }
    p->notes[index] = strdup(note);
    return p->notes[index] ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory for a note");
}

void pack_plan_columns(struct pack_plan *p, size_t index, const char *columns) {
    const size_t at = strlen(p->columns);
    const size_t room = sizeof(p->columns) - at;
    if (columns[0] != '\0' && !strstr(p->columns, columns) &&
        snprintf(p->columns + at, room, "%.120s: %s\n", p->opt->sources[index], columns) >=
            (int)room) {
        p->columns[at] = '\0';
    }
}

uint64_t pack_plan_base(const struct pack_plan *p, size_t source) {
    uint64_t base = p->old_rows;
    for (size_t i = 0; i < source; i++) {
        base += p->totals ? p->totals[i].rows : p->sources[i].rows;
    }
    return base;
}

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

bool pack_part_is_whole(const struct pack_options *o) {
    return o->part.count > 0 && location_is_remote(o->sources[0]);
}

void pack_part_locate(struct pack_plan *p) {
    const struct pack_part *part = &p->opt->part;
    if (pack_part_is_whole(p->opt)) {
        p->first.source = (size_t)share(p->opt->source_count, part->number - 1, part->count);
        p->end.source = (size_t)share(p->opt->source_count, part->number, part->count);
        p->point.source = p->first.source;
        return;
    }
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
