/*
 * dataset_internal: the inside of a public dataset, for the other parts of the library.
 */
#ifndef BINDINGS_C_DATASET_INTERNAL_H
#define BINDINGS_C_DATASET_INTERNAL_H

#include "bindings/c/ccstream.h"
#include "formats/columns/columns.h"
#include "formats/dataset/dataset.h"

struct ccs_dataset {
    struct dataset *dataset;
    char *path; /* as it was opened */
    struct column_names columns;
};

/* Requires a position in the dataset, or NOTFOUND. Returns also what dataset_sample_at does. */
enum status dataset_sample_of(const struct ccs_dataset *d,
                              uint64_t position,
                              struct dataset_sample *out,
                              struct error *err);

/* Fills all but struct_size. */
void dataset_record_of(struct ccs_record *out, const struct dataset_sample *sample);

#endif
