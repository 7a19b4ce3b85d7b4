/*
 * ext_internal: what the files of the extension module ccstream._ccstream share. The module is a
 * thin layer of types over libccstream; the package's Python files give them their public form.
 *
 * Threading : functions require the GIL, but for holder_release. Calls that read, decode or wait
 *             give it up.
 */
#ifndef BINDINGS_PYTHON_EXT_EXT_INTERNAL_H
#define BINDINGS_PYTHON_EXT_EXT_INTERNAL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <string.h>

#include "bindings/c/ccstream.h"

/* ---- errors ---- */

/* Adds the exceptions, one for each status, to the module. */
int ext_add_errors(PyObject *module);

/* Raises the exception of the status, with the text of err (may be NULL). Returns NULL. */
PyObject *ext_raise(int32_t status, const struct ccs_error *err);

/* Raises ClosedError: "the WHAT is closed". Returns NULL. */
PyObject *ext_raise_closed(const char *what);

/* Raises UsageError with this text. Returns NULL. */
PyObject *ext_raise_usage(const char *text);

/* ---- values ---- */

/* Converters for "O&": whole numbers that fit, ValueError otherwise. */
int ext_u32(PyObject *value, void *out);
int ext_u64(PyObject *value, void *out);

/* Puts a new reference under a name and takes it over; value NULL: fails. Returns 0 or -1. */
int ext_put(PyObject *dict, const char *name, PyObject *value);

/* A list of str. Texts need not be UTF-8: bytes that are not become U+FFFD. */
PyObject *ext_texts(const struct ccs_text *texts, uint32_t count);

/* The texts of a list of bytes, which own them; to be freed by PyMem_Free. NULL with an exception.
 */
struct ccs_text *ext_take_texts(PyObject *list);

/* ---- batches ---- */

struct holder;

/* Takes over one held batch, with one reference. NULL with an exception. */
struct holder *holder_create(const struct ccs_batch *batch);
/* From any thread; the last release gives the batch back. */
void holder_release(struct holder *h);

/* A dict of the batch's arrays by name, and lists of its texts and stored images. channels_last:
 * images of (B, S, S, 3) are shown as (B, 3, S, S). */
PyObject *ext_batch_arrays(struct holder *h, bool channels_last);

/* ---- types, each added to the module ---- */

int ext_add_array(PyObject *module);
int ext_add_dataset(PyObject *module);
int ext_add_columns(PyObject *module);
int ext_add_loader(PyObject *module);
int ext_add_tokenizer(PyObject *module);
int ext_add_writer(PyObject *module);
int ext_add_loss(PyObject *module);

/* loss_options(name, views, options): a dict of the values by name; see ccs_loss_option. */
PyObject *ext_loss_options(PyObject *module, PyObject *args);

/* remove_column(dataset, name). */
PyObject *ext_remove_column(PyObject *module, PyObject *args);

/* The handle of a Dataset; NULL with an exception for other objects, and where it is closed. */
const struct ccs_dataset *ext_dataset(PyObject *object);

/* Makes the type and adds it under the last part of its name. Returns a new reference. */
PyObject *ext_add_type(PyObject *module, PyType_Spec *spec);

#endif
