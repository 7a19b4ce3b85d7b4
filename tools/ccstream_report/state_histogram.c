#include "tools/ccstream_report/state_histogram.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "train/run/checkpoint.h"
#include "train/state/sample_state.h"

static void outline(struct histogram *h,
                    const uint64_t bins[HISTOGRAM_BINS],
                    const struct sample_state_summary *s) {
    const double width = s->max > s->min ? (s->max - s->min) / HISTOGRAM_BINS : 1e-6;
    const size_t used = s->max > s->min ? HISTOGRAM_BINS : 1;
    h->count = 0;
    h->x[h->count] = s->min;
    h->y[h->count++] = 0.0;
    for (size_t i = 0; i < used; i++) {
        const double share = 100.0 * (double)bins[i] / (double)s->visited_count;
        for (size_t side = 0; side < 2; side++) {
            h->x[h->count] = s->min + width * (double)(i + side);
            h->y[h->count++] = share;
        }
    }
    h->x[h->count] = h->x[h->count - 1];
    h->y[h->count++] = 0.0;
}

static void
count_values(struct histogram *out, const void *values, const struct checkpoint_column *column) {
    struct sample_state_summary s;
    uint64_t bins[HISTOGRAM_BINS] = {0};
    sample_state_summarise(&s, values, column->kind, column->ids);
    out->visited = s.visited_count;
    for (uint64_t i = 0; i < column->ids && s.visited_count > 0; i++) {
        double value;
        if (sample_state_entry(values, column->kind, i, &value)) {
            const double place =
                s.max > s.min ? (value - s.min) / (s.max - s.min) * HISTOGRAM_BINS : 0.0;
            bins[place < HISTOGRAM_BINS ? (size_t)place : HISTOGRAM_BINS - 1]++;
        }
    }
    if (s.visited_count > 0) {
        outline(out, bins, &s);
    }
}

static enum status read_values(struct histogram *out,
                               const struct checkpoint *c,
                               const struct checkpoint_column *column,
                               struct error *err) {
    const size_t entry_bytes = column->kind == SAMPLE_STATE_F32 ? sizeof(float) : sizeof(uint64_t);
    void *values = malloc((size_t)column->ids * entry_bytes + 1);
    if (values == NULL) {
        return error_set(err, STATUS_NOMEM, "%s: no memory for %" PRIu64 " numbers",
                         checkpoint_path(c), column->ids);
    }
    const enum status s = checkpoint_read_column(c, column, values, 0, column->ids, err);
    if (s == STATUS_OK) {
        count_values(out, values, column);
    }
    free(values);
    return s;
}

static enum status
find(struct histogram *out, const struct checkpoint *c, const char *name, struct error *err) {
    for (uint32_t i = 0;; i++) {
        struct checkpoint_column column;
        const enum status s = checkpoint_column(c, i, &column, err);
        if (s != STATUS_OK) {
            return s == STATUS_END ? STATUS_OK : s;
        }
        if (strcmp(column.name, name) == 0) {
            return read_values(out, c, &column, err);
        }
    }
}

enum status
histogram_read(struct histogram *out, const char *run, const char *column, struct error *err) {
    struct checkpoint *c = NULL;
    *out = (struct histogram){.count = 0};
    TRY(checkpoint_open_state(&c, file_posix(), run, err));
    const enum status s = find(out, c, column, err);
    checkpoint_close(c);
    return s;
}
