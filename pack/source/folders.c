/*
 * Folders of images. Class folders:
 *
 *     SOURCE/cat/1.jpg   SOURCE/cat/more/2.jpg   SOURCE/dog/3.png
 *
 * The folders in SOURCE that hold an image are the classes, in byte order of their names. The rows
 * are the images of each class. The entries of a folder are visited in byte order, a folder among
 * them with all that it contains. A file is an image by the extension of its name or, without a
 * known one, by its content. NAME.txt beside NAME.jpg is its caption, which it need not have. Other
 * files, hidden ones and those in SOURCE itself are counted as ignored. Links to files are
 * followed, and so is a link that is a class, within SOURCE; what is outside of it is rejected,
 * unless
 * --follow-links allows it. Other links to folders are not followed, so there are no loops.
 *
 * Loose pairs:
 *
 *     SOURCE/1.jpg   SOURCE/1.txt   SOURCE/more/2.png   SOURCE/more/2.txt   SOURCE/more/2.json
 *
 * The rows are the images in SOURCE and its folders, in the same order, by the extensions of
 * their names. NAME.txt is the caption of NAME.jpg, and NAME.json its JSON. A NAME.txt without an
 * image is a bad row. Of several images with one name, source_image_rank decides which is the
 * row's; the others are rejected as image-extra. NAME.cls is the number of a class in
 * classnames.txt, as in an archive, and stands for a caption too. Other files are counted as
 * ignored.
 *
 * The names of one folder and its parents are in memory at a time.
 */
#include "pack/source/folders_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/image/image_codec.h"

enum { KIND_FILE = 'f', KIND_FOLDER = 'd', PEEK_BYTES = 64, LOOK_FOLDERS = 1000 };

/* A folder that is being walked. */
struct level {
    struct source_names list;
    size_t next;
    size_t path_bytes; /* of its own path in `path` */
};

struct source_folders {
    struct source base;
    char path[PATH_MAX_BYTES]; /* SOURCE, and the current path below it */
    size_t root_bytes;         /* of SOURCE and the slash after it */
    struct source_names classes;
    size_t class_next; /* the class to walk when all levels are done */
    struct level levels[SOURCE_MAX_FOLDER_DEPTH];
    size_t depth;
    size_t listed_bytes; /* of the names in all levels */
};

/* The kind of a folder's entry: KIND_FILE, KIND_FOLDER, or 0 for one that is skipped. */
static char kind_of(DIR *folder, const struct dirent *e, bool follow) {
    struct stat info;
    if (e->d_name[0] == '.') {
        return 0;
    }
    if (e->d_type == DT_REG) {
        return KIND_FILE;
    }
    if (e->d_type == DT_DIR) {
        return KIND_FOLDER;
    }
    if (fstatat(dirfd(folder), e->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return 0;
    }
    bool link = S_ISLNK(info.st_mode);
    if (link && fstatat(dirfd(folder), e->d_name, &info, 0) != 0) {
        return KIND_FILE; /* a broken link: a rejected row if its name is an image's */
    }
    if (S_ISDIR(info.st_mode)) {
        return !link || follow ? KIND_FOLDER : 0;
    }
    return S_ISREG(info.st_mode) ? KIND_FILE : 0;
}

/* Lists the folder at f->path. */
static enum status
list_folder(struct source_folders *f, struct source_names *out, bool root, struct error *err) {
    DIR *folder = opendir(f->path);
    if (!folder) {
        return error_set_errno(err, "%s: cannot list it", f->path);
    }
    enum status s = STATUS_OK;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(folder);
        if (!e) {
            s = errno != 0 ? error_set_errno(err, "%s: cannot list it", f->path) : STATUS_OK;
            break;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        char kind = kind_of(folder, e, root);
        if (kind == 0 || (root && kind == KIND_FILE)) {
            f->base.ignored.by[e->d_name[0] == '.' ? IGNORED_HIDDEN
                               : kind == 0         ? IGNORED_NOT_FILE
                                                   : IGNORED_NO_CLASS]++;
            continue;
        }
        s = source_names_add(out, kind, e->d_name, strlen(e->d_name), err);
        if (s != STATUS_OK || out->text.size_bytes + f->listed_bytes > SOURCE_MAX_LIST_BYTES) {
            s = error_set(err, s == STATUS_NOMEM ? s : STATUS_LIMIT,
                          "%s: more than %d bytes of names in it and its parents", f->path,
                          SOURCE_MAX_LIST_BYTES);
            break;
        }
    }
    closedir(folder);
    return s == STATUS_OK ? source_names_sort(out, err) : s;
}

/* Puts a name after the first `from` bytes of f->path. */
static enum status
set_path(struct source_folders *f, size_t from, const char *name, struct error *err) {
    size_t size_bytes = strlen(name);
    if (size_bytes >= sizeof(f->path) - from - 1) {
        f->path[from] = '\0';
        return error_set(err, STATUS_LIMIT, "%s%.80s: the path is too long", f->path, name);
    }
    memcpy(f->path + from, name, size_bytes + 1);
    return STATUS_OK;
}

/* Enters the folder at f->path. */
static enum status push(struct source_folders *f, struct error *err) {
    FAIL_IF(f->depth == SOURCE_MAX_FOLDER_DEPTH, err, STATUS_LIMIT, "%s: more than %d folders deep",
            f->path, SOURCE_MAX_FOLDER_DEPTH);
    struct level *l = &f->levels[f->depth++];
    *l = (struct level){0};
    source_names_init(&l->list);
    TRY(list_folder(f, &l->list, false, err));
    f->listed_bytes += l->list.text.size_bytes;
    l->path_bytes = strlen(f->path);
    f->path[l->path_bytes++] = '/'; /* set_path has left room */
    f->path[l->path_bytes] = '\0';
    return STATUS_OK;
}

static void pop(struct source_folders *f) {
    struct level *l = &f->levels[--f->depth];
    f->listed_bytes -= l->list.text.size_bytes;
    source_names_fini(&l->list);
}

/* Whether the current file is an image by its content. O_NONBLOCK: it may have become a pipe. */
static bool is_image_inside(const char *path) {
    uint8_t head[PEEK_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = fd >= 0 ? read(fd, head, sizeof(head)) : -1;
    if (fd >= 0) {
        close(fd);
    }
    return got > 0 && image_format_of(head, (size_t)got) != IMAGE_FORMAT_UNKNOWN;
}

static bool has_extension(const char *name, const char *extension) {
    const char *dot = strrchr(name, '.');
    return dot && strcasecmp(dot, extension) == 0;
}

/* The bytes before a name's last dot. */
static size_t stem_bytes(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : strlen(name);
}

/* The level's name that has this stem and the extension, or for NULL is the stem's image by
 * source_image_rank; the number of names when there is none. */
static size_t
find_beside(const struct level *l, const char *name, size_t size_bytes, const char *extension) {
    size_t low = 0;
    size_t high = l->list.count;
    while (low < high) { /* the first name that does not come before the stem */
        size_t middle = low + (high - low) / 2;
        if (strncmp(l->list.names[middle], name, size_bytes + 1) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    size_t found = l->list.count;
    int found_rank = -1;
    for (size_t i = low; i < l->list.count; i++) {
        const char *other = l->list.names[i];
        if (strncmp(other, name, size_bytes + 1) != 0) {
            break;
        }
        const int rank = extension ? 0 : source_image_rank(other + size_bytes + 1, true);
        if (stem_bytes(other) == size_bytes && other[-1] == KIND_FILE && rank > found_rank &&
            (extension ? has_extension(other, extension) : source_is_image_name(other))) {
            found = i;
            found_rank = rank;
        }
    }
    return found;
}

/* Whether the file is the caption of an image beside it. */
static bool is_caption(const struct level *l, const char *name) {
    return has_extension(name, ".txt") &&
           find_beside(l, name, stem_bytes(name), NULL) < l->list.count;
}

/* Takes one step within a folder; *name: of the file at f->path; NULL: the step reached none. */
static enum status step(struct source_folders *f, const char **name, struct error *err) {
    struct level *l = &f->levels[f->depth - 1];
    *name = NULL;
    if (l->next == l->list.count) {
        pop(f);
        return STATUS_OK;
    }
    const char *entry = l->list.names[l->next++];
    TRY(set_path(f, l->path_bytes, entry, err));
    if (entry[-1] == KIND_FOLDER) {
        return push(f, err);
    }
    *name = entry;
    return STATUS_OK;
}

/* Takes one step of the walk; *found: f->path is an image's. Requires that the walk has not ended.
 * Returns OK, IO, NOTFOUND, NOMEM or LIMIT. */
static enum status next_entry(struct source_folders *f, bool *found, struct error *err) {
    *found = false;
    if (f->depth == 0) {
        TRY(set_path(f, f->root_bytes, f->classes.names[f->class_next++], err));
        return push(f, err);
    }
    const char *name;
    TRY(step(f, &name, err));
    if (name) {
        *found = source_is_image_name(name) || is_image_inside(f->path);
        f->base.ignored.by[IGNORED_UNUSED] +=
            !*found && !is_caption(&f->levels[f->depth - 1], name);
    }
    return STATUS_OK;
}

/* Puts the next image's path in f->path. Returns END, or as next_entry. */
static enum status next_image(struct source_folders *f, struct error *err) {
    bool found = false;
    while (!found) {
        if (f->depth == 0 && f->class_next == f->classes.count) {
            return STATUS_END;
        }
        TRY(next_entry(f, &found, err));
    }
    return STATUS_OK;
}

/* Whether the class that is walked next holds an image. Ends its walk. */
static enum status has_image(struct source_folders *f, bool *out, struct error *err) {
    const size_t end = f->class_next + 1;
    enum status s = STATUS_OK;
    *out = false;
    while (s == STATUS_OK && !*out && (f->class_next < end || f->depth > 0)) {
        s = next_entry(f, out, err);
    }
    while (f->depth > 0) {
        pop(f);
    }
    return s;
}

/* Keeps the classes with images, so that a tar of the folder, which need not list the others, has
 * the same classes. */
static enum status drop_empty_classes(struct source_folders *f, struct error *err) {
    size_t kept = 0;
    for (size_t i = 0; i < f->classes.count; i++) {
        const struct source_ignored ignored = f->base.ignored;
        bool found = false;
        f->class_next = i;
        TRY(has_image(f, &found, err));
        if (found) {
            f->classes.names[kept++] = f->classes.names[i];
            f->base.ignored = ignored; /* it is walked again */
        }
    }
    f->classes.count = kept;
    f->class_next = 0;
    return STATUS_OK;
}

/* ---- rows ---- */

/* Reads the file beside the current image; its path is f->path then. Returns OK, NOTFOUND, LIMIT,
 * MISMATCH (it leads out of the source's folder), IO or NOMEM. */
static enum status read_beside(struct source_folders *f,
                               struct byte_buffer *out,
                               size_t index,
                               size_t max_bytes,
                               struct error *err) {
    const struct level *l = &f->levels[f->depth - 1];
    memset(out, 0, sizeof(*out));
    if (index == l->list.count) {
        return STATUS_NOTFOUND;
    }
    TRY(set_path(f, l->path_bytes, l->list.names[index], err));
    FAIL_IF(source_leads_outside(&f->base, f->path), err, STATUS_MISMATCH, "outside");
    return file_read_all(file_posix(), out, f->path, max_bytes, err);
}

/* Adds NAME.txt as the caption. */
static enum status add_caption(struct source_folders *f,
                               struct source_row *row,
                               const char *name,
                               bool required,
                               struct error *err) {
    const struct level *l = &f->levels[f->depth - 1];
    struct byte_buffer text;
    struct error why = {0};
    enum status s = read_beside(f, &text, find_beside(l, name, stem_bytes(name), ".txt"),
                                SOURCE_MAX_TEXT_BYTES, &why);
    if (s == STATUS_OK) {
        s = source_row_add_text(row, &f->base, (const char *)text.data, text.size_bytes, &why);
    } else if (s == STATUS_MISMATCH) {
        source_row_reject_outside(row, &f->base, f->path);
    } else if (s != STATUS_NOMEM && (required || s != STATUS_NOTFOUND)) {
        source_row_reject(row, s == STATUS_LIMIT ? REASON_CAPTION_LIMIT : REASON_CAPTION_MISSING,
                          "%.200s", s == STATUS_NOTFOUND ? "no .txt next to it" : why.text);
    }
    byte_buffer_fini(&text);
    return s == STATUS_NOMEM ? error_set(err, s, "%s", why.text) : STATUS_OK;
}

/* Sets the class of NAME.cls. */
static enum status
add_class(struct source_folders *f, struct source_row *row, size_t index, struct error *err) {
    struct byte_buffer text;
    struct error why = {0};
    enum status s = read_beside(f, &text, index, SOURCE_CLASS_BYTES, &why);
    if (s == STATUS_OK) {
        s = source_row_set_class_id(row, &text, f->classes.count, err);
    } else if (s == STATUS_MISMATCH) {
        source_row_reject_outside(row, &f->base, f->path);
        s = STATUS_OK;
    } else {
        source_row_reject(row, REASON_ROW_BAD, "%.200s", why.text);
        s = s == STATUS_NOMEM ? error_set(err, s, "%s", why.text) : STATUS_OK;
    }
    byte_buffer_fini(&text);
    return s;
}

/* Adds NAME.txt as the caption, the class of NAME.cls and NAME.json. */
static enum status
add_texts(struct source_folders *f, struct source_row *row, const char *name, struct error *err) {
    const struct level *l = &f->levels[f->depth - 1];
    const size_t n = stem_bytes(name);
    const size_t class_file = find_beside(l, name, n, ".cls");
    const bool is_class = class_file < l->list.count && f->classes.count > 0;
    struct byte_buffer text;
    struct error why = {0};
    if (!is_class && class_file < l->list.count &&
        find_beside(l, name, n, ".txt") == l->list.count) {
        source_row_reject(row, REASON_CAPTION_MISSING,
                          "no .txt next to it, and its .cls needs classnames.txt in the source's "
                          "folder or in the parent folder");
    }
    TRY(add_caption(f, row, name, !is_class, err));
    if (is_class) {
        TRY(add_class(f, row, class_file, err));
    }
    enum status s =
        read_beside(f, &text, find_beside(l, name, n, ".json"), SOURCE_MAX_JSON_BYTES, &why);
    if (s == STATUS_OK) {
        s = byte_buffer_append(&row->json, text.data, text.size_bytes, &why);
        row->json_unchecked = true;
    } else if (s == STATUS_MISMATCH) {
        source_row_reject_outside(row, &f->base, f->path);
    } else if (s != STATUS_NOMEM && s != STATUS_NOTFOUND) {
        source_row_drop_json(row, why.text);
    }
    byte_buffer_fini(&text);
    return s == STATUS_NOMEM ? error_set(err, s, "%s", why.text) : STATUS_OK;
}

static enum status folders_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_folders *f = (struct source_folders *)s;
    enum status status = next_image(f, err);
    if (status == STATUS_END) {
        source_note_joined(s);
    }
    if (status != STATUS_OK) {
        return status;
    }
    const struct level *l = &f->levels[f->depth - 1];
    const size_t class_index = f->class_next - 1;
    strcpy(row->path, f->path);
    TRY(source_row_set_class(row, &s->json, f->path + f->root_bytes, class_index,
                             f->classes.names[class_index], err));
    return add_caption(f, row, l->list.names[l->next - 1], false, err);
}

/* Fills a row with the file at f->path. Returns AGAIN if it is no row. */
static enum status
take_file(struct source_folders *f, struct source_row *row, const char *name, struct error *err) {
    const struct level *l = &f->levels[f->depth - 1];
    const size_t image = find_beside(l, name, stem_bytes(name), NULL);
    const bool is_image = source_is_image_name(name);
    const bool is_text = has_extension(name, ".txt") && strcmp(name, "classnames.txt") != 0;
    const bool is_class = f->classes.count > 0 && has_extension(name, ".cls");
    if (!is_image && image < l->list.count &&
        (is_text || is_class || has_extension(name, ".json"))) {
        return STATUS_AGAIN; /* of an image's row */
    }
    if (!is_image && !is_text && !is_class) {
        f->base.ignored.by[IGNORED_UNUSED]++;
        return STATUS_AGAIN;
    }
    const char *key = f->path + f->root_bytes;
    source_row_set_key(row, key, strlen(key) - (strlen(name) - stem_bytes(name)));
    if (!is_image) {
        source_row_reject(row, REASON_IMAGE_MISSING, "no image next to '%.160s'", name);
        return STATUS_OK;
    }
    strcpy(row->path, f->path);
    if (l->list.names[image] != name) {
        source_row_reject(row, REASON_IMAGE_EXTRA, "'%.160s' has its name", l->list.names[image]);
        return STATUS_OK;
    }
    return add_texts(f, row, name, err);
}

static enum status pairs_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_folders *f = (struct source_folders *)s;
    while (f->depth > 0) {
        const char *name;
        TRY(step(f, &name, err));
        enum status status = name ? take_file(f, row, name, err) : STATUS_AGAIN;
        if (status != STATUS_AGAIN) {
            return status;
        }
    }
    source_note_joined(s);
    return STATUS_END;
}

static enum status begin(struct source_folders *f, struct error *err) {
    source_names_init(&f->classes);
    FAIL_IF(strlen(f->base.path) >= sizeof(f->path) - 2, err, STATUS_LIMIT,
            "%.80s...: the path is too long", f->base.path);
    strcpy(f->path, f->base.path);
    strcpy(f->base.images, f->base.path);
    return STATUS_OK;
}

/* By the first texts in the folder itself, if the option leaves it to them. */
static void decide_lines(struct source_folders *f) {
    const struct level *l = &f->levels[0];
    const size_t path_bytes = strlen(f->path);
    size_t first = 0;
    size_t looked = 0;
    bool more = f->base.lines == SOURCE_LINES_AUTO;
    for (size_t i = 0; more && i < l->list.count; i++) {
        struct byte_buffer text = {0};
        struct error why = {0};
        if (l->list.names[i][-1] == KIND_FILE && has_extension(l->list.names[i], ".txt") &&
            read_beside(f, &text, i, SOURCE_MAX_TEXT_BYTES, &why) == STATUS_OK) {
            const size_t lines = source_count_lines((const char *)text.data, text.size_bytes);
            more = source_look_at_lines(&f->base, &first, lines, ++looked);
        }
        byte_buffer_fini(&text);
    }
    f->path[path_bytes] = '\0';
}

static enum status
pairs_open(struct source *s, const struct source_options *opt, struct error *err) {
    struct source_folders *f = (struct source_folders *)s;
    size_t size_bytes = strlen(s->path);
    while (size_bytes > 1 && s->path[size_bytes - 1] == '/') {
        s->path[--size_bytes] = '\0';
    }
    TRY(begin(f, err));
    TRY(push(f, err));
    f->root_bytes = f->levels[0].path_bytes;
    if (opt) {
        char inside[PATH_MAX_BYTES];
        decide_lines(f);
        TRY(path_join(inside, sizeof(inside), s->path, "classnames.txt", err));
        if (!source_leads_outside(s, inside)) {
            TRY(source_read_classes(s, &f->classes, inside, err));
        }
    }
    return STATUS_OK;
}

/* Whether at least half of the images of the current folder have a .txt or .cls beside them.
 * *decided: it has images. */
static bool half_have_texts(const struct source_folders *f, bool *decided) {
    const struct level *l = &f->levels[f->depth - 1];
    size_t image_count = 0;
    size_t texts = 0;
    for (size_t i = 0; i < l->list.count; i++) {
        const char *name = l->list.names[i];
        if (name[-1] == KIND_FILE && source_is_image_name(name)) {
            image_count++;
            texts += find_beside(l, name, stem_bytes(name), ".txt") < l->list.count ||
                     find_beside(l, name, stem_bytes(name), ".cls") < l->list.count;
        }
    }
    *decided = image_count > 0;
    return 2 * texts >= image_count;
}

/* The first folder with images decides, of at most LOOK_FOLDERS. */
static bool find_pairs(struct source_folders *f) {
    bool decided = false;
    for (int looked = 1; looked < LOOK_FOLDERS && f->depth > 0;) {
        struct level *l = &f->levels[f->depth - 1];
        if (l->next == 0) {
            bool pairs = half_have_texts(f, &decided);
            if (decided) {
                return pairs;
            }
        }
        while (l->next < l->list.count && l->list.names[l->next][-1] != KIND_FOLDER) {
            l->next++;
        }
        if (l->next == l->list.count) {
            pop(f);
            continue;
        }
        if (set_path(f, l->path_bytes, l->list.names[l->next++], NULL) != STATUS_OK ||
            push(f, NULL) != STATUS_OK) {
            return false;
        }
        looked++;
    }
    return false;
}

static void folders_close(struct source *s);

static bool pairs_detect(const struct source_head *h) {
    struct source_folders *f = h->is_folder ? calloc(1, sizeof(*f)) : NULL;
    bool found = false;
    if (f) {
        found = path_join(f->base.path, sizeof(f->base.path), "", h->path, NULL) == STATUS_OK &&
                pairs_open(&f->base, NULL, NULL) == STATUS_OK && find_pairs(f);
        folders_close(&f->base);
        free(f);
    }
    return found;
}

/* ---- the kinds ---- */

static void folders_close(struct source *s) {
    struct source_folders *f = (struct source_folders *)s;
    while (f->depth > 0) {
        pop(f);
    }
    source_names_fini(&f->classes);
}

static enum status
folders_open(struct source *s, const struct source_options *opt, struct error *err) {
    (void)opt;
    struct source_folders *f = (struct source_folders *)s;
    size_t size_bytes = strlen(s->path);
    TRY(begin(f, err));
    TRY(list_folder(f, &f->classes, true, err));
    if (f->path[size_bytes - 1] != '/') {
        f->path[size_bytes++] = '/';
        f->path[size_bytes] = '\0';
    }
    f->root_bytes = size_bytes;
    TRY(drop_empty_classes(f, err));
    FAIL_IF(f->classes.count == 0, err, STATUS_CORRUPT,
            "%s: neither a folder of class folders (each class is a folder in it), nor one of "
            "images NAME.jpg with NAME.txt, nor an imagefolder with metadata.jsonl; pass tars, "
            "tables and JSON files one by one",
            s->path);
    for (size_t i = 0; i < f->classes.count; i++) {
        TRY(source_check_class(s->path, f->classes.names[i], f->classes.count, err));
    }
    s->class_names = f->classes.names;
    s->class_count = f->classes.count;
    return STATUS_OK;
}

static bool folders_detect(const struct source_head *h) {
    return h->is_folder;
}

const struct source_type source_type_pairs = {
    .options = SOURCE_HAS_LINES,
    .struct_bytes = sizeof(struct source_folders),
    .detect = pairs_detect,
    .open = pairs_open,
    .next = pairs_next,
    .close = folders_close,
};

const struct source_type source_type_folders = {
    .options = SOURCE_HAS_LINES,
    .struct_bytes = sizeof(struct source_folders),
    .detect = folders_detect,
    .open = folders_open,
    .next = folders_next,
    .close = folders_close,
    .of_file = &source_type_folders_archive,
};
