#include "bindings/c/api_entry_internal.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SAME(name) _Static_assert((int)CCS_ERROR_##name == (int)STATUS_##name, #name)
SAME(INVALID);
SAME(NOMEM);
SAME(IO);
SAME(CORRUPT);
SAME(VERSION);
SAME(LIMIT);
SAME(UNSUPPORTED);
SAME(NOTFOUND);
SAME(EXISTS);
SAME(MISMATCH);
SAME(USAGE);
SAME(INTERRUPTED);
SAME(TIMEOUT);
SAME(FORKED);
_Static_assert((int)CCS_END == (int)STATUS_END && (int)CCS_OK == (int)STATUS_OK, "status");
_Static_assert(sizeof(((struct error *)0)->text) <= CCS_ERROR_TEXT_BYTES, "texts fit");

/* Of any version. More is memory that was never set. */
enum { MAX_STRUCT_BYTES = 1 << 16 };

const char *ccs_version(void) {
    return CCSTREAM_VERSION;
}

const char *ccs_status_text(int32_t status) {
    return status_text((enum status)status);
}

int32_t api_result(struct ccs_error *err, enum status s, const struct error *e) {
    if (err != NULL) {
        const char *text = e->text[0] != '\0' ? e->text : status_text(s);
        err->status = (int32_t)s;
        err->reserved = 0;
        snprintf(err->text, sizeof(err->text), "%s", s < STATUS_OK ? text : "");
    }
    return (int32_t)s;
}

enum status api_check_process(pid_t owner, struct error *err) {
    if (owner == getpid()) {
        return STATUS_OK;
    }
    return error_set(err, STATUS_FORKED,
                     "it belongs to process %d, whose threads do not exist in this child process; "
                     "open another one after the fork",
                     (int)owner);
}

struct api_numbers api_enter_numbers(void) {
    struct api_numbers n = {.plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0)};
    n.before = uselocale(n.plain);
    return n;
}

void api_leave_numbers(struct api_numbers n) {
    uselocale(n.before);
    if (n.plain != (locale_t)0) {
        freelocale(n.plain);
    }
}

static uint64_t size_of(const void *theirs) {
    uint64_t size;
    memcpy(&size, theirs, sizeof(size));
    return size;
}

static enum status check_size(const void *theirs, struct error *err) {
    const uint64_t size = size_of(theirs);
    FAIL_IF(size < sizeof(uint64_t) || size > MAX_STRUCT_BYTES, err, STATUS_INVALID,
            "struct_size is %" PRIu64 ", expected the size of the struct", size);
    return STATUS_OK;
}

/* All but struct_size. */
static void copy(void *to, const void *from, size_t size) {
    const size_t first = sizeof(uint64_t);
    memcpy((char *)to + first, (const char *)from + first, size - first);
}

void api_init(void *out, uint64_t struct_size, const void *defaults, size_t size) {
    if (out != NULL && struct_size >= sizeof(struct_size) && struct_size <= MAX_STRUCT_BYTES) {
        memset(out, 0, (size_t)struct_size);
        memcpy(out, &struct_size, sizeof(struct_size));
        (void)api_give(out, defaults, size, NULL);
    }
}

enum status api_take(void *mine, size_t size, const void *in, struct error *err) {
    TRY(check_size(in, err));
    const size_t theirs = (size_t)size_of(in);
    for (size_t i = size; i < theirs; i++) {
        FAIL_IF(((const char *)in)[i] != 0, err, STATUS_UNSUPPORTED,
                "an option is set that this version, %s, does not have", CCSTREAM_VERSION);
    }
    copy(mine, in, theirs < size ? theirs : size);
    return STATUS_OK;
}

enum status api_give(void *out, const void *mine, size_t size, struct error *err) {
    TRY(check_size(out, err));
    const size_t theirs = (size_t)size_of(out);
    copy(out, mine, theirs < size ? theirs : size);
    if (theirs > size) {
        memset((char *)out + size, 0, theirs - size);
    }
    return STATUS_OK;
}
