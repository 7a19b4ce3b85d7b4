/* Prints the captions of a dataset, or of the samples with some ids.
 *
 *     captions cc3m
 *     captions cc3m 17 4711
 */
#include <ccstream.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void fail(const struct ccs_error *err) {
    fprintf(stderr, "captions: %s\n", err->text);
    exit(1);
}

static void print(struct ccs_reader *r, const struct ccs_record *record) {
    struct ccs_error err;
    const struct ccs_text *texts = NULL;
    uint32_t count = 0;
    if (ccs_reader_captions(r, record->position, &texts, &count, &err) != CCS_OK) {
        fail(&err);
    }
    for (uint32_t k = 0; k < count; k++) {
        printf("%" PRIu64 "\t", record->id);
        fwrite(texts[k].data, 1, texts[k].size, stdout);
        printf("\n");
    }
}

int main(int argc, char **argv) {
    struct ccs_error err;
    struct ccs_dataset *d = NULL;
    struct ccs_reader *r = NULL;
    struct ccs_dataset_info info = {.struct_size = sizeof info};
    struct ccs_record record = {.struct_size = sizeof record};
    if (argc < 2) {
        fprintf(stderr, "usage: captions DATASET [ID...]\n");
        return 64;
    }
    if (ccs_dataset_open(&d, argv[1], &err) != CCS_OK ||
        ccs_dataset_get_info(d, &info, &err) != CCS_OK || ccs_reader_open(&r, d, &err) != CCS_OK) {
        fail(&err);
    }
    for (int i = 2; i < argc; i++) {
        if (ccs_dataset_find(d, strtoull(argv[i], NULL, 10), &record, &err) != CCS_OK) {
            fail(&err);
        }
        print(r, &record);
    }
    for (uint64_t i = 0; argc == 2 && i < info.samples; i++) {
        if (ccs_dataset_record(d, i, &record, &err) != CCS_OK) {
            fail(&err);
        }
        print(r, &record);
    }
    ccs_reader_close(r);
    ccs_dataset_close(d);
    return 0;
}
