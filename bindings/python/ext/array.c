/*
 * Array: one array of a batch, as the memory that the loader filled. It exports the buffer protocol
 * and DLPack, so that numpy.asarray and torch.from_dlpack copy nothing.
 *
 *     Array, DLPack capsule  --references-->  holder  --holds-->  ccs_batch
 *
 * Whoever looks at the memory has a reference; the last one to go gives the batch back to the
 * loader. References are counted by atomics, not by Python, since a consumer of DLPack may drop its
 * tensor on any thread, without the GIL.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "bindings/python/ext/ext_internal.h"

enum { MAX_DIMENSIONS = 4 };

struct holder {
    atomic_int references; /* relaxed to add; release and acquire where it may reach 0 */
    const struct ccs_batch *batch;
};

struct holder *holder_create(const struct ccs_batch *batch) {
    struct holder *h = calloc(1, sizeof *h);
    if (h == NULL) {
        ccs_batch_release(batch);
        PyErr_NoMemory();
        return NULL;
    }
    atomic_init(&h->references, 1);
    h->batch = batch;
    return h;
}

static struct holder *holder_acquire(struct holder *h) {
    atomic_fetch_add_explicit(&h->references, 1, memory_order_relaxed);
    return h;
}

void holder_release(struct holder *h) {
    if (h != NULL && atomic_fetch_sub_explicit(&h->references, 1, memory_order_acq_rel) == 1) {
        ccs_batch_release(h->batch);
        free(h);
    }
}

/* ---- DLPack: the structs of its ABI, version 1.0 and before versions ---- */

enum { DL_CPU = 1, DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4 };

struct dl_device {
    int32_t type, id;
};

struct dl_type {
    uint8_t code, bits;
    uint16_t lanes;
};

struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t dimensions;
    struct dl_type type;
    int64_t *shape, *strides; /* of elements */
    uint64_t offset_bytes;
};

struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
};

struct dl_managed_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_managed_versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

/* ---- Array ---- */

struct element {
    const char *format; /* of the struct module; NULL: it has none */
    const char *name;   /* of NumPy */
    uint8_t bytes, code;
};

static const struct element i32 = {"i", "int32", 4, DL_INT};
static const struct element i64 = {"q", "int64", 8, DL_INT};
static const struct element pixels[] = {{"B", "uint8", 1, DL_UINT},
                                        {"e", "float16", 2, DL_FLOAT},
                                        {NULL, "bfloat16", 2, DL_BFLOAT},
                                        {"f", "float32", 4, DL_FLOAT}};

struct array {
    PyObject ob_base;
    struct holder *holder;
    void *data;
    const struct element *element;
    int dimensions;
    Py_ssize_t shape[MAX_DIMENSIONS];
    Py_ssize_t strides[MAX_DIMENSIONS]; /* bytes */
    Py_ssize_t size_bytes;
    bool contiguous; /* in the order of the dimensions */
};

static struct array *array_of(PyObject *self) {
    return (struct array *)(void *)self;
}

static void array_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    holder_release(array_of(self)->holder);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int array_buffer(PyObject *self, Py_buffer *view, int flags) {
    struct array *a = array_of(self);
    view->obj = NULL;
    if (a->element->format == NULL) {
        PyErr_SetString(PyExc_BufferError,
                        "buffers and NumPy have no bfloat16: torch.from_dlpack shows the array");
        return -1;
    }
    if (!a->contiguous && (flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
        PyErr_SetString(PyExc_BufferError, "images of layout channels_last need strides");
        return -1;
    }
    if ((!a->contiguous && (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS) ||
        (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS) {
        PyErr_SetString(PyExc_BufferError, "the array is not contiguous in this order");
        return -1;
    }
    *view = (Py_buffer){.buf = a->data,
                        .obj = Py_NewRef(self),
                        .len = a->size_bytes,
                        .itemsize = a->element->bytes,
                        .ndim = a->dimensions,
                        .shape = flags & PyBUF_ND ? a->shape : NULL,
                        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? a->strides : NULL};
    if (flags & PyBUF_FORMAT) {
        memcpy(&view->format, &a->element->format, sizeof view->format); /* which is not const */
    }
    return 0;
}

static PyObject *array_shape(PyObject *self, void *closure) {
    (void)closure;
    const struct array *a = array_of(self);
    PyObject *shape = PyTuple_New(a->dimensions);
    for (int i = 0; shape != NULL && i < a->dimensions; i++) {
        PyObject *n = PyLong_FromSsize_t(a->shape[i]);
        if (n == NULL || PyTuple_SetItem(shape, i, n) < 0) {
            Py_CLEAR(shape);
        }
    }
    return shape;
}

static PyObject *array_dtype(PyObject *self, void *closure) {
    (void)closure;
    return PyUnicode_FromString(array_of(self)->element->name);
}

static Py_ssize_t array_length(PyObject *self) {
    return array_of(self)->shape[0];
}

/* ---- its capsules ---- */

struct exported {
    union {
        struct dl_managed unversioned;
        struct dl_managed_versioned versioned;
    } managed;
    struct holder *holder;
    int64_t shape[MAX_DIMENSIONS], strides[MAX_DIMENSIONS];
};

static void exported_destroy(void *e) {
    holder_release(((struct exported *)e)->holder);
    free(e);
}

static void delete_unversioned(struct dl_managed *self) {
    exported_destroy(self->context);
}

static void delete_versioned(struct dl_managed_versioned *self) {
    exported_destroy(self->context);
}

static const char unversioned_name[] = "dltensor";
static const char versioned_name[] = "dltensor_versioned";

/* A capsule that nobody consumed still has its first name. */
static void capsule_destroy(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, versioned_name)) {
        struct dl_managed_versioned *m = PyCapsule_GetPointer(capsule, versioned_name);
        m->deleter(m);
    } else if (PyCapsule_IsValid(capsule, unversioned_name)) {
        struct dl_managed *m = PyCapsule_GetPointer(capsule, unversioned_name);
        m->deleter(m);
    }
}

static struct exported *export_array(struct array *a, bool versioned) {
    struct exported *e = calloc(1, sizeof *e);
    if (e == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    e->holder = holder_acquire(a->holder);
    for (int i = 0; i < a->dimensions; i++) {
        e->shape[i] = a->shape[i];
        e->strides[i] = a->strides[i] / a->element->bytes;
    }
    const struct dl_tensor tensor = {
        .data = a->data,
        .device = {DL_CPU, 0},
        .dimensions = a->dimensions,
        .type = {a->element->code, (uint8_t)(8 * a->element->bytes), 1},
        .shape = e->shape,
        .strides = e->strides,
    };
    if (versioned) {
        e->managed.versioned = (struct dl_managed_versioned){
            .major = 1, .context = e, .deleter = delete_versioned, .tensor = tensor};
    } else {
        e->managed.unversioned =
            (struct dl_managed){.tensor = tensor, .context = e, .deleter = delete_unversioned};
    }
    return e;
}

/* Whether max_version, None or (major, minor), has version 1 and its capsules; -1 with an
 * exception. */
static int takes_versioned(PyObject *max_version) {
    int major = 0;
    int minor = 0;
    if (max_version == NULL || max_version == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(max_version) || !PyArg_ParseTuple(max_version, "ii", &major, &minor)) {
        PyErr_SetString(PyExc_TypeError, "max_version must be None or (major, minor)");
        return -1;
    }
    return major >= 1;
}

static PyObject *array_dlpack(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None;
    PyObject *max_version = Py_None;
    PyObject *device = Py_None;
    PyObject *copy = Py_None;
    int type = DL_CPU;
    int number = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO", names, &stream, &max_version, &device,
                                     &copy)) {
        return NULL;
    }
    if (device != Py_None &&
        !(PyTuple_Check(device) && PyArg_ParseTuple(device, "ii", &type, &number))) {
        PyErr_SetString(PyExc_TypeError, "dl_device must be None or (type, id)");
        return NULL;
    }
    if (stream != Py_None || type != DL_CPU || copy == Py_True) {
        PyErr_SetString(PyExc_BufferError,
                        "batches are in host memory and exported without a copy: no stream, other "
                        "device or copy");
        return NULL;
    }
    const int versioned = takes_versioned(max_version);
    struct exported *e = versioned < 0 ? NULL : export_array(array_of(self), versioned);
    PyObject *capsule =
        e == NULL ? NULL
                  : PyCapsule_New(&e->managed, versioned ? versioned_name : unversioned_name,
                                  capsule_destroy);
    if (capsule == NULL && e != NULL) {
        exported_destroy(e);
    }
    return capsule;
}

static PyObject *array_dlpack_device(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    return Py_BuildValue("(ii)", DL_CPU, 0);
}

static PyObject *array_repr(PyObject *self) {
    PyObject *dtype = array_dtype(self, NULL);
    PyObject *shape = array_shape(self, NULL);
    PyObject *text =
        dtype != NULL && shape != NULL ? PyUnicode_FromFormat("Array(%U, %R)", dtype, shape) : NULL;
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    return text;
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "A DLPack capsule over the batch's memory, which stays valid as long as its consumer."},
    {"__dlpack_device__", array_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\n(1, 0): host memory."},
    {0},
};

static PyGetSetDef array_getset[] = {
    {"shape", array_shape, NULL, "Elements of each dimension.", NULL},
    {"dtype", array_dtype, NULL,
     "\"uint8\", \"int32\", \"int64\", \"float16\", \"bfloat16\" or \"float32\".", NULL},
    {0},
};

static PyType_Slot array_slots[] = {
    {Py_tp_doc, "An array of a batch. numpy.asarray(a) and torch.from_dlpack(a) are views of the "
                "loader's memory; the last view gives it back."},
    {Py_tp_dealloc, (void *)array_dealloc},
    {Py_tp_repr, (void *)array_repr},
    {Py_tp_methods, array_methods},
    {Py_tp_getset, array_getset},
    {Py_sq_length, (void *)array_length},
    {Py_bf_getbuffer, (void *)array_buffer},
    {0, NULL},
};

static PyType_Spec array_spec = {.name = "ccstream._ccstream.Array",
                                 .basicsize = sizeof(struct array),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 .slots = array_slots};

static PyTypeObject *array_type;

int ext_add_array(PyObject *module) {
    array_type = (PyTypeObject *)(void *)ext_add_type(module, &array_spec);
    return array_type != NULL ? 0 : -1;
}

static PyObject *array_create(struct holder *h,
                              void *data,
                              const struct element *element,
                              int dimensions,
                              const uint32_t *shape) {
    struct array *a = PyObject_New(struct array, array_type);
    if (a == NULL) {
        return NULL;
    }
    a->holder = holder_acquire(h);
    a->data = data;
    a->element = element;
    a->dimensions = dimensions;
    a->contiguous = true;
    a->size_bytes = element->bytes;
    for (int i = dimensions - 1; i >= 0; i--) {
        a->shape[i] = (Py_ssize_t)shape[i];
        a->strides[i] = a->size_bytes;
        a->size_bytes *= a->shape[i];
    }
    return (PyObject *)a;
}

/* (B, S, S, 3) as (B, 3, S, S) of the same memory. */
static void show_channels_first(PyObject *images) {
    struct array *a = array_of(images);
    const Py_ssize_t side = a->shape[1];
    const Py_ssize_t row_bytes = a->strides[1];
    const Py_ssize_t pixel_bytes = a->strides[2];
    a->shape[1] = 3;
    a->shape[3] = side;
    a->strides[1] = a->strides[3];
    a->strides[2] = row_bytes;
    a->strides[3] = pixel_bytes;
    a->contiguous = false;
}

static PyObject *stored_images(const struct ccs_text *images, uint32_t count) {
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *bytes = PyBytes_FromStringAndSize(images[i].data, (Py_ssize_t)images[i].size);
        if (bytes == NULL || PyList_SetItem(list, (Py_ssize_t)i, bytes) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

PyObject *ext_batch_arrays(struct holder *h, bool channels_last) {
    const struct ccs_batch *b = h->batch;
    const uint32_t last[] = {b->count, b->side_px, b->side_px, 3};
    const uint32_t first[] = {b->count, 3, b->side_px, b->side_px};
    const uint32_t *side = b->planar ? first : last;
    const struct element *pixel = &pixels[b->pixels];
    const uint32_t tokens[] = {b->count, b->max_tokens};
    const struct {
        const char *name;
        void *data;
        const struct element *element;
        int dimensions;
        const uint32_t *shape;
    } arrays[] = {
        {"image", b->images, pixel, 4, side},   {"image2", b->images2, pixel, 4, side},
        {"tokens", b->tokens, &i32, 2, tokens}, {"length", b->lengths, &i32, 1, tokens},
        {"id", b->ids, &i64, 1, tokens},        {"caption_id", b->caption_ids, &i64, 1, tokens},
        {"label", b->labels, &i32, 1, tokens},  {"caption", b->captions, &i32, 1, tokens},
    };
    PyObject *out = PyDict_New();
    for (size_t i = 0; out != NULL && i < sizeof arrays / sizeof arrays[0]; i++) {
        if (arrays[i].data != NULL &&
            ext_put(out, arrays[i].name,
                    array_create(h, arrays[i].data, arrays[i].element, arrays[i].dimensions,
                                 arrays[i].shape)) < 0) {
            Py_CLEAR(out);
        }
        if (out != NULL && channels_last && arrays[i].dimensions == 4 && arrays[i].data != NULL) {
            show_channels_first(PyDict_GetItemString(out, arrays[i].name));
        }
    }
    if (out != NULL &&
        ((b->texts != NULL && ext_put(out, "text", ext_texts(b->texts, b->count)) < 0) ||
         (b->encoded != NULL &&
          ext_put(out, "encoded", stored_images(b->encoded, b->count)) < 0))) {
        Py_CLEAR(out);
    }
    return out;
}
