/*
 * Tokenizer: texts to rows of token ids, in memory of the caller.
 */
#include "bindings/python/ext/ext_internal.h"

struct tokenizer {
    PyObject ob_base;
    struct ccs_tokenizer *handle;
};

static struct ccs_tokenizer *handle_of(PyObject *self) {
    return ((struct tokenizer *)(void *)self)->handle;
}

static void tokenizer_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ccs_tokenizer_close(handle_of(self));
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Of a model's bytes, a file, or a dataset. */
static PyObject *tokenizer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    PyObject *source = NULL;
    struct ccs_error err;
    int32_t status;
    if (!PyArg_ParseTuple(args, "O", &source)) {
        return NULL;
    }
    struct tokenizer *t = PyObject_New(struct tokenizer, type);
    if (t == NULL) {
        return NULL;
    }
    t->handle = NULL;
    if (PyBytes_Check(source)) {
        status = ccs_tokenizer_open(&t->handle, PyBytes_AsString(source),
                                    (size_t)PyBytes_Size(source), &err);
    } else if (PyUnicode_Check(source)) {
        PyObject *path = NULL;
        if (!PyUnicode_FSConverter(source, &path)) {
            Py_DECREF(t);
            return NULL;
        }
        status = ccs_tokenizer_load(&t->handle, PyBytes_AsString(path), &err);
        Py_DECREF(path);
    } else {
        const struct ccs_dataset *d = ext_dataset(source);
        if (d == NULL) {
            Py_DECREF(t);
            return NULL;
        }
        status = ccs_tokenizer_of_dataset(&t->handle, d, &err);
    }
    if (status < 0) {
        Py_DECREF(t);
        return ext_raise(status, &err);
    }
    return (PyObject *)t;
}

static PyObject *tokenizer_encode(PyObject *self, PyObject *args) {
    PyObject *list = NULL;
    Py_buffer tokens;
    Py_buffer lengths;
    uint32_t max_tokens = 0;
    int clean = 0;
    struct ccs_error err;
    int32_t status;
    if (!PyArg_ParseTuple(args, "O!w*w*O&p", &PyList_Type, &list, &tokens, &lengths, ext_u32,
                          &max_tokens, &clean)) {
        return NULL;
    }
    const Py_ssize_t count = PyList_Size(list);
    struct ccs_text *texts = ext_take_texts(list);
    const bool fits =
        lengths.len / 4 >= count && (uint64_t)tokens.len / 4 >= (uint64_t)count * max_tokens;
    if (texts != NULL && !fits) {
        ext_raise_usage("tokens and lengths have no room for the texts");
    }
    if (PyErr_Occurred()) {
        status = CCS_OK;
    } else {
        Py_BEGIN_ALLOW_THREADS status =
            ccs_tokenizer_encode(handle_of(self), tokens.buf, lengths.buf, texts, (uint64_t)count,
                                 max_tokens, clean, &err);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(texts);
    PyBuffer_Release(&tokens);
    PyBuffer_Release(&lengths);
    if (status < 0) {
        return ext_raise(status, &err);
    }
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *tokenizer_vocabulary(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLong(ccs_tokenizer_vocabulary(handle_of(self)));
}

static PyObject *tokenizer_pad(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromLong(ccs_tokenizer_pad(handle_of(self)));
}

static PyObject *tokenizer_begin(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromLong(ccs_tokenizer_begin(handle_of(self)));
}

static PyObject *tokenizer_end(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromLong(ccs_tokenizer_end(handle_of(self)));
}

static PyMethodDef tokenizer_methods[] = {
    {"encode", tokenizer_encode, METH_VARARGS, NULL},
    {0},
};

static PyGetSetDef tokenizer_getset[] = {
    {"vocabulary", tokenizer_vocabulary, NULL, "Ids are below it.", NULL},
    {"pad", tokenizer_pad, NULL, "The id that fills a row.", NULL},
    {"begin", tokenizer_begin, NULL, "The id before a text.", NULL},
    {"end", tokenizer_end, NULL, "The id after a text.", NULL},
    {0},
};

static PyType_Slot tokenizer_slots[] = {
    {Py_tp_doc, "A tokenizer's handle; see ccstream.Tokenizer."},
    {Py_tp_new, (void *)tokenizer_new},
    {Py_tp_dealloc, (void *)tokenizer_dealloc},
    {Py_tp_methods, tokenizer_methods},
    {Py_tp_getset, tokenizer_getset},
    {0, NULL},
};

static PyType_Spec tokenizer_spec = {.name = "ccstream._ccstream.Tokenizer",
                                     .basicsize = sizeof(struct tokenizer),
                                     .flags = Py_TPFLAGS_DEFAULT,
                                     .slots = tokenizer_slots};

int ext_add_tokenizer(PyObject *module) {
    PyObject *type = ext_add_type(module, &tokenizer_spec);
    Py_XDECREF(type);
    return type != NULL ? 0 : -1;
}
