/*
 * loss: creates a loss with its memory and state from options, and applies two rules to every loss:
 * similarities must be finite, and an id that occurs twice in a batch (a corrupt sample was
 * replaced) counts once. For the second, the step gets the sub-matrix of distinct ids. With several
 * positives an id belongs to consecutive rows, which count if all of them have it.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/sort.h"
#include "train/loss/loss_internal.h"

static enum status allocate(struct loss *l, struct error *err) {
    const size_t b = (size_t)l->max_batch_count;
    const size_t rows = l->options.views ? 2 * b : b;
    l->private_state = calloc(1, l->row->private_bytes + 1);
    bool ok = l->private_state != NULL;
    for (int i = 0; i < 3; i++) {
        l->rows[i] = calloc(rows, sizeof *l->rows[i]);
        ok = ok && l->rows[i] != NULL;
    }
    l->places = calloc(rows, sizeof *l->places);
    l->ids = calloc(b, sizeof *l->ids);
    l->caption_ids = calloc(b, sizeof *l->caption_ids);
    l->weights = calloc(b, sizeof *l->weights);
    l->order = calloc(b, sizeof *l->order);
    l->is_first = calloc(b, sizeof *l->is_first);
    ok = ok && l->places != NULL && l->ids != NULL && l->caption_ids != NULL &&
         l->weights != NULL && l->order != NULL && l->is_first != NULL;
    for (int i = 0; i < 2; i++) {
        l->view_row[i] = calloc(rows, sizeof *l->view_row[i]);
        l->sums[i] = calloc(rows, sizeof *l->sums[i]);
        ok = ok && l->view_row[i] != NULL && l->sums[i] != NULL;
    }
    if (loss_carries(l)) {
        l->carried_ids = calloc(2 * b, sizeof *l->carried_ids);
        l->carried[0] = calloc(2 * b, sizeof *l->carried[0]);
        l->carried[1] = calloc(2 * b, sizeof *l->carried[1]);
        ok = ok && l->carried_ids != NULL && l->carried[0] != NULL && l->carried[1] != NULL;
    }
    const int matrices = b > LOSS_MAX_WHOLE ? 0 : l->row->uses_self ? 6 : 2;
    for (int i = 0; i < matrices; i++) {
        l->matrix[i] = calloc(rows * rows, sizeof *l->matrix[i]);
        ok = ok && l->matrix[i] != NULL;
    }
    return ok ? STATUS_OK
              : error_set(err, STATUS_NOMEM, "loss %s: no memory for a batch of %zu",
                          l->options.name, b);
}

/* Adds a column of one side, one per pair of a sample. */
static enum status add_column(struct loss *l,
                              int32_t *out,
                              const struct loss_column *c,
                              int side,
                              float first,
                              struct error *err) {
    static const char *const sides[] = {"image", "text"};
    for (int64_t pair = 0; pair < loss_rows_each(l); pair++) {
        char full[SAMPLE_STATE_NAME_BYTES];
        char which[16] = "";
        int32_t column;
        if (pair > 0) {
            (void)snprintf(which, sizeof which, ".%d", (int)pair + 1);
        }
        snprintf(full, sizeof full, "%s.%s%s", sides[side], c->name, which);
        TRY(sample_state_add(l->states[side], full, c->kind, first, &column, err));
        *out = pair == 0 ? column : *out;
        assert(column == *out + pair);
    }
    return STATUS_OK;
}

/* The row's columns, and visits. */
static enum status add_columns(struct loss *l, struct error *err) {
    for (int k = 0; l->row->columns != NULL && l->row->columns[k].name != NULL; k++) {
        const struct loss_column *c = &l->row->columns[k];
        assert(k < LOSS_MAX_COLUMNS);
        const float first =
            c->first_option == LOSS_OPTION_NONE
                ? c->first
                : (float)loss_option_value(&l->options, &loss_option_rows[c->first_option]);
        for (int side = 0; side < loss_side_count(l); side++) {
            TRY(add_column(l, &l->columns[k][side], c, side, first, err));
        }
    }
    int32_t *visits = l->visits;
    TRY(sample_state_add(l->state, "visits", SAMPLE_STATE_COUNT, 0.0f, &visits[SIDE_IMAGE], err));
    visits[SIDE_TEXT] = visits[SIDE_IMAGE];
    return l->states[SIDE_TEXT] == l->state
               ? STATUS_OK
               : sample_state_add(l->states[SIDE_TEXT], "text.visits", SAMPLE_STATE_COUNT, 0.0f,
                                  &visits[SIDE_TEXT], err);
}

static void add_scalar(struct loss *l, const char *name, double *value) {
    assert(l->scalar_count < LOSS_MAX_SCALARS);
    l->scalars[l->scalar_count++] = (struct loss_scalar){name, value};
}

/* Those of a learned temperature, and the row's. */
static void add_scalars(struct loss *l) {
    if (l->options.temperature == LOSS_TEMPERATURE_GLOBAL) {
        add_scalar(l, "log_scale", &l->scale.value);
        add_scalar(l, "log_scale.m", &l->scale.m);
        add_scalar(l, "log_scale.v", &l->scale.v);
        add_scalar(l, "learned_steps", &l->learned_steps);
    }
    for (int i = 0; l->row->scalars != NULL && l->row->scalars[i].name != NULL; i++) {
        char *at = (char *)l->private_state + l->row->scalars[i].offset;
        add_scalar(l, l->row->scalars[i].name, (double *)(void *)at);
    }
}

bool loss_keeps_texts(const struct loss_options *opt) {
    const struct loss_row *row = NULL;
    bool any = false;
    if (opt->views || opt->positives > 1 || loss_find_row(&row, opt, NULL) != STATUS_OK) {
        return false;
    }
    for (int k = 0; row->columns != NULL && row->columns[k].name != NULL; k++) {
        if (row->columns[k].kind == SAMPLE_STATE_ID) {
            return false;
        }
        any = true;
    }
    return any;
}

enum status loss_create(struct loss **out,
                        const struct loss_options *opt,
                        struct sample_state *state,
                        uint64_t samples_count,
                        int64_t max_batch_count,
                        struct error *err) {
    return loss_create_by_caption(out, opt, state, NULL, samples_count, max_batch_count, err);
}

enum status loss_create_by_caption(struct loss **out,
                                   const struct loss_options *opt,
                                   struct sample_state *state,
                                   struct sample_state *captions,
                                   uint64_t samples_count,
                                   int64_t max_batch_count,
                                   struct error *err) {
    REQUIRE(out != NULL && opt != NULL && opt->name != NULL && state != NULL);
    REQUIRE(captions == NULL || loss_keeps_texts(opt));
    REQUIRE(max_batch_count >= 2 && max_batch_count <= LOSS_MAX_BATCH);
    *out = NULL;
    const struct loss_row *row = NULL;
    struct loss_options options = *opt;
    TRY(loss_find_row(&row, opt, err));
    TRY(loss_complete_options(&options, row, err));
    FAIL_IF(samples_count < 2, err, STATUS_USAGE,
            "loss %s: a dataset of fewer than two samples has no negatives", row->name);
    struct loss *l = calloc(1, sizeof *l);
    TRY_MEMORY(l, err, "loss %s: out of memory", row->name);
    l->row = row;
    l->options = options;
    l->scale.value = -log(options.tau);
    l->state = state;
    l->states[SIDE_IMAGE] = state;
    l->states[SIDE_TEXT] = captions != NULL ? captions : state;
    l->samples_count = samples_count;
    l->max_batch_count = max_batch_count;
    enum status s;
    TRY_OR_FAIL(s, allocate(l, err));
    if (row->begin != NULL) {
        row->begin(l);
    }
    TRY_OR_FAIL(s, add_columns(l, err));
    TRY_OR_FAIL(s, sample_state_reserve(state, max_batch_count, err));
    TRY_OR_FAIL(s, captions == NULL ? STATUS_OK
                                    : sample_state_reserve(captions, max_batch_count, err));
    add_scalars(l);
fail:
    RETURN_CREATED(s, out, l, loss_destroy);
}

void loss_destroy(struct loss *l) {
    if (l == NULL) {
        return;
    }
    free(l->private_state);
    free(l->view_row[0]);
    free(l->view_row[1]);
    free(l->sums[0]);
    free(l->sums[1]);
    for (int i = 0; i < 3; i++) {
        free(l->rows[i]);
    }
    free(l->places);
    free(l->ids);
    free(l->caption_ids);
    free(l->weights);
    free(l->order);
    free(l->is_first);
    free(l->carried_ids);
    free(l->carried[0]);
    free(l->carried[1]);
    for (size_t i = 0; i < sizeof l->matrix / sizeof l->matrix[0]; i++) {
        free(l->matrix[i]);
    }
    free(l);
}

bool loss_uses_self(const struct loss *l) {
    return l->row->uses_self;
}

bool loss_takes_weights(const struct loss *l) {
    return l->row->parity == LOSS_PARITY_ALGORITHM && !l->row->uses_self;
}

bool loss_takes_reference(const struct loss *l) {
    return l->row->parity == LOSS_PARITY_ALGORITHM && !l->row->views && loss_estimates_global(l) &&
           !l->row->finds_false; /* its thresholds are similarities */
}

bool loss_estimates_global(const struct loss *l) {
    bool sums = false;
    for (int k = 0; l->row->columns != NULL && l->row->columns[k].name != NULL; k++) {
        const char *name = l->row->columns[k].name;
        sums = sums || strcmp(name, "log_u") == 0 || strcmp(name, "s") == 0; /* s: --variant code */
    }
    return sums;
}

int32_t loss_scalars(struct loss *l, const struct loss_scalar **out) {
    *out = l->scalars;
    return l->scalar_count;
}

double loss_temperature_now(const struct loss *l) {
    return loss_tau(l);
}

static int by_id_and_place(const void *a, const void *b) {
    const struct loss_order *x = a;
    const struct loss_order *y = b;
    if (x->id != y->id) {
        return x->id < y->id ? -1 : 1;
    }
    return (x->place > y->place) - (x->place < y->place);
}

static int by_place(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool same_ids(const uint64_t *ids, int64_t count) {
    int64_t i = 1;
    while (i < count && ids[i] == ids[0]) {
        i++;
    }
    return i >= count;
}

/* Fills places with the first row of every id, ascending, and ids; returns how many ids there are.
 */
static int64_t distinct_places(struct loss *l, const uint64_t *sample_ids, int64_t b) {
    const int64_t each = loss_rows_each(l);
    int64_t n = 0;
    for (int64_t i = 0; i < b; i += each) {
        l->is_first[i] = false;
        if (same_ids(&sample_ids[i], each)) {
            l->order[n++] = (struct loss_order){.id = sample_ids[i], .place = i};
        }
    }
    l->order_count = n;
    sort_in_place(l->order, (size_t)n, sizeof *l->order, by_id_and_place);
    for (int64_t i = 0; i < n; i++) {
        l->is_first[l->order[i].place] = i == 0 || l->order[i].id != l->order[i - 1].id;
    }
    int64_t rows = 0;
    for (int64_t i = 0; i < b; i += each) {
        for (int64_t k = 0; k < each && l->is_first[i]; k++) {
            l->places[rows++] = i + k;
        }
    }
    for (int64_t i = 0; i < rows && l->options.views; i++) {
        l->places[rows + i] = b + l->places[i];
    }
    for (int64_t i = 0; i < rows / each; i++) {
        l->ids[i] = sample_ids[l->places[i * each]];
    }
    return rows / each;
}

/* Rows of similarities of `count` samples. */
static int64_t rows_of(const struct loss *l, int64_t count) {
    return count * (l->options.views ? 2 : loss_rows_each(l));
}

/* The rows and columns of the `count` distinct ids. */
static void
take_places(const struct loss *l, float *out, const float *in, int64_t b, int64_t count) {
    count = rows_of(l, count);
    b *= l->options.views ? 2 : 1;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < count; j++) {
            out[i * count + j] = in[l->places[i] * b + l->places[j]];
        }
    }
}

static void
put_places(const struct loss *l, float *out, const float *in, int64_t b, int64_t count) {
    count = rows_of(l, count);
    b *= l->options.views ? 2 : 1;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < count; j++) {
            out[l->places[i] * b + l->places[j]] = in[i * count + j];
        }
    }
}

int64_t loss_find_id(const struct loss *l, int64_t count, uint64_t id) {
    int64_t low = 0;
    int64_t high = l->order_count;
    while (low < high) { /* the first of equal ids, at the lowest position */
        const int64_t middle = low + (high - low) / 2;
        if (l->order[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == l->order_count || l->order[low].id != id) {
        return -1;
    }
    const int64_t *place =
        bsearch(&l->order[low].place, l->places, (size_t)count, sizeof *place, by_place);
    return place - l->places;
}

double loss_cache_refresh(const struct loss *l) {
    return l->options.cache_refresh; /* 0: the row does not read it */
}

bool loss_carries(const struct loss *l) {
    return loss_cache_refresh(l) > 0.0 ||
           (l->row->carried != NULL && l->options.emc2_carry != LOSS_EMC2_SKIP);
}

/* The same for off-batch samples. */
static void take_carried(const struct loss *l, const struct loss_input *in, int64_t count) {
    for (int side = 0; side < SIDE_COUNT; side++) {
        for (int64_t i = 0; i < count; i++) {
            const int64_t from = side * in->batch_count + l->places[i];
            l->carried_ids[side * count + i] = in->carried_ids[from];
            l->carried[0][side * count + i] = in->carried_similarity[from];
            l->carried[1][side * count + i] = 0.0f;
        }
    }
}

static void
put_carried(const struct loss *l, const struct loss_output *out, int64_t b, int64_t count) {
    for (int side = 0; side < SIDE_COUNT; side++) {
        for (int64_t i = 0; i < count; i++) {
            out->carried_gradient[side * b + l->places[i]] = l->carried[1][side * count + i];
        }
    }
}

void loss_put_row_values(const struct loss *l, double *values, int64_t b, int64_t count) {
    for (int64_t row = b - 1; values != NULL && row >= 0; row--) {
        const bool counts = count > 0 && l->places[count - 1] == row;
        values[row] = counts ? values[--count] : (double)NAN;
    }
}

static void run_step(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    loss_run_row(l, in, out);
    if (l->row->finish != NULL) {
        l->row->finish(l, in);
    }
}

/* The step on the distinct ids; the other rows and columns of the gradient stay zero. */
static void
step_distinct(struct loss *l, const struct loss_input *in, struct loss_output *out, int64_t count) {
    const int64_t b = in->batch_count;
    struct loss_input part = *in;
    struct loss_output part_out = *out;
    const int64_t rows = rows_of(l, count);
    part.sample_ids = l->ids;
    part.caption_ids = l->caption_ids;
    part.batch_count = l->options.views ? count : rows;
    const bool carried = loss_carries(l) && in->carried_ids != NULL;
    part.similarity = l->matrix[0];
    part_out.gradient = l->matrix[1];
    take_places(l, l->matrix[0], in->similarity, b, count);
    memset(l->matrix[1], 0, (size_t)(rows * rows) * sizeof(float));
    if (l->row->uses_self) {
        part.image_similarity = l->matrix[2];
        part.text_similarity = l->matrix[3];
        part_out.image_gradient = l->matrix[4];
        part_out.text_gradient = l->matrix[5];
        take_places(l, l->matrix[2], in->image_similarity, b, count);
        take_places(l, l->matrix[3], in->text_similarity, b, count);
    }
    if (carried) {
        take_carried(l, in, count);
        part.carried_ids = l->carried_ids;
        part.carried_similarity = l->carried[0];
        part_out.carried_gradient = l->carried[1];
    }
    for (int64_t i = 0; i < part.batch_count && in->weights != NULL; i++) {
        l->weights[i] = in->weights[l->places[i]];
        part.weights = l->weights;
    }
    run_step(l, &part, &part_out);
    loss_put_row_values(l, out->row_values, b, part.batch_count);
    if (carried) {
        put_carried(l, out, b, count);
    }
    put_places(l, out->gradient, part_out.gradient, b, count);
    if (l->row->uses_self) {
        put_places(l, out->image_gradient, part_out.image_gradient, b, count);
        put_places(l, out->text_gradient, part_out.text_gradient, b, count);
    }
    out->value = part_out.value;
    out->objective = part_out.objective;
    out->tau = part_out.tau;
}

static enum status check_finite(const struct loss *l,
                                const float *similarity,
                                int64_t b,
                                const char *rows,
                                const char *columns,
                                struct error *err) {
    for (int64_t e = 0; e < b * b; e++) {
        FAIL_IF(!isfinite(similarity[e]), err, STATUS_CORRUPT,
                "loss %s: similarity of %s %lld and %s %lld is not finite; lower the "
                "learning rate",
                l->options.name, rows, (long long)(e / b), columns, (long long)(e % b));
    }
    return STATUS_OK;
}

enum status loss_carried(struct loss *l,
                         uint64_t *out,
                         uint64_t *views,
                         const uint64_t *sample_ids,
                         int64_t batch_count,
                         struct error *err) {
    REQUIRE(l != NULL && out != NULL && sample_ids != NULL);
    REQUIRE(loss_carries(l) && l->row->carried != NULL);
    REQUIRE(batch_count >= 2 && batch_count <= l->max_batch_count);
    for (int64_t i = 0; i < batch_count; i++) {
        REQUIRE(sample_ids[i] < sample_state_id_space(l->state));
    }
    const int64_t count = distinct_places(l, sample_ids, batch_count);
    TRY(sample_state_begin_batch(l->state, l->ids, count, err));
    for (int side = 0; side < SIDE_COUNT; side++) {
        const int kept = side < loss_side_count(l) ? side : SIDE_IMAGE; /* views share one */
        uint64_t *of_side = out + side * batch_count;
        for (int64_t i = 0; i < batch_count; i++) {
            of_side[i] = SAMPLE_STATE_NO_ID;
        }
        for (int64_t i = 0; i < count; i++) {
            uint64_t view;
            of_side[l->places[i]] = l->row->carried(l, &view, kept, i, count);
            if (views != NULL) {
                views[side * batch_count + l->places[i]] = view;
            }
        }
    }
    return sample_state_end_batch(l->state, err);
}

/* Off-batch samples: checks that they are given if one is needed and have finite similarities, and
 * zeroes their gradients. */
static enum status check_carried(const struct loss *l,
                                 const struct loss_input *in,
                                 const struct loss_output *out,
                                 int64_t count,
                                 struct error *err) {
    const int64_t b = in->batch_count;
    if (!loss_carries(l)) {
        return STATUS_OK;
    }
    REQUIRE(in->carried_ids != NULL || l->row->carried != NULL);
    for (int64_t i = 0; i < loss_side_count(l) * count && in->carried_ids == NULL; i++) {
        uint64_t view;
        REQUIRE(l->row->carried(l, &view, (int)(i / count), i % count, count) ==
                SAMPLE_STATE_NO_ID);
    }
    for (int64_t i = 0; i < 2 * b && in->carried_ids != NULL; i++) {
        const uint64_t id = in->carried_ids[i];
        FAIL_IF(id != SAMPLE_STATE_NO_ID && !isfinite(in->carried_similarity[i]), err,
                STATUS_CORRUPT,
                "loss %s: similarity of row %lld with sample %llu is not finite; lower "
                "the learning rate",
                l->options.name, (long long)i, (unsigned long long)id);
        out->carried_gradient[i] = 0.0f;
    }
    return STATUS_OK;
}

/* Over the `count` distinct samples; NaN without the column. */
static double batch_mean(const struct loss *l, const char *name, int side, int64_t count) {
    const struct loss_column *c = l->row->columns;
    int k = 0;
    while (c != NULL && c[k].name != NULL && strcmp(c[k].name, name) != 0) {
        k++;
    }
    if (c == NULL || c[k].name == NULL || side >= loss_side_count(l)) {
        return (double)NAN;
    }
    const int64_t each = loss_rows_each(l);
    double sum = 0.0;
    for (int64_t pair = 0; pair < each; pair++) {
        const float *values =
            sample_state_window(l->states[side], l->columns[k][side] + (int32_t)pair);
        for (int64_t i = 0; i < count; i++) {
            sum += (double)values[i];
        }
    }
    return sum / (double)(count * each);
}

enum status loss_begin_step(struct loss *l,
                            const struct loss_input *in,
                            struct loss_output *out,
                            int64_t *count,
                            struct error *err) {
    REQUIRE(in->batch_count >= 2 && in->batch_count <= l->max_batch_count);
    REQUIRE(in->batch_count % loss_rows_each(l) == 0);
    const int64_t b = in->batch_count;
    const bool captions = l->states[SIDE_TEXT] != l->state;
    REQUIRE(!captions || in->caption_ids != NULL);
    REQUIRE(in->weights == NULL || loss_takes_weights(l));
    for (int64_t i = 0; i < b; i++) {
        REQUIRE(in->sample_ids[i] < sample_state_id_space(l->state));
        REQUIRE(in->weights == NULL || (in->weights[i] >= 0.0f && isfinite(in->weights[i])));
        REQUIRE(!captions || in->caption_ids[i] < sample_state_id_space(l->states[SIDE_TEXT]));
    }
    for (int64_t i = 0; i < b && out->row_values != NULL; i++) {
        out->row_values[i] = 0.0;
    }
    out->value = 0.0;
    out->objective = 0.0;
    out->tau = loss_tau(l);
    *count = distinct_places(l, in->sample_ids, b);
    TRY(sample_state_begin_batch(l->state, l->ids, *count, err));
    for (int64_t i = 0; captions && i < *count; i++) {
        l->caption_ids[i] = in->caption_ids[l->places[i]];
    }
    return captions ? sample_state_begin_batch(l->states[SIDE_TEXT], l->caption_ids, *count, err)
                    : STATUS_OK;
}

void loss_count_visits(struct loss *l, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        loss_visits(l, SIDE_IMAGE)[i]++;
        if (l->states[SIDE_TEXT] != l->state) {
            loss_visits(l, SIDE_TEXT)[i]++;
        }
    }
}

enum status
loss_end_step(struct loss *l, struct loss_output *out, int64_t count, struct error *err) {
    for (int side = 0; side < SIDE_COUNT; side++) {
        out->batch.log_u[side] = batch_mean(l, "log_u", side, count);
        out->batch.zeta[side] = batch_mean(l, "zeta", side, count);
    }
    TRY(sample_state_end_batch(l->state, err));
    return l->states[SIDE_TEXT] != l->state ? sample_state_end_batch(l->states[SIDE_TEXT], err)
                                            : STATUS_OK;
}

enum status
loss_step(struct loss *l, const struct loss_input *in, struct loss_output *out, struct error *err) {
    REQUIRE(l != NULL && in != NULL && out != NULL && out->gradient != NULL);
    const int64_t b = in->batch_count;
    const int64_t rows = l->options.views ? 2 * b : b;
    REQUIRE(b <= LOSS_MAX_WHOLE && b <= l->max_batch_count);
    const size_t size_bytes = (size_t)(rows * rows) * sizeof *out->gradient;
    int64_t count;
    TRY(check_finite(l, in->similarity, rows, l->options.views ? "view" : "image",
                     l->options.views ? "view" : "text", err));
    if (l->row->uses_self) {
        REQUIRE(in->image_similarity != NULL && in->text_similarity != NULL);
        REQUIRE(out->image_gradient != NULL && out->text_gradient != NULL);
        TRY(check_finite(l, in->image_similarity, b, "image", "image", err));
        TRY(check_finite(l, in->text_similarity, b, "text", "text", err));
        memset(out->image_gradient, 0, size_bytes);
        memset(out->text_gradient, 0, size_bytes);
    }
    memset(out->gradient, 0, size_bytes);
    TRY(loss_begin_step(l, in, out, &count, err));
    TRY(check_carried(l, in, out, count, err));
    loss_count_visits(l, count);
    if (count * loss_rows_each(l) == b) {
        run_step(l, in, out);
    } else if (count >= 2) {
        step_distinct(l, in, out, count);
    } else {
        loss_put_row_values(l, out->row_values, b, 0);
    }
    return loss_end_step(l, out, count, err);
}
