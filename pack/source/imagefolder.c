/*
 * A Hugging Face imagefolder: a folder of images with metadata.jsonl or metadata.csv, whose
 * file_name is a path in the folder and whose text (or caption) is the caption. The rows are those
 * of that file, by the rules of its kind. A folder of imagefolders, such as train and test, is
 * refused, because it would be taken for class folders.
 */
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "pack/source/source_internal.h"

static const struct {
    const char *name;
    enum source_kind kind;
} tables[] = {{"metadata.jsonl", SOURCE_JSON}, {"metadata.csv", SOURCE_CSV}};

enum { TABLE_COUNT = sizeof(tables) / sizeof(tables[0]) };

/* The folder's file with captions; TABLE_COUNT: none. */
static size_t find_table(char path[PATH_MAX_BYTES], const char *folder) {
    size_t i = 0;
    while (i < TABLE_COUNT &&
           (path_join(path, PATH_MAX_BYTES, folder, tables[i].name, NULL) != STATUS_OK ||
            access(path, F_OK) != 0)) {
        i++;
    }
    return i;
}

/* A folder in `folder` that is an imagefolder, usually one for each split. */
static bool find_split(char path[PATH_MAX_BYTES], const char *folder) {
    char table[PATH_MAX_BYTES];
    const struct dirent *e = NULL;
    bool found = false;
    DIR *d = opendir(folder);
    while (d && !found && (e = readdir(d)) != NULL) {
        found = e->d_name[0] != '.' &&
                path_join(path, PATH_MAX_BYTES, folder, e->d_name, NULL) == STATUS_OK &&
                find_table(table, path) < TABLE_COUNT;
    }
    if (d) {
        closedir(d);
    }
    return found;
}

static enum status imagefolder_find(char path[PATH_MAX_BYTES],
                                    enum source_kind *kind,
                                    const char *folder,
                                    struct error *err) {
    size_t i = find_table(path, folder);
    FAIL_IF(
        i == TABLE_COUNT && find_split(path, folder), err, STATUS_CORRUPT,
        "%.100s: its folders are imagefolders, one per split: pass those to pack, such as %.100s",
        folder, path);
    FAIL_IF(i == TABLE_COUNT, err, STATUS_CORRUPT,
            "%s: not an imagefolder: a folder with metadata.jsonl or metadata.csv is "
            "required",
            folder);
    *kind = tables[i].kind;
    return STATUS_OK;
}

static bool imagefolder_detect(const struct source_head *h) {
    char path[PATH_MAX_BYTES];
    return h->is_folder && (find_table(path, h->path) < TABLE_COUNT || find_split(path, h->path));
}

const struct source_type source_type_imagefolder = {
    .options = SOURCE_HAS_COLUMNS | SOURCE_HAS_CAPTION_COLUMN | SOURCE_HAS_IMAGE_COLUMN |
               SOURCE_HAS_DELIMITER | SOURCE_HAS_GROUPING | SOURCE_HAS_KEEP,
    .detect = imagefolder_detect,
    .find_file = imagefolder_find,
};
