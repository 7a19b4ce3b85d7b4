/*
 * options_internal: the options that shape the bytes of a dataset, as a list of names and texts.
 * dataset.json and the journal store the list; a resumed or appended run is compared with it.
 */
#ifndef PACK_OPTIONS_INTERNAL_H
#define PACK_OPTIONS_INTERNAL_H

#include "formats/dataset/manifest.h"
#include "pack/pack.h"

#define PACK_SETTING_PART    "part"    /* an option in dataset.json: the dataset is a part */
#define PACK_SETTING_PARTIAL "partial" /* likewise: the run ended before all rows were read */
#define PACK_SETTING_SUBSET                                                                        \
    "subset" /* likewise: "SAMPLES of FINGERPRINT": what was chosen of what */

#define PACK_NOT_GIVEN                                                                             \
    "not given" /* likewise, of NAME@GENERATION: an option that was given before */

enum { PACK_MAX_SETTINGS = 32, PACK_SOURCE_NAME_BYTES = MANIFEST_MAX_TEXT_BYTES + 1 };

struct pack_setting {
    const char *name;
    const char *value; /* the option's own text, or `buffer` */
    char buffer[48];
    bool stored; /* dataset.json records it: it shapes the samples and is no path */
};

/* Options that were added after the first version of the format appear only when they differ from
 * their default. */
struct pack_settings {
    struct pack_setting items[PACK_MAX_SETTINGS];
    size_t count;
};

void pack_settings_of(struct pack_settings *l, const struct pack_options *o);

/* The value of an option; NULL when it is not there. */
const char *pack_settings_value(const struct pack_settings *l, const char *name);

/* The zstd level that the dataset was made with, or the default where it does not say. */
int pack_manifest_level(const struct manifest *m);

/* The name that dataset.json gives a source: the path without folders, or "stdin". */
void pack_source_name(char out[PACK_SOURCE_NAME_BYTES], const char *path);

/* Puts the shards of `now` into the manifest, without removed samples; its own are left in `now`,
 * to be freed. */
void pack_exchange_shards(struct manifest *m, struct manifest *now);

/* Returns OK, or INTERRUPTED when a callback of some options says so; it may be NULL. */
enum status pack_check_stop(bool (*interrupted)(void *cookie), void *cookie, struct error *err);

/* The summary of a complete dataset. */
void pack_summary_of(struct pack_summary *out, const struct manifest *m);

/* Whether few enough rows are bad for --max-bad. Returns OK or CORRUPT. */
enum status pack_judge(const struct pack_options *o, struct pack_summary *s, struct error *err);

#endif
