/*
 * metadata: members that packing adds to a sample's JSON.
 */
#ifndef PACK_RUN_METADATA_INTERNAL_H
#define PACK_RUN_METADATA_INTERNAL_H

#include "formats/base/json_writer.h"
#include "pack/source/source.h"

/* Makes `text` the first member of the object in the row's JSON, unless it has a member `name`, or
 * of a new object. JSON that is no object, or would exceed its limit, stays as it is. `w` is
 * workspace. Returns OK or NOMEM. */
enum status pack_metadata_add(struct source_row *row,
                              const char *name,
                              const char *text,
                              struct json_writer *w,
                              struct error *err);

#endif
