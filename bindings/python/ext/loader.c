/*
 * Loader: a loader's handle. It waits in slices of a tenth of a second without the GIL, and between
 * them runs Python's signal handlers, so that Ctrl-C ends the wait.
 *
 * A handle belongs to one thread at a time: a second thread that calls next meanwhile gets an
 * error, and close asks the waiting one to close it.
 */
#include "bindings/python/ext/ext_internal.h"

#include <stdlib.h>
#include <time.h>

enum { SLICE_MS = 100 };

/* Memory of batches from a Python callable, as buffers: found again by their address. */
struct block {
    struct block *next;
    Py_buffer view;
};

struct loader {
    PyObject ob_base;
    struct ccs_loader *handle; /* NULL: closed */
    bool busy;                 /* a thread is inside a call without the GIL */
    bool closing;              /* that thread is to close it */
    bool channels_last;        /* how images are shown */
    struct memory *memory;     /* NULL: ordinary */
};

static struct loader *loader_of(PyObject *self) {
    return (struct loader *)(void *)self;
}

/* ---- memory ---- */

/* Shared by the loader and its blocks, which may outlive it. Everything requires the GIL. */
struct memory {
    PyObject *allocate; /* callable: size -> writable buffer of at least as much */
    struct block *blocks;
    bool closed;
};

static void memory_end_if_unused(struct memory *m) {
    if (m != NULL && m->closed && m->blocks == NULL) {
        Py_DECREF(m->allocate);
        free(m);
    }
}

static void *memory_alloc(void *cookie, size_t size) {
    struct memory *m = cookie;
    const PyGILState_STATE gil = PyGILState_Ensure();
    struct block *b = calloc(1, sizeof *b);
    PyObject *buffer = b != NULL ? PyObject_CallFunction(m->allocate, "n", (Py_ssize_t)size) : NULL;
    void *data = NULL;
    if (buffer != NULL && PyObject_GetBuffer(buffer, &b->view, PyBUF_CONTIG) == 0) {
        if ((size_t)b->view.len >= size && (uintptr_t)b->view.buf % 64 == 0) {
            b->next = m->blocks;
            m->blocks = b;
            data = b->view.buf;
        } else {
            PyBuffer_Release(&b->view);
        }
    }
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable(m->allocate);
    }
    if (data == NULL) {
        free(b);
    }
    Py_XDECREF(buffer);
    PyGILState_Release(gil);
    return data;
}

static void memory_release(void *cookie, void *data) {
    struct memory *m = cookie;
    if (!Py_IsInitialized()) { /* the process ends, and its memory with it */
        return;
    }
    const PyGILState_STATE gil = PyGILState_Ensure();
    for (struct block **at = &m->blocks; *at != NULL; at = &(*at)->next) {
        struct block *b = *at;
        if (b->view.buf == data) {
            *at = b->next;
            PyBuffer_Release(&b->view);
            free(b);
            break;
        }
    }
    memory_end_if_unused(m);
    PyGILState_Release(gil);
}

/* ---- open and close ---- */

/* Requires that no thread is inside a call. */
static void close_handle(struct loader *l) {
    struct ccs_loader *handle = l->handle;
    l->handle = NULL;
    l->closing = false;
    Py_BEGIN_ALLOW_THREADS ccs_loader_close(handle);
    Py_END_ALLOW_THREADS if (l->memory != NULL) {
        l->memory->closed = true;
        memory_end_if_unused(l->memory);
        l->memory = NULL;
    }
}

static void loader_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    close_handle(loader_of(self));
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *loader_close(PyObject *self, PyObject *unused) {
    (void)unused;
    struct loader *l = loader_of(self);
    if (l->busy) {
        l->closing = true;
    } else {
        close_handle(l);
    }
    Py_RETURN_NONE;
}

/* Fills out (CCS_MAX_SOURCES) with texts that the items of the tuple own; returns how many, or -1
 * with an exception. */
static int take_paths(const char **out, PyObject *paths) {
    const Py_ssize_t count = PyTuple_Size(paths);
    if (count < 1 || count > CCS_MAX_SOURCES) {
        PyErr_Format(PyExc_ValueError, "expected 1 to %d datasets", CCS_MAX_SOURCES);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        out[i] = PyBytes_AsString(PyTuple_GetItem(paths, i));
        if (out[i] == NULL) {
            return -1;
        }
    }
    return (int)count;
}

/* What the arguments have besides the options. */
struct arguments {
    PyObject *paths, *allocate;
    PyObject *norm, *ids; /* None or values */
    int channels_last;
    Py_buffer id_view; /* of ids; zeros: there are none */
};

/* norm: None, or (mean, deviation) of three numbers each. */
static int take_norm(struct ccs_loader_options *o, PyObject *norm) {
    float *m = o->mean;
    float *d = o->deviation;
    if (norm == Py_None) {
        return 0;
    }
    o->normalized = true;
    return PyTuple_Check(norm) &&
                   PyArg_ParseTuple(norm, "(fff)(fff)", &m[0], &m[1], &m[2], &d[0], &d[1], &d[2])
               ? 0
               : -1;
}

/* ids: None, or a buffer of 64-bit numbers, which the view keeps. */
static int take_ids(struct ccs_loader_options *o, struct arguments *a) {
    if (a->ids == Py_None) {
        return 0;
    }
    if (PyObject_GetBuffer(a->ids, &a->id_view, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    o->ids = a->id_view.buf;
    o->id_count = (uint64_t)a->id_view.len / sizeof *o->ids;
    return 0;
}

static int take_options(struct ccs_loader_options *o, PyObject *args, struct arguments *a) {
    int captions = 1;
    int drop_last = 1;
    int clean = 1;
    int verify = 1;
    int tokens = 1;
    int texts = 0;
    int encoded = 0;
    int planar = 0;
    Py_ssize_t tokenizer_size = 0;
    const char *tokenizer = NULL;
    ccs_loader_options_init(o, sizeof *o);
    if (!PyArg_ParseTuple(args, "O!O&O&O&O&zO&O&zzppppO&O&O&O&O&z#zzipppppzOddzOO&O", &PyTuple_Type,
                          &a->paths, ext_u32, &o->batch_size, ext_u32, &o->rank, ext_u32, &o->world,
                          ext_u32, &o->image_size_px, &o->augment, ext_u32, &o->views, ext_u32,
                          &o->positives, &o->order, &o->filter, &captions, &drop_last, &clean,
                          &verify, ext_u64, &o->seed, ext_u32, &o->max_tokens, ext_u32, &o->threads,
                          ext_u32, &o->prefetch, ext_u64, &o->max_corrupt, &tokenizer,
                          &tokenizer_size, &o->caption_columns, &o->tokenizer_path, &o->caption,
                          &tokens, &texts, &encoded, &planar, &a->channels_last, &o->pixels,
                          &a->norm, &o->crop_min, &o->crop_max, &o->interpolation, &a->ids, ext_u64,
                          &o->epochs, &a->allocate)) {
        return -1;
    }
    o->captions = captions;
    o->drop_last = drop_last;
    o->clean_captions = clean;
    o->verify_images = verify;
    o->tokenizer = tokenizer;
    o->tokenizer_size = (size_t)tokenizer_size;
    o->tokens = tokens;
    o->texts = texts;
    o->encoded = encoded;
    o->planar = planar;
    return take_norm(o, a->norm) == 0 && take_ids(o, a) == 0 ? 0 : -1;
}

static int take_memory(struct loader *l, struct ccs_loader_options *o, PyObject *allocate) {
    if (allocate == Py_None) {
        return 0;
    }
    l->memory = calloc(1, sizeof *l->memory);
    if (l->memory == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    l->memory->allocate = Py_NewRef(allocate);
    o->allocator = (struct ccs_allocator){memory_alloc, memory_release, l->memory};
    return 0;
}

static PyObject *loader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    struct ccs_loader_options options;
    struct arguments a = {0};
    const char *texts[CCS_MAX_SOURCES];
    struct ccs_error err;
    int32_t status;
    const int count = take_options(&options, args, &a) == 0 ? take_paths(texts, a.paths) : -1;
    struct loader *l = count > 0 ? PyObject_New(struct loader, type) : NULL;
    if (l == NULL) {
        PyBuffer_Release(&a.id_view);
        return NULL;
    }
    l->handle = NULL;
    l->channels_last = a.channels_last;
    l->memory = NULL;
    l->busy = l->closing = false;
    if (take_memory(l, &options, a.allocate) < 0) {
        PyBuffer_Release(&a.id_view);
        Py_DECREF(l);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        count == 1 ? ccs_loader_open(&l->handle, texts[0], &options, &err)
                   : ccs_loader_open_mix(&l->handle, texts, (uint32_t)count, &options, &err);
    Py_END_ALLOW_THREADS PyBuffer_Release(&a.id_view);
    if (status < 0) {
        Py_DECREF(l);
        return ext_raise(status, &err);
    }
    return (PyObject *)l;
}

/* Whether this thread may use the handle now; sets an exception if not. */
static bool is_free(const struct loader *l) {
    if (l->handle == NULL || l->closing) {
        ext_raise_closed("loader");
        return false;
    }
    if (l->busy) {
        ext_raise_usage("another thread waits for a batch of this loader");
        return false;
    }
    return true;
}

/* ---- next ---- */

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits until the deadline (negative: without one). Returns a status, or TIMEOUT with an exception
 * set if a signal handler raised one. */
static int32_t wait_for_batch(struct loader *l,
                              const struct ccs_batch **out,
                              int64_t deadline_ms,
                              struct ccs_error *err) {
    for (;;) {
        int64_t slice = SLICE_MS;
        int64_t left = slice;
        int32_t status;
        if (deadline_ms >= 0) {
            left = deadline_ms - now_ms();
            slice = left < 0 ? 0 : left < SLICE_MS ? left : SLICE_MS;
        }
        Py_BEGIN_ALLOW_THREADS status = ccs_loader_next(l->handle, out, slice, err);
        Py_END_ALLOW_THREADS if (status != CCS_ERROR_TIMEOUT || left <= SLICE_MS - 1 ||
                                 l->closing || PyErr_CheckSignals() < 0) {
            return status;
        }
    }
}

static PyObject *loader_next(PyObject *self, PyObject *timeout) {
    struct loader *l = loader_of(self);
    struct ccs_error err;
    const struct ccs_batch *batch = NULL;
    const double seconds = timeout == Py_None ? -1.0 : PyFloat_AsDouble(timeout);
    if (PyErr_Occurred() || !is_free(l)) {
        return NULL;
    }
    const int64_t deadline_ms = seconds < 0.0    ? -1
                                : seconds > 1e12 ? INT64_MAX
                                                 : now_ms() + (int64_t)(seconds * 1e3);
    l->busy = true;
    const int32_t status = wait_for_batch(l, &batch, deadline_ms, &err);
    l->busy = false;
    struct holder *h = status == CCS_OK ? holder_create(batch) : NULL;
    if (l->closing) {
        holder_release(h);
        close_handle(l);
        return PyErr_Occurred() ? NULL : ext_raise_closed("loader");
    }
    if (PyErr_Occurred()) { /* a signal handler's, or no memory */
        holder_release(h);
        return NULL;
    }
    if (status != CCS_OK) {
        return ext_raise(status, &err);
    }
    PyObject *arrays = ext_batch_arrays(h, l->channels_last);
    PyObject *out = arrays == NULL
                        ? NULL
                        : Py_BuildValue("(NKKI)", arrays, (unsigned long long)batch->epoch,
                                        (unsigned long long)batch->step, batch->replaced);
    holder_release(h);
    return out;
}

/* ---- position and numbers ---- */

static PyObject *sources_of(const uint64_t *values, uint32_t count) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(values[i]);
        if (value == NULL || PyList_Append(list, value) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(value);
    }
    return list;
}

static PyObject *loader_get_state(PyObject *self, PyObject *unused) {
    (void)unused;
    struct ccs_loader_state s = {.struct_size = sizeof s};
    struct ccs_error err;
    if (!is_free(loader_of(self))) {
        return NULL;
    }
    const int32_t status = ccs_loader_get_state(loader_of(self)->handle, &s, &err);
    if (status < 0) {
        return ext_raise(status, &err);
    }
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:I,s:N,s:N}", "fingerprint",
                         (unsigned long long)s.fingerprint, "seed", (unsigned long long)s.seed,
                         "epoch", (unsigned long long)s.epoch, "step", (unsigned long long)s.step,
                         "filter", (unsigned long long)s.filter, "order",
                         (unsigned long long)s.order, "mix", (unsigned long long)s.mix, "batch",
                         s.batch_size, "source_fingerprints",
                         sources_of(s.source_fingerprints, s.sources), "source_id_offsets",
                         sources_of(s.source_id_offsets, s.sources));
}

static int take_sources(uint64_t *out, PyObject *list, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyList_GetItem(list, i);
        if (value == NULL || !ext_u64(value, &out[i])) {
            return -1;
        }
    }
    return 0;
}

static PyObject *loader_seek(PyObject *self, PyObject *args) {
    struct loader *l = loader_of(self);
    struct ccs_loader_state s = {.struct_size = sizeof s};
    struct ccs_error err;
    PyObject *fingerprints = NULL;
    PyObject *offsets = NULL;
    int32_t status;
    if (!PyArg_ParseTuple(args, "O&O&O&O&O&O&O&O&O!O!", ext_u64, &s.fingerprint, ext_u64, &s.seed,
                          ext_u64, &s.epoch, ext_u64, &s.step, ext_u64, &s.filter, ext_u64,
                          &s.order, ext_u64, &s.mix, ext_u32, &s.batch_size, &PyList_Type,
                          &fingerprints, &PyList_Type, &offsets) ||
        !is_free(l)) {
        return NULL;
    }
    const Py_ssize_t count = PyList_Size(fingerprints);
    if (count > CCS_MAX_SOURCES || PyList_Size(offsets) != count) {
        return ext_raise_usage(
            "a state has up to 16 sources, each with a fingerprint and an offset");
    }
    s.sources = (uint32_t)count;
    if (take_sources(s.source_fingerprints, fingerprints, count) < 0 ||
        take_sources(s.source_id_offsets, offsets, count) < 0) {
        return NULL;
    }
    l->busy = true;
    Py_BEGIN_ALLOW_THREADS status = ccs_loader_seek(l->handle, &s, &err);
    Py_END_ALLOW_THREADS l->busy = false;
    if (l->closing) {
        close_handle(l);
    }
    if (status < 0) {
        return ext_raise(status, &err);
    }
    Py_RETURN_NONE;
}

static PyObject *loader_info(PyObject *self, PyObject *unused) {
    (void)unused;
    struct ccs_loader_info i = {.struct_size = sizeof i};
    struct ccs_error err;
    if (loader_of(self)->handle == NULL) {
        return ext_raise_closed("loader");
    }
    const int32_t status = ccs_loader_get_info(loader_of(self)->handle, &i, &err);
    if (status < 0) {
        return ext_raise(status, &err);
    }
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:I,s:I,s:I,s:I,s:s}", "samples",
                         (unsigned long long)i.samples, "captions", (unsigned long long)i.captions,
                         "id_space", (unsigned long long)i.id_space, "fingerprint",
                         (unsigned long long)i.fingerprint, "steps", (unsigned long long)i.steps,
                         "max_count", i.max_count, "vocabulary", i.vocabulary, "threads", i.threads,
                         "sources", i.sources, "engine", i.engine);
}

static PyObject *loader_stats(PyObject *self, PyObject *unused) {
    (void)unused;
    struct ccs_loader_stats s = {.struct_size = sizeof s};
    struct ccs_error err;
    if (loader_of(self)->handle == NULL) {
        return ext_raise_closed("loader");
    }
    const int32_t status = ccs_loader_get_stats(loader_of(self)->handle, &s, &err);
    if (status < 0) {
        return ext_raise(status, &err);
    }
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:d,s:d,s:d}", "samples", (unsigned long long)s.samples,
        "batches", (unsigned long long)s.batches, "read_bytes", (unsigned long long)s.read_bytes,
        "read_requests", (unsigned long long)s.read_requests, "replaced",
        (unsigned long long)s.replaced, "corrupt", (unsigned long long)s.corrupt, "elapsed_seconds",
        (double)s.elapsed_ns * 1e-9, "stall_seconds", (double)s.stall_ns * 1e-9,
        "first_batch_seconds", (double)s.first_batch_ns * 1e-9);
}

static PyMethodDef loader_methods[] = {
    {"close", loader_close, METH_NOARGS, "close($self, /)\n--\n\n"},
    {"next", loader_next, METH_O, "next($self, timeout, /)\n--\n\n(arrays, epoch, step, replaced)"},
    {"get_state", loader_get_state, METH_NOARGS, "get_state($self, /)\n--\n\n"},
    {"seek", loader_seek, METH_VARARGS, NULL},
    {"info", loader_info, METH_NOARGS, "info($self, /)\n--\n\n"},
    {"stats", loader_stats, METH_NOARGS, "stats($self, /)\n--\n\n"},
    {0},
};

static PyType_Slot loader_slots[] = {
    {Py_tp_doc, "A loader's handle; see ccstream.DataLoader."},
    {Py_tp_new, (void *)loader_new},
    {Py_tp_dealloc, (void *)loader_dealloc},
    {Py_tp_methods, loader_methods},
    {0, NULL},
};

static PyType_Spec loader_spec = {.name = "ccstream._ccstream.Loader",
                                  .basicsize = sizeof(struct loader),
                                  .flags = Py_TPFLAGS_DEFAULT,
                                  .slots = loader_slots};

int ext_add_loader(PyObject *module) {
    PyObject *type = ext_add_type(module, &loader_spec);
    Py_XDECREF(type);
    return type != NULL ? 0 : -1;
}
