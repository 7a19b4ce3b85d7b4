/* ccstudy batch: the file of runs, what follows from it, and heads trained on frozen features. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "tests/support/test.h"
#include "tools/ccstudy/batch_cells.h"
#include "tools/ccstudy/batch_labels.h"
#include "tools/ccstudy/batch_model.h"
#include "tools/cli/npy.h"

/* ---- runs ---- */

static const char runs[] = "# drawn\n"
                           "# a comment\n"
                           "clip 8 0.1 0.001 0 0 10 20 30 90 90 90 0.5\n"
                           "clip 8 0.2 0.001 0 0 11 20 30 1 1 1\n"
                           "clip 8 0.2 0.001 0 1 0 0 0 10 20 30\n"
                           "clip 8 0.2 0.001 0 2 0 0 0 12 22 32\n"
                           "clip 8 0.1 0.001 0 1 0 0 0 99 99 99\n"
                           "sogclr 8 0.1 0.001 0.8 0 1 2 3 1 2 3 -0.5\n"
                           "sogclr 8 0.1 0.001 0.4 0 1 2 3 1 2 3 -0.75\n"
                           "sogclr 8 0.1 0.001 0.8 1 0 0 0 11 21 31\n"
                           "sogclr 8 0.1 0.001 0.8 2 0 0 0 15 25 35\n";

static struct batch_cells read_runs(const char *text) {
    struct error err = {0};
    struct batch_cells c;
    const char *path = test_temp_path("batch.cells");
    assert_ok(file_write_atomic(file_posix(), path, text, strlen(text), &err), err);
    assert_ok(batch_cells_read(&c, path, &err), err);
    return c;
}

TEST(a_file_of_runs_is_read_as_it_was_written) {
    struct error err = {0};
    struct batch_cells again;
    struct batch_cells c = read_runs(runs);
    c.items[3].test.at[1] = 100.0 / 3.0;
    assert_ok(batch_cells_write(&c, test_temp_path("copy"), &err), err);
    assert_ok(batch_cells_read(&again, test_temp_path("copy"), &err), err);
    assert_int_equal(again.count, 9);
    assert_string_equal(again.settings, "drawn");
    for (size_t i = 0; i < c.count; i++) {
        assert_ptr_equal(batch_cells_find(&again, &c.items[i]), &again.items[i]);
        assert_memory_equal(&again.items[i].validation, &c.items[i].validation,
                            sizeof c.items[i].validation);
        assert_memory_equal(&again.items[i].test, &c.items[i].test, sizeof c.items[i].test);
        assert_true(again.items[i].gcl == c.items[i].gcl ||
                    (isnan(again.items[i].gcl) && isnan(c.items[i].gcl)));
    }
    batch_cells_fini(&again);
    batch_cells_fini(&c);
}

TEST(a_line_that_is_no_run_is_named) {
    static const char *const bad[] = {
        "# drawn\nclip 8 0.1 0.001 0 0 10 20 30 90 90\n",
        "# drawn\nclip 8 0.1 0.001 0 0 10 20 30 90 90 101\n",
        "# drawn\nclip 8 0.1 0.001 0 0 10 20 30 90 90 90 0.5 more\n",
        "# drawn\nclip 8 0.1 0.001 0 0 10 20 30 90 90 nan\n",
        "# drawn\nnobody 8 0.1 0.001 0 0 10 20 30 90 90 90\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error err = {0};
        struct batch_cells c;
        const char *path = test_temp_path("bad");
        assert_ok(file_write_atomic(file_posix(), path, bad[i], strlen(bad[i]), &err), err);
        assert_int_equal(batch_cells_read(&c, path, &err), STATUS_CORRUPT);
        assert_non_null(strstr(err.text, "line 2"));
    }
}

TEST(validation_chooses_and_other_seeds_count) {
    struct error err = {0};
    struct batch_table t;
    struct batch_cells c = read_runs(runs);
    assert_ok(batch_table_make(&t, &c, &err), err);
    assert_int_equal(t.batch_count, 1);
    assert_int_equal(t.tau_count, 2);
    const struct batch_row *clip = &t.rows[BATCH_CLIP][0];
    const struct batch_row *sogclr = &t.rows[BATCH_SOGCLR][0];
    assert_true(clip->tuned->tau == 0.2);     /* not that of the better test recall */
    assert_true(sogclr->tuned->gamma == 0.8); /* the first of equal ones */
    assert_int_equal(clip->seeds, 2);
    assert_true(fabs(clip->recall.mean - 21.0) < 1e-12);
    assert_true(fabs(clip->recall.error - 1.0) < 1e-12); /* sqrt(2) / sqrt(2) */
    assert_true(fabs(clip->at[0].mean - 11.0) < 1e-12);
    assert_true(fabs(sogclr->over_clip.mean - 2.0) < 1e-12); /* 1 and 3 */
    assert_true(fabs(sogclr->over_clip.error - 1.0) < 1e-12);
    assert_int_equal(t.rows[BATCH_NUCLR_AUTO][0].seeds, 0);
    assert_true(batch_cells_fitted(&c, BATCH_SOGCLR, 8, 0.1)->gcl == -0.75);
    assert_null(batch_cells_fitted(&c, BATCH_CLIP, 8, 0.2)); /* not measured */
    batch_cells_fini(&c);
}

/* ---- features ---- */

static void write_features(const char *prefix, float value, int32_t last_owner) {
    struct error err = {0};
    char path[PATH_MAX_BYTES];
    const float images[6] = {1, 2, 3, 4, 5, value};
    const float texts[8] = {0};
    const int32_t owners[4] = {0, 0, 1, last_owner};
    (void)snprintf(path, sizeof path, "%s.images.npy", prefix);
    assert_ok(npy_write(path, "<f4", images, 4, 3, 2, &err), err);
    (void)snprintf(path, sizeof path, "%s.texts.npy", prefix);
    assert_ok(npy_write(path, "<f4", texts, 4, 4, 2, &err), err);
    (void)snprintf(path, sizeof path, "%s.owners.npy", prefix);
    assert_ok(npy_write(path, "<i4", owners, 4, 4, 0, &err), err);
}

TEST(features_are_those_that_embed_writes) {
    struct error err = {0};
    struct batch_features f;
    const char *prefix = test_temp_path("f");
    write_features(prefix, 6.0f, 2);
    assert_ok(batch_features_read(&f, prefix, &err), err);
    assert_int_equal(f.images_count, 3);
    assert_int_equal(f.texts_count, 4);
    assert_int_equal(f.image_width, 2);
    assert_true(f.images[5] == 6.0f);
    assert_int_equal(f.owners[3], 2);
    assert_int_equal(batch_features_divide(&f, 1, 0, &err), STATUS_USAGE); /* none to train on */
    batch_features_fini(&f);
    write_features(prefix, 6.0f, 3); /* image 2 has no text */
    assert_int_equal(batch_features_read(&f, prefix, &err), STATUS_CORRUPT);
    write_features(prefix, NAN, 2);
    assert_int_equal(batch_features_read(&f, prefix, &err), STATUS_CORRUPT);
    assert_int_equal(batch_features_read(&f, test_temp_path("none"), &err), STATUS_NOTFOUND);
}

TEST(an_array_of_another_type_or_a_torn_one_is_refused) {
    struct error err = {0};
    void *data;
    uint64_t rows;
    uint64_t columns;
    const float values[6] = {1, 2, 3, 4, 5, 6};
    const char *path = test_temp_path("a.npy");
    assert_ok(npy_write(path, "<f4", values, 4, 3, 2, &err), err);
    assert_int_equal(npy_read(path, "<i4", &data, &rows, &columns, &err), STATUS_CORRUPT);
    assert_ok(npy_read(path, "<f4", &data, &rows, &columns, &err), err);
    assert_int_equal(rows, 3);
    assert_int_equal(columns, 2);
    assert_memory_equal(data, values, sizeof values);
    free(data);
    assert_ok(file_posix()->truncate(file_posix()->context, path, 64 + 23, &err), err);
    assert_int_equal(npy_read(path, "<f4", &data, &rows, &columns, &err), STATUS_CORRUPT);
    assert_ok(file_posix()->truncate(file_posix()->context, path, 9, &err), err);
    assert_int_equal(npy_read(path, "<f4", &data, &rows, &columns, &err), STATUS_CORRUPT);
}

/* ---- training ---- */

static enum status nothing(void *cookie, double pairs, struct error *err) {
    (void)err;
    *(double *)cookie += pairs;
    return STATUS_OK;
}

static struct batch_cell
train(enum batch_method method, uint32_t batch, int64_t hidden, uint64_t seed) {
    struct error err = {0};
    struct device *dev;
    struct batch_features f;
    double pairs = 0.0;
    const double gamma = method == BATCH_CLIP ? 0.0 : method == BATCH_SOGCLR_FORGETS ? 1.0 : 0.6;
    struct batch_cell cell = {
        .method = method, .batch = batch, .tau = 0.1, .rate = 0.001 * sqrt(batch), .gamma = gamma};
    const struct batch_training how = {.epochs = 6, .hidden = hidden, .dim = 32, .seed = seed};
    assert_ok(device_open(&dev, "cpu", 1, &err), err);
    assert_ok(batch_features_draw(&f, 512, 1, &err), err);
    assert_ok(batch_features_divide(&f, 100, 1, &err), err);
    assert_int_equal(f.train_count, 256);
    assert_ok(batch_train_cell(&cell, &f, &how, dev, nothing, &pairs, &err), err);
    assert_true(pairs == 6.0 * 256.0); /* whatever the batch */
    batch_features_fini(&f);
    device_close(dev);
    printf("%s, batch %u: validation %.2f, test %.2f, gcl %.4f\n", batch_method_names[method],
           (unsigned)batch, batch_recall_mean(&cell.validation), batch_recall_mean(&cell.test),
           cell.gcl);
    return cell;
}

TEST(every_loss_learns_in_every_batch) {
    for (int m = 0; m < BATCH_METHODS; m++) {
        for (uint32_t batch = 8; batch <= 128; batch *= 4) {
            const struct batch_cell c = train((enum batch_method)m, batch, 0, 1);
            assert_true(batch_recall_mean(&c.test) > 15.0); /* chance: 5 */
            assert_true(batch_recall_mean(&c.validation) > 15.0);
            assert_true(isfinite(c.gcl));
        }
    }
}

TEST(heads_with_a_hidden_layer_fit_better) {
    const struct batch_cell c = train(BATCH_SOGCLR, 8, 64, 1);
    assert_true(batch_recall_mean(&c.test) > 15.0);
    assert_true(c.gcl < 0.9 * train(BATCH_SOGCLR, 8, 0, 1).gcl);
}

TEST(a_seed_repeats_every_number) {
    const struct batch_cell a = train(BATCH_NUCLR_AUTO, 32, 0, 7);
    const struct batch_cell b = train(BATCH_NUCLR_AUTO, 32, 0, 7);
    const struct batch_cell c = train(BATCH_NUCLR_AUTO, 32, 0, 8);
    assert_memory_equal(&a.test, &b.test, sizeof a.test);
    assert_true(a.gcl == b.gcl && a.gcl != c.gcl);
}

/* ---- noise ---- */

static double train_noisy(const char *name, double noise) {
    struct error err = {0};
    struct device *dev;
    struct batch_features f;
    double pairs = 0.0;
    struct batch_outcome out = {0};
    struct batch_setting setting = {.batch = 128, .rate = 0.01, .noise = noise};
    const struct batch_training how = {.epochs = 12, .dim = 32, .seed = 1};
    loss_options_default(&setting.loss);
    setting.loss.name = name;
    setting.loss.tau = 0.2;
    setting.loss.q = 0.5;
    assert_ok(device_open(&dev, "cpu", 1, &err), err);
    assert_ok(batch_features_draw(&f, 1100, 1, &err), err);
    assert_ok(batch_features_divide(&f, 100, 1, &err), err);
    assert_ok(batch_train(&out, &setting, &f, &how, dev, nothing, &pairs, &err), err);
    batch_features_fini(&f);
    device_close(dev);
    printf("%s, noise %g: test %.2f\n", name, noise, batch_recall_mean(&out.test));
    return batch_recall_mean(&out.test);
}

TEST(recall_falls_with_the_share_of_wrong_pairs_and_less_with_rince) {
    const double clip[] = {train_noisy("clip", 0.0), train_noisy("clip", 0.4),
                           train_noisy("clip", 1.0)};
    const double rince = train_noisy("rince", 0.4);
    assert_true(clip[0] > clip[1] + 5.0 && clip[1] > clip[2] + 5.0);
    assert_true(clip[2] < 10.0); /* chance: 5 */
    assert_true(rince > clip[1]);
}

/* ---- wrong labels ---- */

TEST(wrong_labels_go_by_seed_and_id_and_a_higher_share_keeps_those_of_a_lower) {
    struct error err = {0};
    struct batch_features f;
    static const double shares[] = {0.0, 0.3, 0.6};
    struct batch_partners p[3];
    int64_t wrong[3] = {0};
    assert_ok(batch_features_draw_labelled(&f, 1, &err), err);
    assert_ok(batch_features_divide(&f, 500, 1, &err), err);
    assert_int_equal(f.classes, 20);
    for (int k = 0; k < 3; k++) {
        assert_ok(batch_partners_init(&p[k], &f, shares[k], 7, &err), err);
        for (int64_t id = 0; id < f.train_count; id++) {
            const int32_t right = f.labels[f.order[1000 + id]];
            assert_true(p[k].labels[id] >= 0 && p[k].labels[id] < 20);
            wrong[k] += p[k].labels[id] != right ? 1 : 0;
            if (k > 0 && p[k - 1].labels[id] != right) {
                assert_int_equal(p[k].labels[id], p[k - 1].labels[id]);
            }
        }
        /* four standard errors of a share of 1,920 points */
        assert_true(fabs((double)wrong[k] / (double)f.train_count - shares[k]) < 0.045);
    }
    assert_int_equal(wrong[0], 0);
    for (int k = 0; k < 3; k++) {
        batch_partners_fini(&p[k]);
    }
    batch_features_fini(&f);
}

TEST(partners_have_the_label_and_change_from_epoch_to_epoch) {
    struct error err = {0};
    struct batch_features f;
    struct batch_partners p;
    uint64_t same = 0;
    assert_ok(batch_features_draw_labelled(&f, 1, &err), err);
    assert_ok(batch_features_divide(&f, 500, 1, &err), err);
    assert_ok(batch_partners_init(&p, &f, 0.5, 1, &err), err);
    for (uint64_t id = 0; id < (uint64_t)f.train_count; id++) {
        const uint64_t a = batch_partner(&p, 1, 0, id);
        const uint64_t b = batch_partner(&p, 1, 1, id);
        assert_true(a != id && b != id);
        assert_true(p.labels[a] == p.labels[id] && p.labels[b] == p.labels[id]);
        assert_int_equal(batch_partner(&p, 1, 0, id), a);
        same += a == b ? 1 : 0;
    }
    assert_true(same < (uint64_t)f.train_count / 20); /* of about 96 */
    batch_partners_fini(&p);
    batch_features_fini(&f);
}

TEST(labels_are_those_that_embed_writes) {
    struct error err = {0};
    struct batch_features f;
    static const float images[4 * 2] = {1, 2, 3, 4, 5, 6, 7, 8};
    int32_t labels[4] = {2, 0, 2, 1};
    const char *prefix = test_temp_path("l");
    const char *path = test_temp_path("l.labels.npy");
    assert_ok(npy_write(test_temp_path("l.images.npy"), "<f4", images, 4, 4, 2, &err), err);
    assert_int_equal(batch_features_read_labelled(&f, prefix, &err), STATUS_NOTFOUND);
    assert_ok(npy_write(path, "<i4", labels, 4, 4, 0, &err), err);
    assert_ok(batch_features_read_labelled(&f, prefix, &err), err);
    assert_true(f.classes == 3 && f.images_count == 4 && f.image_width == 2 && f.labels[3] == 1);
    batch_features_fini(&f);
    labels[1] = -1; /* no label */
    assert_ok(npy_write(path, "<i4", labels, 4, 4, 0, &err), err);
    assert_int_equal(batch_features_read_labelled(&f, prefix, &err), STATUS_CORRUPT);
    assert_non_null(strstr(err.text, "a label of two to 4096 classes"));
}

static double train_labelled(double noise) {
    struct error err = {0};
    struct device *dev;
    struct batch_features f;
    double pairs = 0.0;
    struct batch_outcome out = {0};
    struct batch_setting setting = {.batch = 128, .rate = 0.004, .noise = noise};
    const struct batch_training how = {.epochs = 6, .dim = 32, .seed = 1};
    loss_options_default(&setting.loss);
    setting.loss.name = "clip";
    setting.loss.tau = 0.2;
    assert_ok(device_open(&dev, "cpu", 1, &err), err);
    assert_ok(batch_features_draw_labelled(&f, 1, &err), err);
    assert_ok(batch_features_divide(&f, 500, 1, &err), err);
    assert_ok(batch_train(&out, &setting, &f, &how, dev, nothing, &pairs, &err), err);
    batch_features_fini(&f);
    device_close(dev);
    printf("label noise %g: validation %.2f, test %.2f\n", noise, out.validation_score,
           out.test_score);
    return out.test_score;
}

TEST(accuracy_with_right_labels_falls_with_the_share_of_wrong_ones) {
    const double right = train_labelled(0.0);
    const double half = train_labelled(0.5);
    assert_true(right > 30.0 && half < right - 10.0); /* chance: 5 */
    assert_true(train_labelled(0.95) < half); /* the right label is as rare as every wrong one */
}
