/*
 * Opening remote datasets that is gone.
 */
#include <stdio.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/dataset/dataset.h"
#include "loader/remote/remote.h"
#include "tests/support/fault_server.h"
#include "tests/support/image_dataset.h"
#include "tests/support/test.h"

struct lines {
    int count;
    char last[1024];
};

static void keep_line(void *cookie, enum log_level level, const char *text) {
    struct lines *l = cookie;
    (void)level;
    l->count++;
    (void)snprintf(l->last, sizeof l->last, "%s", text);
}

static enum status open_and_close(const char *url, struct error *err) {
    struct dataset *d = NULL;
    const enum status s = dataset_open(&d, url, file_system_of(url), err);
    dataset_close(d);
    return s;
}

TEST(a_cached_dataset_is_opened_again_soon_after_its_server_went) {
    struct lines lines = {0};
    const struct log_sink log = {keep_line, &lines, LOG_LEVEL_WARN};
    struct remote_options opt;
    struct image_dataset how;
    struct fault_server s;
    struct error err = {0};
    char url[64];
    image_dataset_default(&how);
    image_dataset_make(test_temp_path("d"), &how);
    remote_options_default(&opt);
    opt.cache = test_temp_path("cache");
    opt.log = &log;
    assert_ok(remote_start(&opt, &err), err);
    fault_server_start(&s, test_temp_dir(), "");
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/d", s.port);
    assert_ok(open_and_close(url, &err), err);
    assert_int_equal(lines.count, 0);
    fault_server_stop(&s);
    assert_ok(open_and_close(url, &err), err);
    assert_true(lines.count > 0);
    assert_non_null(strstr(lines.last, "4 attempts"));
    assert_non_null(strstr(lines.last, "continuing from the cache"));
    remote_stop();
}
