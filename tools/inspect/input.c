/*
 * Recognises kinds, and selects samples. Ids ascend with positions, so an id is found by binary
 * search.
 */
#include "tools/inspect/input.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/json/json_reader.h"
#include "formats/shard/shard_reader.h"
#include "net/location.h"
#include "pack/source/source.h"
#include "tools/cli/path_kind.h"
#include "tools/inspect/input_internal.h"

const char *input_file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Whether the manifest in the file's folder lists it. */
static bool is_listed(const char *path) {
    char directory[PATH_MAX_BYTES];
    struct manifest m;
    bool listed = false;
    if (path_directory(directory, sizeof(directory), path, NULL) != STATUS_OK ||
        manifest_read(&m, file_system_of(directory), directory, NULL) != STATUS_OK) {
        return false;
    }
    for (size_t i = 0; i < m.shard_count; i++) {
        listed = listed || strcmp(m.shards[i].name, input_file_name(path)) == 0;
    }
    manifest_fini(&m);
    return listed;
}

/* A shard with a damaged end looks like a plain tar, which would have other ids. It is recognised
 * by its sidecar, its dataset or its beginning. */
static enum status is_shard(bool *out, const char *path, struct error *err) {
    char sidecar[PATH_MAX_BYTES];
    const struct file_system *fs = file_posix();
    TRY(shard_reader_recognise(out, fs, path, err));
    if (!*out && shard_index_name(sidecar, sizeof(sidecar), path, NULL) == STATUS_OK) {
        TRY(fs->exists(fs->context, sidecar, out, err));
    }
    *out = *out || is_listed(path);
    return *out ? STATUS_OK : shard_reader_begins(out, fs, path, err);
}

bool input_is_shard(const char *directory, const char *name) {
    char path[PATH_MAX_BYTES];
    char sidecar[PATH_MAX_BYTES];
    const struct file_system *fs = file_posix();
    bool is = false;
    const char *dot = strrchr(name, '.');
    if (!shard_name_is_valid(name) || (dot && strcmp(dot, ".tmp") == 0) ||
        path_join(path, sizeof(path), directory, name, NULL) != STATUS_OK ||
        shard_reader_recognise(&is, fs, path, NULL) != STATUS_OK) {
        return false;
    }
    if (!is && shard_index_name(sidecar, sizeof(sidecar), path, NULL) == STATUS_OK) {
        (void)fs->exists(fs->context, sidecar, &is, NULL);
    }
    return is;
}

enum status input_kind_of(enum input_kind *out, const char *path, struct error *err) {
    struct stat info;
    enum source_kind kind = SOURCE_AUTO;
    bool shard = false;
    *out = INPUT_TAR;
    if (strcmp(path, "-") == 0 || path_is_remote_tar(path)) {
        return STATUS_OK;
    }
    if (location_is_remote(path)) {
        *out = INPUT_DATASET;
        return path_check_dataset(path, err);
    }
    TRY(path_check_local(path, err));
    if (stat(path, &info) != 0 || S_ISDIR(info.st_mode)) {
        *out = INPUT_DATASET;
        return path_check_dataset(path, err);
    }
    if (S_ISREG(info.st_mode)) {
        TRY(is_shard(&shard, path, err));
    }
    if (shard) {
        *out = INPUT_SHARD;
        return STATUS_OK;
    }
    enum status s = source_kind_of(&kind, path, err);
    if (s == STATUS_CORRUPT) {
        TRY(path_check_inspectable(path, err));
    }
    FAIL_IF(s == STATUS_CORRUPT || (s == STATUS_OK && kind != SOURCE_WDS), err, STATUS_CORRUPT,
            "%s: neither a dataset directory nor a shard nor a tar (plain, .gz, .zst)", path);
    return s;
}

enum status input_open(struct input **out, const char *path, struct error *err) {
    enum input_kind kind = INPUT_TAR;
    *out = NULL;
    TRY(input_kind_of(&kind, path, err));
    return kind == INPUT_DATASET ? input_open_dataset(out, path, err)
           : kind == INPUT_SHARD ? input_open_shard(out, path, err)
                                 : input_open_tar(out, path, err);
}

void input_close(struct input *in) {
    if (in) {
        input_columns_close(in->columns);
        in->ops->close(in);
    }
}

const char *input_class_name(const struct input *in, int32_t label) {
    bool named = in->manifest && label >= 0 && (size_t)label < in->manifest->class_count;
    return named ? in->manifest->classes[label] : NULL;
}

/* The first position with an id >= `id`. */
static enum status
lower_bound(struct input *in, uint64_t *position, uint64_t id, struct error *err) {
    if (in->kind == INPUT_TAR) { /* its ids are positions */
        *position = id;
        return STATUS_OK;
    }
    struct sample_facts facts;
    uint64_t low = 0;
    uint64_t high = in->sample_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        TRY(in->ops->choose(in, &facts, middle, err));
        if (facts.id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *position = low;
    return STATUS_OK;
}

enum status input_from(struct input *in, uint64_t id, struct error *err) {
    return lower_bound(in, &in->next_position, id, err);
}

enum status input_next(struct input *in, struct sample_facts *out, struct error *err) {
    enum status s = in->ops->choose(in, out, in->next_position, err);
    if (s == STATUS_OK) {
        in->next_position++;
    }
    return s;
}

enum status
input_at(struct input *in, struct sample_facts *out, uint64_t position, struct error *err) {
    enum status s = in->ops->choose(in, out, position, err);
    FAIL_IF(s == STATUS_END, err, STATUS_NOTFOUND,
            "%s: position %" PRIu64 " does not exist: there are %" PRIu64 " sample%s", in->path,
            position, in->sample_count, in->sample_count == 1 ? "" : "s");
    in->next_position = position + 1;
    return s;
}

enum status input_find(struct input *in, struct sample_facts *out, uint64_t id, struct error *err) {
    uint64_t position = 0;
    TRY(lower_bound(in, &position, id, err));
    enum status s = in->ops->choose(in, out, position, err);
    if (s == STATUS_END || (s == STATUS_OK && out->id != id)) {
        const bool removed = in->manifest && manifest_is_removed(in->manifest, id);
        return error_set(err, STATUS_NOTFOUND, "%s: %s %" PRIu64 "%s", in->path,
                         removed ? "sample" : "there is no sample", id,
                         removed ? " was removed" : "");
    }
    in->next_position = position + 1;
    return s;
}

enum status input_caption(struct input *in, struct shard_text *out, uint32_t k, struct error *err) {
    return in->ops->caption(in, out, k, err);
}

enum status input_read(struct input *in, struct sample_content *out, struct error *err) {
    memset(out, 0, sizeof(*out));
    return in->ops->read(in, out, err);
}

bool sample_original_key(char out[INPUT_MAX_KEY_BYTES], const struct shard_text *json) {
    static const char member[] = "\"key\"";
    struct json_document *document = NULL;
    size_t size = 0;
    if (!json->data || !memmem(json->data, json->size_bytes, member, sizeof(member) - 1) ||
        json_document_parse(&document, "meta", json->data, json->size_bytes, NULL) != STATUS_OK) {
        return false;
    }
    const char *key = json_value_string(json_value_get(json_document_root(document), "key"), &size);
    const bool has = key && size < INPUT_MAX_KEY_BYTES;
    if (has) {
        memcpy(out, key, size + 1);
    }
    json_document_destroy(document);
    return has;
}
