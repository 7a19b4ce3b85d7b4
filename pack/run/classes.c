/*
 * The names of classes over all sources. A sample's label is an index in the dataset's list of
 * classes: those it had before the run, then those of the sources in their order. A name that two
 * sources share is one class. But sources with one list, such as the tars beside a classnames.txt,
 * keep its numbers, also where it has a name twice.
 */
#include "pack/run/classes_internal.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"

static enum status nomem(struct error *err) {
    return error_set(err, STATUS_NOMEM, "out of memory for the names of classes");
}

void pack_classes_init(struct pack_classes *c) {
    memset(c, 0, sizeof(*c));
    pthread_mutex_init(&c->mutex, NULL);
}

void pack_classes_fini(struct pack_classes *c) {
    for (size_t i = 0; i < c->count; i++) {
        free(c->names[i]);
    }
    free(c->names);
    free(c->of_source);
    hash_map_destroy(c->places);
    pthread_mutex_destroy(&c->mutex);
}

/* If two names had the same 64-bit hash, one of them would be added again each time. */
static bool find(const struct pack_classes *c, const char *name, uint64_t hash, uint64_t *place) {
    *place = hash_map_get(c->places, hash);
    return *place != HASH_MAP_NONE && strcmp(c->names[*place], name) == 0;
}

/* The size of a name in dataset.json, with quotes and comma. */
static uint64_t json_bytes(const char *name) {
    uint64_t sum = 3;
    for (; *name != '\0'; name++) {
        sum += (unsigned char)*name < ' ' ? 6 : *name == '"' || *name == '\\' ? 2 : 1;
    }
    return sum;
}

/* Only the reader adds, so it may read without the mutex. */
enum status pack_classes_append(struct pack_classes *c, const char *name, struct error *err) {
    if (!c->places) {
        TRY(hash_map_create(&c->places, err));
    }
    FAIL_IF(c->count == MANIFEST_MAX_CLASSES, err, STATUS_LIMIT, "more than %d classes",
            MANIFEST_MAX_CLASSES);
    c->json_bytes += json_bytes(name);
    FAIL_IF(c->json_bytes > MANIFEST_MAX_CLASS_BYTES, err, STATUS_LIMIT,
            "the names of classes have more than %d bytes together", MANIFEST_MAX_CLASS_BYTES);
    char *copy = strdup(name);
    if (!copy) {
        return nomem(err);
    }
    pthread_mutex_lock(&c->mutex);
    size_t capacity = c->capacity;
    if (c->count == capacity) {
        capacity = capacity > 0 ? 2 * capacity : 64;
        char **names = realloc(c->names, capacity * sizeof(*names));
        if (names) {
            c->names = names;
            c->capacity = capacity;
        }
    }
    enum status s = c->count < c->capacity ? STATUS_OK : nomem(err);
    if (s == STATUS_OK) {
        c->names[c->count++] = copy;
    }
    pthread_mutex_unlock(&c->mutex);
    if (s != STATUS_OK) {
        free(copy);
        return s;
    }
    const uint64_t hash = hash64(name, strlen(name));
    uint64_t place;
    return find(c, name, hash, &place) ? STATUS_OK
                                       : hash_map_put(c->places, hash, c->count - 1, err);
}

enum status
pack_classes_add(struct pack_classes *c, const char *name, uint64_t *place, struct error *err) {
    if (c->places && find(c, name, hash64(name, strlen(name)), place)) {
        return STATUS_OK;
    }
    *place = c->count;
    return pack_classes_append(c, name, err);
}

/* Whether the source's list of classes begins as that of the dataset, or the other way round. */
static bool is_same_list(const struct pack_classes *c, const struct source *source) {
    const char *name = "";
    size_t i = 0;
    while (i < c->count && (name = source_class_name(source, i)) &&
           strcmp(name, c->names[i]) == 0) {
        i++;
    }
    return i == c->count || !name;
}

enum status
pack_classes_open_source(struct pack_classes *c, const struct source *source, struct error *err) {
    const size_t count = source_class_count(source);
    const bool same = is_same_list(c, source);
    c->of_source_count = 0;
    if (count > c->of_source_capacity) {
        int32_t *grown = realloc(c->of_source, count * sizeof(*grown));
        if (!grown) {
            return nomem(err);
        }
        c->of_source = grown;
        c->of_source_capacity = count;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t place = i;
        if (!same) {
            TRY(pack_classes_add(c, source_class_name(source, i), &place, err));
        } else if (i == c->count) {
            TRY(pack_classes_append(c, source_class_name(source, i), err));
        }
        c->of_source[i] = (int32_t)place;
    }
    c->of_source_count = count;
    return STATUS_OK;
}

int32_t pack_classes_label(const struct pack_classes *c, int32_t class_index) {
    bool known = class_index >= 0 && (size_t)class_index < c->of_source_count;
    return known ? c->of_source[class_index] : SHARD_NO_LABEL;
}

size_t pack_classes_count(struct pack_classes *c) {
    pthread_mutex_lock(&c->mutex);
    size_t count = c->count;
    pthread_mutex_unlock(&c->mutex);
    return count;
}

enum status
pack_classes_publish(struct pack_classes *c, struct manifest *m, size_t count, struct error *err) {
    enum status s = STATUS_OK;
    pthread_mutex_lock(&c->mutex);
    while (s == STATUS_OK && m->class_count < count) {
        s = manifest_add_class(m, c->names[m->class_count], err);
    }
    pthread_mutex_unlock(&c->mutex);
    return s;
}
