/*
 * Column and ColumnWriter: handles of a column that is read, and of one that is written.
 */
#include "bindings/python/ext/ext_internal.h"

/* ---- reading ---- */

struct column {
    PyObject ob_base;
    struct ccs_attached *handle;
};

static struct column *column_of(PyObject *self) {
    return (struct column *)(void *)self;
}

static void column_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ccs_attached_close(column_of(self)->handle);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *column_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *dataset = NULL;
    const char *name = NULL;
    struct ccs_error err;
    (void)kwargs;
    const struct ccs_dataset *d =
        PyArg_ParseTuple(args, "Os", &dataset, &name) ? ext_dataset(dataset) : NULL;
    struct column *c = d != NULL ? PyObject_New(struct column, type) : NULL;
    if (c == NULL) {
        return NULL;
    }
    c->handle = NULL;
    const int32_t status = ccs_attached_open(&c->handle, d, name, &err);
    if (status < 0) {
        Py_DECREF(c);
        return ext_raise(status, &err);
    }
    return (PyObject *)c;
}

static PyObject *column_info(PyObject *self, PyObject *unused) {
    struct ccs_attached_info i = {.struct_size = sizeof i};
    struct ccs_error err;
    (void)unused;
    const int32_t status = ccs_attached_get_info(column_of(self)->handle, &i, &err);
    return status < 0
               ? ext_raise(status, &err)
               : Py_BuildValue("{s:K,s:K,s:K,s:s,s:s,s:I,s:I}", "rows", (unsigned long long)i.rows,
                               "hash", (unsigned long long)i.hash, "fingerprint",
                               (unsigned long long)i.fingerprint, "kind", i.kind, "source",
                               i.source, "values", i.values, "vectors", i.vectors);
}

static PyObject *column_fill_ids(PyObject *self, PyObject *target) {
    Py_buffer view;
    struct ccs_error err;
    if (PyObject_GetBuffer(target, &view, PyBUF_CONTIG) < 0) {
        return NULL;
    }
    const int32_t status = ccs_attached_ids(column_of(self)->handle, view.buf, 0,
                                            (uint64_t)view.len / sizeof(uint64_t), &err);
    PyBuffer_Release(&view);
    return status < 0 ? ext_raise(status, &err) : Py_NewRef(Py_None);
}

static PyObject *column_get(PyObject *self, PyObject *id) {
    struct ccs_text row = {0};
    struct ccs_error err;
    uint64_t number = 0;
    if (!ext_u64(id, &number)) {
        return NULL;
    }
    const int32_t status = ccs_attached_get(column_of(self)->handle, number, &row, &err);
    return status < 0 ? ext_raise(status, &err)
                      : PyBytes_FromStringAndSize(row.data, (Py_ssize_t)row.size);
}

static PyMethodDef column_methods[] = {
    {"info", column_info, METH_NOARGS, "info($self, /)\n--\n\n"},
    {"fill_ids", column_fill_ids, METH_O, "fill_ids($self, array, /)\n--\n\n"},
    {"get", column_get, METH_O, "get($self, id, /)\n--\n\nThe bytes of a sample's row."},
    {0},
};

static PyType_Slot column_slots[] = {
    {Py_tp_doc, "A column's handle; see ccstream.Column."},
    {Py_tp_new, (void *)column_new},
    {Py_tp_dealloc, (void *)column_dealloc},
    {Py_tp_methods, column_methods},
    {0, NULL},
};

static PyType_Spec column_spec = {.name = "ccstream._ccstream.Column",
                                  .basicsize = sizeof(struct column),
                                  .flags = Py_TPFLAGS_DEFAULT,
                                  .slots = column_slots};

/* ---- writing ---- */

struct writer {
    PyObject ob_base;
    struct ccs_attached_writer *handle; /* NULL: closed */
    bool inside;                        /* a thread is inside a call without the GIL */
};

static struct writer *writer_of(PyObject *self) {
    return (struct writer *)(void *)self;
}

static void writer_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ccs_attached_writer_close(writer_of(self)->handle);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    struct ccs_attached_info i = {.struct_size = sizeof i};
    struct ccs_error err;
    const char *dataset = NULL;
    const char *name = NULL;
    int replace = 0;
    int32_t status;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "ssssO&O&p", &dataset, &name, &i.kind, &i.source, ext_u32,
                          &i.values, ext_u32, &i.vectors, &replace)) {
        return NULL;
    }
    struct writer *w = PyObject_New(struct writer, type);
    if (w == NULL) {
        return NULL;
    }
    w->handle = NULL;
    w->inside = false;
    Py_BEGIN_ALLOW_THREADS status =
        ccs_attached_writer_open(&w->handle, dataset, name, &i, replace != 0, &err);
    Py_END_ALLOW_THREADS if (status < 0) {
        Py_DECREF(w);
        return ext_raise(status, &err);
    }
    return (PyObject *)w;
}

static bool is_free(const struct writer *w) {
    if (w->handle == NULL) {
        ext_raise_closed("column writer");
    } else if (w->inside) {
        ext_raise_usage("another thread uses the column writer");
    }
    return w->handle != NULL && !w->inside;
}

static PyObject *writer_add(PyObject *self, PyObject *args) {
    struct writer *w = writer_of(self);
    struct ccs_error err;
    Py_buffer ids;
    Py_buffer rows;
    Py_buffer sizes = {0};
    int32_t status = 0;
    if (!PyArg_ParseTuple(args, "y*y*z*", &ids, &rows, &sizes)) {
        return NULL;
    }
    const bool good = is_free(w);
    if (good) {
        w->inside = true;
        Py_BEGIN_ALLOW_THREADS status =
            ccs_attached_writer_add(w->handle, ids.buf, (uint64_t)ids.len / 8, rows.buf,
                                    sizes.obj != NULL ? sizes.buf : NULL, &err);
        Py_END_ALLOW_THREADS w->inside = false;
    }
    PyBuffer_Release(&ids);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&sizes);
    return !good ? NULL : status < 0 ? ext_raise(status, &err) : Py_NewRef(Py_None);
}

static PyObject *writer_finish(PyObject *self, PyObject *unused) {
    struct writer *w = writer_of(self);
    struct ccs_error err;
    int32_t status;
    (void)unused;
    if (!is_free(w)) {
        return NULL;
    }
    w->inside = true;
    Py_BEGIN_ALLOW_THREADS status = ccs_attached_writer_finish(w->handle, &err);
    Py_END_ALLOW_THREADS w->inside = false;
    return status < 0 ? ext_raise(status, &err) : Py_NewRef(Py_None);
}

static PyObject *writer_close(PyObject *self, PyObject *unused) {
    struct writer *w = writer_of(self);
    (void)unused;
    if (w->handle != NULL) {
        if (!is_free(w)) {
            return NULL;
        }
        ccs_attached_writer_close(w->handle);
        w->handle = NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef writer_methods[] = {
    {"add", writer_add, METH_VARARGS, "add($self, ids, rows, sizes, /)\n--\n\n"},
    {"finish", writer_finish, METH_NOARGS, "finish($self, /)\n--\n\n"},
    {"close", writer_close, METH_NOARGS, "close($self, /)\n--\n\n"},
    {0},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_doc, "A column writer's handle; see ccstream.Dataset.attach."},
    {Py_tp_new, (void *)writer_new},
    {Py_tp_dealloc, (void *)writer_dealloc},
    {Py_tp_methods, writer_methods},
    {0, NULL},
};

static PyType_Spec writer_spec = {.name = "ccstream._ccstream.ColumnWriter",
                                  .basicsize = sizeof(struct writer),
                                  .flags = Py_TPFLAGS_DEFAULT,
                                  .slots = writer_slots};

PyObject *ext_remove_column(PyObject *module, PyObject *args) {
    const char *dataset = NULL;
    const char *name = NULL;
    struct ccs_error err;
    (void)module;
    if (!PyArg_ParseTuple(args, "ss", &dataset, &name)) {
        return NULL;
    }
    const int32_t status = ccs_attached_remove(dataset, name, &err);
    return status < 0 ? ext_raise(status, &err) : Py_NewRef(Py_None);
}

int ext_add_columns(PyObject *module) {
    PyObject *column = ext_add_type(module, &column_spec);
    PyObject *writer = ext_add_type(module, &writer_spec);
    const int result = column != NULL && writer != NULL ? 0 : -1;
    Py_XDECREF(column);
    Py_XDECREF(writer);
    return result;
}
