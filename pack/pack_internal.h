/*
 * pack_internal: the parts of the packer.
 *
 *     pack.c          a run from its options to its end
 *     pack_options    options as text          pack_plan       where a run begins and ends
 *     pack_directory  what is in the way       pack_part       the rows of --part
 *     pack_ring       threads                  pack_worker     one row on any thread
 *     pack_filter     what options ask for     pack_classes    labels over all sources
 *     pack_commit     the ordered end          pack_rejects    rejects.jsonl
 *     pack_finish     shards to the disk       pack_pool       large buffers
 *     pack_keys       those of the shard
 *     pack_journal    what --resume knows      pack_map        what has been seen
 *     pack_merge      parts to one dataset       index_tar       tars where they lie
 */
#ifndef PACK_PACK_INTERNAL_H
#define PACK_PACK_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "formats/base/json_writer.h"
#include "formats/dataset/manifest.h"
#include "formats/shard/shard_writer.h"
#include "pack/pack.h"

/* ---- options ----------------------------------------------------------------------------------
 */

#define PACK_SETTING_PART    "part"    /* of an option in dataset.json: this is a part */
#define PACK_SETTING_PARTIAL "partial" /* likewise: the run ended too early */

enum { PACK_MAX_SETTINGS = 32, PACK_SOURCE_NAME_BYTES = MANIFEST_MAX_TEXT_BYTES + 1 };

enum {
    SETTING_STORED = 1,     /* dataset.json tells it: it shapes the samples, and is no path */
    SETTING_OF_DATASET = 2, /* one for all generations: an append must have the same */
};

struct pack_setting {
    const char *name;
    const char *value; /* the option's own text, or `buffer` */
    char buffer[48];
    unsigned traits;
};

/* Every option that shapes the bytes; those with their usual value are left out where they came
 * later than the format. */
struct pack_settings {
    struct pack_setting items[PACK_MAX_SETTINGS];
    size_t count;
};

void pack_settings_of(struct pack_settings *l, const struct pack_options *o);

/* NULL: not in the list. */
const char *pack_settings_value(const struct pack_settings *l, const char *name);
const char *pack_manifest_option(const struct manifest *m, const char *name);

/* The name that dataset.json has for a source: without folders; "stdin". */
void pack_source_name(char out[PACK_SOURCE_NAME_BYTES], const char *path);

/* ---- what has been seen -----------------------------------------------------------------------
 */

#define PACK_MAP_NONE UINT64_MAX /* no value */

struct pack_map; /* u64 to u64, 19 to 24 bytes an entry; one owner */

enum status pack_map_create(struct pack_map **out, struct error *err);
void pack_map_destroy(struct pack_map *m);                     /* accepts NULL */
uint64_t pack_map_get(const struct pack_map *m, uint64_t key); /* PACK_MAP_NONE: not there */
enum status pack_map_put(struct pack_map *m, uint64_t key, uint64_t value, struct error *err);

/* The reader adds, the committing thread takes names. */
struct pack_classes {
    pthread_mutex_t mutex; /* guards names and count */
    char **names;
    size_t count, capacity;
    struct pack_map *places; /* the reader's: hash of a name to its place */
    int32_t *of_source;      /* the reader's: places of the source's classes */
    size_t of_source_count, of_source_capacity;
};

void pack_classes_init(struct pack_classes *c);
void pack_classes_fini(struct pack_classes *c); /* requires pack_classes_init */
enum status
pack_classes_add(struct pack_classes *c, const char *name, uint64_t *place, struct error *err);
enum status
pack_classes_open_source(struct pack_classes *c, const struct source *source, struct error *err);
int32_t pack_classes_label(const struct pack_classes *c, int32_t class_index);
size_t pack_classes_count(struct pack_classes *c);

/* Adds to the manifest, which has the first of them, until it has `count`. */
enum status
pack_classes_publish(struct pack_classes *c, struct manifest *m, size_t count, struct error *err);

/* ---- where a run stands -----------------------------------------------------------------------
 */

/* Between two rows: what is known of all before. The shards and classes are in a manifest. */
struct pack_point {
    size_t source; /* the next row to take is of this source; the number of sources: none */
    uint64_t row;
    uint64_t rejects_bytes; /* of the list, up to here */
    uint64_t rejected_by[REASON_COUNT];
    uint64_t json_dropped;
    char json_example[240];
    uint64_t ignored; /* in sources before this one */
};

enum pack_start {
    PACK_START_NEW,      /* from the first row */
    PACK_START_RESUME,   /* from where the journal ends */
    PACK_START_FINISHED, /* nothing is left to do but to clear the journal away */
};

struct pack_plan {
    const struct pack_options *opt;
    enum pack_start start;
    struct manifest manifest; /* of append the old dataset, then the shards of the journal */
    uint32_t old_shards;      /* of them are the old dataset's */
    uint32_t next_number;     /* of the next shard's file */
    bool tars;                /* shard-NNNNNN.tar in the directory is the packer's */
    uint64_t old_rows;        /* of all sources of the old dataset */
    struct pack_point point;
    struct pack_point
        first;             /* source and row where the rows of this run begin, whoever read them */
    struct pack_point end; /* the first row behind it */
    uint64_t *rows;        /* taken of each source so far */
    uint64_t *totals;      /* rows of each source; NULL where nobody has counted */
    uint64_t part_rows;    /* of the part, where totals are known */
    struct pack_classes classes;
    struct byte_buffer head;  /* the journal's first line */
    uint64_t journal_bytes;   /* of it that are whole */
    struct byte_buffer names; /* in the directory */
    bool existed;             /* the directory, before the run */
    struct file *lock;        /* of the directory; NULL: not there yet, or it cannot be locked */
    struct source *opened;    /* the first one to be read, until the reader takes it */
    atomic_bool stop;         /* no more rows are wanted; alone, so any order will do */
};

bool pack_plan_must_stop(void *plan); /* somebody asked for it, or the run has failed */
void pack_source_options(struct source_options *out, struct pack_plan *p);

/* Looks at the directory and decides; changes nothing. Counts the rows of a part. Requires options
 * that pack_run has checked. Returns OK, or as pack_run. */
enum status pack_plan_make(struct pack_plan *p, const struct pack_options *opt, struct error *err);
void pack_plan_fini(struct pack_plan *p); /* after pack_plan_make, whatever it returned */

/* The id that row 0 of a source has, with ids by row. Requires that all before it are read. */
uint64_t pack_plan_base(const struct pack_plan *p, size_t source);

/* Counts all rows and finds where the part begins and ends. */
enum status pack_part_find(struct pack_plan *p, struct error *err);
/* The same with totals that are known. */
void pack_part_cut(struct pack_plan *p);

/* ---- the directory ----------------------------------------------------------------------------
 */

/* What is in it. */
struct pack_contents {
    bool dataset, journal, shards;
    bool rejects;        /* the list, under its name */
    bool leftovers;      /* temporary files, which a run leaves that dies in its first moments */
    const char *foreign; /* a name that is not the packer's to remove; NULL: none */
    const char *tar;     /* of them, one that a shard in container tar would have; NULL: none */
};

/* `tars`: shard-NNNNNN.tar is the packer's; otherwise it may be anybody's. */
void pack_directory_look(struct pack_contents *out, const struct byte_buffer *names, bool tars);

/* The number of a shard or its index; false for other names. */
bool pack_shard_number(uint32_t *out, const char *name, bool tars);

/* The names in opt->directory; none where it is not there. */
enum status pack_directory_list(struct byte_buffer *names,
                                const struct file_system *fs,
                                const char *directory,
                                struct error *err);

/* Makes a directory that was not there when the run looked, and locks it. Returns OK; EXISTS when
 * another run was faster; IO, NOTFOUND or NOMEM. */
enum status pack_directory_make_locked(struct file **lock,
                                       const struct file_system *fs,
                                       const char *directory,
                                       struct error *err);

/* Refuses when a source is a file in the directory that the run would replace. */
enum status pack_directory_check_sources(const struct pack_options *opt, struct error *err);

/* Makes the directory and brings it to where the run begins: clears away what is replaced, or what
 * was begun behind the point. Nothing but the packer's own names is ever removed. */
enum status pack_directory_prepare(struct pack_plan *p, struct error *err);

/* Makes the directory where it is not there, and its name in the folder above durable. */
enum status
pack_directory_make(const struct file_system *fs, const char *directory, struct error *err);

/* Removes all of the packer's own files, dataset.json first. */
enum status pack_directory_clear(const struct file_system *fs,
                                 const char *directory,
                                 const struct byte_buffer *names,
                                 bool tars,
                                 struct error *err);

enum status pack_remove(const struct file_system *fs,
                        const char *directory,
                        const char *name,
                        struct error *err);

/* ---- the journal ------------------------------------------------------------------------------
 */

enum { PACK_JOURNAL_VERSION = 1, PACK_JOURNAL_MAX_BYTES = 256 << 20 };

/* The first line: everything that decides the bytes. Equal lines, equal runs. With append, the
 * first `generations` of the old dataset are what it was begun on. */
enum status pack_journal_head(struct byte_buffer *out,
                              const struct pack_options *opt,
                              const struct manifest *old,
                              size_t generations,
                              struct error *err);

/* Reads the journal: compares its head with p->head, and brings p to the last line's point.
 * Returns OK, MISMATCH (the message names what differs), CORRUPT, NOTFOUND, IO, LIMIT or NOMEM. */
enum status pack_journal_read(struct pack_plan *p, struct error *err);

/* Only whether the journal has this head. Returns as pack_journal_read. */
enum status pack_journal_compare(struct pack_plan *p, struct error *err);

/* The same as pack_journal_read, from memory. */
enum status pack_journal_parse(struct pack_plan *p,
                               const char *name,
                               const uint8_t *text,
                               size_t size_bytes,
                               struct error *err);

/* Kind of the run that a journal is of: "pack", "append", "merge"; the number of generations of the
 * dataset before it. CORRUPT when it is no journal. */
struct pack_journal_kind {
    char name[16];
    uint64_t generations;
    bool tars; /* its shards are .tar */
};
enum status pack_journal_kind(struct pack_journal_kind *out,
                              const struct file_system *fs,
                              const char *directory,
                              struct error *err);

/* A line of the journal: the JSON with its hash. */
enum status pack_journal_wrap(struct byte_buffer *out,
                              const uint8_t *text,
                              size_t size_bytes,
                              struct error *err);

/* Whether the journal there has this head. */
enum status pack_journal_has_head(bool *out,
                                  const struct file_system *fs,
                                  const char *directory,
                                  const uint8_t *head,
                                  size_t head_bytes,
                                  struct error *err);

/* Makes a new journal: its head, and where the run begins. */
enum status pack_journal_begin(struct pack_plan *p, struct error *err);

struct pack_journal {
    const struct pack_plan *plan;
    struct file *file; /* NULL: not open */
    struct json_writer line;
    size_t source;      /* rows of the sources before this one are in the journal */
    size_t class_count; /* of the manifest's, likewise */
};

enum status pack_journal_open(struct pack_journal *j, const struct pack_plan *p, struct error *err);
void pack_journal_close(struct pack_journal *j); /* accepts an all-zero one */

/* Writes where a run stands into `w`, in place of what is there: `rows` of each source, `m` for the
 * classes. */
enum status pack_journal_point(struct pack_journal *j,
                               struct json_writer *w,
                               const struct manifest *m,
                               const struct pack_point *p,
                               const uint64_t *rows,
                               struct error *err);

/* A line for a shard (NULL: none was made) and the point behind it, on the disk when this returns.
 */
enum status pack_journal_add(struct pack_journal *j,
                             const struct shard_summary *shard,
                             const struct json_writer *point,
                             struct error *err);

/* ---- a row on its way -------------------------------------------------------------------------
 */

struct pack_item {
    size_t source; /* index in options.sources */
    uint64_t id;
    uint64_t position_bytes; /* of the source, once this row was read */
    uint64_t ignored;        /* in the sources before */
    size_t class_count;      /* classes of this source and those before */
    int32_t label;
    struct source_row row;
    struct byte_buffer resized; /* the new JPEG, where there is one */
    struct shard_frame frame;
    char key[SHARD_MAX_KEY_BYTES + 1]; /* safe; may be taken in its shard */
    uint64_t key_hash;
    bool renamed; /* the frame was built with the other key, because this one was taken */
    char other_key[SHARD_MAX_KEY_BYTES + 1];
    struct shard_sample sample; /* borrows from row, resized and the captions below */
    struct shard_text captions[SOURCE_MAX_CAPTIONS];
    enum status status; /* anything but OK ends the run */
    struct error error;
};

void pack_item_init(struct pack_item *item);
void pack_item_fini(struct pack_item *item);

/* Large buffers that rows are done with, for the large rows after them: taking a fresh one from
 * the system for every row costs as much as writing it. What is beyond the limit is freed.
 * Internally synchronised. */
struct pack_pool {
    pthread_mutex_t mutex; /* guards what is below */
    struct byte_buffer *buffers;
    size_t count, capacity;
    uint64_t bytes, max_bytes;
};

enum { PACK_POOL_MIN_BYTES = 256 << 10 }; /* smaller ones stay with their slot */

enum status
pack_pool_init(struct pack_pool *p, size_t capacity, uint64_t max_bytes, struct error *err);
void pack_pool_fini(struct pack_pool *p); /* accepts an all-zero one */

/* A small buffer in exchange for one of about `bytes`, where there is one. */
void pack_pool_take(struct pack_pool *p, struct byte_buffer *b, uint64_t bytes);
/* Takes the row's large buffers away. */
void pack_pool_give(struct pack_pool *p, struct pack_item *item);

/* Bytes that pictures in work may take together: who wants more waits. One always passes. */
struct pack_gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t capacity_bytes;
    uint64_t used_bytes;    /* guarded by mutex, as the rest */
    uint64_t next, serving; /* first come, first served */
};

void pack_gate_init(struct pack_gate *g, uint64_t capacity_bytes);
void pack_gate_fini(struct pack_gate *g);
void pack_gate_enter(struct pack_gate *g, uint64_t bytes);
void pack_gate_leave(struct pack_gate *g, uint64_t bytes);

enum {
    PACK_IMAGE_MEMORY_BYTES = 128 << 20, /* what decoding and resizing one picture may take */
    PACK_GATE_BYTES = 112 << 20,         /* all that do so at a time; and for each job: */
    PACK_GATE_JOB_BYTES = 16 << 20,
};

/* Hashes of the keys in the shard that is being filled. What a worker sees may be out of date when
 * its row is committed; the committing thread, which alone changes them, sees what is. Internally
 * synchronised. */
struct pack_keys {
    pthread_mutex_t mutex;
    struct pack_map *hashes; /* guarded by mutex */
};

enum status pack_keys_init(struct pack_keys *k, struct error *err);
void pack_keys_fini(struct pack_keys *k); /* accepts an all-zero one */
bool pack_keys_has(struct pack_keys *k, uint64_t hash);
enum status pack_keys_add(struct pack_keys *k, uint64_t hash, struct error *err);
enum status pack_keys_clear(struct pack_keys *k, struct error *err);

/* KEY-ID, with `attempt` dashes behind it where that is taken as well; of KEY only as much as has
 * room. Requires attempt <= 4. */
void pack_other_key(char out[SHARD_MAX_KEY_BYTES + 1], const char *key, uint64_t id, int attempt);

/* What one worker needs; keys NULL: each row keeps its own. */
struct pack_worker;

enum status pack_worker_create(struct pack_worker **out,
                               const struct pack_options *opt,
                               struct pack_gate *gate,
                               struct pack_keys *keys,
                               struct error *err);
void pack_worker_destroy(struct pack_worker *w); /* accepts NULL */

/* Loads, checks, resizes and builds the frame. A row that cannot be used gets its reason; anything
 * else that goes wrong is in item->status. */
void pack_worker_run(struct pack_worker *w, struct pack_item *item);

/* The source's key with every byte that a shard does not take made '_', and only its end when it is
 * too long. */
void pack_safe_key(char out[SHARD_MAX_KEY_BYTES + 1], const char *key);

void pack_filter_captions(struct source_row *row, const struct pack_filter *f);
void pack_filter_image(struct source_row *row,
                       const struct pack_filter *f,
                       int32_t width_px,
                       int32_t height_px);

/* The size that a picture is brought to; whether it changes. */
bool pack_resize_size(int32_t *width_px, int32_t *height_px, const struct pack_resize *r);

/* ---- the ordered end --------------------------------------------------------------------------
 */

#define PACK_REJECTS_COPY "rejects.jsonl.copy.tmp"

/* Copies the first bytes of a file and syncs the copy. */
enum status pack_copy_file(const struct file_system *fs,
                           const char *from,
                           const char *to,
                           uint64_t size_bytes,
                           struct error *err);

struct pack_rejects {
    const struct file_system *fs;
    const char *directory;
    struct file *file; /* under its temporary name; NULL once published */
    uint64_t size_bytes;
    struct json_writer line;
};

/* Opens the list under its temporary name with its first `size_bytes`: of what is there of it, or
 * else of a copy of the published one (`keep`), or else the published one itself. */
enum status pack_rejects_open(struct pack_rejects *r,
                              const struct file_system *fs,
                              const char *directory,
                              uint64_t size_bytes,
                              bool keep,
                              struct error *err);
/* The list's line for a row, in place of what `w` holds. */
void pack_rejects_line(struct json_writer *w, const char *source, const struct source_row *row);
enum status pack_rejects_add(struct pack_rejects *r,
                             const char *source,
                             const struct source_row *row,
                             struct error *err);
enum status pack_rejects_sync(struct pack_rejects *r, struct error *err);
/* Gives it its name: it is whole. */
enum status pack_rejects_publish(struct pack_rejects *r, struct error *err);
void pack_rejects_close(struct pack_rejects *r); /* accepts an all-zero one */

/* Finishes shards on a thread of its own, one after the other, while the next one is filled: index,
 * fsync, the journal's line. */
struct pack_finisher {
    struct pack_rejects *rejects;
    struct pack_journal *journal;
    pthread_t thread;
    bool started;
    atomic_bool failed; /* there is a failure to be taken; alone, so any order will do */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* guarded by mutex; while `busy`, the next four belong to the thread */
    bool busy, stop, has_result;
    struct shard_writer *writer;
    struct json_writer point;
    struct shard_summary shard;
    enum status status;
    struct error error;
};

enum status pack_finisher_start(struct pack_finisher *f,
                                struct pack_rejects *rejects,
                                struct pack_journal *journal,
                                struct error *err);

/* Waits for the shard that was given last. Returns OK and *shard; END when there is none that has
 * not been taken; or why it could not be finished. */
enum status
pack_finisher_take(struct pack_finisher *f, struct shard_summary *shard, struct error *err);

/* Gives it a shard, which is the finisher's from here on, with f->point written. Requires that the
 * one before was taken. */
void pack_finisher_give(struct pack_finisher *f, struct shard_writer *writer);

void pack_finisher_stop(struct pack_finisher *f); /* accepts an all-zero one */

struct pack_commit {
    struct pack_plan *plan;
    const struct pack_options *opt;
    const struct file_system *fs;
    struct pack_summary *summary;
    struct pack_point point;     /* behind the last row that was taken */
    struct shard_writer *writer; /* NULL between shards */
    struct shard_frame_builder *builder;
    struct pack_map *pictures; /* hash of the picture to the id; NULL: not asked for */
    struct pack_map *ids;      /* id to source and row; NULL: ids by row */
    struct pack_keys keys;     /* of the shard that is being filled, where ids are by row */
    struct pack_rejects rejects;
    struct pack_journal journal;
    struct pack_finisher finisher;
    uint64_t pending_bytes;  /* of the shard that it works on */
    uint64_t resumed_bytes;  /* of shards that were there */
    uint64_t finished_bytes; /* of the shards before this one */
    uint64_t finished_samples;
};

/* Brings the directory to where the run begins, and opens what is written to. */
enum status pack_commit_open(struct pack_commit *c,
                             struct pack_plan *plan,
                             struct pack_summary *summary,
                             struct error *err);

/* Takes the next row in order. Returns OK; CORRUPT when there are too many bad rows or an id comes
 * twice; LIMIT, IO or NOMEM. */
enum status pack_commit_add(struct pack_commit *c, struct pack_item *item, struct error *err);

/* Are few enough of these rows bad? Returns OK or CORRUPT. */
enum status
pack_judge(const struct pack_options *o, const struct pack_summary *s, struct error *err);

/* The same after the last row. */
enum status pack_commit_judge(const struct pack_commit *c, struct error *err);

/* Finishes the shard and writes dataset.json. `partial`: there may be more, and dataset.json says
 * so; then the journal stays. */
enum status pack_commit_finish(struct pack_commit *c, bool partial, struct error *err);

/* Closes, and removes what is of no use to anybody: the shard that was begun, and the journal and
 * the list where not one shard was finished. */
void pack_commit_close(struct pack_commit *c);

/* Reads, builds and commits from plan->point to plan->end. */
enum status pack_ring_run(struct pack_commit *c, struct error *err);

#endif
