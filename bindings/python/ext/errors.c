/*
 * Exceptions: one for each status that users can tell apart, derived from Error and from the
 * builtin that Python code would expect.
 */
#include "bindings/python/ext/ext_internal.h"

struct kind {
    int32_t status; /* 0: no status of the library */
    const char *name;
    PyObject **builtin[2];
    const char *doc;
};

static const struct kind kinds[] = {
    {CCS_ERROR_USAGE,
     "ccstream.UsageError",
     {&PyExc_ValueError, NULL},
     "An option or argument is wrong."},
    {CCS_ERROR_INVALID, "ccstream.UsageError", {NULL, NULL}, NULL},
    {CCS_ERROR_NOMEM, "ccstream.OutOfMemoryError", {&PyExc_MemoryError, NULL}, "Out of memory."},
    {CCS_ERROR_IO,
     "ccstream.StorageError",
     {&PyExc_OSError, NULL},
     "The operating system reported an I/O error."},
    {CCS_ERROR_CORRUPT,
     "ccstream.CorruptError",
     {&PyExc_ValueError, NULL},
     "Stored or given bytes contradict their format."},
    {CCS_ERROR_VERSION,
     "ccstream.VersionError",
     {&PyExc_ValueError, NULL},
     "A format version is not supported."},
    {CCS_ERROR_LIMIT,
     "ccstream.LimitError",
     {&PyExc_ValueError, NULL},
     "A value exceeds a documented limit."},
    {CCS_ERROR_UNSUPPORTED,
     "ccstream.UnsupportedError",
     {&PyExc_NotImplementedError, NULL},
     "Not available in this build or on this machine."},
    {CCS_ERROR_NOTFOUND,
     "ccstream.NotFoundError",
     {&PyExc_FileNotFoundError, &PyExc_LookupError},
     "No such file, sample or column."},
    {CCS_ERROR_EXISTS,
     "ccstream.ExistsError",
     {&PyExc_FileExistsError, NULL},
     "The target, id or key exists already."},
    {CCS_ERROR_MISMATCH,
     "ccstream.MismatchError",
     {&PyExc_ValueError, NULL},
     "Two things that must belong together do not."},
    {CCS_ERROR_TIMEOUT,
     "ccstream.TimeoutError",
     {&PyExc_TimeoutError, NULL},
     "A bounded wait ran out; it may be tried again."},
    {CCS_ERROR_FORKED,
     "ccstream.ForkedError",
     {&PyExc_RuntimeError, NULL},
     "The object belongs to the parent process: make it again in the child."},
    {0, "ccstream.ClosedError", {&PyExc_ValueError, NULL}, "The object is closed."},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static PyObject *base;
static PyObject *exceptions[KINDS];

static PyObject *make(const struct kind *k) {
    PyObject *bases = k->builtin[1] != NULL ? PyTuple_Pack(3, base, *k->builtin[0], *k->builtin[1])
                                            : PyTuple_Pack(2, base, *k->builtin[0]);
    PyObject *made = bases != NULL ? PyErr_NewExceptionWithDoc(k->name, k->doc, bases, NULL) : NULL;
    Py_XDECREF(bases);
    return made;
}

int ext_add_errors(PyObject *module) {
    base = PyErr_NewExceptionWithDoc("ccstream.Error", "Base of all exceptions of ccstream.", NULL,
                                     NULL);
    if (base == NULL || PyModule_AddObjectRef(module, "Error", base) < 0) {
        return -1;
    }
    for (int i = 0; i < KINDS; i++) {
        if (kinds[i].doc == NULL) { /* another status of the one before */
            exceptions[i] = exceptions[i - 1];
            continue;
        }
        exceptions[i] = make(&kinds[i]);
        if (exceptions[i] == NULL ||
            PyModule_AddObjectRef(module, strchr(kinds[i].name, '.') + 1, exceptions[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *of_status(int32_t status) {
    for (int i = 0; i < KINDS; i++) {
        if (kinds[i].status == status) {
            return exceptions[i];
        }
    }
    return base;
}

PyObject *ext_raise(int32_t status, const struct ccs_error *err) {
    const char *text = err != NULL && err->text[0] != '\0' ? err->text : ccs_status_text(status);
    PyErr_SetString(of_status(status), text);
    return NULL;
}

PyObject *ext_raise_closed(const char *what) {
    return PyErr_Format(of_status(0), "the %s is closed", what);
}

PyObject *ext_raise_usage(const char *text) {
    PyErr_SetString(of_status(CCS_ERROR_USAGE), text);
    return NULL;
}
