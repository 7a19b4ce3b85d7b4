/*
 * CIFAR-10, CIFAR-100 and STL-10 as published: records of a label (CIFAR-100: a coarse and a fine
 * one) and 32 x 32 pixels, the red plane first, then green and blue. STL-10's *_X.bin have 96 x 96
 * pixels, column by column, and labels from 1 in *_y.bin beside it; unlabeled_X.bin has none.
 *
 *     label 1 | R 1024 | G 1024 | B 1024        CIFAR-10:  3073 bytes a record
 *     coarse 1 | fine 1 | R | G | B             CIFAR-100: 3074
 *     R 9216 | G | B                            STL-10:    27648
 *
 * A source is one such file, or the folder with data_batch_1.bin and those that follow it, or with
 * train.bin or train_X.bin; others are sources of their own. source_row_load makes a PNG of a row's
 * image. Names of the classes are read from batches.meta.txt, fine_label_names.txt or
 * class_names.txt next to the file, or else are those of the authors.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/utf8.h"
#include "pack/source/text_internal.h"

enum {
    LOOK_RECORDS = 100,
    MAX_NAMES_BYTES = 64 << 10,
    MAX_LABELS_BYTES = 1 << 24,
};

struct form {
    size_t labels; /* bytes of a record that are labels; the last one is the class. STL-10: 0 */
    uint32_t side_px;
    unsigned classes;
    const char *names_file;
    const char *const *names;
};

static const char *const names_10[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                       "dog",      "frog",       "horse", "ship", "truck"};
static const char *const names_100[] = {
    "apple",       "aquarium_fish", "baby",      "bear",       "beaver",       "bed",
    "bee",         "beetle",        "bicycle",   "bottle",     "bowl",         "boy",
    "bridge",      "bus",           "butterfly", "camel",      "can",          "castle",
    "caterpillar", "cattle",        "chair",     "chimpanzee", "clock",        "cloud",
    "cockroach",   "couch",         "crab",      "crocodile",  "cup",          "dinosaur",
    "dolphin",     "elephant",      "flatfish",  "forest",     "fox",          "girl",
    "hamster",     "house",         "kangaroo",  "keyboard",   "lamp",         "lawn_mower",
    "leopard",     "lion",          "lizard",    "lobster",    "man",          "maple_tree",
    "motorcycle",  "mountain",      "mouse",     "mushroom",   "oak_tree",     "orange",
    "orchid",      "otter",         "palm_tree", "pear",       "pickup_truck", "pine_tree",
    "plain",       "plate",         "poppy",     "porcupine",  "possum",       "rabbit",
    "raccoon",     "ray",           "road",      "rocket",     "rose",         "sea",
    "seal",        "shark",         "shrew",     "skunk",      "skyscraper",   "snail",
    "snake",       "spider",        "squirrel",  "streetcar",  "sunflower",    "sweet_pepper",
    "table",       "tank",          "telephone", "television", "tiger",        "tractor",
    "train",       "trout",         "tulip",     "turtle",     "wardrobe",     "whale",
    "willow_tree", "wolf",          "woman",     "worm"};

static const char *const names_stl[] = {"airplane", "bird",  "car",    "cat",  "deer",
                                        "dog",      "horse", "monkey", "ship", "truck"};

enum { COARSE_CLASSES = 20 };

static const struct form forms[] = {
    {1, 32, 10, "batches.meta.txt", names_10},
    {2, 32, 100, "fine_label_names.txt", names_100},
    {0, 96, 10, "class_names.txt", names_stl},
};

struct source_cifar {
    struct source base;
    char folder[PATH_MAX_BYTES];
    char path[PATH_MAX_BYTES]; /* of the current file */
    bool whole_folder;
    unsigned batch; /* number of the current file, from 1 */
    const struct form *form;
    struct source_blocks blocks;
    uint64_t before_bytes;     /* of the files before this one */
    struct byte_buffer labels; /* STL-10: of the images, from 1; empty: they have none */
    char *names_text;          /* of the file of names; NULL: the names are built in */
    const char *names[100];
};

static bool labels_fit(const struct form *f, const uint8_t *labels) {
    return labels[f->labels - 1] < f->classes && (f->labels == 1 || labels[0] < COARSE_CLASSES);
}

static size_t pixels_bytes(const struct form *f) {
    return (size_t)3 * f->side_px * f->side_px;
}

static size_t record_bytes(const struct form *f) {
    return f->labels + pixels_bytes(f);
}

/* Whether the name of a file is one of STL-10's images. */
static bool is_stl(const char *path) {
    const size_t n = strlen(path);
    return n >= 6 && strcmp(path + n - 6, "_X.bin") == 0;
}

/* The form that fits the size and the first labels; NULL: none, or the file cannot be read. */
static const struct form *form_of(const char *path, uint64_t file_bytes) {
    const struct file_system *fs = file_posix();
    struct file *file = NULL;
    const struct form *found = NULL;
    if (file_bytes == 0 || fs->open(fs->context, &file, path, FILE_READ, NULL) != STATUS_OK) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]) && !found; i++) {
        const struct form *f = &forms[i];
        uint64_t count = file_bytes / record_bytes(f);
        bool fits = file_bytes % record_bytes(f) == 0 && is_stl(path) == (f->labels == 0);
        for (uint64_t r = 0; f->labels > 0 && fits && r < count && r < LOOK_RECORDS; r++) {
            uint8_t labels[2];
            size_t got = 0;
            fits =
                fs->pread(file, labels, &got, f->labels, r * record_bytes(f), NULL) == STATUS_OK &&
                got == f->labels && labels_fit(f, labels);
        }
        found = fits ? f : NULL;
    }
    fs->close(file);
    return found;
}

/* The file of a folder; `batch` from 1. False when there is none. */
static bool file_in(char path[PATH_MAX_BYTES], const char *folder, unsigned batch) {
    char name[32];
    snprintf(name, sizeof(name), "data_batch_%u.bin", batch);
    if (path_join(path, PATH_MAX_BYTES, folder, name, NULL) == STATUS_OK &&
        access(path, F_OK) == 0) {
        return true;
    }
    static const char *const whole[] = {"train.bin", "train_X.bin"};
    for (size_t i = 0; batch == 1 && i < 2; i++) {
        if (path_join(path, PATH_MAX_BYTES, folder, whole[i], NULL) == STATUS_OK &&
            access(path, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* The labels of STL-10's images, in the file beside theirs; unlabeled_X.bin has no such file. */
static enum status read_labels(struct source_cifar *c, struct error *err) {
    char path[PATH_MAX_BYTES];
    const uint64_t count = c->blocks.size_bytes / record_bytes(c->form);
    const size_t stem = strlen(c->path) - strlen("X.bin");
    const char *base = strrchr(c->path, '/');
    (void)snprintf(path, sizeof(path), "%.*sy.bin", (int)stem, c->path);
    if (strcmp(base != NULL ? base + 1 : c->path, "unlabeled_X.bin") == 0) {
        return STATUS_OK;
    }
    TRY(file_read_all(file_posix(), &c->labels, path, MAX_LABELS_BYTES, err));
    FAIL_IF(c->labels.size_bytes != count, err, STATUS_CORRUPT,
            "%s: %zu labels for the %" PRIu64 " images of %s", path, c->labels.size_bytes, count,
            c->path);
    return STATUS_OK;
}

static enum status open_file(struct source_cifar *c, struct error *err) {
    TRY(source_blocks_open(&c->blocks, c->path, err));
    const struct form *form = form_of(c->path, c->blocks.size_bytes);
    FAIL_IF(!form || (c->form && c->form != form), err, STATUS_CORRUPT,
            "%s: not a CIFAR binary%s: its %" PRIu64
            " bytes are not records of 3073 bytes that begin with a label below 10, nor "
            "of 3074 bytes that begin with two, below 20 and 100, nor, in a file of STL-10 named "
            "*_X.bin, of 27648",
            c->path, form ? " of the same kind as the one before" : "", c->blocks.size_bytes);
    c->form = form;
    return form->labels == 0 ? read_labels(c, err) : STATUS_OK;
}

/* Reads the next `size` bytes of the current file. Returns OK, END (nothing is left) or IO. */
static enum status take(struct source_cifar *c, uint8_t *out, size_t size, struct error *err) {
    struct source_blocks *b = &c->blocks;
    size_t at = 0;
    while (at < size) {
        enum status s = source_blocks_fill(b, err);
        TRY(s);
        if (s == STATUS_END) {
            return at == 0 ? s
                           : error_set(err, STATUS_CORRUPT, "%s: became shorter while it was read",
                                       c->path);
        }
        size_t n = b->got - b->at < size - at ? b->got - b->at : size - at;
        memcpy(out + at, b->block + b->at, n);
        b->at += n;
        at += n;
    }
    return STATUS_OK;
}

static enum status next_file(struct source_cifar *c, struct error *err) {
    if (!c->whole_folder || !file_in(c->path, c->folder, c->batch + 1)) {
        return STATUS_END;
    }
    c->before_bytes += c->blocks.size_bytes;
    c->batch++;
    source_blocks_close(&c->blocks);
    return open_file(c, err);
}

static enum status
set_json(struct source_cifar *c, struct source_row *row, const uint8_t *labels, struct error *err) {
    struct json_writer *w = &c->base.json;
    json_writer_reset(w);
    json_open_object(w, NULL);
    json_string(w, "class", c->names[row->class_index]);
    if (c->form->labels == 2) {
        json_u64(w, "coarse_label", labels[0]);
    }
    return source_row_take_json(row, w, err);
}

/* Rows instead of columns, in every plane. */
static void transpose(uint8_t *planes, size_t side) {
    for (uint8_t *p = planes; p < planes + 3 * side * side; p += side * side) {
        for (size_t y = 0; y < side; y++) {
            for (size_t x = 0; x < y; x++) {
                const uint8_t other = p[x * side + y];
                p[x * side + y] = p[y * side + x];
                p[y * side + x] = other;
            }
        }
    }
}

/* The labels of a record, and its image. Returns OK, END (nothing is left) or IO. */
static enum status
take_record(struct source_cifar *c, struct source_row *row, uint8_t labels[2], struct error *err) {
    const size_t size_bytes = pixels_bytes(c->form);
    enum status s = c->form->labels > 0 ? take(c, labels, c->form->labels, err) : STATUS_OK;
    TRY(s);
    if (s == STATUS_OK) {
        TRY(byte_buffer_reserve(&row->image, size_bytes, err));
        s = take(c, row->image.data, size_bytes, err);
        row->image.size_bytes = size_bytes;
        FAIL_IF(s == STATUS_END && c->form->labels > 0, err, STATUS_CORRUPT,
                "%s: ends within a record", c->path);
    }
    return s;
}

static enum status cifar_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_cifar *c = (struct source_cifar *)s;
    uint8_t labels[2];
    enum status status = take_record(c, row, labels, err);
    if (status == STATUS_END) {
        status = next_file(c, err);
        THEN(status, take_record(c, row, labels, err));
    }
    if (status != STATUS_OK) {
        row->image.size_bytes = 0;
        return status;
    }
    s->position_bytes = c->before_bytes + source_blocks_position(&c->blocks);
    row->planes_side_px = c->form->side_px;
    row->captions_optional = true;
    char key[24];
    int n = snprintf(key, sizeof(key), "%05" PRIu64, s->rows);
    source_row_set_key(row, key, (size_t)n);
    if (c->form->labels == 0) {
        transpose(row->image.data, c->form->side_px);
        if (c->labels.size_bytes == 0) {
            return STATUS_OK;
        }
        row->class_index = (int32_t)c->labels.data[s->rows] - 1;
    } else {
        row->class_index = labels[c->form->labels - 1];
    }
    if (row->class_index < 0 || row->class_index >= (int32_t)c->form->classes ||
        (c->form->labels > 0 && !labels_fit(c->form, labels))) {
        source_row_reject(row, REASON_ROW_BAD, "label %d: there are %u classes",
                          (int)row->class_index + (c->form->labels == 0 ? 1 : 0), c->form->classes);
        row->class_index = -1;
        return STATUS_OK;
    }
    return set_json(c, row, labels, err);
}

static void cifar_close(struct source *s) {
    struct source_cifar *c = (struct source_cifar *)s;
    source_blocks_close(&c->blocks);
    byte_buffer_fini(&c->labels);
    free(c->names_text);
}

/* Reads one name per line. */
static enum status
take_names(struct source_cifar *c, const char *path, struct byte_buffer *text, struct error *err) {
    char *p = (char *)text->data;
    unsigned count = 0;
    bool valid =
        utf8_valid_prefix(p, text->size_bytes) == text->size_bytes && strlen(p) == text->size_bytes;
    for (char *end = p + text->size_bytes; valid && p < end;) {
        size_t n = strcspn(p, "\r\n");
        char *next = p + n + (p + n < end);
        p[n] = '\0';
        if (n > 0) {
            valid = count < c->form->classes;
            c->names[valid ? count : 0] = p;
            count++;
        }
        p = next;
    }
    FAIL_IF(!valid || count != c->form->classes, err, STATUS_CORRUPT,
            "%s: must have %u names of classes, one per line", path, c->form->classes);
    return STATUS_OK;
}

static enum status find_names(struct source_cifar *c, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct byte_buffer text = {0};
    if (c->form->labels == 0 && c->labels.size_bytes == 0) {
        return STATUS_OK;
    }
    memcpy(c->names, c->form->names, c->form->classes * sizeof(c->names[0]));
    c->base.class_names = c->names;
    c->base.class_count = c->form->classes;
    TRY(path_join(path, sizeof(path), c->folder, c->form->names_file, err));
    if (access(path, F_OK) != 0) {
        return STATUS_OK;
    }
    TRY(file_read_all(file_posix(), &text, path, MAX_NAMES_BYTES, err));
    c->names_text = (char *)text.data;
    return take_names(c, path, &text, err);
}

/* The bytes of all files, for progress. */
static enum status measure(struct source_cifar *c, struct error *err) {
    char path[PATH_MAX_BYTES];
    c->base.size_bytes = c->blocks.size_bytes;
    for (unsigned i = 2; c->whole_folder && file_in(path, c->folder, i); i++) {
        uint64_t size_bytes = 0;
        TRY(file_size(file_posix(), &size_bytes, path, err));
        c->base.size_bytes += size_bytes;
    }
    return STATUS_OK;
}

static enum status
cifar_open(struct source *s, const struct source_options *opt, struct error *err) {
    (void)opt;
    struct source_cifar *c = (struct source_cifar *)s;
    c->batch = 1;
    c->whole_folder = file_in(c->path, s->path, 1);
    if (c->whole_folder) {
        strcpy(c->folder, s->path);
    } else {
        strcpy(c->path, s->path);
        TRY(path_directory(c->folder, sizeof(c->folder), s->path, err));
    }
    TRY(open_file(c, err));
    TRY(measure(c, err));
    return find_names(c, err);
}

static bool cifar_detect(const struct source_head *h) {
    char file[PATH_MAX_BYTES];
    size_t n = strlen(h->path);
    if (h->is_folder) {
        return file_in(file, h->path, 1);
    }
    return n >= 4 && strcmp(h->path + n - 4, ".bin") == 0 && form_of(h->path, h->file_bytes);
}

const struct source_type source_type_cifar = {
    .struct_bytes = sizeof(struct source_cifar),
    .detect = cifar_detect,
    .open = cifar_open,
    .next = cifar_next,
    .close = cifar_close,
};
