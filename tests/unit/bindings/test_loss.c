/* Losses through libccstream against the functions inside it, and their state in files. */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/c/ccstream.h"
#include "formats/base/bytes.h"
#include "formats/base/file_io.h"
#include "formats/base/rng.h"
#include "tests/support/library.h"
#include "tests/support/test.h"
#include "train/loss/loss_row.h"
#include "train/run/checkpoint.h"

enum { B = 6, IDS = 20, STEPS = 30, LEAVES = 15 };

static struct ccs_loss *open_loss(const char *name, bool views, const char *option) {
    struct ccs_loss *l = NULL;
    struct ccs_error err;
    const char *options[] = {option};
    if (ccs_loss_open(&l, name, views, options, option != NULL, IDS, IDS, B, &err) != CCS_OK) {
        fail_msg("%s", err.text);
    }
    return l;
}

/* The batch of a step: distinct ids, and similarities in [-1, 1]. */
struct batch {
    uint64_t ids[B];
    float s[4 * B * B], image[B * B], text[B * B];
};

static void draw(struct batch *b, uint64_t step) {
    struct rng rng;
    rng_init(&rng, step, RNG_INIT, 1, 2);
    for (int i = 0; i < B; i++) {
        b->ids[i] = (step * 7 + (uint64_t)i * 3) % IDS;
    }
    for (int i = 0; i < 4 * B * B; i++) {
        b->s[i] = (float)rng_below(&rng, 2001) / 1000.0f - 1.0f;
    }
    for (int i = 0; i < B; i++) {
        for (int j = 0; j <= i; j++) {
            b->image[i * B + j] = b->image[j * B + i] = i == j ? 1.0f : b->s[i * B + j];
            b->text[i * B + j] = b->text[j * B + i] = i == j ? 1.0f : b->s[j * B + i];
        }
    }
}

/* Similarities of anchors with samples beyond the batch, and samples for a loss that draws them. */
struct beyond {
    uint64_t ids[2 * B];
    float similarity[2 * B];
};

static void draw_beyond(struct beyond *far, uint64_t step) {
    struct rng rng;
    rng_init(&rng, step, RNG_INIT, 3, 4);
    for (int i = 0; i < 2 * B; i++) {
        far->ids[i] = rng_below(&rng, 4) == 0 ? UINT64_MAX : rng_below(&rng, IDS);
        far->similarity[i] = (float)rng_below(&rng, 2001) / 1000.0f - 1.0f;
    }
}

struct result {
    float g[4 * B * B], image[B * B], text[B * B], carried[2 * B];
    double value, objective, tau;
};

static void ccs_step(struct ccs_loss *l, uint64_t step, bool self, struct result *r) {
    struct batch b;
    struct beyond far;
    struct ccs_error err;
    draw(&b, step);
    draw_beyond(&far, step);
    memset(r, 0, sizeof(*r));
    const bool carries = ccs_loss_beyond(l) != CCS_BEYOND_NONE;
    if (ccs_loss_beyond(l) == CCS_BEYOND_NAMED) {
        assert_int_equal(ccs_loss_carried(l, far.ids, b.ids, B, &err), CCS_OK);
    }
    struct ccs_loss_input in = {
        .struct_size = sizeof(in),
        .frozen = 1, /* of which the step after it shows nothing */
        .similarity = b.s,
        .image_similarity = self ? b.image : NULL,
        .text_similarity = self ? b.text : NULL,
        .ids = b.ids,
        .step = step,
        .epoch = step / 5,
        .lr = 0.01,
        .zeta_lr_image = 0.5,
        .zeta_lr_text = 0.7,
        .batch_size = B,
        .carried_ids = carries ? far.ids : NULL,
        .carried_similarity = carries ? far.similarity : NULL,
    };
    struct ccs_loss_output out = {
        .struct_size = sizeof(out),
        .gradient = r->g,
        .carried_gradient = carries ? r->carried : NULL,
        .image_gradient = self ? r->image : NULL,
        .text_gradient = self ? r->text : NULL,
    };
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_OK);
    const double frozen[] = {out.value, out.objective, out.tau};
    in.frozen = 0;
    if (ccs_loss_step(l, &in, &out, &err) != CCS_OK) {
        fail_msg("%s", err.text);
    }
    r->value = out.value;
    r->objective = out.objective;
    r->tau = out.tau;
    assert_true(r->value == frozen[0] && r->objective == frozen[1] && r->tau == frozen[2]);
}

/* The same by the functions inside. */
static void own_step(struct loss *l, uint64_t step, struct result *r) {
    struct batch b;
    struct beyond far;
    struct error err = {0};
    draw(&b, step);
    draw_beyond(&far, step);
    memset(r, 0, sizeof(*r));
    if (loss_carries(l) && loss_cache_refresh(l) == 0.0) {
        assert_ok(loss_carried(l, far.ids, NULL, b.ids, B, &err), err);
    }
    const struct loss_input in = {
        .similarity = b.s,
        .image_similarity = b.image,
        .text_similarity = b.text,
        .sample_ids = b.ids,
        .carried_ids = loss_carries(l) ? far.ids : NULL,
        .carried_similarity = far.similarity,
        .batch_count = B,
        .step = step,
        .epoch = step / 5,
        .lr = 0.01,
        .zeta_lr_image = 0.5,
        .zeta_lr_text = 0.7,
    };
    struct loss_output out = {.gradient = r->g,
                              .image_gradient = r->image,
                              .text_gradient = r->text,
                              .carried_gradient = r->carried};
    assert_ok(loss_step(l, &in, &out, &err), err);
    r->value = out.value;
    r->objective = out.objective;
    r->tau = out.tau;
}

static void compare_columns(struct ccs_loss *l, const struct sample_state *state) {
    struct ccs_column c = {.struct_size = sizeof(c)};
    for (int32_t i = 0; i < sample_state_count(state); i++) {
        uint64_t values[IDS];
        size_t size = 0;
        const void *own = sample_state_values(state, i, &size);
        assert_int_equal(ccs_loss_column(l, (uint32_t)i, &c, NULL), CCS_OK);
        assert_string_equal(c.name, sample_state_name(state, i));
        assert_int_equal(c.ids, IDS);
        assert_int_equal(c.kind, sample_state_kind(state, i));
        assert_int_equal(ccs_loss_read(l, c.name, values, 0, IDS, NULL), CCS_OK);
        assert_memory_equal(values, own, size);
    }
    const uint32_t count = (uint32_t)sample_state_count(state);
    assert_int_equal(ccs_loss_column(l, count, &c, NULL), CCS_ERROR_NOTFOUND);
}

static const struct {
    const char *name, *option;
    bool views;
} cases[] = {
    {"clip", "tau=0.2", false},
    {"cyclip", NULL, false},
    {"sogclr", "gamma=0.6", false},
    {"sogclr", NULL, true},
    {"isogclr", NULL, false},
    {"nuclr", "xi=norm", false},
    {"fastclip-v3", "gamma-epochs=4", false},
    {"emc2", "emc2-carry=skip", false},
    {"emc2", NULL, false},
    {"emc2", NULL, true},
    {"negcache", "tau=0.2", false},
    {"negcache", NULL, true},
};

TEST(steps_are_those_of_the_losses_bit_for_bit) {
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        struct error err = {0};
        struct loss_options o;
        struct loss *own = NULL;
        struct sample_state *own_state = NULL;
        enum loss_option which;
        loss_options_default(&o);
        o.name = cases[k].name;
        o.views = cases[k].views;
        if (cases[k].option) {
            assert_ok(loss_option_parse(&o, &which, cases[k].option, &err), err);
        }
        assert_ok(sample_state_create(&own_state, IDS, NULL, &err), err);
        assert_ok(loss_create(&own, &o, own_state, IDS, B, &err), err);
        struct ccs_loss *l = open_loss(cases[k].name, cases[k].views, cases[k].option);
        for (uint64_t step = 0; step < STEPS; step++) {
            struct result a, b;
            ccs_step(l, step, loss_uses_self(own), &a);
            own_step(own, step, &b);
            assert_memory_equal(&a, &b, sizeof(a));
        }
        compare_columns(l, own_state);
        const struct loss_scalar *scalars = NULL;
        const int32_t count = loss_scalars(own, &scalars);
        for (int32_t i = 0; i < count; i++) {
            double value = 0.0;
            assert_string_equal(ccs_loss_scalar_name(l, (uint32_t)i), scalars[i].name);
            assert_int_equal(ccs_loss_get_scalar(l, scalars[i].name, &value, NULL), CCS_OK);
            assert_true(value == *scalars[i].value);
        }
        assert_null(ccs_loss_scalar_name(l, (uint32_t)count));
        ccs_loss_close(l);
        loss_destroy(own);
        sample_state_destroy(own_state);
    }
}

TEST(a_loaded_loss_continues_with_the_same_bits) {
    const char *path = test_temp_path("state.safetensors");
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        const bool self = strcmp(cases[k].name, "cyclip") == 0;
        struct ccs_loss *whole = open_loss(cases[k].name, cases[k].views, cases[k].option);
        struct result a, b;
        for (uint64_t step = 0; step < LEAVES; step++) {
            ccs_step(whole, step, self, &a);
        }
        assert_int_equal(ccs_loss_save(whole, path, 5, LEAVES, NULL), CCS_OK);
        struct ccs_loss *loaded = open_loss(cases[k].name, cases[k].views, cases[k].option);
        assert_int_equal(ccs_loss_load(loaded, path, NULL), CCS_OK);
        for (uint64_t step = LEAVES; step < STEPS; step++) {
            ccs_step(whole, step, self, &a);
            ccs_step(loaded, step, self, &b);
            assert_memory_equal(&a, &b, sizeof(a));
        }
        ccs_loss_close(whole);
        ccs_loss_close(loaded);
    }
}

static void
refused(const char *name, const char *option, uint32_t batch, int32_t status, const char *text) {
    struct ccs_loss *l = NULL;
    struct ccs_error err;
    assert_int_equal(ccs_loss_open(&l, name, false, &option, option != NULL, IDS, IDS, batch, &err),
                     status);
    assert_null(l);
    if (strstr(err.text, text) == NULL) {
        fail_msg("'%s' lacks '%s'", err.text, text);
    }
}

TEST(options_are_checked) {
    refused("none", NULL, B, CCS_ERROR_USAGE, "none");
    refused("clip", "tau", B, CCS_ERROR_USAGE, "'tau': expected NAME=VALUE");
    refused("clip", "ta=1", B, CCS_ERROR_USAGE, "no option ta");
    refused("clip", "tau=0.1x", B, CCS_ERROR_USAGE, "loss option tau: '0.1x'");
    refused("clip", "tau=nan", B, CCS_ERROR_USAGE, "'nan'");
    refused("clip", "tau=101", B, CCS_ERROR_USAGE, "101 is not within");
    refused("clip", "temperature=warm", B, CCS_ERROR_USAGE, "'warm'");
    refused("clip", "gamma=0.5", B, CCS_ERROR_USAGE, "does not read gamma");
    refused("nuclr", "positives=-1", B, CCS_ERROR_USAGE, "'-1'");
    refused("nuclr", "zeta-lr=0.1", B, CCS_ERROR_USAGE, "zeta_lr_text per step");
    refused("fastclip-v3", NULL, B, CCS_ERROR_USAGE, "gamma-epochs must be given");
    refused("clip", NULL, 1, CCS_ERROR_INVALID, "max_batch");
    refused(NULL, NULL, B, CCS_ERROR_INVALID, "NULL");
}

TEST(former_names_of_options_are_accepted) {
    static const char *const given = "zeta-momentum=0.25";
    struct ccs_loss_option option = {.struct_size = sizeof(option)};
    bool found = false;
    for (uint32_t i = 0;
         ccs_loss_option("nuclr", false, &given, 1, i, &option, NULL) == CCS_OK && !found; i++) {
        found = strcmp(option.name, "zeta-grad-ema") == 0 && option.value == 0.25;
        assert_string_not_equal(option.name, "zeta-momentum");
    }
    assert_true(found);
}

TEST(wrong_steps_are_refused) {
    struct ccs_loss *l = open_loss("cyclip", false, NULL);
    struct batch b;
    struct result r;
    struct ccs_error err;
    draw(&b, 0);
    struct ccs_loss_input in = {
        .struct_size = sizeof(in), .similarity = b.s, .ids = b.ids, .lr = 0.1, .batch_size = B};
    struct ccs_loss_output out = {.struct_size = sizeof(out), .gradient = r.g};
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_ERROR_INVALID);
    assert_non_null(strstr(err.text, "similarities of images and of texts"));
    ccs_loss_close(l);
    l = open_loss("sogclr", false, NULL);
    in.batch_size = B + 1;
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_ERROR_INVALID);
    in.batch_size = B;
    in.text_similarity = b.text;
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_ERROR_INVALID);
    assert_non_null(strstr(err.text, "reads no similarities of images or of texts"));
    in.text_similarity = NULL;
    out.image_gradient = r.image;
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_ERROR_INVALID);
    out.image_gradient = NULL;
    b.ids[2] = IDS;
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_ERROR_INVALID);
    assert_non_null(strstr(err.text, "id 20 is not below"));
    b.ids[2] = 19;
    in.lr = (double)NAN;
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_ERROR_INVALID);
    in.lr = 0.1;
    b.s[3] = INFINITY;
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_ERROR_CORRUPT);
    uint64_t visits[IDS];
    assert_int_equal(ccs_loss_read(l, "visits", visits, 0, IDS, NULL), CCS_OK);
    for (int i = 0; i < IDS; i++) {
        assert_int_equal(visits[i], 0);
    }
    assert_int_equal(ccs_loss_read(l, "visits", visits, 1, IDS, NULL), CCS_ERROR_NOTFOUND);
    assert_int_equal(ccs_loss_read(l, "zeta", visits, 0, 1, NULL), CCS_ERROR_NOTFOUND);
    assert_int_equal(ccs_loss_set_scalar(l, "image.xi", 1.0, NULL), CCS_ERROR_NOTFOUND);
    ccs_loss_close(l);
    l = open_loss("emc2", false, "emc2-carry=skip");
    visits[0] = IDS;
    assert_int_equal(ccs_loss_write(l, "image.chain_id", visits, 0, 1, NULL), CCS_ERROR_INVALID);
    visits[0] = UINT64_MAX;
    assert_int_equal(ccs_loss_write(l, "image.chain_id", visits, 0, 1, NULL), CCS_OK);
    ccs_loss_close(l);
}

TEST(samples_beyond_the_batch_are_checked) {
    struct ccs_loss *l = open_loss("emc2", false, NULL);
    struct batch b;
    struct beyond far;
    struct result r;
    struct ccs_error err;
    draw(&b, 0);
    draw_beyond(&far, 0);
    assert_int_equal(ccs_loss_beyond(l), CCS_BEYOND_NAMED);
    struct ccs_loss_input in = {
        .struct_size = sizeof(in), .similarity = b.s, .ids = b.ids, .lr = 0.1, .batch_size = B};
    struct ccs_loss_output out = {.struct_size = sizeof(out), .gradient = r.g};
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_ERROR_INVALID);
    assert_non_null(strstr(err.text, "requires off-batch samples"));
    assert_int_equal(ccs_loss_carried(l, far.ids, b.ids, B + 1, &err), CCS_ERROR_INVALID);
    assert_int_equal(ccs_loss_carried(l, far.ids, NULL, B, &err), CCS_ERROR_INVALID);
    assert_int_equal(ccs_loss_carried(l, far.ids, b.ids, B, &err), CCS_OK);
    for (int i = 0; i < 2 * B; i++) {
        assert_true(far.ids[i] == UINT64_MAX); /* no chain yet */
    }
    in.carried_ids = far.ids;
    in.carried_similarity = far.similarity;
    out.carried_gradient = r.carried;
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_OK);
    far.ids[3] = IDS;
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_ERROR_INVALID);
    assert_non_null(strstr(err.text, "carried id 20 is not below"));
    far.ids[3] = 1;
    far.similarity[3] = INFINITY;
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_ERROR_CORRUPT);
    ccs_loss_close(l);
    /* The struct of a caller of the version before: it ends with `reserved`. */
    l = open_loss("clip", false, NULL);
    in.struct_size = offsetof(struct ccs_loss_input, carried_ids);
    out.struct_size = offsetof(struct ccs_loss_output, carried_gradient);
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_OK);
    in.struct_size = sizeof(in);
    assert_int_equal(ccs_loss_step(l, &in, &out, &err), CCS_ERROR_INVALID);
    assert_non_null(strstr(err.text, "uses no off-batch samples"));
    assert_int_equal(ccs_loss_carried(l, far.ids, b.ids, B, &err), CCS_ERROR_UNSUPPORTED);
    ccs_loss_close(l);
    assert_int_equal(ccs_loss_beyond(NULL), CCS_BEYOND_NONE);
}

/* ---- files ----------------------------------------------------------------------------------- */

enum { GOLDEN_IDS = 6 };

/* What tests/golden/state/nuclr.safetensors holds: of the dataset tests/golden/shard/v1/ok, which
 * has samples 3 and 5. */
static struct ccs_loss *open_golden(void) {
    static const float zeta[] = {-0.05f, -0.05f, -0.05f, 0.25f, -0.05f, 0.5f};
    static const float momentum[] = {NAN, NAN, NAN, 0.125f, NAN, -0.5f};
    static const float log_u[] = {NAN, NAN, NAN, -1.5f, NAN, 2.0f};
    static const uint64_t visits[] = {0, 0, 0, 3, 0, 1};
    static const char *const sides[] = {"image", "text"};
    struct ccs_loss *l = NULL;
    const char *option = "tau=0.1";
    assert_int_equal(ccs_loss_open(&l, "nuclr", false, &option, 1, 2, GOLDEN_IDS, 2, NULL), CCS_OK);
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%s.zeta", sides[i]);
        assert_int_equal(ccs_loss_write(l, name, zeta, 0, GOLDEN_IDS, NULL), CCS_OK);
        snprintf(name, sizeof(name), "%s.zeta_momentum", sides[i]);
        assert_int_equal(ccs_loss_write(l, name, momentum, 0, GOLDEN_IDS, NULL), CCS_OK);
        snprintf(name, sizeof(name), "%s.log_u", sides[i]);
        assert_int_equal(ccs_loss_write(l, name, log_u, 0, GOLDEN_IDS, NULL), CCS_OK);
        snprintf(name, sizeof(name), "%s.xi", sides[i]);
        assert_int_equal(ccs_loss_set_scalar(l, name, 0.5, NULL), CCS_OK);
    }
    assert_int_equal(ccs_loss_write(l, "visits", visits, 0, GOLDEN_IDS, NULL), CCS_OK);
    return l;
}

TEST(a_saved_state_is_the_golden_file) {
    const char *golden = test_source_path("tests/golden/state/nuclr.safetensors");
    struct ccs_dataset *d = NULL;
    struct ccs_dataset_info info = {.struct_size = sizeof(info)};
    assert_int_equal(ccs_dataset_open(&d, test_source_path("tests/golden/shard/v1/ok"), NULL),
                     CCS_OK);
    assert_int_equal(ccs_dataset_get_info(d, &info, NULL), CCS_OK);
    ccs_dataset_close(d);
    struct ccs_loss *l = open_golden();
    struct byte_buffer made, kept;
    struct error err = {0};
    const char *path = test_temp_path("a.safetensors");
    assert_int_equal(ccs_loss_save(l, path, info.fingerprint, 4, NULL), CCS_OK);
    assert_ok(file_read_all(file_posix(), &made, path, 1 << 16, &err), err);
    assert_ok(file_read_all(file_posix(), &kept, golden, 1 << 16, &err), err);
    assert_int_equal(made.size_bytes, kept.size_bytes);
    assert_memory_equal(made.data, kept.data, kept.size_bytes);
    byte_buffer_fini(&made);
    byte_buffer_fini(&kept);
    ccs_loss_close(l);
}

TEST(numbers_have_a_point_in_any_locale) {
    const char *path = test_temp_path("a.safetensors");
    library_use_decimal_comma();
    struct ccs_loss *l = open_golden(); /* tau=0.1 */
    assert_int_equal(ccs_loss_save(l, path, 1, 4, NULL), CCS_OK);
    assert_int_equal(ccs_loss_load(l, path, NULL), CCS_OK);
    ccs_loss_close(l);
    assert_string_equal(localeconv()->decimal_point, ",");
    setlocale(LC_NUMERIC, "C");
    struct ccs_state *s = NULL;
    assert_int_equal(ccs_state_open(&s, path, NULL), CCS_OK);
    ccs_state_close(s);
}

TEST(the_state_in_a_file_is_read_by_column) {
    struct ccs_state *s = NULL;
    struct ccs_state_info info = {.struct_size = sizeof(info)};
    struct ccs_column c = {.struct_size = sizeof(c)};
    struct ccs_error err;
    float zeta[2];
    uint64_t visits[GOLDEN_IDS];
    const char *golden = test_source_path("tests/golden/state/nuclr.safetensors");
    assert_int_equal(ccs_state_open(&s, golden, NULL), CCS_OK);
    assert_int_equal(ccs_state_get_info(s, &info, NULL), CCS_OK);
    assert_string_equal(info.loss, "nuclr");
    assert_int_equal(info.step, 4);
    assert_int_equal(info.samples, 2);
    assert_int_equal(info.id_space, GOLDEN_IDS);
    uint32_t count = 0;
    bool seen = false;
    while (ccs_state_column(s, count, &c, &err) == CCS_OK) {
        assert_int_equal(c.ids, GOLDEN_IDS);
        seen = seen || (strcmp(c.name, "text.zeta") == 0 && c.kind == CCS_COLUMN_F32);
        count++;
    }
    assert_int_equal(err.status, CCS_ERROR_NOTFOUND);
    assert_int_equal(count, 7);
    assert_true(seen);
    assert_int_equal(ccs_state_read(s, "text.zeta", zeta, 4, 2, NULL), CCS_OK);
    assert_true(zeta[0] == -0.05f && zeta[1] == 0.5f);
    assert_int_equal(ccs_state_read(s, "visits", visits, 0, GOLDEN_IDS, NULL), CCS_OK);
    assert_int_equal(visits[3], 3);
    assert_int_equal(ccs_state_read(s, "visits", visits, 5, 2, NULL), CCS_ERROR_NOTFOUND);
    assert_int_equal(ccs_state_read(s, "tau", zeta, 0, 1, NULL), CCS_ERROR_NOTFOUND);
    ccs_state_close(s);
    ccs_state_close(NULL);
    assert_int_equal(ccs_state_open(&s, test_temp_path("none"), &err), CCS_ERROR_NOTFOUND);
    assert_null(s);
}

/* A small model with its state, as ccstream-train writes it. */
static void save_run(const char *path) {
    static const struct model_config config = {.image_tower = "resnet10t",
                                               .text_tower = "tiny",
                                               .image_size_px = 32,
                                               .max_tokens = 8,
                                               .vocab_count = 40,
                                               .embed_dim = 16};
    const struct train_position position = {
        .step = 9, .fingerprint = 77, .samples_count = 4, .id_space_count = 4, .source_count = 1};
    struct error err = {0};
    struct dual_encoder_options options;
    struct dual_encoder *model = NULL;
    struct device *dev = NULL;
    struct sample_state *own = NULL;
    struct loss *loss = NULL;
    struct loss_options o;
    assert_ok(model_config_options(&config, &options, &err), err);
    options.max_batch = 2;
    options.image.width = 8;
    options.text.dim = 24;
    options.text.ffn_dim = 32;
    loss_options_default(&o);
    assert_ok(device_open(&dev, "cpu-ref", 1, &err), err);
    assert_ok(dual_encoder_create(&model, dev, &options, &err), err);
    assert_ok(params_init(dual_encoder_params(model), 1, &err), err);
    assert_ok(sample_state_create(&own, 4, NULL, &err), err);
    assert_ok(loss_create(&loss, &o, own, 4, 2, &err), err);
    sample_state_column(own, sample_state_find(own, "text.zeta"))[2] = 0.75f;
    struct checkpoint_content content = {
        .model = &config,
        .position = &position,
        .loss_name = "nuclr",
        .tau = 0.05,
        .params = dual_encoder_params(model),
        .state = own,
    };
    content.scalar_count = loss_scalars(loss, &content.scalars);
    assert_ok(checkpoint_save(file_posix(), path, &content, NULL, &err), err);
    loss_destroy(loss);
    sample_state_destroy(own);
    dual_encoder_destroy(model);
    device_close(dev);
}

/* What loss_complete_options makes of the same texts, option by option. */
TEST(options_are_those_that_the_row_reads) {
    const char *const given[] = {"gamma=0.25", "gamma-schedule=cosine", "xi=norm"};
    struct loss_options o;
    const struct loss_row *row = NULL;
    struct error err = {0};
    struct ccs_loss_option got = {.struct_size = sizeof(got)};
    struct ccs_error e;
    uint32_t at = 0;
    loss_options_default(&o);
    o.name = "nuclr";
    o.gamma = 0.25;
    o.gamma_schedule = LOSS_GAMMA_COSINE;
    o.xi = LOSS_XI_NORM;
    assert_ok(loss_find_row(&row, &o, &err), err);
    assert_ok(loss_complete_options(&o, row, &err), err);
    for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT; i++) {
        const struct loss_option_row *option = &loss_option_rows[i];
        if (!loss_reads(row, &o, (enum loss_option)i)) {
            continue;
        }
        assert_int_equal(ccs_loss_option("nuclr", false, given, 3, at++, &got, &e), CCS_OK);
        assert_string_equal(got.name, option->name);
        assert_true(got.value == loss_option_value(&o, option));
        assert_true((got.choice != NULL) == (option->choices != NULL || option->automatic));
    }
    assert_true(at > 10);
    assert_int_equal(ccs_loss_option("nuclr", false, given, 3, at, &got, &e), CCS_ERROR_NOTFOUND);
    const char *const wrong[] = {"xi=max"};
    assert_int_equal(ccs_loss_option("nuclr", false, wrong, 1, 0, &got, &e), CCS_ERROR_USAGE);
    assert_string_equal(e.text, "loss option xi: 'max', expected one of signed, norm, all");
    assert_int_equal(ccs_loss_option("clip", false, given, 1, 0, &got, &e), CCS_ERROR_USAGE);
    assert_string_equal(e.text, "loss clip does not read gamma");
    assert_int_equal(ccs_loss_option("clip", false, NULL, 1, 0, &got, &e), CCS_ERROR_INVALID);
}

TEST(the_state_of_a_run_is_read_too) {
    const char *path = test_temp_path("run.safetensors");
    struct ccs_state *s = NULL;
    struct ccs_state_info info = {.struct_size = sizeof(info)};
    struct ccs_loss *l = NULL;
    float zeta = 0.0f;
    save_run(path);
    assert_int_equal(ccs_state_open(&s, path, NULL), CCS_OK);
    assert_int_equal(ccs_state_get_info(s, &info, NULL), CCS_OK);
    assert_int_equal(info.fingerprint, 77);
    assert_int_equal(info.id_space, 4);
    assert_int_equal(ccs_state_read(s, "text.zeta", &zeta, 2, 1, NULL), CCS_OK);
    assert_true(zeta == 0.75f);
    ccs_state_close(s);
    assert_int_equal(ccs_loss_open(&l, "nuclr", false, NULL, 0, 4, 4, 2, NULL), CCS_OK);
    assert_int_equal(ccs_loss_load(l, path, NULL), CCS_OK);
    assert_int_equal(ccs_loss_read(l, "text.zeta", &zeta, 2, 1, NULL), CCS_OK);
    assert_true(zeta == 0.75f);
    ccs_loss_close(l);
}

TEST(whatever_needs_the_model_refuses_a_state) {
    struct checkpoint *c = NULL;
    struct error err = {0};
    const char *golden = test_source_path("tests/golden/state/nuclr.safetensors");
    assert_int_equal(checkpoint_open(&c, file_posix(), golden, &err), STATUS_MISMATCH);
    assert_null(c);
    assert_non_null(strstr(err.text, "no model"));
    struct ccs_loss *l = open_loss("sogclr", false, NULL);
    struct ccs_error why;
    assert_int_equal(ccs_loss_load(l, golden, &why), CCS_ERROR_MISMATCH);
    assert_non_null(strstr(why.text, "belongs to loss nuclr, not to sogclr"));
    ccs_loss_close(l);
    assert_int_equal(ccs_loss_open(&l, "nuclr", false, NULL, 0, 2, 2, 2, NULL), CCS_OK);
    assert_int_equal(ccs_loss_load(l, golden, &why), CCS_ERROR_MISMATCH); /* six ids */
    ccs_loss_close(l);
    float zeta[GOLDEN_IDS + 1];
    const uint64_t ids = GOLDEN_IDS + 1;
    assert_int_equal(ccs_loss_open(&l, "nuclr", false, NULL, 0, 2, ids, 2, NULL), CCS_OK);
    assert_int_equal(ccs_loss_load(l, golden, &why), CCS_OK); /* new ids keep their first values */
    assert_int_equal(ccs_loss_read(l, "image.zeta", zeta, 0, ids, NULL), CCS_OK);
    assert_true(zeta[5] == 0.5f && zeta[6] == -0.05f);
    ccs_loss_close(l);
}
