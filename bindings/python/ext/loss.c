/*
 * Loss and State: a loss over host arrays with its state by sample id, and the state of a
 * checkpoint. Both have columns, which are copied to and from buffers.
 */
#include "bindings/python/ext/ext_internal.h"

struct loss {
    PyObject ob_base;
    struct ccs_loss *handle;
    bool busy; /* a thread is inside step */
};

struct state {
    PyObject ob_base;
    struct ccs_state *handle;
};

static struct loss *loss_of(PyObject *self) {
    return (struct loss *)(void *)self;
}

static struct ccs_state *state_of(PyObject *self) {
    return ((struct state *)(void *)self)->handle;
}

/* Whether no other thread is inside the loss; sets an exception if one is. */
static struct ccs_loss *free_loss(PyObject *self) {
    if (loss_of(self)->busy) {
        ext_raise_usage("another thread is inside a step of this loss");
    }
    return loss_of(self)->busy ? NULL : loss_of(self)->handle;
}

/* ---- columns ---- */

enum { VALUE_BYTES_F32 = 4, VALUE_BYTES_U64 = 8 };

typedef int32_t (*describe)(const void *of,
                            uint32_t i,
                            struct ccs_column *out,
                            struct ccs_error *err);

static int32_t
describe_loss(const void *of, uint32_t i, struct ccs_column *out, struct ccs_error *err) {
    return ccs_loss_column(of, i, out, err);
}

static int32_t
describe_state(const void *of, uint32_t i, struct ccs_column *out, struct ccs_error *err) {
    return ccs_state_column(of, i, out, err);
}

/* A dict of name to (kind, entries). */
static PyObject *columns_of(const void *of, describe column) {
    struct ccs_error err;
    struct ccs_column c = {.struct_size = sizeof c};
    int32_t status = CCS_OK;
    PyObject *out = PyDict_New();
    for (uint32_t i = 0; out != NULL; i++) {
        status = column(of, i, &c, &err);
        if (status < 0) {
            break;
        }
        if (ext_put(out, c.name, Py_BuildValue("(iK)", c.kind, (unsigned long long)c.ids)) < 0) {
            Py_CLEAR(out);
        }
    }
    if (out != NULL && status != CCS_ERROR_NOTFOUND) {
        Py_CLEAR(out);
        ext_raise(status, &err);
    }
    return out;
}

/* Takes (name, buffer) for a column of this object: the buffer's entries are the column's from 0
 * on. Returns their count, or -1 with an exception. */
static int64_t take_column(PyObject *args,
                           const void *of,
                           describe column,
                           bool writable,
                           const char **name,
                           Py_buffer *view) {
    struct ccs_error err;
    struct ccs_column c = {.struct_size = sizeof c};
    if (!PyArg_ParseTuple(args, writable ? "sw*" : "sy*", name, view)) {
        return -1;
    }
    for (uint32_t i = 0; column(of, i, &c, &err) == CCS_OK; i++) {
        if (strcmp(c.name, *name) == 0) {
            return view->len / (c.kind == CCS_COLUMN_F32 ? VALUE_BYTES_F32 : VALUE_BYTES_U64);
        }
    }
    return 0; /* which the library refuses by name */
}

/* ---- Loss ---- */

static void loss_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ccs_loss_close(loss_of(self)->handle);
    PyObject_Free(self);
    Py_DECREF(type);
}

enum { MAX_OPTIONS = 64 };

/* The texts of a tuple of bytes, which owns them. Returns their count, or -1 with an exception. */
static Py_ssize_t take_options(const char *options[MAX_OPTIONS], PyObject *given) {
    const Py_ssize_t count = PyTuple_Size(given);
    if (count > MAX_OPTIONS) {
        (void)ext_raise_usage("too many options");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        options[i] = PyBytes_AsString(PyTuple_GetItem(given, i));
        if (options[i] == NULL) {
            return -1;
        }
    }
    return count;
}

PyObject *ext_loss_options(PyObject *module, PyObject *args) {
    const char *options[MAX_OPTIONS];
    const char *name = NULL;
    PyObject *given = NULL;
    int views = 0;
    int32_t status = CCS_OK;
    (void)module;
    if (!PyArg_ParseTuple(args, "spO!", &name, &views, &PyTuple_Type, &given)) {
        return NULL;
    }
    const Py_ssize_t count = take_options(options, given);
    PyObject *out = count < 0 ? NULL : PyDict_New();
    for (uint32_t i = 0; out != NULL; i++) {
        struct ccs_loss_option o = {.struct_size = sizeof o};
        struct ccs_error err;
        status = ccs_loss_option(name, views, options, (uint32_t)count, i, &o, &err);
        if (status == CCS_ERROR_NOTFOUND) {
            break;
        }
        if (status < 0) {
            Py_CLEAR(out);
            return ext_raise(status, &err);
        }
        PyObject *value =
            o.choice != NULL ? PyUnicode_FromString(o.choice) : PyFloat_FromDouble(o.value);
        if (ext_put(out, o.name, value) < 0) {
            Py_CLEAR(out);
        }
    }
    return out;
}

static PyObject *loss_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    const char *options[MAX_OPTIONS];
    const char *name = NULL;
    PyObject *given = NULL;
    int views = 0;
    uint64_t samples = 0;
    uint64_t id_space = 0;
    uint32_t max_batch = 0;
    struct ccs_error err;
    int32_t status;
    if (!PyArg_ParseTuple(args, "spO!O&O&O&", &name, &views, &PyTuple_Type, &given, ext_u64,
                          &samples, ext_u64, &id_space, ext_u32, &max_batch)) {
        return NULL;
    }
    const Py_ssize_t count = take_options(options, given);
    struct loss *l = count < 0 ? NULL : PyObject_New(struct loss, type);
    if (l == NULL) {
        return NULL;
    }
    l->handle = NULL;
    l->busy = false;
    status = ccs_loss_open(&l->handle, name, views, options, (uint32_t)count, samples, id_space,
                           max_batch, &err);
    if (status < 0) {
        Py_DECREF(l);
        return ext_raise(status, &err);
    }
    return (PyObject *)l;
}

static PyObject *loss_step(PyObject *self, PyObject *args) {
    struct loss *l = loss_of(self);
    struct ccs_loss_input in = {.struct_size = sizeof in};
    struct ccs_loss_output out = {.struct_size = sizeof out};
    struct ccs_error err;
    Py_buffer similarity;
    Py_buffer gradient;
    Py_buffer selves; /* images with images, then texts with texts; or empty, as their gradients */
    Py_buffer self_gradients;
    Py_buffer ids;
    Py_buffer carried_ids; /* (2, B), or empty, as the next two */
    Py_buffer carried_similarity;
    Py_buffer carried_gradient;
    int frozen = 0;
    int32_t status = CCS_ERROR_INVALID;
    if (!PyArg_ParseTuple(args, "y*w*y*w*y*y*y*w*O&O&dddp", &similarity, &gradient, &selves,
                          &self_gradients, &ids, &carried_ids, &carried_similarity,
                          &carried_gradient, ext_u64, &in.step, ext_u64, &in.epoch, &in.lr,
                          &in.zeta_lr_image, &in.zeta_lr_text, &frozen)) {
        return NULL;
    }
    in.frozen = frozen;
    in.batch_size = (uint32_t)(ids.len / 8);
    in.ids = ids.buf;
    in.similarity = similarity.buf;
    out.gradient = gradient.buf;
    const uint64_t entries = (uint64_t)in.batch_size * in.batch_size;
    const uint64_t pairs = entries * sizeof(float);
    const uint64_t size = (uint64_t)similarity.len;
    if (selves.len > 0) {
        in.image_similarity = selves.buf;
        in.text_similarity = in.image_similarity + entries;
        out.image_gradient = self_gradients.buf;
        out.text_gradient = out.image_gradient + entries;
    }
    if (carried_ids.len > 0) {
        in.carried_ids = carried_ids.buf;
        in.carried_similarity = carried_similarity.buf;
        out.carried_gradient = carried_gradient.buf;
    }
    if (gradient.len != similarity.len || (size != pairs && size != 4 * pairs)) {
        ext_raise_usage("similarity and gradient must be (B, B), or (2B, 2B) with two views");
    } else if (self_gradients.len != selves.len ||
               (selves.len > 0 && (uint64_t)selves.len != 2 * pairs)) {
        ext_raise_usage("image_similarity and text_similarity must be (B, B)");
    } else if (carried_ids.len > 0 &&
               (carried_ids.len != 2 * ids.len || 2 * carried_similarity.len != carried_ids.len ||
                carried_gradient.len != carried_similarity.len)) {
        ext_raise_usage("carried_ids and carried_similarity must be (2, B)");
    } else if (free_loss(self) != NULL) {
        l->busy = true;
        Py_BEGIN_ALLOW_THREADS status = ccs_loss_step(l->handle, &in, &out, &err);
        Py_END_ALLOW_THREADS l->busy = false;
        if (status < 0) {
            ext_raise(status, &err);
        }
    }
    PyBuffer_Release(&similarity);
    PyBuffer_Release(&gradient);
    PyBuffer_Release(&selves);
    PyBuffer_Release(&self_gradients);
    PyBuffer_Release(&ids);
    PyBuffer_Release(&carried_ids);
    PyBuffer_Release(&carried_similarity);
    PyBuffer_Release(&carried_gradient);
    return status < 0 ? NULL : Py_BuildValue("(ddd)", out.value, out.objective, out.tau);
}

static PyObject *loss_beyond(PyObject *self, PyObject *unused) {
    (void)unused;
    struct ccs_loss *l = free_loss(self);
    return l != NULL ? PyLong_FromLong(ccs_loss_beyond(l)) : NULL;
}

static PyObject *loss_carried(PyObject *self, PyObject *args) {
    struct ccs_error err;
    Py_buffer out; /* (2, B) */
    Py_buffer ids; /* (B) */
    int32_t status = CCS_ERROR_INVALID;
    if (!PyArg_ParseTuple(args, "w*y*", &out, &ids)) {
        return NULL;
    }
    struct ccs_loss *l = free_loss(self);
    if (l != NULL && out.len != 2 * ids.len) {
        ext_raise_usage("out must be (2, B)");
    } else if (l != NULL) {
        status = ccs_loss_carried(l, out.buf, ids.buf, (uint32_t)(ids.len / 8), &err);
        if (status < 0) {
            ext_raise(status, &err);
        }
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&ids);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *loss_columns(PyObject *self, PyObject *unused) {
    (void)unused;
    return free_loss(self) != NULL ? columns_of(loss_of(self)->handle, describe_loss) : NULL;
}

static PyObject *loss_move(PyObject *self, PyObject *args, bool read) {
    const char *name = NULL;
    struct ccs_error err;
    Py_buffer view;
    struct ccs_loss *l = free_loss(self);
    const int64_t count = l != NULL ? take_column(args, l, describe_loss, read, &name, &view) : -1;
    if (count < 0) {
        return NULL;
    }
    const int32_t status = read ? ccs_loss_read(l, name, view.buf, 0, (uint64_t)count, &err)
                                : ccs_loss_write(l, name, view.buf, 0, (uint64_t)count, &err);
    PyBuffer_Release(&view);
    return status < 0 ? ext_raise(status, &err) : Py_NewRef(Py_None);
}

static PyObject *loss_read(PyObject *self, PyObject *args) {
    return loss_move(self, args, true);
}

static PyObject *loss_write(PyObject *self, PyObject *args) {
    return loss_move(self, args, false);
}

static PyObject *loss_scalars(PyObject *self, PyObject *unused) {
    (void)unused;
    struct ccs_error err;
    const char *name = NULL;
    const struct ccs_loss *l = free_loss(self);
    PyObject *out = l != NULL ? PyDict_New() : NULL;
    for (uint32_t i = 0; out != NULL && (name = ccs_loss_scalar_name(l, i)) != NULL; i++) {
        double value = 0.0;
        const int32_t status = ccs_loss_get_scalar(l, name, &value, &err);
        if (status < 0 || ext_put(out, name, PyFloat_FromDouble(value)) < 0) {
            Py_CLEAR(out);
            return status < 0 ? ext_raise(status, &err) : NULL;
        }
    }
    return out;
}

static PyObject *loss_set_scalar(PyObject *self, PyObject *args) {
    const char *name = NULL;
    double value = 0.0;
    struct ccs_error err;
    if (!PyArg_ParseTuple(args, "sd", &name, &value) || free_loss(self) == NULL) {
        return NULL;
    }
    const int32_t status = ccs_loss_set_scalar(loss_of(self)->handle, name, value, &err);
    return status < 0 ? ext_raise(status, &err) : Py_NewRef(Py_None);
}

static PyObject *loss_save(PyObject *self, PyObject *args) {
    const char *path = NULL;
    uint64_t fingerprint = 0;
    uint64_t step = 0;
    struct ccs_error err;
    if (!PyArg_ParseTuple(args, "yO&O&", &path, ext_u64, &fingerprint, ext_u64, &step) ||
        free_loss(self) == NULL) {
        return NULL;
    }
    const int32_t status = ccs_loss_save(loss_of(self)->handle, path, fingerprint, step, &err);
    return status < 0 ? ext_raise(status, &err) : Py_NewRef(Py_None);
}

static PyObject *loss_load(PyObject *self, PyObject *args) {
    const char *path = NULL;
    struct ccs_error err;
    if (!PyArg_ParseTuple(args, "y", &path) || free_loss(self) == NULL) {
        return NULL;
    }
    const int32_t status = ccs_loss_load(loss_of(self)->handle, path, &err);
    return status < 0 ? ext_raise(status, &err) : Py_NewRef(Py_None);
}

static PyMethodDef loss_methods[] = {
    {"step", loss_step, METH_VARARGS, NULL},
    {"beyond", loss_beyond, METH_NOARGS, "beyond($self, /)\n--\n\n"},
    {"carried", loss_carried, METH_VARARGS, NULL},
    {"columns", loss_columns, METH_NOARGS, "columns($self, /)\n--\n\n"},
    {"read", loss_read, METH_VARARGS, NULL},
    {"write", loss_write, METH_VARARGS, NULL},
    {"scalars", loss_scalars, METH_NOARGS, "scalars($self, /)\n--\n\n"},
    {"set_scalar", loss_set_scalar, METH_VARARGS, NULL},
    {"save", loss_save, METH_VARARGS, NULL},
    {"load", loss_load, METH_VARARGS, NULL},
    {0},
};

static PyType_Slot loss_slots[] = {
    {Py_tp_doc, "A loss's handle; see ccstream.Loss."},
    {Py_tp_new, (void *)loss_new},
    {Py_tp_dealloc, (void *)loss_dealloc},
    {Py_tp_methods, loss_methods},
    {0, NULL},
};

static PyType_Spec loss_spec = {.name = "ccstream._ccstream.Loss",
                                .basicsize = sizeof(struct loss),
                                .flags = Py_TPFLAGS_DEFAULT,
                                .slots = loss_slots};

/* ---- State ---- */

static void state_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ccs_state_close(state_of(self));
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *state_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    const char *path = NULL;
    struct ccs_error err;
    if (!PyArg_ParseTuple(args, "y", &path)) {
        return NULL;
    }
    struct state *s = PyObject_New(struct state, type);
    if (s == NULL) {
        return NULL;
    }
    s->handle = NULL;
    const int32_t status = ccs_state_open(&s->handle, path, &err);
    if (status < 0) {
        Py_DECREF(s);
        return ext_raise(status, &err);
    }
    return (PyObject *)s;
}

static PyObject *state_info(PyObject *self, PyObject *unused) {
    (void)unused;
    struct ccs_state_info i = {.struct_size = sizeof i};
    struct ccs_error err;
    const int32_t status = ccs_state_get_info(state_of(self), &i, &err);
    if (status < 0) {
        return ext_raise(status, &err);
    }
    const Py_ssize_t size = (Py_ssize_t)((i.id_space + 1) * sizeof *i.first_caption);
    return Py_BuildValue("{s:s,s:K,s:K,s:K,s:K,s:y#}", "loss", i.loss, "step",
                         (unsigned long long)i.step, "fingerprint",
                         (unsigned long long)i.fingerprint, "samples",
                         (unsigned long long)i.samples, "id_space", (unsigned long long)i.id_space,
                         "first_caption", (const char *)i.first_caption, size);
}

static PyObject *state_columns(PyObject *self, PyObject *unused) {
    (void)unused;
    return columns_of(state_of(self), describe_state);
}

static PyObject *state_read(PyObject *self, PyObject *args) {
    const char *name = NULL;
    struct ccs_error err;
    Py_buffer view;
    const int64_t count = take_column(args, state_of(self), describe_state, true, &name, &view);
    if (count < 0) {
        return NULL;
    }
    const int32_t status = ccs_state_read(state_of(self), name, view.buf, 0, (uint64_t)count, &err);
    PyBuffer_Release(&view);
    return status < 0 ? ext_raise(status, &err) : Py_NewRef(Py_None);
}

static PyMethodDef state_methods[] = {
    {"info", state_info, METH_NOARGS, "info($self, /)\n--\n\n"},
    {"columns", state_columns, METH_NOARGS, "columns($self, /)\n--\n\n"},
    {"read", state_read, METH_VARARGS, NULL},
    {0},
};

static PyType_Slot state_slots[] = {
    {Py_tp_doc, "The handle of a checkpoint's state; see ccstream.State."},
    {Py_tp_new, (void *)state_new},
    {Py_tp_dealloc, (void *)state_dealloc},
    {Py_tp_methods, state_methods},
    {0, NULL},
};

static PyType_Spec state_spec = {.name = "ccstream._ccstream.State",
                                 .basicsize = sizeof(struct state),
                                 .flags = Py_TPFLAGS_DEFAULT,
                                 .slots = state_slots};

int ext_add_loss(PyObject *module) {
    PyObject *loss = ext_add_type(module, &loss_spec);
    PyObject *state = loss != NULL ? ext_add_type(module, &state_spec) : NULL;
    Py_XDECREF(loss);
    Py_XDECREF(state);
    return state != NULL ? 0 : -1;
}
