/*
 * The option table of ccstream-train against the modules it configures, and the presets against the
 * settings of the papers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/image_norm.h"
#include "tests/support/test.h"
#include "tools/inspect/run_config.h"
#include "tools/inspect/train_options.h"

static const struct cli_option *row(const char *name) {
    const struct cli_option *row;
    for (size_t i = 0; (row = cli_row(train_program(), i)) != NULL; i++) {
        if (strcmp(row->name, name) == 0) {
            return row;
        }
    }
    fail_msg("no option --%s", name);
    return NULL;
}

TEST(choices_match_the_modules) {
    const char *const *choices = row("loss")->choices;
    size_t i = 0;
    for (; loss_names()[i] != NULL; i++) {
        assert_non_null(choices[i]);
        assert_string_equal(choices[i], loss_names()[i]);
    }
    assert_null(choices[i]);
    choices = row("image-norm")->choices;
    for (i = 0; i < IMAGE_NORM_COUNT; i++) {
        assert_non_null(choices[i]);
        assert_string_equal(choices[i], IMAGE_NORMS[i].name);
    }
    assert_null(choices[i]);
}

TEST(help_says_which_emc2_is_the_published_one) {
    const char *help = row("emc2-off-batch")->help;
    assert_non_null(strstr(help, "Algorithm 1"));
    assert_non_null(strstr(help, "skip: do not record it"));
}

/* The options of RUN/config.json after --preset NAME; they point into `words`. */
static struct train_options preset(const char *name, char **text, struct run_config_words *words) {
    struct error err = {0};
    struct train_options given = {0};
    struct train_options o;
    struct cli_arguments args = {0};
    const char *const program[] = {train_program()->name};
    const char *const *const choices = row("preset")->choices;
    while (strcmp(choices[given.preset], name) != 0) {
        assert_non_null(choices[++given.preset]);
    }
    int count = 0;
    const char *const *list = train_preset_words(given.preset, &count);
    assert_ok(run_config_add_words(words, 1, program, &err), err);
    assert_ok(run_config_add_words(words, count, list, &err), err);
    assert_ok(cli_parse(train_program(), &o, &args, words->count, words->words, &err), err);
    assert_ok(run_config_write(train_program(), &o, "0123456789abcdef", test_temp_dir(), &err),
              err);
    size_t size = 0;
    *text = (char *)test_read_file(test_temp_path("config.json"), &size);
    *text = realloc(*text, size + 1);
    (*text)[size] = '\0';
    cli_arguments_fini(&args);
    return o;
}

/* RUN/config.json as written before options were renamed. */
TEST(former_names_and_values_of_a_config_are_read) {
    static const char old[] =
        "{\"options\":{\"batch\":64,\"task\":\"simclr\",\"loss\":\"emc2\",\"parity\":\"algorithm\","
        "\"state\":\"host\",\"norm\":\"group\",\"normalize\":\"imagenet\",\"engine\":\"pread\","
        "\"keep\":5,\"any-kernels\":true,\"captions\":\"padded\",\"trust\":0.5,\"beta-stairs\":3,"
        "\"emc2-carry\":\"skip\",\"zeta-momentum\":0.25,\"tau-momentum\":0.5}}";
    struct error err = {0};
    struct run_config_words words = {0};
    struct train_options o;
    struct cli_arguments args = {0};
    const char *const program[] = {train_program()->name};
    test_write_file(test_temp_path("config.json"), old, sizeof old - 1);
    assert_ok(run_config_add_words(&words, 1, program, &err), err);
    assert_ok(run_config_add_run(&words, test_temp_dir(), &err), err);
    assert_ok(cli_parse(train_program(), &o, &args, words.count, words.words, &err), err);
    assert_true(o.trainer.batch_count == 64 && o.trainer.keep_count == 5 &&
                !o.trainer.device_options.deterministic);
    assert_string_equal(row("task")->choices[o.trainer.task], "two-views");
    assert_string_equal(row("variant")->choices[o.trainer.loss.parity], "paper");
    assert_string_equal(row("state-memory")->choices[o.trainer.state], "host");
    assert_string_equal(row("norm-layer")->choices[o.trainer.norm_layers], "group");
    assert_string_equal(row("image-norm")->choices[o.trainer.image_norm], "imagenet");
    assert_string_equal(row("io-engine")->choices[o.trainer.engine], "pread");
    assert_string_equal(row("padding")->choices[o.trainer.padded_captions], "longest");
    assert_string_equal(row("emc2-off-batch")->choices[o.trainer.loss.emc2_carry], "skip");
    assert_true(o.trainer.optimizer.trust == 0.5 && o.trainer.loss.beta_stairs == 3 &&
                o.trainer.loss.zeta_momentum == 0.25 && o.trainer.loss.tau_momentum == 0.5);
    cli_arguments_fini(&args);
    run_config_words_fini(&words);
}

/* Strings compare as text, numbers by value. */
static void assert_setting(const char *config, const char *name, const char *value) {
    char key[64];
    (void)snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(config, key);
    if (at == NULL) {
        fail_msg("no %s in %s", name, config);
        return;
    }
    at += strlen(key);
    char *end = NULL;
    const double wanted = strtod(value, NULL);
    const size_t size = strlen(value);
    const bool same = *at == '"' ? strncmp(at + 1, value, size) == 0 && at[1 + size] == '"'
                                 : strtod(at, &end) == wanted && (*end == ',' || *end == '}');
    if (!same) {
        fail_msg("%s is %.20s, not %s", name, at, value);
    }
}

struct setting {
    const char *name, *value;
};

/* Wang et al., ICLR 2025, appendix G, and the published script for CC3M; values that neither names
 * are the defaults of the published code. */
static const struct setting paper[] = {
    {"loss", "nuclr"},
    {"variant", "paper"},
    {"image-tower", "resnet50"},
    {"text-tower", "distil"},
    {"image-size", "256"},
    {"stem", "standard"},
    {"max-tokens", "30"},
    {"embed-dim", "256"},
    {"dropout", "0.1"},
    {"augment", "paper"},
    {"image-norm", "clip"},
    {"tau", "0.01"},
    {"gamma", "0.8"},
    {"xi0", "0"},
    {"xi", "signed"},
    {"zeta-lr", "5e-6"},
    {"zeta-lr-image-ratio", "0.1"},
    {"zeta-grad-ema", "0.9"},
    {"zeta-freeze-epochs", "5"},
    {"zeta-gradient", "paper"},
    {"batch-size", "512"},
    {"epochs", "30"},
    {"lr", "2e-4"},
    {"min-lr", "1e-6"},
    {"warmup", "plateau"},
    {"warmup-steps", "500"},
    {"weight-decay", "0.02"},
    {"beta1", "0.9"},
    {"beta2", "0.999"},
    {"adam-eps", "1e-8"},
    {"clip-norm", "0"},
    {"seed", "0"},
};

static const struct setting demo[] = {
    {"loss", "nuclr"},
    {"image-tower", "resnet10t"},
    {"text-tower", "tiny"},
    {"text-pool", "mean"},
    {"image-size", "32"},
    {"stem", "standard"},
    {"batch-size", "64"},
    {"epochs", "30"},
    {"lr", "1e-3"},
    {"tau", "0.05"},
    {"zeta-lr", "auto"},
    {"zeta-gradient", "unbiased"},
    {"zeta-freeze-epochs", "5"},
    {"augment", "crop"},
    {"zeta-grad-ema", "0.9"},
};

/* What all rows of EMC2's table 3 share. */
static const struct setting emc2[] = {
    {"task", "two-views"},      {"loss", "emc2"},      {"variant", "paper"},
    {"emc2-off-batch", "view"}, {"burn-in", "0.5"},    {"norm-layer", "none"},
    {"image-norm", "none"},     {"augment", "simclr"}, {"stem", "standard"},
    {"warmup", "linear"},       {"min-lr", "0"},       {"clip-norm", "0"},
};

/* Model, batch and optimiser of its rows; warm-up: 10 epochs of 100,000 / 32, 100,000 / 256, 500 /
 * 4 and 124,689 / 256 steps. */
static const struct setting emc2_b32[] = {{"image-tower", "resnet18"},
                                          {"image-size", "96"},
                                          {"embed-dim", "512"},
                                          {"hidden-dim", "512"},
                                          {"batch-size", "32"},
                                          {"optimizer", "adam"},
                                          {"lr", "1e-4"},
                                          {"beta1", "0.9"},
                                          {"beta2", "0.999"},
                                          {"weight-decay", "1e-4"},
                                          {"epochs", "100"},
                                          {"warmup-steps", "31250"},
                                          {"cache-refresh", "0.01024"}};
static const struct setting emc2_b256[] = {{"image-tower", "resnet18"},
                                           {"image-size", "96"},
                                           {"embed-dim", "512"},
                                           {"hidden-dim", "512"},
                                           {"batch-size", "256"},
                                           {"optimizer", "adam"},
                                           {"lr", "1e-3"},
                                           {"beta1", "0.9"},
                                           {"beta2", "0.999"},
                                           {"weight-decay", "1e-4"},
                                           {"epochs", "100"},
                                           {"warmup-steps", "3900"},
                                           {"cache-refresh", "0.1"},
                                           {"tau", "0.2"}};
static const struct setting emc2_subset[] = {{"image-tower", "resnet18"},
                                             {"image-size", "96"},
                                             {"embed-dim", "512"},
                                             {"hidden-dim", "512"},
                                             {"batch-size", "4"},
                                             {"optimizer", "sgdm"},
                                             {"lr", "1e-3"},
                                             {"momentum", "0"},
                                             {"weight-decay", "1e-4"},
                                             {"epochs", "10"},
                                             {"fixed-views", "on"},
                                             {"tau", "0.2"},
                                             {"warmup-steps", "1250"},
                                             {"cache-refresh", "0.1"}};
static const struct setting emc2_imagenet[] = {{"image-tower", "resnet50"},
                                               {"image-size", "224"},
                                               {"embed-dim", "128"},
                                               {"hidden-dim", "2048"},
                                               {"batch-size", "256"},
                                               {"optimizer", "lars"},
                                               {"lr", "1.2"},
                                               {"momentum", "0.9"},
                                               {"trust-coeff", "0.001"},
                                               {"weight-decay", "1e-6"},
                                               {"epochs", "800"},
                                               {"warmup-steps", "4870"}};

static void assert_preset(const char *name,
                          const struct setting *common,
                          size_t common_count,
                          const struct setting *own,
                          size_t own_count) {
    char *text = NULL;
    struct run_config_words words = {0};
    preset(name, &text, &words);
    for (size_t i = 0; i < common_count; i++) {
        assert_setting(text, common[i].name, common[i].value);
    }
    for (size_t i = 0; i < own_count; i++) {
        assert_setting(text, own[i].name, own[i].value);
    }
    run_config_words_fini(&words);
    free(text);
}

#define ASSERT_PRESET(name, common, own)                                                           \
    assert_preset(name, common, CLI_COUNT(common), own, CLI_COUNT(own))

TEST(presets_are_the_settings_of_the_papers) {
    static const struct setting cc3m[] = {{"zeta0", "-0.05"}};
    static const struct setting cc12m[] = {{"zeta0", "0"}};
    ASSERT_PRESET("nuclr-cc3m", paper, cc3m);
    ASSERT_PRESET("nuclr-cc12m", paper, cc12m);
    ASSERT_PRESET("cpu-demo", demo, cc3m);
    ASSERT_PRESET("emc2-stl10", emc2, emc2_b32);
    ASSERT_PRESET("emc2-stl10-b256", emc2, emc2_b256);
    ASSERT_PRESET("emc2-stl10-subset", emc2, emc2_subset);
    ASSERT_PRESET("emc2-imagenet100", emc2, emc2_imagenet);
}

TEST(tau_of_presets_is_one_over_the_published_beta) {
    static const char *const names[] = {"emc2-stl10", "emc2-imagenet100"};
    for (size_t i = 0; i < CLI_COUNT(names); i++) {
        char *text = NULL;
        struct run_config_words words = {0};
        const struct train_options o = preset(names[i], &text, &words);
        assert_true(fabs(1.0 / o.trainer.loss.tau - 14.28) < 0.005);
        run_config_words_fini(&words);
        free(text);
    }
}

TEST(presets_reach_the_trainer) {
    struct error err = {0};
    struct trainer_options t;
    char *text = NULL;
    struct run_config_words words = {0};
    const struct train_options o = preset("nuclr-cc3m", &text, &words);
    free(text);
    struct data_list *data = calloc(1, sizeof *data);
    assert_non_null(data);
    assert_ok(train_options_apply(&t, data, &o, "run", &err), err);
    assert_string_equal(t.loss.name, "nuclr");
    assert_true(t.loss.tau == 0.01 && t.loss.gamma == 0.8 && t.loss.zeta0 == -0.05);
    assert_true(t.loss.xi0 == 0.0 && t.loss.zeta_momentum == 0.9 &&
                t.loss.zeta_gradient == LOSS_ZETA_PAPER);
    assert_true(t.loss.zeta_lr == 5e-6 && t.loss.zeta_lr_image_ratio == 0.1 &&
                t.loss.zeta_freeze_epochs == 5);
    assert_true(t.lr == 2e-4 && t.min_lr == 1e-6 && t.optimizer.weight_decay == 0.02);
    assert_true(t.warmup_plateau && t.warmup_steps == 500);
    assert_int_equal(t.batch_count, 512);
    assert_int_equal(t.epochs, 30);
    assert_int_equal(t.image_size_px, 256);
    assert_int_equal(t.augment, AUGMENT_PAPER);
    assert_int_equal(t.image_norm, IMAGE_NORM_CLIP);
    run_config_words_fini(&words);
    free(data);
}
