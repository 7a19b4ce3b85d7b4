/*
 * Checkpoints: what is saved comes back, equal content gives equal bytes on any number of ranks,
 * damaged and foreign files are refused with a reason.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/tensors/safetensors.h"
#include "tests/support/comm_threads.h"
#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/test.h"
#include "train/model/pretrained.h"
#include "train/run/checkpoint.h"

static const struct model_config config = {.image_tower = "resnet10t",
                                           .text_tower = "tiny",
                                           .image_size_px = 32,
                                           .max_tokens = 8,
                                           .vocab_count = 40,
                                           .embed_dim = 16,
                                           .clean_captions = true,
                                           .image_norm = IMAGE_NORM_CIFAR10,
                                           .text_pool = TRANSFORMER_POOL_MEAN};

struct fixture {
    struct device *dev;
    struct dual_encoder *model;
    struct sample_state *state;
    struct loss *loss;
    struct train_position position;
    struct checkpoint_content content;
};

static void open_fixture(struct fixture *f, const char *loss, uint64_t id_space, uint64_t seed) {
    struct error err = {0};
    struct dual_encoder_options options;
    struct loss_options lo;
    memset(f, 0, sizeof *f);
    assert_ok(model_config_options(&config, &options, &err), err);
    options.max_batch = 2;
    options.image.width = 8; /* a small model: files of kilobytes */
    options.text.dim = 24;
    options.text.ffn_dim = 32;
    assert_ok(device_open(&f->dev, "cpu-ref", 1, &err), err);
    assert_ok(dual_encoder_create(&f->model, f->dev, &options, &err), err);
    assert_ok(params_init(dual_encoder_params(f->model), seed, &err), err);
    assert_ok(sample_state_create(&f->state, id_space, NULL, &err), err);
    loss_options_default(&lo);
    lo.name = loss;
    assert_ok(loss_create(&f->loss, &lo, f->state, 10, 4, &err), err);
    f->position = (struct train_position){.step = 77,
                                          .seed = 5,
                                          .epoch = 3,
                                          .batch = 2,
                                          .fingerprint = UINT64_C(0x0123456789abcdef),
                                          .samples_count = 10,
                                          .id_space_count = id_space,
                                          .source_count = 1};
    f->position.sources[0].fingerprint = f->position.fingerprint;
    f->content = (struct checkpoint_content){.model = &config,
                                             .position = &f->position,
                                             .loss_name = loss,
                                             .tau = 0.05,
                                             .params = dual_encoder_params(f->model),
                                             .state = f->state,
                                             .tokenizer = "pieces",
                                             .tokenizer_size_bytes = 6};
    f->content.scalar_count = loss_scalars(f->loss, &f->content.scalars);
}

static void close_fixture(struct fixture *f) {
    loss_destroy(f->loss);
    sample_state_destroy(f->state);
    dual_encoder_destroy(f->model);
    device_close(f->dev);
}

/* Something in every column and moment, so that a mix-up shows. */
static void fill(struct fixture *f) {
    struct params *p = dual_encoder_params(f->model);
    struct error err = {0};
    for (int32_t i = 0; i < params_count(p); i++) {
        const struct param_info info = params_info(p, i);
        float *values = calloc((size_t)info.count, sizeof *values);
        assert_non_null(values);
        for (int slot = PARAM_M; slot <= PARAM_V && info.kind == PARAM_TRAINED; slot++) {
            for (int64_t k = 0; k < info.count; k++) {
                values[k] = (float)slot + 0.001f * (float)(i + k);
            }
            const size_t size = (size_t)info.count * sizeof *values;
            assert_ok(params_write(p, i, (enum param_slot)slot, values, size, &err), err);
        }
        free(values);
    }
    for (int32_t c = 0; c < sample_state_count(f->state); c++) {
        for (uint64_t i = 0; i < sample_state_id_space(f->state); i += 2) {
            if (sample_state_kind(f->state, c) == SAMPLE_STATE_F32) {
                sample_state_column(f->state, c)[i] = (float)(c + 1) * 0.5f + (float)i;
            } else {
                sample_state_column_u64(f->state, c)[i] = (UINT64_C(1) << 40) + i;
            }
        }
    }
    for (int32_t i = 0; i < f->content.scalar_count; i++) {
        *f->content.scalars[i].value = 0.1 * (i + 1);
    }
}

static void assert_same_values(const struct fixture *a, const struct fixture *b) {
    for (int slot = PARAM_VALUE; slot <= PARAM_V; slot++) {
        if (slot == PARAM_GRAD) {
            continue;
        }
        for (int decayed = 0; decayed < 2; decayed++) {
            const struct tensor x =
                params_range(dual_encoder_params(a->model), (enum param_slot)slot, decayed == 1);
            const struct tensor y =
                params_range(dual_encoder_params(b->model), (enum param_slot)slot, decayed == 1);
            assert_memory_equal(x.data, y.data, tensor_size_bytes(&x));
        }
    }
    for (int32_t c = 0; c < sample_state_count(a->state); c++) {
        size_t size_a;
        size_t size_b;
        const void *values_a = sample_state_values(a->state, c, &size_a);
        const void *values_b = sample_state_values(b->state, c, &size_b);
        assert_true(size_a == size_b);
        assert_memory_equal(values_a, values_b, size_a);
    }
    for (int32_t i = 0; i < a->content.scalar_count; i++) {
        assert_true(*a->content.scalars[i].value == *b->content.scalars[i].value);
    }
}

/* A checkpoint holds its towers under timm's and Hugging Face's names: they load as from a file of
 * these projects, without the projections. */
TEST(towers_of_a_checkpoint_start_another_model) {
    struct error err = {0};
    struct fixture a, b;
    const char *path = test_temp_path("towers.safetensors");
    open_fixture(&a, "clip", 10, 1);
    open_fixture(&b, "clip", 10, 2);
    fill(&a);
    assert_ok(checkpoint_save(file_posix(), path, &a.content, NULL, &err), err);
    struct params *p = dual_encoder_params(a.model);
    struct params *q = dual_encoder_params(b.model);
    assert_true(params_find(p, "image.layer4.0.downsample.1.weight") >= 0);
    assert_true(params_find(p, "text.transformer.layer.1.attention.q_lin.weight") >= 0);
    assert_ok(pretrained_load(q, "image.", file_posix(), path, NULL, &err), err);
    assert_ok(pretrained_load(q, "text.", file_posix(), path, NULL, &err), err);
    int towers = 0;
    for (int32_t i = 0; i < params_count(p); i++) {
        const struct tensor x = params_tensor(p, i);
        const struct tensor y = params_tensor(q, i);
        const char *name = params_info(p, i).name;
        const bool same = memcmp(x.data, y.data, tensor_size_bytes(&x)) == 0;
        const bool head = strstr(name, "_proj.") != NULL;
        if (same == head) {
            fail_msg("%s is %s", name, same ? "taken over" : "another");
        }
        towers += head ? 0 : 1;
    }
    assert_true(towers > 80);
    close_fixture(&a);
    close_fixture(&b);
}

TEST(the_datasets_of_a_mix_are_restored) {
    struct error err = {0};
    struct fixture f;
    struct checkpoint *c = NULL;
    const char *path = test_temp_path("mix.safetensors");
    open_fixture(&f, "clip", 40, 1);
    f.position.mix = UINT64_C(0xfedcba9876543210);
    f.position.source_count = LOADER_MAX_SOURCES;
    for (uint64_t i = 0; i < LOADER_MAX_SOURCES; i++) {
        f.position.sources[i].fingerprint = UINT64_MAX - i;
        f.position.sources[i].id_offset = 2 * i;
    }
    assert_ok(checkpoint_save(file_posix(), path, &f.content, NULL, &err), err);
    assert_ok(checkpoint_open(&c, file_posix(), path, &err), err);
    assert_memory_equal(checkpoint_position(c), &f.position, sizeof f.position);
    checkpoint_close(c);

    /* Ids begin at 0 and after those of the dataset before, and never after the last one. */
    static const struct {
        uint32_t index;
        uint64_t id_offset;
    } wrong[] = {{3, 41}, {3, 3}, {0, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct error why = {0};
        char key[64];
        const uint64_t right = f.position.sources[wrong[i].index].id_offset;
        (void)snprintf(key, sizeof key, "dataset.%u.id_offset", (unsigned)wrong[i].index);
        f.position.sources[wrong[i].index].id_offset = wrong[i].id_offset;
        assert_ok(checkpoint_save(file_posix(), path, &f.content, NULL, &why), why);
        assert_status(checkpoint_open(&c, file_posix(), path, &why), STATUS_CORRUPT, why);
        assert_non_null(strstr(why.text, key));
        f.position.sources[wrong[i].index].id_offset = right;
    }
    close_fixture(&f);
}

TEST(what_is_saved_is_loaded) {
    struct error err = {0};
    struct fixture a;
    struct fixture b;
    struct checkpoint *c = NULL;
    const char *path = test_temp_path("a.safetensors");
    open_fixture(&a, "nuclr", 20, 1);
    open_fixture(&b, "nuclr", 20, 2);
    fill(&a);
    assert_ok(checkpoint_save(file_posix(), path, &a.content, NULL, &err), err);
    assert_ok(checkpoint_open(&c, file_posix(), path, &err), err);
    assert_string_equal(checkpoint_path(c), path);
    assert_string_equal(checkpoint_loss_name(c), "nuclr");
    assert_string_equal(checkpoint_model(c)->image_tower, "resnet10t");
    assert_string_equal(checkpoint_model(c)->text_tower, "tiny");
    assert_int_equal(checkpoint_model(c)->image_size_px, 32);
    assert_int_equal(checkpoint_model(c)->vocab_count, 40);
    assert_true(checkpoint_model(c)->clean_captions);
    assert_int_equal(checkpoint_model(c)->image_norm, IMAGE_NORM_CIFAR10);
    double tau = 0.0;
    assert_ok(checkpoint_choose_tau(c, &tau, &err), err);
    assert_true(tau == 0.05);
    tau = 0.25;
    assert_ok(checkpoint_choose_tau(c, &tau, &err), err);
    assert_true(tau == 0.25);
    assert_int_equal(checkpoint_model(c)->text_pool, TRANSFORMER_POOL_MEAN);
    assert_memory_equal(checkpoint_position(c), &a.position, sizeof a.position);
    size_t size = 0;
    assert_memory_equal(checkpoint_tokenizer(c, &size), "pieces", 6);
    assert_int_equal(size, 6);
    assert_ok(checkpoint_load_params(c, dual_encoder_params(b.model), true, &err), err);
    assert_ok(checkpoint_load_state(c, b.state, b.content.scalars, b.content.scalar_count, &err),
              err);
    assert_same_values(&a, &b);
    checkpoint_close(c);

    /* Equal content, equal bytes. */
    assert_ok(
        checkpoint_save(file_posix(), test_temp_path("b.safetensors"), &b.content, NULL, &err),
        err);
    size_t size_a = 0;
    size_t size_b = 0;
    uint8_t *bytes_a = test_read_file(path, &size_a);
    uint8_t *bytes_b = test_read_file(test_temp_path("b.safetensors"), &size_b);
    assert_int_equal(size_a, size_b);
    assert_memory_equal(bytes_a, bytes_b, size_a);
    free(bytes_a);
    free(bytes_b);
    close_fixture(&a);
    close_fixture(&b);
}

/* Changes the text of the header, and its hash after the tensors. */
static void replace_in_header(uint8_t *bytes, size_t size, const char *from, const char *to) {
    uint64_t text_bytes = 0;
    memcpy(&text_bytes, bytes, sizeof text_bytes);
    const size_t header_bytes = sizeof text_bytes + (size_t)text_bytes;
    const uint64_t before = hash64(bytes, header_bytes);
    uint8_t *at = memmem(bytes, header_bytes, from, strlen(from));
    uint8_t *stored = memmem(bytes + header_bytes, size - header_bytes, &before, sizeof before);
    assert_true(at != NULL && stored != NULL);
    memcpy(at, to, strlen(to));
    const uint64_t after = hash64(bytes, header_bytes);
    memcpy(stored, &after, sizeof after);
}

TEST(what_older_files_lack) {
    struct error err = {0};
    struct fixture a;
    struct checkpoint *c = NULL;
    const char *path = test_temp_path("a.safetensors");
    open_fixture(&a, "clip", 20, 1);
    assert_ok(checkpoint_save(file_posix(), path, &a.content, NULL, &err), err);
    size_t size = 0;
    uint8_t *bytes = test_read_file(path, &size);
    replace_in_header(bytes, size, "\"cifar10\"", "\"cifar99\"");
    test_write_file(path, bytes, size);
    assert_status(checkpoint_open(&c, file_posix(), path, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "model.image_norm"));
    /* Another key: as files from before there was one. */
    replace_in_header(bytes, size, "model.image_norm", "model.image_none");
    replace_in_header(bytes, size, "loss.tau", "loss.tax");
    test_write_file(path, bytes, size);
    struct error none = {0};
    double tau = 0.0;
    assert_ok(checkpoint_open(&c, file_posix(), path, &none), none);
    assert_int_equal(checkpoint_model(c)->image_norm, IMAGE_NORM_CLIP);
    assert_status(checkpoint_choose_tau(c, &tau, &none), STATUS_USAGE, none);
    checkpoint_close(c);
    free(bytes);
    close_fixture(&a);
}

TEST(state_of_a_smaller_id_space_leaves_new_ids_unvisited) {
    struct error err = {0};
    struct fixture a;
    struct fixture b;
    struct checkpoint *c = NULL;
    const char *path = test_temp_path("a.safetensors");
    open_fixture(&a, "sogclr", 20, 1);
    open_fixture(&b, "sogclr", 30, 1);
    fill(&a);
    assert_ok(checkpoint_save(file_posix(), path, &a.content, NULL, &err), err);
    assert_ok(checkpoint_open(&c, file_posix(), path, &err), err);
    assert_ok(checkpoint_load_state(c, b.state, NULL, 0, &err), err);
    assert_true(sample_state_column(b.state, 0)[2] == sample_state_column(a.state, 0)[2]);
    assert_false(sample_state_visited(sample_state_column(b.state, 0)[20]));
    checkpoint_close(c);
    /* The other way round it is another dataset. */
    assert_ok(checkpoint_save(file_posix(), path, &b.content, NULL, &err), err);
    assert_ok(checkpoint_open(&c, file_posix(), path, &err), err);
    assert_status(checkpoint_load_state(c, a.state, NULL, 0, &err), STATUS_MISMATCH, err);
    checkpoint_close(c);
    close_fixture(&a);
    close_fixture(&b);
}

TEST(state_of_another_loss_is_refused) {
    struct error err = {0};
    struct fixture a;
    struct fixture b;
    struct checkpoint *c = NULL;
    const char *path = test_temp_path("a.safetensors");
    open_fixture(&a, "clip", 20, 1);
    open_fixture(&b, "nuclr", 20, 1);
    assert_ok(checkpoint_save(file_posix(), path, &a.content, NULL, &err), err);
    assert_ok(checkpoint_open(&c, file_posix(), path, &err), err);
    assert_status(checkpoint_load_state(c, b.state, b.content.scalars, 2, &err), STATUS_MISMATCH,
                  err);
    assert_non_null(strstr(err.text, "clip"));
    checkpoint_close(c);
    close_fixture(&a);
    close_fixture(&b);
}

TEST(damaged_files_are_refused) {
    struct error err = {0};
    struct fixture a;
    struct checkpoint *c = NULL;
    const char *path = test_temp_path("a.safetensors");
    open_fixture(&a, "nuclr", 20, 1);
    assert_ok(checkpoint_save(file_posix(), path, &a.content, NULL, &err), err);
    size_t size = 0;
    uint8_t *bytes = test_read_file(path, &size);
    bytes[size / 2] ^= 0x10;
    test_write_file(path, bytes, size);
    assert_ok(checkpoint_open(&c, file_posix(), path, &err), err);
    assert_status(checkpoint_load_params(c, dual_encoder_params(a.model), true, &err),
                  STATUS_CORRUPT, err);
    checkpoint_close(c);
    test_write_file(path, bytes, size / 2);
    struct error cut = {0};
    assert_status(checkpoint_open(&c, file_posix(), path, &cut), STATUS_CORRUPT, cut);
    test_write_file(path, "not a checkpoint", 16);
    struct error foreign = {0};
    assert_true(checkpoint_open(&c, file_posix(), path, &foreign) < STATUS_OK);
    assert_null(c);
    struct error missing = {0};
    assert_status(checkpoint_open(&c, file_posix(), test_temp_path("no"), &missing),
                  STATUS_NOTFOUND, missing);
    free(bytes);
    close_fixture(&a);
}

/* The process is killed at every write in turn and the power fails: the old checkpoint is still
 * there, whole. */
TEST(a_failed_save_leaves_the_old_checkpoint) {
    struct error err = {0};
    struct fixture a;
    struct file_system *memory = NULL;
    open_fixture(&a, "sogclr", 4, 1);
    assert_ok(file_memory_create(&memory, &err), err);
    assert_ok(checkpoint_save(memory, "a", &a.content, NULL, &err), err);
    struct byte_buffer old;
    assert_ok(file_read_all(memory, &old, "a", SIZE_MAX / 4, &err), err);
    a.position.step++;
    for (uint64_t nth = 0;; nth++) {
        struct file_system *faulty = NULL;
        assert_ok(file_fault_create(&faulty, memory, nth, FILE_FAULT_DEAD, &err), err);
        struct error failed = {0};
        const enum status s = checkpoint_save(faulty, "a", &a.content, NULL, &failed);
        file_fault_destroy(faulty);
        if (s == STATUS_OK) {
            assert_true(nth > 3);
            break;
        }
        file_memory_crash(memory);
        struct byte_buffer now;
        assert_ok(file_read_all(memory, &now, "a", SIZE_MAX / 4, &err), err);
        assert_int_equal(now.size_bytes, old.size_bytes);
        assert_memory_equal(now.data, old.data, old.size_bytes);
        byte_buffer_fini(&now);
        (void)file_any_temporary(memory, ".", true);
    }
    byte_buffer_fini(&old);
    file_memory_destroy(memory);
    close_fixture(&a);
}

/* ---- numbers that are not finite ---- */

static void set_param(struct fixture *f, int32_t index, enum param_slot slot, float value) {
    struct params *p = dual_encoder_params(f->model);
    struct error err = {0};
    const size_t count = (size_t)params_info(p, index).count;
    float *values = malloc(count * sizeof *values);
    assert_ok(params_read(p, index, slot, values, count * sizeof *values, &err), err);
    values[count - 1] = value;
    assert_ok(params_write(p, index, slot, values, count * sizeof *values, &err), err);
    free(values);
}

static void refuses(const struct fixture *f, const char *tensor) {
    struct error err = {0};
    const char *path = test_temp_path("kept");
    assert_status(checkpoint_save(file_posix(), path, &f->content, NULL, &err), STATUS_CORRUPT,
                  err);
    assert_non_null(strstr(err.text, tensor));
    struct checkpoint *c;
    assert_ok(checkpoint_open(&c, file_posix(), path, &err), err); /* the earlier one */
    assert_ok(checkpoint_check_finite(c, &err), err);
    checkpoint_close(c);
}

/* A weight, a running statistic, a moment, an entry of a column, a number of the loss. */
TEST(a_number_that_is_not_finite_is_not_saved) {
    struct error err = {0};
    struct fixture a;
    const char *path = test_temp_path("kept");
    open_fixture(&a, "nuclr", 5, 1);
    assert_ok(checkpoint_save(file_posix(), path, &a.content, NULL, &err), err);
    const struct params *p = dual_encoder_params(a.model);
    for (int32_t i = 0; i < params_count(p); i++) {
        const struct param_info info = params_info(p, i);
        const float values[] = {NAN, INFINITY, 2e19f};
        for (int k = 0; k < 3; k++) {
            set_param(&a, i, PARAM_VALUE, values[k]);
            refuses(&a, info.name);
        }
        set_param(&a, i, PARAM_VALUE, 1e18f);
        for (int slot = PARAM_M; slot <= PARAM_V && info.kind == PARAM_TRAINED; slot++) {
            set_param(&a, i, (enum param_slot)slot, -INFINITY);
            refuses(&a, slot == PARAM_M ? "adamw.m." : "adamw.v.");
            set_param(&a, i, (enum param_slot)slot, 1e30f);
        }
    }
    for (int32_t c = 0; c < sample_state_count(a.state); c++) {
        if (sample_state_kind(a.state, c) == SAMPLE_STATE_F32) {
            float *last = sample_state_column(a.state, c) + 4;
            const float before = *last;
            *last = isnan(sample_state_initial(a.state, c)) ? INFINITY : NAN;
            refuses(&a, sample_state_name(a.state, c));
            *last = before;
        }
    }
    for (int32_t i = 0; i < a.content.scalar_count; i++) {
        const double before = *a.content.scalars[i].value;
        *a.content.scalars[i].value = (double)NAN;
        refuses(&a, a.content.scalars[i].name);
        *a.content.scalars[i].value = before;
    }
    assert_ok(checkpoint_save(file_posix(), path, &a.content, NULL, &err), err);
    close_fixture(&a);
}

/* A copy of the file in which the last number of a tensor is another, as an earlier version or
 * another program wrote it. */
static void copy_with(const char *to, const char *from, const char *tensor, float value) {
    struct error err = {0};
    struct safetensors *r;
    struct safetensors_writer *w;
    assert_ok(safetensors_open(&r, file_posix(), from, &err), err);
    assert_ok(safetensors_writer_create(&w, file_posix(), to, &err), err);
    for (size_t i = 0; i < safetensors_metadata_count(r); i++) {
        const char *key = safetensors_metadata_key(r, i);
        assert_ok(safetensors_writer_metadata(w, key, safetensors_metadata(r, key), &err), err);
    }
    for (size_t i = 0; i < safetensors_count(r); i++) {
        const struct safetensors_info *t = safetensors_at(r, i);
        assert_ok(safetensors_writer_declare(w, t->name, t->dtype, t->shape, t->dim_count, &err),
                  err);
    }
    for (size_t i = 0; i < safetensors_count(r); i++) {
        const struct safetensors_info *t = safetensors_at(r, i);
        unsigned char *data = malloc((size_t)t->size_bytes);
        assert_ok(safetensors_read(r, t, data, (size_t)t->size_bytes, &err), err);
        if (strcmp(t->name, tensor) == 0) {
            memcpy(data + t->size_bytes - sizeof value, &value, sizeof value);
        }
        assert_ok(safetensors_writer_data(w, data, (size_t)t->size_bytes, &err), err);
        free(data);
    }
    assert_ok(safetensors_writer_finish(w, &err), err);
    safetensors_writer_destroy(w);
    safetensors_close(r);
}

TEST(a_number_that_is_not_finite_is_not_loaded) {
    static const char *const tensors[] = {"image.bn1.running_var", "text_proj.weight",
                                          "adamw.v.text_proj.weight", "state.image.log_u",
                                          "state.text.zeta"};
    struct error err = {0};
    struct fixture a;
    const char *good = test_temp_path("good");
    open_fixture(&a, "nuclr", 5, 1);
    assert_ok(checkpoint_save(file_posix(), good, &a.content, NULL, &err), err);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        struct checkpoint *c;
        const char *bad = test_temp_path("bad");
        const bool column = strncmp(tensors[i], "state.", 6) == 0;
        copy_with(bad, good, tensors[i], INFINITY);
        assert_ok(checkpoint_open(&c, file_posix(), bad, &err), err);
        assert_status(checkpoint_check_finite(c, &err), STATUS_CORRUPT, err);
        assert_non_null(strstr(err.text, tensors[i]));
        err = (struct error){0};
        assert_status(column ? checkpoint_load_state(c, a.state, a.content.scalars,
                                                     a.content.scalar_count, &err)
                             : checkpoint_load_params(c, dual_encoder_params(a.model), true, &err),
                      STATUS_CORRUPT, err);
        assert_non_null(strstr(err.text, tensors[i]));
        err = (struct error){0};
        checkpoint_close(c);
    }
    close_fixture(&a);
}

/* ---- many ranks ---- */

enum { MANY_IDS = 23, MAX_WORLD = 4 };

enum { FEW_COLUMNS = 16 }; /* at least as many as nuclr keeps */

struct ranks_job {
    const struct fixture *one; /* of one rank: its model, and what its columns hold */
    const struct file_system *fs;
    const char *path;
    struct sample_state_summary *summaries; /* expected; NULL: saving fails */
    enum status status;                     /* of the save on rank 0 */
    char message[sizeof((struct error *)0)->text];
};

/* The part of one rank: the state of `one` divided, and a loss of its own. */
static enum status open_part(struct sample_state **state,
                             struct loss **loss,
                             const struct fixture *one,
                             struct comm *c,
                             struct error *err) {
    struct loss_options lo;
    loss_options_default(&lo);
    lo.name = one->content.loss_name;
    TRY(sample_state_create(state, MANY_IDS, c, err));
    return loss_create(loss, &lo, *state, 10, 4, err);
}

static enum status save_part(struct comm *c, void *cookie, struct error *err) {
    struct ranks_job *j = cookie;
    struct sample_state *state = NULL;
    struct loss *loss = NULL;
    struct checkpoint_content content = j->one->content;
    struct sample_state_summary summaries[FEW_COLUMNS];
    enum status s;
    TRY_OR_FAIL(s, open_part(&state, &loss, j->one, c, err));
    for (int32_t i = 0; i < sample_state_count(state); i++) {
        size_t size_bytes;
        sample_state_put(state, i, 0, sample_state_values(j->one->state, i, &size_bytes), MANY_IDS);
    }
    content.state = state;
    struct error failed = {0};
    const enum status saved = checkpoint_save(j->fs, j->path, &content, summaries, &failed);
    if (saved == STATUS_OK && j->summaries != NULL &&
        memcmp(summaries, j->summaries, (size_t)sample_state_count(state) * sizeof *summaries) !=
            0) {
        s = error_set(err, STATUS_MISMATCH, "other summaries than those of one rank");
    }
    if (comm_rank(c) == 0) {
        j->status = saved;
        memcpy(j->message, failed.text, sizeof j->message);
    }
    TRY_OR_FAIL(s, comm_barrier(c, err)); /* rank 0 has written them */
    if (saved != j->status || strcmp(failed.text, j->message) != 0) {
        s = error_set(err, STATUS_MISMATCH, "saving ended with \"%s\", on rank 0 with \"%s\"",
                      failed.text, j->message);
    }
fail:
    loss_destroy(loss);
    sample_state_destroy(state);
    return s;
}

static enum status load_part(struct comm *c, void *cookie, struct error *err) {
    const struct ranks_job *j = cookie;
    const uint64_t world = (uint64_t)comm_world(c);
    const uint64_t rank = (uint64_t)comm_rank(c);
    struct sample_state *state = NULL;
    struct loss *loss = NULL;
    struct checkpoint *from = NULL;
    const struct loss_scalar *scalars;
    enum status s;
    TRY_OR_FAIL(s, open_part(&state, &loss, j->one, c, err));
    TRY_OR_FAIL(s, checkpoint_open(&from, j->fs, j->path, err));
    const int32_t scalar_count = loss_scalars(loss, &scalars);
    TRY_OR_FAIL(s, checkpoint_load_state(from, state, scalars, scalar_count, err));
    for (int32_t i = 0; i < sample_state_count(state); i++) {
        size_t size_bytes;
        const char *held = sample_state_values(state, i, &size_bytes);
        const char *all = sample_state_values(j->one->state, i, &size_bytes);
        const size_t size = size_bytes / MANY_IDS;
        for (uint64_t id = rank; id < MANY_IDS; id += world) {
            if (memcmp(held + id / world * size, all + id * size, size) != 0) {
                s = error_set(err, STATUS_MISMATCH, "column %d of id %llu", (int)i,
                              (unsigned long long)id);
            }
        }
    }
fail:
    checkpoint_close(from);
    loss_destroy(loss);
    sample_state_destroy(state);
    return s;
}

/* A file of any number of ranks has the bytes of one rank's, so that any number reads it. */
TEST(a_checkpoint_does_not_depend_on_the_number_of_ranks) {
    struct error err = {0};
    struct fixture one;
    const struct file_system *fs = file_posix();
    const char *path = test_temp_path("ranks.safetensors");
    struct byte_buffer expected, got;
    struct sample_state_summary summaries[FEW_COLUMNS];
    static const char *const losses[] = {"nuclr", "emc2", "clip"};
    for (size_t k = 0; k < sizeof losses / sizeof losses[0]; k++) {
        open_fixture(&one, losses[k], MANY_IDS, 3);
        fill(&one);
        for (int32_t i = 0; i < one.content.scalar_count; i++) { /* as the ranks' losses begin */
            *one.content.scalars[i].value = 0.0;
        }
        assert_ok(checkpoint_save(fs, path, &one.content, summaries, &err), err);
        assert_ok(file_read_all(fs, &expected, path, SIZE_MAX / 4, &err), err);
        for (int32_t world = 1; world <= MAX_WORLD; world++) {
            struct ranks_job j = {&one, fs, path, summaries, STATUS_OK, ""};
            assert_ok(comm_threads_run(world, save_part, &j, &err), err);
            assert_int_equal(j.status, STATUS_OK);
            assert_ok(file_read_all(fs, &got, path, SIZE_MAX / 4, &err), err);
            assert_int_equal(got.size_bytes, expected.size_bytes);
            assert_memory_equal(got.data, expected.data, got.size_bytes);
            byte_buffer_fini(&got);
            assert_ok(comm_threads_run(world, load_part, &j, &err), err);
        }
        byte_buffer_fini(&expected);
        close_fixture(&one);
    }
}

/* Whatever write of rank 0 fails: all ranks return its message, and the old file is there (unless
 * only the last call failed, the sync of the directory). Some writes of the model are skipped. */
TEST(a_failed_save_ends_on_all_ranks_alike) {
    struct error err = {0};
    struct fixture one;
    struct file_system *memory = NULL;
    struct file_system *counting = NULL;
    struct byte_buffer old, now;
    open_fixture(&one, "nuclr", MANY_IDS, 1);
    assert_ok(file_memory_create(&memory, &err), err);
    assert_ok(checkpoint_save(memory, "a", &one.content, NULL, &err), err);
    assert_ok(file_read_all(memory, &old, "a", SIZE_MAX / 4, &err), err);
    assert_ok(file_fault_create(&counting, memory, UINT64_MAX, FILE_FAULT_ERROR, &err), err);
    assert_ok(checkpoint_save(counting, "b", &one.content, NULL, &err), err);
    const uint64_t calls = file_fault_count(counting);
    file_fault_destroy(counting);
    one.position.step++;
    for (uint64_t nth = 0; nth < calls; nth += nth + 20 < calls && nth > 3 ? calls / 12 : 1) {
        struct file_system *faulty = NULL;
        assert_ok(file_fault_create(&faulty, memory, nth, FILE_FAULT_ERROR, &err), err);
        struct ranks_job j = {&one, faulty, "a", NULL, STATUS_OK, ""};
        assert_ok(comm_threads_run(3, save_part, &j, &err), err);
        file_fault_destroy(faulty);
        assert_int_equal(j.status, STATUS_IO);
        assert_non_null(strstr(j.message, "rank 0 on "));
        assert_ok(file_read_all(memory, &now, "a", SIZE_MAX / 4, &err), err);
        assert_int_equal(now.size_bytes, old.size_bytes);
        assert_true(nth == calls - 1 || memcmp(now.data, old.data, old.size_bytes) == 0);
        byte_buffer_fini(&now);
    }
    byte_buffer_fini(&old);
    file_memory_destroy(memory);
    close_fixture(&one);
}
