#include "tools/inspect/state_column.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status state_ids_find(struct state_ids *out,
                           const struct checkpoint *c,
                           const struct manifest *m,
                           const char *dataset,
                           struct error *err) {
    const struct train_position *p = checkpoint_position(c);
    for (uint32_t i = 0; i < p->source_count; i++) {
        if (manifest_has_been(m, p->sources[i].fingerprint)) {
            const uint64_t end =
                i + 1 < p->source_count ? p->sources[i + 1].id_offset : p->id_space_count;
            *out = (struct state_ids){i, p->sources[i].id_offset, end - p->sources[i].id_offset};
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_MISMATCH,
                     "%s was not trained on %s, fingerprint %016" PRIx64
                     "; ccdump info shows fingerprints",
                     checkpoint_path(c), dataset, m->fingerprint);
}

enum status state_column_read(struct state_column *out,
                              const struct checkpoint *c,
                              uint32_t index,
                              struct error *err) {
    struct checkpoint_column column;
    *out = (struct state_column){0};
    const enum status s = checkpoint_column(c, index, &column, err);
    if (s != STATUS_OK) {
        return s;
    }
    const bool by_caption = column.by_caption;
    *out = (struct state_column){.name = column.name,
                                 .kind = column.kind,
                                 .ids = by_caption ? checkpoint_position(c)->id_space_count
                                                   : column.ids,
                                 .count = column.ids,
                                 .first = by_caption ? checkpoint_captions(c) : NULL,
                                 .values = malloc((size_t)column.ids * sizeof(uint64_t) + 1)};
    return out->values != NULL
               ? checkpoint_read_column(c, &column, out->values, 0, column.ids, err)
               : error_set(err, STATUS_NOMEM, "%s: no memory for %" PRIu64 " numbers",
                           checkpoint_path(c), column.ids);
}

enum status state_column_find(struct state_column *out,
                              const struct checkpoint *c,
                              const char *name,
                              struct error *err) {
    struct checkpoint_column column;
    char names[300] = "";
    uint32_t found = 0;
    int sides = 0;
    enum status s;
    *out = (struct state_column){0};
    for (uint32_t i = 0; (s = checkpoint_column(c, i, &column, err)) == STATUS_OK; i++) {
        const char *dot = strchr(column.name, '.');
        const size_t used = strlen(names);
        (void)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", column.name);
        if (strcmp(column.name, name) == 0) {
            return state_column_read(out, c, i, err);
        }
        if (dot != NULL && strcmp(dot + 1, name) == 0) {
            found = i;
            sides++;
        }
    }
    if (s != STATUS_END) {
        return s;
    }
    return sides == 1 ? state_column_read(out, c, found, err)
                      : error_set(err, STATUS_USAGE, "'%.40s' is none of the run's columns: %s",
                                  name, names);
}

double state_column_entry(const struct state_column *c, uint64_t i) {
    double value;
    return i < c->count && sample_state_entry(c->values, c->kind, i, &value) ? value : (double)NAN;
}

uint32_t state_column_captions(const struct state_column *c, uint64_t id) {
    return c->first != NULL && id < c->ids ? (uint32_t)(c->first[id + 1] - c->first[id]) : 0;
}

double state_column_caption(const struct state_column *c, uint64_t id, uint32_t k) {
    return c->first == NULL                   ? state_column_entry(c, id)
           : k < state_column_captions(c, id) ? state_column_entry(c, c->first[id] + k)
                                              : (double)NAN;
}

double state_column_value(const struct state_column *c, uint64_t id) {
    if (c->first == NULL) {
        return state_column_entry(c, id);
    }
    double sum = 0.0;
    uint32_t count = 0;
    for (uint32_t k = 0; k < state_column_captions(c, id); k++) {
        const double value = state_column_caption(c, id, k);
        sum += isnan(value) ? 0.0 : value;
        count += !isnan(value);
    }
    return count > 0 ? sum / count : (double)NAN;
}

void state_column_fini(struct state_column *c) {
    free(c->values);
    *c = (struct state_column){0};
}
