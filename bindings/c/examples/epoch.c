/* Loads every sample of a dataset once, as training would, and prints images per second.
 *
 *     epoch cc3m 256
 */
#include <ccstream.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void fail(const struct ccs_error *err) {
    fprintf(stderr, "epoch: %s\n", err->text);
    exit(1);
}

int main(int argc, char **argv) {
    struct ccs_error err;
    struct ccs_loader *l = NULL;
    struct ccs_loader_options opt;
    struct ccs_loader_stats stats = {.struct_size = sizeof stats};
    const struct ccs_batch *b = NULL;
    uint64_t words = 0;
    int32_t s;
    if (argc != 3) {
        fprintf(stderr, "usage: epoch DATASET BATCH\n");
        return 64;
    }
    ccs_loader_options_init(&opt, sizeof opt);
    opt.batch_size = (uint32_t)strtoul(argv[2], NULL, 10);
    opt.image_size_px = 224;
    opt.drop_last = false;
    opt.epochs = 1;
    if (ccs_loader_open(&l, argv[1], &opt, &err) != CCS_OK) {
        fail(&err);
    }
    while ((s = ccs_loader_next(l, &b, 60000, &err)) == CCS_OK) {
        for (uint32_t i = 0; b->lengths != NULL && i < b->count; i++) {
            words += (uint64_t)b->lengths[i];
        }
        ccs_batch_release(b);
    }
    if (s != CCS_END || ccs_loader_get_stats(l, &stats, &err) != CCS_OK) {
        fail(&err);
    }
    printf("%" PRIu64 " images, %" PRIu64 " tokens, %" PRIu64 " batches, %.0f images/s\n",
           stats.samples, words, stats.batches,
           (double)stats.samples / ((double)stats.elapsed_ns * 1e-9));
    ccs_loader_close(l);
    return 0;
}
