/*
 * Runs a fuzz target over the checked-in corpus without libFuzzer: once with no bytes, then with
 * each file of the folder, whole and truncated at three places. A failing target ends by abort or a
 * sanitizer, so the file's name is printed before it runs.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX_BYTES = 4 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

/* Copies to a block of the exact size, so that AddressSanitizer sees a read one byte beyond. */
static void run_bytes(const uint8_t *data, size_t size_bytes) {
    uint8_t *copy = malloc(size_bytes > 0 ? size_bytes : 1);
    if (copy == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(EXIT_FAILURE);
    }
    memcpy(copy, data, size_bytes);
    LLVMFuzzerTestOneInput(copy, size_bytes);
    free(copy);
}

static int run_file(const char *dir, const char *name, uint8_t *buffer) {
    char path[1024];
    int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = n > 0 && (size_t)n < sizeof(path) ? fopen(path, "rb") : NULL;
    if (f == NULL) {
        fprintf(stderr, "cannot open %s/%s\n", dir, name);
        return EXIT_FAILURE;
    }
    size_t size_bytes = fread(buffer, 1, FILE_MAX_BYTES, f);
    fclose(f);
    printf("%s\n", name);
    fflush(stdout);
    run_bytes(buffer, size_bytes);
    run_bytes(buffer, size_bytes / 4);
    run_bytes(buffer, size_bytes / 2);
    run_bytes(buffer, size_bytes > 0 ? size_bytes - 1 : 0);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
        return 64;
    }
    uint8_t *buffer = malloc(FILE_MAX_BYTES);
    DIR *dir = opendir(argv[1]);
    if (buffer == NULL || dir == NULL) {
        fprintf(stderr, "cannot read the corpus folder %s\n", argv[1]);
        free(buffer);
        return EXIT_FAILURE;
    }
    run_bytes(buffer, 0);
    int worst = EXIT_SUCCESS;
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.' && run_file(argv[1], entry->d_name, buffer) != 0) {
            worst = EXIT_FAILURE;
        }
    }
    closedir(dir);
    free(buffer);
    return worst;
}
