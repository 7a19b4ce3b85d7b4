/*
 * The option table: what it accepts, what it refuses and with which message, and that its own check
 * finds every mistake that a row can have.
 */
#include "tools/cli/cli.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

struct options {
    const char *out;
    uint64_t jobs;
    uint64_t size_bytes;
    uint64_t wait_ms;
    int64_t shift;
    double rate;
    double share;
    int mode;
    struct cli_list images;
    bool quiet;
};

static const char *const modes[] = {"fast", "exact", NULL};
static const char *const former_modes[] = {"quick", "", NULL};
static const struct cli_option rows[] = {
    {"out", 'o', CLI_STRING, CLI_FIELD(struct options, out), .metavar = "DIR", .required = true,
     .help = "where the result goes"},
    {"jobs", 'j', CLI_U64, CLI_FIELD(struct options, jobs), .min = "1", .max = "256",
     .default_text = "4", .metavar = "N", .help = "worker threads"},
    {"shard-size", 0, CLI_U64, CLI_FIELD(struct options, size_bytes), .unit = CLI_UNIT_BYTES,
     .min = "1MiB", .max = "1TiB", .default_text = "1GiB", .metavar = "SIZE", .help = "limit",
     .group = "Limits"},
    {"wait", 0, CLI_U64, CLI_FIELD(struct options, wait_ms), .unit = CLI_UNIT_MS,
     .default_text = "10s", .metavar = "TIME", .help = "longest wait"},
    {"shift", 0, CLI_I64, CLI_FIELD(struct options, shift), .min = "-5", .max = "5",
     .default_text = "-1", .metavar = "N", .help = "signed"},
    {"rate", 0, CLI_DOUBLE, CLI_FIELD(struct options, rate), .min = "0", .max = "1",
     .default_text = "0.5", .metavar = "X", .help = "fraction"},
    {"share", 0, CLI_DOUBLE, CLI_FIELD(struct options, share), .min = "0", .max = "1",
     .word = "auto", .word_value = "-1", .default_text = "auto", .metavar = "X", .help = "part"},
    {"mode", 0, CLI_ENUM, CLI_FIELD(struct options, mode), .choices = modes,
     .aliases = former_modes, .alias = "method", .default_text = "exact", .metavar = "MODE",
     .help = "how"},
    {"images", 0, CLI_LIST, CLI_FIELD(struct options, images), .metavar = "DIR", .help = "folders"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct options, quiet), .help = "errors only"},
};
static const struct cli_program program = {
    .name = "ccx",
    .purpose = "a program of the tests",
    .usage = (const char *const[]){"-o DIR [FILE...]", NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
    .arguments = {0, 3},
    .examples =
        (const char *const[]){
            "ccx -o a-rather-long-directory-name one-rather-long-file-name another-long-file-name "
            "--images 'two words' third",
            NULL},
};

/* Parses a command line given as words ending in NULL. */
static enum status parse(struct options *o, struct cli_arguments *a, struct error *err, ...) {
    char *argv[16] = {(char *)(uintptr_t) "ccx"};
    int argc = 1;
    va_list words;
    va_start(words, err);
    for (const char *w = va_arg(words, const char *); w != NULL; w = va_arg(words, const char *)) {
        argv[argc++] = (char *)(uintptr_t)w;
    }
    va_end(words);
    memset(err, 0, sizeof(*err));
    return cli_parse(&program, o, a, argc, argv, err);
}

#define assert_refused(part, ...)                                                                  \
    do {                                                                                           \
        struct options o_;                                                                         \
        struct cli_arguments a_;                                                                   \
        struct error err_;                                                                         \
        assert_int_equal(parse(&o_, &a_, &err_, __VA_ARGS__, NULL), STATUS_USAGE);                 \
        if (strstr(err_.text, part) == NULL) {                                                     \
            fail_msg("'%s' does not say '%s'", err_.text, part);                                   \
        }                                                                                          \
    } while (0)

TEST(defaults_fill_every_field) {
    struct options o;
    struct cli_arguments a;
    struct error err;
    assert_ok(parse(&o, &a, &err, "-o", "d", NULL), err);
    assert_string_equal(o.out, "d");
    assert_int_equal(o.jobs, 4);
    assert_int_equal(o.size_bytes, 1 << 30);
    assert_int_equal(o.wait_ms, 10000);
    assert_int_equal(o.shift, -1);
    assert_true(o.rate > 0.49 && o.rate < 0.51);
    assert_true(o.share == -1.0);
    assert_int_equal(o.mode, 1);
    assert_int_equal(o.images.count, 0);
    assert_false(o.quiet);
    assert_int_equal(a.count, 0);
    assert_false(cli_given(&program, &a, "jobs"));
    assert_true(cli_given(&program, &a, "out"));
    cli_arguments_fini(&a);
}

TEST(former_names_are_accepted_but_not_shown) {
    struct options o;
    struct cli_arguments a;
    struct error err;
    assert_ok(parse(&o, &a, &err, "-o", "d", "--method", "quick", NULL), err);
    assert_int_equal(o.mode, 0);
    assert_true(cli_given(&program, &a, "mode"));
    cli_arguments_fini(&a);
    assert_ok(parse(&o, &a, &err, "-o", "d", "--mode=quick", NULL), err);
    assert_int_equal(o.mode, 0);
    cli_arguments_fini(&a);
    assert_refused("--mode is given twice", "-o", "d", "--method=exact", "--mode=quick");
    assert_refused("--mode must be one of fast, exact, not 'nosuch'", "-o", "d", "--method",
                   "nosuch");
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *out = open_memstream(&text, &size_bytes);
    cli_print_help(&program, out);
    assert_int_equal(fclose(out), 0);
    assert_null(strstr(text, "method"));
    assert_null(strstr(text, "quick"));
    free(text);
}

TEST(options_and_arguments_mix) {
    struct options o;
    struct cli_arguments a;
    struct error err;
    assert_ok(parse(&o, &a, &err, "one", "--jobs=8", "-qod", "--images", "x", "-", "--images=y",
                    "--shift", "-5", "--", "--jobs", NULL),
              err);
    assert_int_equal(o.jobs, 8);
    assert_true(o.quiet);
    assert_string_equal(o.out, "d");
    assert_int_equal(o.shift, -5);
    assert_int_equal(o.images.count, 2);
    assert_string_equal(o.images.items[1], "y");
    assert_int_equal(a.count, 3);
    assert_string_equal(a.items[0], "one");
    assert_string_equal(a.items[1], "-");
    assert_string_equal(a.items[2], "--jobs");
    cli_arguments_fini(&a);
}

TEST(numbers_take_units_and_nothing_else) {
    uint64_t v = 0;
    assert_true(cli_parse_u64("256MiB", CLI_UNIT_BYTES, &v));
    assert_int_equal(v, 256 << 20);
    assert_true(cli_parse_u64("18446744073709551615", CLI_UNIT_NONE, &v));
    assert_int_equal(v, UINT64_MAX);
    assert_true(cli_parse_u64("3", CLI_UNIT_MS, &v));
    assert_int_equal(v, 3000);
    assert_true(cli_parse_u64("3ms", CLI_UNIT_MS, &v));
    assert_int_equal(v, 3);
    assert_false(cli_parse_u64("18446744073709551616", CLI_UNIT_NONE, &v));
    assert_false(cli_parse_u64("17179869184GiB", CLI_UNIT_BYTES, &v));
    assert_false(cli_parse_u64("", CLI_UNIT_NONE, &v));
    assert_false(cli_parse_u64("-1", CLI_UNIT_NONE, &v));
    assert_false(cli_parse_u64("+1", CLI_UNIT_NONE, &v));
    assert_false(cli_parse_u64(" 1", CLI_UNIT_NONE, &v));
    assert_false(cli_parse_u64("1 ", CLI_UNIT_NONE, &v));
    assert_false(cli_parse_u64("1MiB", CLI_UNIT_NONE, &v));
    assert_false(cli_parse_u64("1mib", CLI_UNIT_BYTES, &v));
}

TEST(errors_name_the_option) {
    assert_refused("--out DIR is missing", "--jobs", "2");
    assert_refused("did you mean '--shard-size'", "--shardsize", "2MiB", "-o", "d");
    assert_refused("did you mean '--shard-size'", "--shard_size", "2", "-o", "d");
    assert_refused("unknown option '-out'; did you mean '--out'", "-out", "d");
    assert_refused("--out requires a value, not an empty text", "--out", "", "x");
    assert_refused("did you mean '--images'", "--ima", "2", "-o", "d");
    assert_refused("unknown option '--zzzzzz'", "--zzzzzz");
    assert_refused("unknown option '-x'", "-x");
    assert_refused("--jobs must be at most 256, not 257", "--jobs", "257");
    assert_refused("--jobs must be at least 1, not 0", "-j0");
    assert_refused("--shift must be at least -5", "--shift=-6");
    assert_refused("--jobs requires an integer", "--jobs", "two");
    assert_refused("--rate requires a number", "--rate", "nan");
    assert_refused("--rate must be at most 1", "--rate", "1.5");
    assert_refused("--rate requires a number, not 'auto'", "--rate", "auto");
    assert_refused("--share requires a number or auto, not 'automatic'", "--share", "automatic");
    assert_refused("--share must be at least 0, not -1", "--share", "-1");
    assert_refused("one of fast, exact, not 'slow'", "--mode", "slow");
    assert_refused("--quiet takes no value", "--quiet=1");
    assert_refused("--jobs requires a value: N", "-o", "d", "--jobs");
    assert_refused("one argument too many: 'd'", "-o", "x", "a", "b", "c", "d");
}

TEST(a_word_stands_for_its_number) {
    struct options o;
    struct cli_arguments a;
    struct error err;
    assert_ok(parse(&o, &a, &err, "-o", "d", "--share", "0.25", NULL), err);
    assert_true(o.share == 0.25);
    cli_arguments_fini(&a);
    assert_ok(parse(&o, &a, &err, "-o", "d", "--share=auto", NULL), err);
    assert_true(o.share == -1.0);
    cli_arguments_fini(&a);
}

TEST(an_option_given_twice_is_refused) {
    struct options o;
    struct cli_arguments a;
    struct error err = {0};
    assert_refused("--jobs is given twice", "-o", "d", "--jobs=2", "--jobs", "2");
    assert_refused("--out is given twice", "-od", "--out", "e");
    assert_refused("--quiet is given twice", "-o", "d", "-qq");
    char name[] = "ccx", first[] = "--out=d", second[] = "--out=e";
    char *words[] = {name, first, second, NULL};
    assert_ok(cli_parse_words(&program, &o, &a, 3, words, true, &err), err);
    assert_string_equal(o.out, "e");
    cli_arguments_fini(&a);
}

TEST(configuration_is_written_as_json) {
    struct options o;
    struct cli_arguments a;
    struct error err;
    assert_ok(parse(&o, &a, &err, "-o", "a\"b", "--images", "x", NULL), err);
    struct byte_buffer text;
    byte_buffer_init(&text, 0);
    assert_ok(cli_config_json(&program, &o, &text, &err), err);
    assert_ok(byte_buffer_u8(&text, 0, &err), err);
    assert_string_equal((const char *)text.data,
                        "{\"out\":\"a\\\"b\",\"jobs\":4,\"shard-size\":1073741824,\"wait\":10000,"
                        "\"shift\":-1,\"rate\":0.5,\"share\":\"auto\",\"mode\":\"exact\","
                        "\"images\":[\"x\"],"
                        "\"quiet\":false}");
    byte_buffer_fini(&text);
    cli_arguments_fini(&a);
}

TEST(help_names_every_option_within_100_columns) {
    FILE *f = fopen(test_temp_path("help.txt"), "w");
    assert_non_null(f);
    cli_print_help(&program, f);
    fclose(f);
    size_t size = 0;
    uint8_t *text = test_read_file(test_temp_path("help.txt"), &size);
    assert_non_null(strstr((char *)text, "-j, --jobs N"));
    assert_non_null(strstr((char *)text, "worker threads [1..256, default 4]"));
    assert_non_null(strstr((char *)text, "how [fast|exact, default exact]"));
    assert_non_null(strstr((char *)text, "part [0..1 or auto, default auto]"));
    assert_non_null(strstr((char *)text, "\nLimits:\n"));
    assert_non_null(strstr((char *)text, "--images \\\n      'two words' third\n"));
    for (const char *line = (const char *)text; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        assert_true(n <= 100);
        line += n + (line[n] == '\n');
    }
    free(text);
}

/* Checks a table of two rows, the second of which is `row`. */
static enum status check_with(struct cli_option row) {
    struct cli_option table[2] = {rows[1], row};
    struct cli_program p = program;
    p.options = table;
    p.option_count = 2;
    struct error err = {0};
    return cli_check(&p, &err);
}

TEST(mistakes_in_rows_are_found) {
    struct error err = {0};
    assert_ok(cli_check(&program, &err), err);
    const struct cli_option good = rows[2];
    assert_int_equal(check_with(good), STATUS_OK);
    struct cli_option bad[18];
    for (size_t i = 0; i < 18; i++) {
        bad[i] = good;
    }
    bad[0].help = NULL;
    bad[1].name = "jobs";
    bad[2].letter = 'j';
    bad[3].default_text = "1";
    bad[4].default_text = "2TiB";
    bad[5].default_text = "many";
    bad[6].default_text = NULL;
    bad[7].size_bytes = 4;
    bad[8].metavar = NULL;
    bad[9].min = "x";
    bad[10].name = "help";
    bad[11].name = "Shard";
    bad[12].type = CLI_DOUBLE;
    bad[13].offset = rows[1].offset;
    bad[14] = rows[6];
    bad[14].default_text = "slow";
    bad[15] = rows[8];
    bad[15].default_text = "1";
    bad[16].alias = "jobs";
    bad[17].aliases = modes;
    for (size_t i = 0; i < 18; i++) {
        if (check_with(bad[i]) != STATUS_INVALID) {
            fail_msg("row %zu passed", i);
        }
    }
}

/* As a library has them, in the middle of a program's options. */
struct narrow {
    uint64_t before;
    struct part {
        uint32_t count;
        bool exact; /* of an enum of two */
        bool check;
        const char *unset; /* by no option */
    } part;
    bool json;
};

TEST(options_fill_the_narrow_fields_of_a_library) {
    static const struct cli_option narrow_rows[] = {
        {"count", 0, CLI_U64, CLI_FIELD(struct narrow, part.count), .max = "4294967295",
         .default_text = "7", .metavar = "N", .help = "how many"},
        {"mode", 0, CLI_ENUM, CLI_FIELD(struct narrow, part.exact), .choices = modes,
         .default_text = "exact", .metavar = "MODE", .help = "how"},
        {"no-check", 0, CLI_NO, CLI_FIELD(struct narrow, part.check), .help = "unchecked"},
        {"json", 0, CLI_FLAG, CLI_FIELD(struct narrow, json), .help = "as JSON"},
    };
    struct cli_program p = program;
    struct narrow o;
    struct part part = {.unset = "default"};
    struct cli_arguments a;
    struct error err = {0};
    struct byte_buffer text;
    const char *const words[] = {"ccx", "--no-check", "--count", "4294967295", NULL};
    p.options = narrow_rows;
    p.option_count = CLI_COUNT(narrow_rows);
    assert_ok(cli_parse(&p, &o, &a, 1, (char **)(uintptr_t)words, &err), err);
    assert_true(o.part.count == 7 && o.part.exact && o.part.check && !o.json);
    cli_arguments_fini(&a);
    assert_ok(cli_parse(&p, &o, &a, 4, (char **)(uintptr_t)words, &err), err);
    cli_copy(&p, &o, offsetof(struct narrow, part), &part, sizeof part);
    assert_true(part.count == UINT32_MAX && part.exact && !part.check);
    assert_string_equal(part.unset, "default");
    byte_buffer_init(&text, 0);
    assert_ok(cli_config_json(&p, &o, &text, &err), err);
    assert_ok(byte_buffer_u8(&text, 0, &err), err);
    assert_string_equal(
        (const char *)text.data,
        "{\"count\":4294967295,\"mode\":\"exact\",\"no-check\":true,\"json\":false}");
    byte_buffer_fini(&text);
    cli_arguments_fini(&a);
    struct cli_option wide[CLI_COUNT(narrow_rows)];
    memcpy(wide, narrow_rows, sizeof wide);
    wide[0].max = "4294967296";
    p.options = wide;
    assert_int_equal(cli_check(&p, &err), STATUS_INVALID);
}

TEST(shared_rows_follow_the_own_ones) {
    const struct cli_rows shared[] = {{rows + 1, CLI_COUNT(rows) - 1}, {NULL, 0}};
    struct cli_program p = program;
    struct options o;
    struct cli_arguments a;
    struct error err = {0};
    const char *const words[] = {"ccx", "-qj", "7", "--out", "d", "--wait=1ms", NULL};
    p.option_count = 1;
    assert_int_equal(cli_check(&p, &err), STATUS_OK);
    p.shared = shared;
    assert_ok(cli_parse(&p, &o, &a, 6, (char **)(uintptr_t)words, &err), err);
    assert_string_equal(o.out, "d");
    assert_true(o.jobs == 7 && o.quiet && o.wait_ms == 1 && o.shift == -1);
    assert_true(cli_given(&p, &a, "jobs"));
    assert_false(cli_given(&p, &a, "shift"));
    cli_arguments_fini(&a);
    p.option_count = 2; /* the second own row is also the first shared one */
    assert_int_equal(cli_check(&p, &err), STATUS_INVALID);
}

TEST(numbers_have_separators_and_units) {
    assert_string_equal(cli_format_bytes(999), "999 B");
    assert_string_equal(cli_format_bytes(1536), "1.5 KiB");
    assert_string_equal(cli_format_bytes((UINT64_C(1) << 30) - 1), "1.0 GiB");
    assert_string_equal(cli_format_count(3318333), "3,318,333");
    assert_string_equal(cli_format_count(12), "12");
    assert_string_equal(cli_format_count(UINT64_MAX), "18,446,744,073,709,551,615");
    assert_string_equal(cli_format_rate(1249.7, "pairs"), "1,250 pairs/s");
    assert_string_equal(cli_format_rate(9.96, ""), "10/s");
    assert_string_equal(cli_format_rate(3.44, ""), "3.4/s");
    assert_string_equal(cli_format_rate(0.31, "pairs"), "0.31 pairs/s");
    assert_string_equal(cli_format_rate(0.0124, "pairs"), "0.74 pairs/min");
    assert_string_equal(cli_format_rate(0.0005, "steps"), "1.8 steps/h");
    assert_string_equal(cli_format_rate(1e-9, ""), "3.6e-06/h");
    assert_string_equal(cli_format_rate(0.0, ""), "0/s");
    assert_string_equal(cli_format_counted(1, "sample"), "1 sample");
    assert_string_equal(cli_format_counted(0, "sample"), "0 samples");
    assert_string_equal(cli_format_counted(3318333, "sample"), "3,318,333 samples");
    assert_string_equal(cli_format_seconds(12.5), "12.5s");
    assert_string_equal(cli_format_seconds(200), "3m20s");
    assert_string_equal(cli_format_seconds(3725), "1h02m");
    assert_string_equal(cli_format_seconds(59.97), "1m00s");
}
