/*
 * ccdump_internal: what the commands of ccdump share.
 */
#ifndef TOOLS_CCDUMP_INTERNAL_H
#define TOOLS_CCDUMP_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/json_writer.h"
#include "formats/dataset.h"
#include "formats/shard_reader.h"
#include "tools/cli.h"

int ccdump_info(int argc, char **argv);
int ccdump_show(int argc, char **argv);
int ccdump_verify(int argc, char **argv);
int ccdump_cat(int argc, char **argv);

/* Writes to stdout. Returns OK or IO. */
enum status ccdump_put(const void *data, size_t size_bytes, struct error *err);

/* Writes the text and a line feed, and empties the writer. Returns OK, IO, NOMEM or LIMIT. */
enum status ccdump_put_json(struct json_writer *w, struct error *err);

/* Makes sure that everything reached stdout. Returns OK or IO. */
enum status ccdump_flush(struct error *err);

/* One sample of a dataset with everything that belongs to it. */
struct ccdump_sample {
    struct dataset *dataset;
    struct shard_reader *reader;
    struct dataset_sample facts;
    uint64_t position;
    struct sample_view view;
};

/* By id, or by position. Returns OK, NOTFOUND, or what opening and reading can give; on failure
 * nothing is left to close. */
enum status ccdump_sample_open(struct ccdump_sample *out,
                               const char *directory,
                               bool by_id,
                               uint64_t number,
                               struct error *err);
void ccdump_sample_close(struct ccdump_sample *s);

#endif
