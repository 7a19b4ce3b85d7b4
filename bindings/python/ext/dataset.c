/*
 * Dataset: what the index says, and samples as Python objects. A reader belongs to one thread at a
 * time, so the dataset keeps a few that are idle; whoever reads takes one out, under the GIL.
 */
#include "bindings/python/ext/ext_internal.h"

enum { MAX_IDLE = 16 };

struct dataset {
    PyObject ob_base;
    struct ccs_dataset *handle; /* NULL: closed */
    uint32_t readers;           /* open ones, idle or not */
    uint32_t idle_count;
    struct ccs_reader *idle[MAX_IDLE];
};

static struct dataset *dataset_of(PyObject *self) {
    return (struct dataset *)(void *)self;
}

/* Idle readers, and the dataset once none of its readers is in use. */
static void close_idle(struct dataset *d) {
    while (d->idle_count > 0) {
        ccs_reader_close(d->idle[--d->idle_count]);
        d->readers--;
    }
}

static void dataset_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    close_idle(dataset_of(self));
    ccs_dataset_close(dataset_of(self)->handle);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *dataset_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"path", NULL};
    PyObject *path = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&", names, PyUnicode_FSConverter, &path)) {
        return NULL;
    }
    struct dataset *d = PyObject_New(struct dataset, type);
    if (d == NULL) {
        Py_DECREF(path);
        return NULL;
    }
    const char *text = PyBytes_AsString(path);
    struct ccs_error err;
    int32_t status;
    d->handle = NULL;
    d->readers = d->idle_count = 0;
    Py_BEGIN_ALLOW_THREADS status = ccs_dataset_open(&d->handle, text, &err);
    Py_END_ALLOW_THREADS Py_DECREF(path);
    if (status < 0) {
        Py_DECREF(d);
        return ext_raise(status, &err);
    }
    return (PyObject *)d;
}

static bool is_open(const struct dataset *d) {
    if (d->handle == NULL) {
        ext_raise_closed("dataset");
    }
    return d->handle != NULL;
}

static PyObject *dataset_close(PyObject *self, PyObject *unused) {
    (void)unused;
    struct dataset *d = dataset_of(self);
    if (d->readers > d->idle_count) {
        return ext_raise_usage("another thread reads the dataset: it cannot be closed now");
    }
    close_idle(d);
    ccs_dataset_close(d->handle);
    d->handle = NULL;
    Py_RETURN_NONE;
}

/* ---- the index ---- */

static PyObject *dataset_info(PyObject *self, PyObject *unused) {
    (void)unused;
    struct ccs_dataset_info info = {.struct_size = sizeof info};
    struct ccs_error err;
    if (!is_open(dataset_of(self))) {
        return NULL;
    }
    const int32_t status = ccs_dataset_get_info(dataset_of(self)->handle, &info, &err);
    if (status < 0) {
        return ext_raise(status, &err);
    }
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:I,s:I,s:N}", "samples", (unsigned long long)info.samples,
        "captions", (unsigned long long)info.captions, "id_space",
        (unsigned long long)info.id_space, "image_bytes", (unsigned long long)info.image_bytes,
        "fingerprint", (unsigned long long)info.fingerprint, "shards", info.shards, "classes",
        info.classes, "tokenizer", PyBool_FromLong(info.tokenizer != 0));
}

static PyObject *dataset_class_name(PyObject *self, PyObject *label) {
    uint32_t number = 0;
    if (!is_open(dataset_of(self)) || !ext_u32(label, &number)) {
        return NULL;
    }
    const char *name = ccs_dataset_class(dataset_of(self)->handle, number);
    if (name == NULL) {
        Py_RETURN_NONE;
    }
    return PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace");
}

static PyObject *dataset_columns(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *list = is_open(dataset_of(self)) ? PyList_New(0) : NULL;
    const char *name;
    for (uint32_t i = 0;
         list != NULL && (name = ccs_dataset_column(dataset_of(self)->handle, i)) != NULL; i++) {
        PyObject *text = PyUnicode_FromString(name);
        if (text == NULL || PyList_Append(list, text) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *dataset_find(PyObject *self, PyObject *id) {
    struct ccs_record record = {.struct_size = sizeof record};
    struct ccs_error err;
    uint64_t number = 0;
    if (!is_open(dataset_of(self)) || !ext_u64(id, &number)) {
        return NULL;
    }
    const int32_t status = ccs_dataset_find(dataset_of(self)->handle, number, &record, &err);
    return status < 0 ? ext_raise(status, &err) : PyLong_FromUnsignedLongLong(record.position);
}

static PyObject *dataset_fill_ids(PyObject *self, PyObject *target) {
    struct dataset *d = dataset_of(self);
    Py_buffer view;
    struct ccs_error err;
    int32_t status;
    if (!is_open(d) || PyObject_GetBuffer(target, &view, PyBUF_CONTIG) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        ccs_dataset_ids(d->handle, view.buf, 0, (uint64_t)view.len / sizeof(uint64_t), &err);
    Py_END_ALLOW_THREADS PyBuffer_Release(&view);
    if (status < 0) {
        return ext_raise(status, &err);
    }
    Py_RETURN_NONE;
}

/* ---- samples ---- */

/* An idle reader or a new one; NULL with an exception. */
static struct ccs_reader *take_reader(struct dataset *d) {
    struct ccs_reader *r = NULL;
    struct ccs_error err;
    if (!is_open(d)) {
        return NULL;
    }
    if (d->idle_count > 0) {
        return d->idle[--d->idle_count];
    }
    const int32_t status = ccs_reader_open(&r, d->handle, &err);
    if (status < 0) {
        ext_raise(status, &err);
        return NULL;
    }
    d->readers++;
    return r;
}

static void put_reader(struct dataset *d, struct ccs_reader *r) {
    if (d->idle_count < MAX_IDLE) {
        d->idle[d->idle_count++] = r;
    } else {
        ccs_reader_close(r);
        d->readers--;
    }
}

static PyObject *build_sample(const struct ccs_sample *s) {
    const struct ccs_record *r = s->record;
    PyObject *out = PyDict_New();
    const bool ok =
        out != NULL && ext_put(out, "id", PyLong_FromUnsignedLongLong(r->id)) == 0 &&
        ext_put(out, "position", PyLong_FromUnsignedLongLong(r->position)) == 0 &&
        ext_put(out, "key", PyUnicode_FromString(s->key)) == 0 &&
        ext_put(out, "image",
                PyBytes_FromStringAndSize((const char *)s->image, (Py_ssize_t)r->image_bytes)) ==
            0 &&
        ext_put(out, "captions", ext_texts(s->captions, r->captions)) == 0 &&
        ext_put(out, "metadata",
                PyBytes_FromStringAndSize(s->metadata.data, (Py_ssize_t)s->metadata.size)) == 0 &&
        ext_put(out, "label", PyLong_FromLong(r->label)) == 0 &&
        ext_put(out, "width", PyLong_FromUnsignedLong(r->width_px)) == 0 &&
        ext_put(out, "height", PyLong_FromUnsignedLong(r->height_px)) == 0 &&
        ext_put(out, "format", PyLong_FromLong(r->format)) == 0 &&
        ext_put(out, "image_hash", PyLong_FromUnsignedLongLong(r->image_hash)) == 0;
    if (!ok) {
        Py_CLEAR(out);
    }
    return out;
}

static PyObject *dataset_get(PyObject *self, PyObject *position) {
    struct dataset *d = dataset_of(self);
    const struct ccs_sample *sample = NULL;
    struct ccs_error err;
    uint64_t number = 0;
    int32_t status;
    struct ccs_reader *r = ext_u64(position, &number) ? take_reader(d) : NULL;
    if (r == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = ccs_reader_get(r, number, &sample, &err);
    Py_END_ALLOW_THREADS PyObject *out =
        status < 0 ? ext_raise(status, &err) : build_sample(sample);
    put_reader(d, r);
    return out;
}

static PyObject *dataset_captions(PyObject *self, PyObject *position) {
    struct dataset *d = dataset_of(self);
    const struct ccs_text *texts = NULL;
    uint32_t count = 0;
    struct ccs_error err;
    uint64_t number = 0;
    int32_t status;
    struct ccs_reader *r = ext_u64(position, &number) ? take_reader(d) : NULL;
    if (r == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = ccs_reader_captions(r, number, &texts, &count, &err);
    Py_END_ALLOW_THREADS PyObject *out =
        status < 0 ? ext_raise(status, &err) : ext_texts(texts, count);
    put_reader(d, r);
    return out;
}

static PyMethodDef dataset_methods[] = {
    {"close", dataset_close, METH_NOARGS, "close($self, /)\n--\n\n"},
    {"info", dataset_info, METH_NOARGS, "info($self, /)\n--\n\n"},
    {"class_name", dataset_class_name, METH_O, "class_name($self, label, /)\n--\n\n"},
    {"columns", dataset_columns, METH_NOARGS, "columns($self, /)\n--\n\n"},
    {"find", dataset_find, METH_O, "find($self, id, /)\n--\n\nThe position of an id."},
    {"fill_ids", dataset_fill_ids, METH_O,
     "fill_ids($self, array, /)\n--\n\nThe first ids, in order."},
    {"get", dataset_get, METH_O, "get($self, position, /)\n--\n\n"},
    {"captions", dataset_captions, METH_O, "captions($self, position, /)\n--\n\n"},
    {0},
};

static PyType_Slot dataset_slots[] = {
    {Py_tp_doc, "A dataset's handle; see ccstream.Dataset."},
    {Py_tp_new, (void *)dataset_new},
    {Py_tp_dealloc, (void *)dataset_dealloc},
    {Py_tp_methods, dataset_methods},
    {0, NULL},
};

static PyType_Spec dataset_spec = {.name = "ccstream._ccstream.Dataset",
                                   .basicsize = sizeof(struct dataset),
                                   .flags = Py_TPFLAGS_DEFAULT,
                                   .slots = dataset_slots};

static PyObject *dataset_type;

int ext_add_dataset(PyObject *module) {
    dataset_type = ext_add_type(module, &dataset_spec);
    return dataset_type != NULL ? 0 : -1;
}

const struct ccs_dataset *ext_dataset(PyObject *object) {
    if ((PyObject *)Py_TYPE(object) != dataset_type) {
        PyErr_SetString(PyExc_TypeError, "expected a dataset or bytes");
        return NULL;
    }
    return is_open(dataset_of(object)) ? dataset_of(object)->handle : NULL;
}
