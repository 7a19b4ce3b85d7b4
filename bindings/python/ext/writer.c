/*
 * Writer: a writer's handle. Threads may add at once, so the handle counts those that are inside;
 * it is finished or closed only while there are none.
 */
#include "bindings/python/ext/ext_internal.h"

struct writer {
    PyObject ob_base;
    struct ccs_writer *handle; /* NULL: closed */
    uint32_t inside;           /* threads that are inside a call without the GIL */
};

static struct writer *writer_of(PyObject *self) {
    return (struct writer *)(void *)self;
}

static void close_handle(struct writer *w) {
    struct ccs_writer *handle = w->handle;
    w->handle = NULL;
    Py_BEGIN_ALLOW_THREADS ccs_writer_close(handle);
    Py_END_ALLOW_THREADS
}

static void writer_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    close_handle(writer_of(self));
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    struct ccs_writer_options o;
    struct ccs_error err;
    const char *directory = NULL;
    int check = 1;
    int overwrite = 0;
    int append = 0;
    int32_t status;
    ccs_writer_options_init(&o, sizeof o);
    if (!PyArg_ParseTuple(args, "yO&O&sippp", &directory, ext_u32, &o.shard_samples, ext_u64,
                          &o.shard_bytes, &o.container, &o.level, &check, &overwrite, &append)) {
        return NULL;
    }
    o.check = check;
    o.overwrite = overwrite;
    o.append = append;
    struct writer *w = PyObject_New(struct writer, type);
    if (w == NULL) {
        return NULL;
    }
    w->handle = NULL;
    w->inside = 0;
    Py_BEGIN_ALLOW_THREADS status = ccs_writer_open(&w->handle, directory, &o, &err);
    Py_END_ALLOW_THREADS if (status < 0) {
        Py_DECREF(w);
        return ext_raise(status, &err);
    }
    return (PyObject *)w;
}

/* Whether the handle may be used; alone: by this thread only. Sets an exception if not. */
static bool is_free(const struct writer *w, bool alone) {
    if (w->handle == NULL) {
        ext_raise_closed("writer");
        return false;
    }
    if (alone && w->inside > 0) {
        ext_raise_usage("another thread adds to the writer");
        return false;
    }
    return true;
}

static PyObject *writer_add(PyObject *self, PyObject *args) {
    struct writer *w = writer_of(self);
    struct ccs_new_sample s;
    struct ccs_error err;
    PyObject *captions = NULL;
    Py_buffer image;
    Py_ssize_t metadata_size = 0;
    uint64_t id = 0;
    int32_t status = CCS_OK;
    ccs_new_sample_init(&s, sizeof s);
    if (!PyArg_ParseTuple(args, "y*O!z#zO&i", &image, &PyList_Type, &captions, &s.metadata.data,
                          &metadata_size, &s.key, ext_u64, &s.id, &s.label)) {
        return NULL;
    }
    struct ccs_text *texts = is_free(w, false) ? ext_take_texts(captions) : NULL;
    if (texts != NULL) {
        s.image = image.buf;
        s.image_size = (size_t)image.len;
        s.captions = texts;
        s.caption_count = (uint32_t)PyList_Size(captions);
        s.metadata.size = (size_t)metadata_size;
        w->inside++;
        Py_BEGIN_ALLOW_THREADS status = ccs_writer_add(w->handle, &s, &id, &err);
        Py_END_ALLOW_THREADS w->inside--;
    }
    PyBuffer_Release(&image);
    PyMem_Free(texts);
    if (texts == NULL) {
        return NULL;
    }
    return status < 0 ? ext_raise(status, &err) : PyLong_FromUnsignedLongLong(id);
}

static PyObject *writer_set_classes(PyObject *self, PyObject *names) {
    struct writer *w = writer_of(self);
    struct ccs_error err;
    const Py_ssize_t count = PyTuple_Check(names) ? PyTuple_Size(names) : -1;
    if (count < 0) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of bytes");
        return NULL;
    }
    const char **texts = PyMem_Calloc((size_t)count + 1, sizeof *texts);
    for (Py_ssize_t i = 0; texts != NULL && i < count; i++) {
        texts[i] = PyBytes_AsString(PyTuple_GetItem(names, i));
        if (texts[i] == NULL) {
            PyMem_Free(texts);
            return NULL;
        }
    }
    if (texts == NULL || !is_free(w, true)) {
        PyMem_Free(texts);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    const int32_t status = ccs_writer_set_classes(w->handle, texts, (uint32_t)count, &err);
    PyMem_Free(texts);
    return status < 0 ? ext_raise(status, &err) : Py_NewRef(Py_None);
}

static PyObject *writer_finish(PyObject *self, PyObject *unused) {
    (void)unused;
    struct writer *w = writer_of(self);
    struct ccs_error err;
    int32_t status;
    if (!is_free(w, true)) {
        return NULL;
    }
    w->inside++;
    Py_BEGIN_ALLOW_THREADS status = ccs_writer_finish(w->handle, NULL, &err);
    Py_END_ALLOW_THREADS w->inside--;
    return status < 0 ? ext_raise(status, &err) : Py_NewRef(Py_None);
}

static PyObject *writer_close(PyObject *self, PyObject *unused) {
    (void)unused;
    struct writer *w = writer_of(self);
    if (w->handle != NULL) {
        if (!is_free(w, true)) {
            return NULL;
        }
        close_handle(w);
    }
    Py_RETURN_NONE;
}

static PyMethodDef writer_methods[] = {
    {"add", writer_add, METH_VARARGS, NULL},
    {"set_classes", writer_set_classes, METH_O, "set_classes($self, names, /)\n--\n\n"},
    {"finish", writer_finish, METH_NOARGS, "finish($self, /)\n--\n\n"},
    {"close", writer_close, METH_NOARGS, "close($self, /)\n--\n\n"},
    {0},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_doc, "A writer's handle; see ccstream.Writer."},
    {Py_tp_new, (void *)writer_new},
    {Py_tp_dealloc, (void *)writer_dealloc},
    {Py_tp_methods, writer_methods},
    {0, NULL},
};

static PyType_Spec writer_spec = {.name = "ccstream._ccstream.Writer",
                                  .basicsize = sizeof(struct writer),
                                  .flags = Py_TPFLAGS_DEFAULT,
                                  .slots = writer_slots};

int ext_add_writer(PyObject *module) {
    PyObject *type = ext_add_type(module, &writer_spec);
    Py_XDECREF(type);
    return type != NULL ? 0 : -1;
}
