/*
 * status: the result of every fallible function, and the message that explains a failure.
 *
 * Threading : a struct error belongs to one call chain; the functions keep no state.
 * Ownership : the caller's storage; no pointers inside.
 */
#ifndef FORMATS_BASE_STATUS_H
#define FORMATS_BASE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* One list, three generated things: the enum, the name, the sentence. Negative values are failures;
 * positive ones are outcomes that a function documents if it can return them. */
#define STATUS_LIST(X)                                                                             \
    X(END, 1, "end of data")                                                                       \
    X(AGAIN, 2, "no result ready yet")                                                             \
    X(OK, 0, "success")                                                                            \
    X(INVALID, -1, "caller broke the function's contract")                                         \
    X(NOMEM, -2, "out of memory")                                                                  \
    X(IO, -3, "operating system reported an I/O error")                                            \
    X(CORRUPT, -4, "stored bytes contradict the format")                                           \
    X(VERSION, -5, "format version not supported")                                                 \
    X(LIMIT, -6, "value exceeds a documented limit")                                               \
    X(DEVICE, -7, "accelerator reported an error")                                                 \
    X(UNSUPPORTED, -8, "not available in this build or backend")                                   \
    X(NOTFOUND, -9, "no such file or entry")                                                       \
    X(EXISTS, -10, "the target exists already")                                                    \
    X(MISMATCH, -11, "two things that must belong together do not")                                \
    X(USAGE, -12, "the command line or a configuration is wrong")                                  \
    X(INTERRUPTED, -13, "stopped on request")                                                      \
    X(TIMEOUT, -14, "a bounded wait ran out")                                                      \
    X(FORKED, -15, "the handle belongs to the parent process")

enum status {
#define X(name, value, text) STATUS_##name = (value),
    STATUS_LIST(X)
#undef X
};

/* What went wrong, in words: which file, row or byte, expected and found, what to do. Filled
 * once, by the innermost function that knows; callers pass it on. A caller that needs only the
 * status passes NULL. Zero-initialise before use. */
struct error {
    enum status status;
    char text[480];
};

/* One plain sentence for `s`. */
const char *status_text(enum status s);

/* Records the message (lower case, no newline) and returns `s`, so that a failing path is one
 * statement. */
enum status error_set(struct error *err, enum status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Passes on a message that was kept elsewhere: copies it and returns `s`. */
enum status error_pass(struct error *err, enum status s, const struct error *why);

/* Same, with errno appended as text; reads errno before anything else. Returns NOTFOUND for
 * ENOENT, NOMEM for ENOMEM, EXISTS for EEXIST, IO otherwise. */
enum status error_set_errno(struct error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Exit code of a program that ends with `s` (sysexits.h): 0, 64 usage, 65 data, 66 no input,
 * 69 unavailable, 70 internal, 71 OS, 73 cannot create, 74 I/O, 78 config; INTERRUPTED is 130. */
int status_exit_code(enum status s);

/* Checks the contract of a public function: debug builds stop at the faulty call, release builds
 * return INVALID. Not for anything that came from outside the program. */
#ifdef NDEBUG
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            return STATUS_INVALID;                                                                 \
        }                                                                                          \
    } while (0)
#else
void contract_broken(const char *file, int line, const char *cond) __attribute__((noreturn));
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            contract_broken(__FILE__, __LINE__, #cond);                                            \
        }                                                                                          \
    } while (0)
#endif

/* For callees whose header lists no positive outcome. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        enum status try_s_ = (expr);                                                               \
        if (try_s_ < STATUS_OK) {                                                                  \
            return try_s_;                                                                         \
        }                                                                                          \
    } while (0)

/* If `cond`, returns error_set of the other arguments. */
#define FAIL_IF(cond, ...)                                                                         \
    do {                                                                                           \
        if (cond) {                                                                                \
            return error_set(__VA_ARGS__);                                                         \
        }                                                                                          \
    } while (0)

/* The same with error_set_errno. */
#define FAIL_ERRNO_IF(cond, ...)                                                                   \
    do {                                                                                           \
        if (cond) {                                                                                \
            return error_set_errno(__VA_ARGS__);                                                   \
        }                                                                                          \
    } while (0)

/* Returns `failure`, for example a function that builds the error messages of one file. */
#define RETURN_IF(cond, failure)                                                                   \
    do {                                                                                           \
        if (cond) {                                                                                \
            return failure;                                                                        \
        }                                                                                          \
    } while (0)

/* Returns NOMEM with this message if the allocated pointer is NULL. */
#define TRY_MEMORY(there, err, ...)                                                                \
    do {                                                                                           \
        if (!(there)) {                                                                            \
            return error_set(err, STATUS_NOMEM, __VA_ARGS__);                                      \
        }                                                                                          \
    } while (0)

/* For a sequence of calls before a cleanup: evaluates `expr` only if none has failed so far.
 */
#define THEN(s, expr)                                                                              \
    do {                                                                                           \
        if ((s) == STATUS_OK) {                                                                    \
            (s) = (expr);                                                                          \
        }                                                                                          \
    } while (0)

/* The end of a function that creates an object: hands it over, or destroys it after a failure. */
#define RETURN_CREATED(s, out, object, destroy)                                                    \
    do {                                                                                           \
        if ((s) != STATUS_OK) {                                                                    \
            destroy(object);                                                                       \
            return s;                                                                              \
        }                                                                                          \
        *(out) = object;                                                                           \
        return STATUS_OK;                                                                          \
    } while (0)

#define TRY_OR_FAIL(s, expr)                                                                       \
    do {                                                                                           \
        (s) = (expr);                                                                              \
        if ((s) < STATUS_OK) {                                                                     \
            goto fail;                                                                             \
        }                                                                                          \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
