/*
 * make_images DIR SAMPLES [DAMAGED_ID...]: a dataset of small real images with a tokenizer;
 * the images of the named samples are damaged.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/image_dataset.h"

int main(int argc, char **argv) {
    struct image_dataset how;
    if (argc < 3) {
        fprintf(stderr, "usage: make_images DIR SAMPLES [DAMAGED_ID...]\n");
        return 64;
    }
    image_dataset_default(&how);
    how.samples = strtoull(argv[2], NULL, 10);
    image_dataset_make(argv[1], &how);
    for (int i = 3; i < argc; i++) {
        image_dataset_damage(argv[1], strtoull(argv[i], NULL, 10));
    }
    return 0;
}
