/*
 * page_data: the object is a file in memory, stdin of ccstream-report: it can neither block nor be
 * left over. A page requires no network, so that program gets no secrets.
 */
#include "tools/inspect/page/page_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/base/child_process.h"
#include "formats/base/module_file.h"
#include "formats/base/sort.h"
#include "tools/cli/cli.h"
#include "tools/cli/output.h"
#include "tools/inspect/page/thumbnail.h"

enum { MAX_BYTES = 512 << 20 };

static enum status no_program(const char *path, struct error *err) {
    return error_set(err, STATUS_UNSUPPORTED,
                     "%.200s: pages are written by ccstream-report, which is not next to this "
                     "program or cannot be started: install Python 3.11 or later (apt install "
                     "python3), then install or build again",
                     path);
}

/* Next to this program, or, if auditwheel moved this one to
 * lib/pythonX/site-packages/ccstream.scripts/ of a Python package, in its bin/. */
static bool find_program(char path[PATH_MAX_BYTES]) {
    return module_file_find(path, PATH_MAX_BYTES, "ccstream-report", NULL) ||
           (module_file_find(path, PATH_MAX_BYTES, "../ccstream.scripts/ccdump", NULL) &&
            module_file_find(path, PATH_MAX_BYTES, "../../../../bin/ccstream-report", NULL));
}

enum status page_check(const char *path, bool force, struct error *err) {
    char program[PATH_MAX_BYTES];
    TRY(output_check_file(path, force, err));
    return path == NULL || find_program(program) ? STATUS_OK : no_program(path, err);
}

enum status page_data_begin(struct page_data *d, const char *path, struct error *err) {
    *d = (struct page_data){.image_px = PAGE_IMAGE_PX, .path = path};
    TRY(image_decoder_create(&d->decoder, NULL, err));
    json_writer_init(&d->json, MAX_BYTES);
    json_open_object(&d->json, NULL);
    json_string(&d->json, "command", cli_command_name());
    json_string(&d->json, "out", path);
    return STATUS_OK;
}

void page_data_fini(struct page_data *d) {
    json_writer_fini(&d->json);
    image_decoder_destroy(d->decoder);
    d->decoder = NULL;
}

enum status page_data_sample(struct page_data *d,
                             struct input *in,
                             const struct sample_facts *f,
                             struct error *err) {
    struct sample_content content;
    TRY(input_read(in, &content, err));
    thumbnail_write(&d->json, d->decoder, d->image_px, f, &content);
    return STATUS_OK;
}

enum status page_data_samples(struct page_data *d,
                              const char *key,
                              struct input *in,
                              uint64_t *ids,
                              size_t count,
                              struct error *err) {
    qsort(ids, count, sizeof *ids, compare_u64);
    json_open_array(&d->json, key);
    for (size_t i = 0; i < count; i++) {
        struct sample_facts f;
        if (i == 0 || ids[i] != ids[i - 1]) {
            TRY(input_find(in, &f, ids[i], err));
            TRY(page_data_sample(d, in, &f, err));
        }
    }
    json_close_array(&d->json);
    return STATUS_OK;
}

void page_data_checkpoint(struct page_data *d, const struct checkpoint *c, double tau) {
    json_string(&d->json, "checkpoint", checkpoint_path(c));
    json_string(&d->json, "loss", checkpoint_loss_name(c));
    json_double(&d->json, "tau", tau);
    json_u64(&d->json, "epoch", checkpoint_position(c)->epoch);
    json_u64(&d->json, "step", checkpoint_position(c)->step);
}

enum status page_data_write(struct page_data *d, struct error *err) {
    char program[PATH_MAX_BYTES];
    char *words[] = {program, (char[]){"-"}, NULL};
    json_close_object(&d->json);
    TRY(json_writer_status(&d->json, err));
    FAIL_ERRNO_IF(fflush(stdout) != 0, err, "cannot write to standard output");
    const int file = memfd_create("page", MFD_CLOEXEC);
    const uint8_t *data = d->json.out.data;
    for (size_t at = 0; at < d->json.out.size_bytes;) {
        const ssize_t n = write(file, data + at, d->json.out.size_bytes - at);
        FAIL_ERRNO_IF(n < 0, err, "%s: a file in memory", d->path);
        at += (size_t)n;
    }
    FAIL_ERRNO_IF(lseek(file, 0, SEEK_SET) != 0 || dup2(file, STDIN_FILENO) < 0, err,
                  "%s: a file in memory", d->path);
    if (find_program(program)) {
        (void)execve(program, words, child_environment(false));
    }
    return no_program(d->path, err);
}
