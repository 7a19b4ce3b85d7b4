/*
 * make_dataset DIR [SAMPLES [PER_SHARD [IMAGE_BYTES [STEP [CONTAINER]]]]]: a dataset of made-up
 * samples, for tests of the tools and for measuring. Images are noise, so nothing here can be
 * trained on.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/make_shards.h"

static uint64_t argument(int argc, char **argv, int i, uint64_t otherwise) {
    return i < argc ? strtoull(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv) {
    struct make_shards how;
    struct error err = {0};
    make_shards_default(&how);
    if (argc < 2) {
        fprintf(stderr,
                "usage: make_dataset DIR [SAMPLES [PER_SHARD [IMAGE_BYTES [STEP [CONTAINER]]]]]\n");
        return 64;
    }
    how.samples = argument(argc, argv, 2, 100);
    how.samples_per_shard = (uint32_t)argument(argc, argv, 3, 100);
    how.image_bytes = (size_t)argument(argc, argv, 4, 0);
    how.step = argument(argc, argv, 5, 1);
    if (argc > 6 && !shard_container_of_name(&how.container, argv[6])) {
        fprintf(stderr, "make_dataset: no container %s\n", argv[6]);
        return 64;
    }
    if (make_dataset(file_posix(), argv[1], &how, &err) != STATUS_OK) {
        fprintf(stderr, "make_dataset: %s\n", err.text);
        return 1;
    }
    return 0;
}
