/*
 * source_internal: what a kind of source provides, and what all kinds share.
 */
#ifndef PACK_SOURCE_SOURCE_INTERNAL_H
#define PACK_SOURCE_SOURCE_INTERNAL_H

#include "formats/base/json_writer.h"
#include "formats/json/json_reader.h"
#include "pack/source/source.h"

/* What detection examines: the first bytes of a file, or a folder. */
struct source_head {
    const char *path;
    bool is_folder;      /* then the rest is empty */
    const uint8_t *data; /* the first 64 KiB at most */
    size_t size_bytes;
    uint64_t file_bytes;
    const char *text; /* in data, after a byte order mark and white space; NULL: no text */
    size_t text_bytes;
    struct source_json_keys {
        bool image_or_caption; /* the first object has the keys of a row */
        bool images;           /* it has "images" */
        bool annotations;      /* it has "annotations", or entries of "images" a "file_name" */
        bool karpathy;         /* entries of "images" have keys of Karpathy's */
        bool more;             /* something follows the first object */
    } keys;                    /* all false unless text begins with '{' */
};

/* Options that only some kinds have. */
enum {
    SOURCE_HAS_SPLIT = 1,
    SOURCE_HAS_COLUMNS = 2,
    SOURCE_HAS_CAPTION_COLUMN = 4,
    SOURCE_HAS_IMAGE_COLUMN = 8,
    SOURCE_HAS_DELIMITER = 16,
    SOURCE_HAS_GROUPING = 32,
    SOURCE_HAS_URLS = 64,
    SOURCE_HAS_KEEP = 128,
    SOURCE_HAS_NAME_SPLIT = 256,
    SOURCE_HAS_LINES = 512,
};

/* A kind of source; the table of them is in source.c. */
struct source_type {
    unsigned options;    /* SOURCE_HAS_..., of those above */
    size_t struct_bytes; /* of the kind's own struct, which begins with a struct source */

    /* Whether a file or folder is of this kind. The kinds are asked in the order of
     * SOURCE_KIND_LIST, up to the first that says yes. */
    bool (*detect)(const struct source_head *head);

    /* Opens an all-zero struct in which only `type`, `path` and `images` are set. */
    enum status (*open)(struct source *s, const struct source_options *opt, struct error *err);

    /* Fills a row that is empty but for its number; OK, END or a failure as source_next. With
     * s->sparse only what source_content covers is needed. */
    enum status (*next)(struct source *s, struct source_row *row, struct error *err);

    /* Frees everything but the struct, which open may have filled in part or not at all. */
    void (*close)(struct source *s);

    const struct source_type *of_file; /* replaces a type of folders for paths that are none */

    /* NULL but for folders whose rows are those of a file in them: finds it, and its kind. Of the
     * other functions such a type has only detect. */
    enum status (*find_file)(char path[PATH_MAX_BYTES],
                             enum source_kind *kind,
                             const char *folder,
                             struct error *err);
};

#define X(name, type) extern const struct source_type source_type_##type;
SOURCE_KIND_LIST(X)
#undef X
extern const struct source_type source_type_folders_archive;

/* By enum source_kind; NULL for SOURCE_AUTO. */
extern const struct source_type *const source_types[SOURCE_KIND_COUNT];

/* First member of every kind's own struct. */
struct source {
    const struct source_type *type;
    char path[PATH_MAX_BYTES];
    char images[PATH_MAX_BYTES];        /* relative paths of images begin here: --images, or the
                                         * folder that contains `path`. The open function of a kind
                                         * of folder with a list of paths sets it to `path` */
    char *folder;                       /* `images` without links; NULL: not needed yet */
    bool follow_links;                  /* see struct source_options */
    bool urls;                          /* images are URLs, see struct source_options */
    uint64_t rows;                      /* read or skipped so far */
    uint64_t next_bytes, next_members;  /* see source_place */
    uint64_t content;                   /* see source_content */
    struct source_ignored ignored;      /* see source_ignored */
    const char *note;                   /* see source_note; owned by the kind; NULL: none */
    char columns[SOURCE_COLUMNS_BYTES]; /* see source_columns */
    const char *keep;                   /* source_options.keep_columns */
    bool plain_tar;                     /* see source_is_plain_tar */
    const char *etag;                   /* see source_etag; NULL: "" */
    enum source_lines lines;            /* of a .txt */
    uint64_t joined;                    /* texts of several lines, if lines is AUTO */
    char joined_note[120];
    bool sparse;                         /* the row is skipped: of an image in an archive only the
                                          * first SOURCE_HASHED_BYTES are needed, and where `raw` is
                                          * set nothing else */
    uint64_t position_bytes, size_bytes; /* in the file; both 0 for a pipe */
    const char *const *class_names;      /* owned by the kind; NULL: none */
    size_t class_count;
    struct json_writer json;      /* of the current row, for kinds that write one */
    struct source_row *workspace; /* of source_skip; NULL: not needed yet */
};

/* Usual names of columns and JSON members in order of preference, ended with NULL. */
extern const char *const source_image_names[], *const source_url_names[];
extern const char *const source_caption_names[];

/* Takes the next of comma-separated names, of at most SOURCE_MAX_NAME_BYTES. False: none is left.
 */
bool source_next_name(const char **list, char name[SOURCE_MAX_NAME_BYTES + 1]);

/* Whether `name` is one of the comma-separated names. */
bool source_is_listed(const char *list, const char *name);

struct source_column {
    const char *name;
    enum source_role {
        SOURCE_COLUMN_CAPTION,
        SOURCE_COLUMN_IMAGE,
        SOURCE_COLUMN_USED, /* otherwise */
        SOURCE_COLUMN_KEPT, /* as metadata */
        SOURCE_COLUMN_DROPPED,
    } role;
};

/* Sets the text of source_columns. */
void source_say_columns(struct source *s, const struct source_column *columns, size_t count);

/* The same for the members of an object; `captions` and `used` are comma-separated names. */
void source_say_members(struct source *s,
                        const struct json_value *object,
                        const char *image,
                        const char *captions,
                        const char *used);

/* Whether --keep-columns keeps a column or member of this name, if it is not used otherwise. */
bool source_keeps(const struct source *s, const char *name);

/* Makes the members of the object that are kept the row's JSON, but for those in the
 * comma-separated `used`. Returns OK, NOMEM or LIMIT. */
enum status source_row_keep_members(struct source_row *row,
                                    struct source *s,
                                    const struct json_value *object,
                                    const char *used,
                                    struct error *err);

/* Copies the key, its last bytes when it is too long, and finds the number in it. */
void source_row_set_key(struct source_row *r, const char *key, size_t size_bytes);

/* Sets the key to the number's digits. */
void source_row_set_number_key(struct source_row *r, uint64_t number);

/* Sets the key to the path's last part without its extension. */
void source_row_set_stem(struct source_row *r, const char *path, size_t size_bytes);

/* Adds a caption without a byte order mark and the white space around it; skips an empty one. A bad
 * one rejects the row. Returns OK or NOMEM. */
enum status source_row_add_caption(struct source_row *r,
                                   const char *text,
                                   size_t size_bytes,
                                   struct error *err);

/* Adds the captions of a .txt by s->lines. Returns OK or NOMEM. */
enum status source_row_add_text(struct source_row *r,
                                struct source *s,
                                const char *text,
                                size_t size_bytes,
                                struct error *err);

/* Lines that are not blank. */
size_t source_count_lines(const char *text, size_t size_bytes);

/* Decides s->lines by the lines of the texts found so far: *first is those of the first text. False
 * once no further text is needed. */
bool source_look_at_lines(struct source *s, size_t *first, size_t lines, size_t looked);

/* Sets the note of a source at its end, if it has none, to the number of joined texts. */
void source_note_joined(struct source *s);

/* Adds the captions in the members of `object` with these comma-separated names, each a string or a
 * list of strings. Anything else rejects the row, and so does an object without any of them.
 * Returns OK or NOMEM. */
enum status source_row_add_json_captions(struct source_row *r,
                                         const struct json_value *object,
                                         const char *names,
                                         struct error *err);

/* Closes the object in `w`, which becomes the row's JSON. Returns OK, NOMEM or LIMIT. */
enum status source_row_take_json(struct source_row *r, struct json_writer *w, struct error *err);

/* Removes the row's JSON and records why. */
void source_row_drop_json(struct source_row *r, const char *why);

/* Empties the row and sets its number. */
void source_row_reset(struct source_row *r, uint64_t row);

/* Sets the image's file to `name` in s->images. A bad name rejects the row. */
/* Whether a file exists, but outside of s->images, and may not be read for that. */
bool source_leads_outside(struct source *s, const char *path);
void source_row_reject_outside(struct source_row *r, const struct source *s, const char *path);

void source_row_set_path(struct source_row *r,
                         const struct source *s,
                         const char *name,
                         size_t size_bytes);

/* ASCII white space. */
bool source_is_space(char c);

/* Which image of a stem is the row's: the one with the largest rank, in all kinds of sources and in
 * any order. STEM.EXT comes before STEM.X.EXT, an extension of images before another, an image by
 * its content (`real`) before one by its name alone, and jpg, png, jpeg, webp before others, as in
 * WebDataset's usual "jpg;png;jpeg;webp". `extension` is what follows the stem's dot. */
int source_image_rank(const char *extension, bool real);

/* jpg, jpeg, png, webp, gif, bmp, tif, tiff or heic, in any case. */
bool source_is_image_extension(const char *text, size_t size_bytes);

#endif
