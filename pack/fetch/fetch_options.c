/*
 * The options of a fetch. A file of its own, for libccstream, whose writer of samples in memory
 * asks for them and must not bring the sources of ccpack, and with them libarchive.
 */
#include "pack/fetch/fetch_internal.h"

const struct fetch_options *fetch_options_of(const struct fetch *f) {
    return f->opt;
}
