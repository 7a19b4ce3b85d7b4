/*
 * Columns by sample id: what a batch changes, what unvisited means, and what another dataset takes
 * over.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/test.h"
#include "train/state/sample_state.h"

enum { IDS = 10 };

static struct sample_state *open_state(uint64_t id_space) {
    struct error err = {0};
    struct sample_state *s = NULL;
    int32_t c;
    assert_ok(sample_state_create(&s, id_space, NULL, &err), err);
    assert_ok(sample_state_add(s, "x", SAMPLE_STATE_F32, SAMPLE_STATE_UNVISITED, &c, &err), err);
    assert_int_equal(c, 0);
    assert_ok(sample_state_add(s, "visits", SAMPLE_STATE_COUNT, 0.0f, &c, &err), err);
    assert_ok(sample_state_add(s, "chain", SAMPLE_STATE_ID, 0.0f, &c, &err), err);
    assert_int_equal(c, 2);
    return s;
}

TEST(a_batch_changes_the_entries_of_its_ids_alone) {
    struct error err = {0};
    struct sample_state *s = open_state(IDS);
    const uint64_t ids[] = {4, 9, 0};
    assert_ok(sample_state_reserve(s, 3, &err), err);
    for (int round = 0; round < 2; round++) {
        assert_ok(sample_state_begin_batch(s, ids, 3 - round, &err), err);
        for (int i = 0; i < 3 - round; i++) {
            float *x = &sample_state_window(s, 0)[i];
            assert_true(round == 0 ? !sample_state_visited(*x) : *x == (float)ids[i]);
            *x = (float)ids[i] + (float)round;
            sample_state_window_u64(s, 1)[i]++;
            sample_state_window_u64(s, 2)[i] = ids[i] + (UINT64_C(1) << 60);
        }
        assert_ok(sample_state_end_batch(s, &err), err);
    }
    const float *x = sample_state_column(s, 0);
    const uint64_t *visits = sample_state_column_u64(s, 1);
    const uint64_t *chain = sample_state_column_u64(s, 2);
    assert_true(x[4] == 5.0f && x[9] == 10.0f && x[0] == 0.0f && !sample_state_visited(x[1]));
    assert_true(visits[4] == 2 && visits[9] == 2 && visits[0] == 1 && visits[1] == 0);
    assert_true(chain[9] == 9 + (UINT64_C(1) << 60) && chain[1] == SAMPLE_STATE_NO_ID);
    sample_state_destroy(s);
}

TEST(the_largest_is_of_all_entries_and_of_those_changed_in_the_batch) {
    struct error err = {0};
    struct sample_state *s = open_state(IDS);
    const uint64_t ids[] = {2, 7};
    assert_ok(sample_state_reserve(s, 2, &err), err);
    assert_ok(sample_state_begin_batch(s, ids, 2, &err), err);
    assert_true(sample_state_largest(s, 0) == -HUGE_VAL);
    sample_state_column(s, 0)[5] = -2.0f;
    sample_state_window(s, 0)[0] = -3.0f;
    assert_true(sample_state_largest(s, 0) == -2.0);
    sample_state_window(s, 0)[1] = -1.0f;
    assert_true(sample_state_largest(s, 0) == -1.0);
    assert_ok(sample_state_end_batch(s, &err), err);
    sample_state_destroy(s);
}

TEST(every_value_can_be_stored_and_unvisited_is_none_of_them) {
    struct sample_state *s = open_state(IDS);
    const float values[] = {0.0f, -0.0f, INFINITY, 1e-45f};
    size_t size_bytes;
    memcpy(sample_state_column(s, 0), values, sizeof values);
    struct sample_state_summary x = {0};
    sample_state_summarise(&x, sample_state_values(s, 0, &size_bytes), SAMPLE_STATE_F32, IDS);
    assert_int_equal(x.visited_count, 4);
    assert_int_equal(size_bytes, IDS * sizeof(float));
    sample_state_column_u64(s, 2)[0] = 0;
    sample_state_column_u64(s, 2)[1] = 5;
    struct sample_state_summary c = {0};
    sample_state_summarise(&c, sample_state_values(s, 2, &size_bytes), SAMPLE_STATE_ID, IDS);
    assert_true(c.visited_count == 2 && c.min == 0.0 && c.mean == 2.5 && c.max == 5.0);
    assert_int_equal(size_bytes, IDS * sizeof(uint64_t));
    sample_state_column_u64(s, 1)[3] = 2;
    sample_state_column_u64(s, 1)[1] = 1;
    struct sample_state_summary v = {0};
    sample_state_summarise(&v, sample_state_column_u64(s, 1), SAMPLE_STATE_COUNT, IDS);
    assert_true(v.visited_count == 2 && v.min == 1.0 && v.mean == 1.5 && v.max == 2.0);
    sample_state_destroy(s);
}

static struct sample_state_summary summary_of(const float *values, uint64_t count) {
    struct sample_state_summary s = {0};
    sample_state_summarise(&s, values, SAMPLE_STATE_F32, count);
    return s;
}

TEST(a_summary_counts_entries_at_the_bounds_and_measures_the_spread) {
    const float values[] = {0.05f, SAMPLE_STATE_UNVISITED, 0.01f, 0.01f, 0.03f, 0.05f, 0.05f};
    struct sample_state_summary s = summary_of(values, 7);
    assert_int_equal(s.at_min_count, 2);
    assert_int_equal(s.at_max_count, 3);
    const double mean = 0.2 / 6.0;
    const double squares =
        (3 * 0.05 * 0.05 + 2 * 0.01 * 0.01 + 0.03 * 0.03) / 6.0; /* of floats: to 1e-7 */
    assert_true(fabs(s.deviation - sqrt(squares - mean * mean)) < 1e-7);
    sample_state_summarise(&s, (const float[]){0.005f}, SAMPLE_STATE_F32, 1);
    assert_true(s.at_min_count == 1 && s.at_max_count == 3);
    const float same[] = {100.25f, 100.25f, 100.25f}; /* far from 0, without cancellation */
    s = summary_of(same, 3);
    assert_true(s.deviation == 0.0 && s.at_min_count == 3 && s.at_max_count == 3);
    const float none[] = {SAMPLE_STATE_UNVISITED};
    s = summary_of(none, 1);
    assert_true(s.deviation == 0.0 && s.at_min_count == 0 && s.at_max_count == 0);
}

TEST(bins_do_not_depend_on_the_order) {
    enum { COUNT = 200 };
    float up[COUNT], down[COUNT];
    for (int i = 0; i < COUNT; i++) {
        up[i] = 0.37f * (float)(i - 50);
        down[COUNT - 1 - i] = up[i];
    }
    const struct sample_state_summary a = summary_of(up, COUNT);
    const struct sample_state_summary b = summary_of(down, COUNT);
    /* From -18.5 to 55.13: 48 bins of 2 suffice, those of 1 do not. */
    assert_true(a.width == 2.0 && a.first == -10.0);
    assert_true(b.width == a.width && b.first == a.first);
    assert_memory_equal(a.bins, b.bins, sizeof a.bins);
    uint64_t bins[SAMPLE_STATE_BINS] = {0};
    for (int i = 0; i < COUNT; i++) {
        bins[(int)floor((double)up[i] / 2.0) + 10]++;
    }
    assert_memory_equal(a.bins, bins, sizeof bins);
}

TEST(bins_hold_one_value_and_what_is_finite) {
    const float values[] = {-0.05f, -0.05f, INFINITY, -3.0e38f, 3.0e38f, 0.0f};
    const struct sample_state_summary same = summary_of(values, 2);
    assert_true(same.bins[0] == 2 && same.bins[1] == 0);
    assert_true(same.first * same.width <= (double)values[0] &&
                (double)values[0] < (same.first + 1.0) * same.width);
    const struct sample_state_summary wide = summary_of(values + 2, 4);
    uint64_t sum = 0;
    for (int i = 0; i < SAMPLE_STATE_BINS; i++) {
        sum += wide.bins[i];
    }
    assert_int_equal(sum, 3);
    assert_int_equal(wide.visited_count, 4);
}

TEST(names_are_unique_and_columns_bounded) {
    struct error err = {0};
    struct sample_state *s = open_state(IDS);
    int32_t c;
    assert_status(sample_state_add(s, "visits", SAMPLE_STATE_F32, 0.0f, &c, &err), STATUS_EXISTS,
                  err);
    assert_status(sample_state_add(s, "x", SAMPLE_STATE_ID, 0.0f, &c, &err), STATUS_EXISTS, err);
    assert_int_equal(sample_state_find(s, "chain"), 2);
    assert_int_equal(sample_state_find(s, "y"), -1);
    assert_int_equal(sample_state_bytes(s), IDS * (4 + 8 + 8));
    for (int i = 3; i < SAMPLE_STATE_MAX_COLUMNS; i++) {
        char name[8];
        snprintf(name, sizeof name, "c%d", i);
        assert_ok(sample_state_add(s, name, SAMPLE_STATE_F32, 0.0f, &c, &err), err);
    }
    assert_status(sample_state_add(s, "more", SAMPLE_STATE_F32, 0.0f, &c, &err), STATUS_LIMIT, err);
    sample_state_destroy(s);
}

TEST(another_dataset_takes_over_what_it_shares) {
    struct error err = {0};
    struct sample_state *from = open_state(IDS);
    struct sample_state *to = open_state(5);
    const uint64_t ids[] = {2, 7, 8};
    const float values[] = {0.25f, 0.75f, 0.5f};
    const uint64_t chain[] = {7, 2, 1}; /* sample 1 is not taken over */
    for (int i = 0; i < 3; i++) {
        sample_state_column(from, 0)[ids[i]] = values[i];
        sample_state_column_u64(from, 1)[ids[i]] = 1;
        sample_state_column_u64(from, 2)[ids[i]] = chain[i];
    }
    const uint64_t old_ids[] = {8, SAMPLE_STATE_NO_ID, 7, 2, 0};
    assert_ok(sample_state_remap(to, from, old_ids, &err), err);
    const float *x = sample_state_column(to, 0);
    const uint64_t *v = sample_state_column_u64(to, 1);
    const uint64_t *c = sample_state_column_u64(to, 2);
    assert_true(x[0] == 0.5f && x[2] == 0.75f && x[3] == 0.25f);
    assert_false(sample_state_visited(x[1]));
    assert_false(sample_state_visited(x[4]));
    assert_true(v[0] == 1 && v[1] == 0 && v[2] == 1 && v[3] == 1 && v[4] == 0);
    assert_true(c[0] == SAMPLE_STATE_NO_ID && c[1] == SAMPLE_STATE_NO_ID && c[2] == 3 && c[3] == 2);
    sample_state_destroy(from);
    sample_state_destroy(to);
}
