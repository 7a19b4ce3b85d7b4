/*
 * loader_internal: options of the public loader to those of the loader inside.
 */
#ifndef BINDINGS_C_LOADER_INTERNAL_H
#define BINDINGS_C_LOADER_INTERNAL_H

#include "bindings/c/ccstream.h"
#include "loader/loader.h"

/* The defaults, and then what the caller's struct has; `opt` NULL: the defaults. Returns OK or what
 * api_take returns. */
enum status loader_take_options(struct ccs_loader_options *out,
                                const struct ccs_loader_options *opt,
                                struct error *err);

/* Checks them. Memory and log are left to the caller; the tokenizer is borrowed. Returns OK or
 * USAGE. */
enum status loader_convert_options(struct loader_options *out,
                                   const struct ccs_loader_options *opt,
                                   struct error *err);

#endif
