/*
 * api_entry: what each function of libccstream does where it is entered and left. Inside, functions
 * return enum status and fill a struct error, as everywhere else.
 *
 *     int32_t ccs_x(struct ccs_x *x, struct ccs_error *err) {
 *         struct error e = {0};
 *         return api_result(err, x_something(x, &e), &e);
 *     }
 *
 * Debug builds of the other folders stop the process when their contract is broken. So whatever
 * comes from the caller is checked here first, with CHECK_ARGUMENT.
 *
 * Threading : pure functions.
 */
#ifndef BINDINGS_C_API_ENTRY_INTERNAL_H
#define BINDINGS_C_API_ENTRY_INTERNAL_H

#include <locale.h>
#include <stddef.h>
#include <sys/types.h>

#include "bindings/c/ccstream.h"
#include "formats/base/status.h"

/* Converts a result: the number is the same in both enums. The message of a failure is e->text, or
 * where that is empty the sentence of the status. */
int32_t api_result(struct ccs_error *err, enum status s, const struct error *e);

/* Returns INVALID with a message. */
#define CHECK_ARGUMENT(cond, err, text)                                                            \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            return error_set(err, STATUS_INVALID, "%s", text);                                     \
        }                                                                                          \
    } while (0)

/* For handles with threads: returns OK, or FORKED in a process that is not the one (`owner`) that
 * opened it. */
enum status api_check_process(pid_t owner, struct error *err);

/* Before a dataset is opened that may be remote: makes locations readable. Returns OK or NOMEM. */
enum status api_open_remote(const char *path, struct error *err);

/* Between the two, numbers in texts have a decimal point on this thread, whatever locale the
 * program has set: for functions that read or write them. */
struct api_numbers {
    locale_t plain, before;
};
struct api_numbers api_enter_numbers(void);
void api_leave_numbers(struct api_numbers n);

/* The three ways of a struct that begins with uint64_t struct_size, between this version of it
 * (`size` bytes) and the caller's, which may be that of an earlier or a later version. */

/* For an _init function: the defaults, and struct_size. */
void api_init(void *out, uint64_t struct_size, const void *defaults, size_t size);
/* From the caller: `mine` has the defaults, which stay where the caller's struct ends. Returns OK,
 * INVALID (struct_size is not set), or UNSUPPORTED (a field that this version lacks is not 0). */
enum status api_take(void *mine, size_t size, const void *in, struct error *err);
/* To the caller, whose struct_size stays; fields that this version lacks become 0. Returns OK or
 * INVALID (struct_size is not set). */
enum status api_give(void *out, const void *mine, size_t size, struct error *err);

#endif
