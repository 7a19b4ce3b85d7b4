/*
 * RUN/config.json: options are restored, the command line overrides them, and invalid files are
 * refused.
 */
#include <string.h>

#include "tests/support/test.h"
#include "tools/inspect/run_config.h"

struct options {
    const char *data, *unset;
    uint64_t batch, seed;
    double lr, tau;
    int loss;
    bool clean, quiet;
    struct cli_list more;
};

static const char *const losses[] = {"clip", "nuclr", NULL};

#define FIELD(name) CLI_FIELD(struct options, name)

static const struct cli_option rows[] = {
    {"data", 'd', CLI_STRING, FIELD(data), .metavar = "DIR", .help = "a directory"},
    {"unset", 0, CLI_STRING, FIELD(unset), .metavar = "X", .help = "never given"},
    {"batch", 'b', CLI_U64, FIELD(batch), .min = "1", .max = "1000", .default_text = "8",
     .metavar = "N", .help = "a number"},
    {"seed", 0, CLI_U64, FIELD(seed), .default_text = "0", .metavar = "N",
     .help = "a large number"},
    {"lr", 0, CLI_DOUBLE, FIELD(lr), .default_text = "0.1", .metavar = "X",
     .help = "a real number"},
    {"tau", 0, CLI_DOUBLE, FIELD(tau), .default_text = "2", .metavar = "X",
     .help = "a whole real number"},
    {"loss", 0, CLI_ENUM, FIELD(loss), .default_text = "clip", .choices = losses, .metavar = "NAME",
     .help = "a name"},
    {"clean", 0, CLI_FLAG, FIELD(clean), .help = "a flag that is given"},
    {"quiet", 0, CLI_FLAG, FIELD(quiet), .help = "a flag that is not"},
    {"more", 0, CLI_LIST, FIELD(more), .metavar = "X", .help = "may be repeated"},
};

static const struct cli_program program = {.name = "program",
                                           .purpose = "is a test",
                                           .usage = (const char *const[]){"[options]", NULL},
                                           .options = rows,
                                           .option_count = CLI_COUNT(rows)};

static void parse(struct options *o, struct run_config_words *w) {
    struct error err = {0};
    struct cli_arguments args = {0};
    assert_ok(cli_parse_words(&program, o, &args, w->count, w->words, true, &err), err);
    cli_arguments_fini(&args);
}

/* argv[0], the run's options, the rest of argv. */
static enum status
read_run(struct run_config_words *words, int argc, char **argv, struct error *err) {
    *words = (struct run_config_words){0};
    enum status s = run_config_add_words(words, 1, (const char *const *)argv, err);
    if (s == STATUS_OK) {
        s = run_config_add_run(words, test_temp_dir(), err);
    }
    return s == STATUS_OK
               ? run_config_add_words(words, argc - 1, (const char *const *)argv + 1, err)
               : s;
}

TEST(lists_are_restored_and_replaced_whole) {
    struct error err = {0};
    const struct options given = {.batch = 8,
                                  .more = {.items = {"a:0.7", "more=b", "c"}, .count = 3}};
    assert_ok(run_config_write(&program, &given, "0123456789abcdef", test_temp_dir(), &err), err);
    struct run_config_words words;
    char name[] = "program";
    char more[] = "--more";
    char value[] = "d";
    char *argv[] = {name, more, value, NULL};
    assert_ok(read_run(&words, 1, argv, &err), err);
    struct options back;
    parse(&back, &words);
    assert_int_equal(back.more.count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(back.more.items[i], given.more.items[i]);
    }
    run_config_drop(&words, "more");
    assert_ok(run_config_add_words(&words, 2, (const char *const *)argv + 1, &err), err);
    parse(&back, &words);
    assert_int_equal(back.more.count, 1);
    assert_string_equal(back.more.items[0], "d");
    assert_int_equal(back.batch, 8);
    run_config_words_fini(&words);
}

TEST(options_are_restored) {
    struct error err = {0};
    const struct options given = {.data = "a \"quoted\" d\xc3\xadr",
                                  .batch = 77,
                                  .seed = INT64_MAX,
                                  .lr = 0.1 + 0.2,
                                  .tau = 3.0,
                                  .loss = 1,
                                  .clean = true};
    assert_ok(run_config_write(&program, &given, "0123456789abcdef", test_temp_dir(), &err), err);
    struct run_config_words words;
    char name[] = "program";
    char *argv[] = {name, NULL};
    assert_ok(read_run(&words, 1, argv, &err), err);
    struct options back;
    parse(&back, &words);
    assert_string_equal(back.data, given.data);
    assert_null(back.unset);
    assert_int_equal(back.batch, 77);
    assert_true(back.seed == INT64_MAX);
    assert_true(back.lr == given.lr && back.tau == 3.0);
    assert_int_equal(back.loss, 1);
    assert_true(back.clean);
    assert_false(back.quiet);
    run_config_words_fini(&words);
}

TEST(command_line_overrides_the_configuration) {
    struct error err = {0};
    const struct options given = {.batch = 77, .lr = 0.5, .tau = 1.0};
    assert_ok(run_config_write(&program, &given, "0123456789abcdef", test_temp_dir(), &err), err);
    struct run_config_words words;
    char name[] = "program";
    char batch[] = "--batch=5";
    char quiet[] = "--quiet";
    char *argv[] = {name, batch, quiet, NULL};
    assert_ok(read_run(&words, 3, argv, &err), err);
    struct options back;
    parse(&back, &words);
    assert_int_equal(back.batch, 5);
    assert_true(back.quiet && back.lr == 0.5);
    run_config_words_fini(&words);
}

TEST(invalid_configurations_are_refused) {
    char name[] = "program";
    char *argv[] = {name, NULL};
    struct run_config_words words;
    struct error err = {0};
    assert_status(read_run(&words, 1, argv, &err), STATUS_NOTFOUND, err);
    run_config_words_fini(&words);
    static const char *const texts[] = {"", "[1]", "{\"options\":[]}", "{\"options\":{\"batch\":1}",
                                        "{}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct error refused = {0};
        test_write_file(test_temp_path("config.json"), texts[i], strlen(texts[i]));
        assert_status(read_run(&words, 1, argv, &refused), STATUS_CORRUPT, refused);
        assert_non_null(strstr(refused.text, "config.json"));
        run_config_words_fini(&words);
    }
}
