/*
 * ccstream._ccstream: the module, and conversions that its types share.
 */
#include "bindings/python/ext/ext_internal.h"

PyObject *ext_add_type(PyObject *module, PyType_Spec *spec) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddObjectRef(module, strrchr(spec->name, '.') + 1, type) < 0) {
        Py_CLEAR(type);
    }
    return type;
}

/* ---- values ---- */

static int whole_number(PyObject *value, uint64_t *out, uint64_t max) {
    PyObject *index = PyNumber_Index(value);
    if (index == NULL) {
        return 0;
    }
    *out = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (PyErr_Occurred()) {
        PyErr_Clear();
    } else if (*out <= max) {
        return 1;
    }
    PyErr_Format(PyExc_ValueError, "%R is not within 0 and %llu", value, (unsigned long long)max);
    return 0;
}

int ext_u32(PyObject *value, void *out) {
    uint64_t number = 0;
    if (!whole_number(value, &number, UINT32_MAX)) {
        return 0;
    }
    *(uint32_t *)out = (uint32_t)number;
    return 1;
}

int ext_u64(PyObject *value, void *out) {
    return whole_number(value, out, UINT64_MAX);
}

int ext_put(PyObject *dict, const char *name, PyObject *value) {
    const int status = value != NULL ? PyDict_SetItemString(dict, name, value) : -1;
    Py_XDECREF(value);
    return status;
}

PyObject *ext_texts(const struct ccs_text *texts, uint32_t count) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *text = PyUnicode_DecodeUTF8(texts[i].data, (Py_ssize_t)texts[i].size, "replace");
        if (text == NULL || PyList_Append(list, text) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(text);
    }
    return list;
}

struct ccs_text *ext_take_texts(PyObject *list) {
    const Py_ssize_t count = PyList_Size(list);
    struct ccs_text *texts = PyMem_Calloc((size_t)count + 1, sizeof *texts);
    for (Py_ssize_t i = 0; texts != NULL && i < count; i++) {
        char *data = NULL;
        Py_ssize_t size = 0;
        if (PyBytes_AsStringAndSize(PyList_GetItem(list, i), &data, &size) < 0) {
            PyMem_Free(texts);
            return NULL;
        }
        texts[i] = (struct ccs_text){data, (size_t)size};
    }
    if (texts == NULL) {
        PyErr_NoMemory();
    }
    return texts;
}

/* ---- module ---- */

static PyObject *library_version(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyUnicode_FromString(ccs_version());
}

static PyObject *configure_remote(PyObject *module, PyObject *args) {
    struct ccs_remote_options opt = {.struct_size = sizeof opt};
    struct ccs_error err;
    unsigned long long cache_bytes = 0;
    int instance_metadata = 0;
    int allow_private = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "zzKpp", &opt.endpoint, &opt.cache, &cache_bytes,
                          &instance_metadata, &allow_private)) {
        return NULL;
    }
    opt.cache_bytes = cache_bytes;
    opt.instance_metadata = instance_metadata != 0;
    opt.allow_private = allow_private != 0;
    const int32_t status = ccs_remote_configure(&opt, &err);
    return status < 0 ? ext_raise(status, &err) : Py_NewRef(Py_None);
}

enum { PIECE_BYTES = 1 << 20 };

/* Gives each piece to `write`. Ctrl-C is seen between them and while nothing comes. */
static int32_t
copy_pieces(struct ccs_remote_file *f, char *piece, PyObject *write, struct ccs_error *err) {
    for (;;) {
        size_t got = 0;
        int32_t status;
        Py_BEGIN_ALLOW_THREADS status = ccs_remote_file_read(f, piece, PIECE_BYTES, &got, err);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0 ||
                                 (status != CCS_OK && status != CCS_ERROR_TIMEOUT)) {
            return status;
        }
        if (status == CCS_OK) {
            PyObject *done = PyObject_CallFunction(write, "y#", piece, (Py_ssize_t)got);
            if (done == NULL) {
                return CCS_OK;
            }
            Py_DECREF(done);
        }
    }
}

static PyObject *read_remote(PyObject *module, PyObject *args) {
    const char *location;
    PyObject *write;
    struct ccs_remote_file *f = NULL;
    struct ccs_error err;
    (void)module;
    if (!PyArg_ParseTuple(args, "sO", &location, &write)) {
        return NULL;
    }
    char *piece = PyMem_Malloc(PIECE_BYTES);
    if (piece == NULL) {
        return PyErr_NoMemory();
    }
    int32_t status = ccs_remote_file_open(&f, location, &err);
    if (status == CCS_OK) {
        status = copy_pieces(f, piece, write, &err);
    }
    Py_BEGIN_ALLOW_THREADS ccs_remote_file_close(f);
    Py_END_ALLOW_THREADS PyMem_Free(piece);
    if (PyErr_Occurred()) {
        return NULL;
    }
    return status < 0 ? ext_raise(status, &err) : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"configure_remote", configure_remote, METH_VARARGS, NULL},
    {"read_remote", read_remote, METH_VARARGS, NULL},
    {"loss_options", ext_loss_options, METH_VARARGS, NULL},
    {"remove_column", ext_remove_column, METH_VARARGS, NULL},
    {"version", library_version, METH_NOARGS, "version()\n--\n\nThat of libccstream."},
    {0},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "ccstream._ccstream",
    .m_doc =
        "Types over libccstream. Use the package ccstream, which gives them their public form.",
    .m_size = -1, /* its exceptions and types are static: one interpreter */
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__ccstream(void);

PyMODINIT_FUNC PyInit__ccstream(void) {
    static int (*const parts[])(PyObject *) = {ext_add_errors, ext_add_array,     ext_add_dataset,
                                               ext_add_loader, ext_add_tokenizer, ext_add_writer,
                                               ext_add_loss,   ext_add_columns};
    PyObject *module = PyModule_Create(&definition);
    for (size_t i = 0; module != NULL && i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i](module) < 0) {
            Py_CLEAR(module);
        }
    }
    return module;
}
