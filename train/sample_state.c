/*
 * sample_state: an array per column, indexed by id.
 */
#include "train/sample_state.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/checked.h"

struct sample_state {
    uint64_t id_space_count;
    int32_t column_count;
    char names[SAMPLE_STATE_MAX_COLUMNS][SAMPLE_STATE_NAME_BYTES];
    float *columns[SAMPLE_STATE_MAX_COLUMNS];
};

enum status
sample_state_create(struct sample_state **out, uint64_t id_space_count, struct error *err) {
    REQUIRE(out != NULL && id_space_count > 0);
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return error_set(err, STATUS_NOMEM, "sample state: out of memory");
    }
    (*out)->id_space_count = id_space_count;
    return STATUS_OK;
}

void sample_state_destroy(struct sample_state *s) {
    if (s == NULL) {
        return;
    }
    for (int32_t i = 0; i < s->column_count; i++) {
        free(s->columns[i]);
    }
    free(s);
}

enum status sample_state_add(struct sample_state *s,
                             const char *name,
                             float initial,
                             int32_t *out_column,
                             struct error *err) {
    REQUIRE(s != NULL && name != NULL && out_column != NULL &&
            strlen(name) < SAMPLE_STATE_NAME_BYTES);
    for (int32_t i = 0; i < s->column_count; i++) {
        if (strcmp(s->names[i], name) == 0) {
            return error_set(err, STATUS_EXISTS, "sample state: column %s is there already", name);
        }
    }
    if (s->column_count == SAMPLE_STATE_MAX_COLUMNS) {
        return error_set(err, STATUS_LIMIT, "sample state: more than %d columns",
                         SAMPLE_STATE_MAX_COLUMNS);
    }
    size_t count;
    size_t size_bytes;
    float *values = NULL;
    if (checked_size(s->id_space_count, &count) &&
        checked_mul_size(count, sizeof *values, &size_bytes)) {
        values = malloc(size_bytes);
    }
    if (values == NULL) {
        return error_set(err, STATUS_NOMEM, "sample state: no memory for column %s of %llu ids",
                         name, (unsigned long long)s->id_space_count);
    }
    for (size_t i = 0; i < count; i++) {
        values[i] = initial;
    }
    *out_column = s->column_count++;
    memcpy(s->names[*out_column], name, strlen(name) + 1);
    s->columns[*out_column] = values;
    return STATUS_OK;
}

uint64_t sample_state_id_space(const struct sample_state *s) {
    return s->id_space_count;
}

int32_t sample_state_count(const struct sample_state *s) {
    return s->column_count;
}

const char *sample_state_name(const struct sample_state *s, int32_t column) {
    return s->names[column];
}

float *sample_state_column(const struct sample_state *s, int32_t column) {
    return s->columns[column];
}

void sample_state_gather(const struct sample_state *s,
                         int32_t column,
                         float *values,
                         const uint64_t *ids,
                         int64_t count) {
    const float *from = s->columns[column];
    for (int64_t i = 0; i < count; i++) {
        values[i] = from[ids[i]];
    }
}

void sample_state_scatter(struct sample_state *s,
                          int32_t column,
                          const float *values,
                          const uint64_t *ids,
                          int64_t count) {
    float *to = s->columns[column];
    for (int64_t i = count - 1; i >= 0; i--) {
        to[ids[i]] = values[i];
    }
}

struct sample_state_summary sample_state_summarise(const float *values, uint64_t count) {
    struct sample_state_summary s = {0};
    double sum = 0.0;
    for (uint64_t i = 0; i < count; i++) {
        if (!sample_state_visited(values[i])) {
            continue;
        }
        const double v = (double)values[i];
        s.min = s.visited_count == 0 || v < s.min ? v : s.min;
        s.max = s.visited_count == 0 || v > s.max ? v : s.max;
        sum += v;
        s.visited_count++;
    }
    s.mean = s.visited_count > 0 ? sum / (double)s.visited_count : 0.0;
    return s;
}
