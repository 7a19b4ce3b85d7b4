/*
 * source_internal: what a kind of source provides, and what all kinds share.
 */
#ifndef PACK_SOURCE_SOURCE_INTERNAL_H
#define PACK_SOURCE_SOURCE_INTERNAL_H

#include "formats/json/json_reader.h"
#include "pack/source/source.h"

enum { SOURCE_PLANES_SIDE_PX = 32 }; /* of CIFAR's pictures */

/* The row that next gets is empty but for its number. skip passes over one row: it fills at most
 * what tells how the next one begins; NULL: next does it as cheaply. */
struct source_ops {
    enum status (*next)(struct source *s, struct source_row *row, struct error *err);
    enum status (*skip)(struct source *s, struct source_row *row, struct error *err);
    void (*close)(struct source *s);
};

/* First member of every kind's own struct. */
struct source {
    const struct source_ops *ops;
    uint64_t rows;
    uint64_t ignored;                    /* members that are of no row */
    bool plain_tar;                      /* see source_is_plain_tar */
    uint64_t position_bytes, size_bytes; /* how far into the file; both 0 for a pipe */
    const char *const *class_names;      /* owned by the kind; NULL: none */
    size_t class_count;
    struct source_row *scratch; /* of source_skip; NULL: not needed yet */
};

enum status source_open_wds(struct source **out,
                            const char *path,
                            const struct source_options *opt,
                            struct error *err);
enum status source_open_table(struct source **out,
                              const char *path,
                              bool quotes, /* CSV */
                              const struct source_options *opt,
                              struct error *err);
enum status source_open_karpathy(struct source **out,
                                 const char *path,
                                 const struct source_options *opt,
                                 struct error *err);
enum status source_open_json(struct source **out,
                             const char *path,
                             const struct source_options *opt,
                             struct error *err);
enum status source_open_folders(struct source **out,
                                const char *path,
                                const struct source_options *opt,
                                struct error *err);
enum status source_open_cifar(struct source **out,
                              const char *path,
                              const struct source_options *opt,
                              struct error *err);
enum status source_open_coco(struct source **out,
                             const char *path,
                             const struct source_options *opt,
                             struct error *err);

/* Copies the key, its last bytes when it is too long, and finds the number in it. */
void source_row_set_key(struct source_row *r, const char *key, size_t size_bytes);

/* The key of a path: its last part without its extension. */
void source_row_set_stem(struct source_row *r, const char *path, size_t size_bytes);

/* Adds a caption without the white space around it; an empty one is left out. What is wrong with it
 * becomes the row's reason. Returns OK or NOMEM. */
enum status source_row_add_caption(struct source_row *r,
                                   const char *text,
                                   size_t size_bytes,
                                   struct error *err);

/* Adds the string, or the list of strings, that the member `name` is. Anything else there becomes
 * the row's reason. Returns OK or NOMEM. */
enum status source_row_add_json_captions(struct source_row *r,
                                         const struct json_value *v,
                                         const char *name,
                                         struct error *err);

/* The row's JSON is left out, and json_problem says why. */
void source_row_drop_json(struct source_row *r, const char *why);

/* An empty row but for its number. */
void source_row_reset(struct source_row *r, uint64_t row);

/* FOLDER/NAME, of a table or COCO file whose folder of pictures is `images`. */
void source_row_set_path(struct source_row *r,
                         const char *images,
                         const char *name,
                         size_t size_bytes);

/* opt->images, or the folder that `path` is in. */
enum status source_images_folder(char *out,
                                 size_t out_size_bytes,
                                 const char *path,
                                 const struct source_options *opt,
                                 struct error *err);

/* ASCII white space. */
bool source_is_space(char c);

/* jpg, jpeg, png, webp, gif, bmp, tif, tiff or heic, in any case. */
bool source_is_image_extension(const char *text, size_t size_bytes);

/* Whether it is one of CIFAR's binaries, by its name, size and labels; a folder that holds those to
 * train on. */
bool source_is_cifar(const char *path, uint64_t file_bytes);
bool source_is_cifar_folder(const char *path);

#endif
