/*
 * column_internal: what columns of checkpoints and of losses share.
 */
#ifndef BINDINGS_C_COLUMN_INTERNAL_H
#define BINDINGS_C_COLUMN_INTERNAL_H

#include <stdint.h>

#include "formats/base/status.h"

/* Returns OK or NOTFOUND. */
enum status column_check_range(const char *name,
                               uint64_t ids,
                               uint64_t first,
                               uint64_t count,
                               struct error *err);

#endif
