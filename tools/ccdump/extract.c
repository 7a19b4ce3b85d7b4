/*
 * ccdump extract: samples as files KEY.jpg, KEY.txt, KEY.json in one folder, named like the members
 * of a shard.
 *
 * An existing file with the same bytes is kept, so that an interrupted run can be repeated. A file
 * with other bytes is replaced only on request.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/file_io.h"
#include "tools/ccdump/ccdump_internal.h"
#include "tools/ccdump/names.h"
#include "tools/cli/output.h"

struct options {
    struct sample_choice choice;
    const char *out;
    bool overwrite;
    bool json;
    bool quiet;
};

static const struct cli_option rows[] = {
    {"out", 'o', CLI_STRING, CLI_FIELD(struct options, out), .metavar = "DIR", .required = true,
     .help = "output folder; created if missing"},
    {"overwrite", 0, CLI_FLAG, CLI_FIELD(struct options, overwrite), .alias = "force",
     .help = "replace existing files with different content"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "the result as one JSON object"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct options, quiet), .help = "no progress, no summary"},
};

static const struct cli_program program = {
    .name = "ccdump extract",
    .purpose = "writes samples as files KEY.jpg, KEY.txt, KEY.json into a folder",
    .usage = CLI_TEXTS("DIR|SHARD|TAR -o DIR [--id N | --from ID --count N]"),
    CLI_OPTIONS(rows),
    .shared = sample_choice_rows,
    .arguments = {1, 1},
    .examples =
        CLI_TEXTS("ccdump extract cc3m -o some --id 5,100-199", "ccdump extract 00000.tar -o all"),
    .notes = CLI_TEXTS(
        "File names are the keys, with dots, slashes and unprintable characters replaced, and the "
        "id appended to a repeated key. So no two samples share a name, and nothing is written "
        "outside the folder. Further captions are KEY.1.txt, KEY.2.txt, ... To resume an "
        "interrupted command, run it again: identical files are kept.")};

struct extract {
    const struct options *options;
    struct input *input;
    struct names names;
    uint64_t samples, written, present, bytes;
};

/* Whether the file exists, and whether it has these bytes. */
static enum status look(const char *path,
                        const void *data,
                        size_t size_bytes,
                        bool *there,
                        bool *same,
                        struct error *err) {
    const struct file_system *fs = file_posix();
    struct byte_buffer old = {0};
    *same = false;
    TRY(fs->exists(fs->context, path, there, err));
    if (!*there) {
        return STATUS_OK;
    }
    enum status s = file_read_all(fs, &old, path, size_bytes, err);
    if (s == STATUS_OK) {
        *same = old.size_bytes == size_bytes &&
                (size_bytes == 0 || memcmp(old.data, data, size_bytes) == 0);
    }
    byte_buffer_fini(&old);
    return s == STATUS_LIMIT ? STATUS_OK : s; /* longer: not the same */
}

/* Writes to a temporary name first, so that a file with its name is complete. Replaces links
 * instead of following them. */
static enum status
write_file(const char *path, const void *data, size_t size_bytes, struct error *err) {
    const struct file_system *fs = file_posix();
    struct file_draft d;
    TRY(file_draft_open(&d, fs, path, err));
    enum status s = fs->write(d.file, data, size_bytes, err);
    fs->close(d.file); /* not synced: extract can be repeated */
    THEN(s, fs->rename(fs->context, d.temporary, path, err));
    if (s != STATUS_OK) {
        fs->remove(fs->context, d.temporary, NULL);
    }
    return s;
}

static enum status put_file(struct extract *x,
                            const char *name,
                            const char *extension,
                            const void *data,
                            size_t size_bytes,
                            struct error *err) {
    char file[SHARD_MAX_KEY_BYTES + 32];
    char path[PATH_MAX_BYTES];
    bool there = false;
    bool same = false;
    snprintf(file, sizeof(file), "%s.%s", name, extension);
    TRY(path_join(path, sizeof(path), x->options->out, file, err));
    TRY(look(path, data, size_bytes, &there, &same, err));
    if (same) {
        x->present++;
        return STATUS_OK;
    }
    FAIL_IF(there && !x->options->overwrite, err, STATUS_EXISTS,
            "%s: exists with other bytes: choose another folder or --overwrite", path);
    TRY(file_make_parents(file_posix(), path, err));
    TRY(write_file(path, data, size_bytes, err));
    x->written++;
    x->bytes += size_bytes;
    return STATUS_OK;
}

static enum status put_sample(struct extract *x, const struct sample_facts *f, struct error *err) {
    char name[SHARD_MAX_KEY_BYTES + 1];
    struct sample_content content;
    TRY(input_read(x->input, &content, err));
    TRY(names_take(&x->names, name, content.key, f->id, err));
    for (uint32_t k = 0; k < f->caption_count; k++) {
        char extension[24] = "txt";
        if (k > 0) {
            snprintf(extension, sizeof(extension), "%" PRIu32 ".txt", k);
        }
        TRY(put_file(x, name, extension, content.captions[k].data, content.captions[k].size_bytes,
                     err));
    }
    if (content.json.data) {
        TRY(put_file(x, name, "json", content.json.data, content.json.size_bytes, err));
    }
    if (f->image_bytes > 0) {
        TRY(put_file(x, name, image_format_extension(f->format), content.image, f->image_bytes,
                     err));
    }
    x->samples++;
    return STATUS_OK;
}

static enum status put_samples(struct extract *x, struct error *err) {
    struct sample_walk walk;
    struct sample_facts facts;
    enum status s;
    TRY(sample_walk_init(&walk, x->input, &x->options->choice, x->options->quiet, err));
    while ((s = sample_walk_next(&walk, &facts, err)) == STATUS_OK) {
        TRY_OR_FAIL(s, put_sample(x, &facts, err));
        walk.bytes = x->bytes;
    }
fail:
    sample_walk_fini(&walk);
    if (s == STATUS_INTERRUPTED) {
        return error_set(err, s, "interrupted after %s; run it again to resume",
                         cli_format_counted(x->samples, "sample"));
    }
    return s == STATUS_END ? STATUS_OK : s;
}

static enum status report(const struct extract *x, struct error *err) {
    struct json_writer w;
    if (x->options->quiet && !x->options->json) {
        return STATUS_OK;
    }
    cli_begin_json(&w);
    json_u64(&w, "samples", x->samples);
    json_u64(&w, "written", x->written);
    json_u64(&w, "present", x->present);
    json_u64(&w, "bytes", x->bytes);
    return end_result(&w, x->options->json, err);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct extract x = {.options = options};
    enum status s;
    TRY(output_check_folder(x.options->out, OUTPUT_FOLDER, err));
    TRY(remote_choice_use(&x.options->choice.remote, err));
    TRY(input_open(&x.input, a->items[0], err));
    samples_signals();
    TRY_OR_FAIL(s, put_samples(&x, err));
    s = report(&x, err);
fail:
    names_fini(&x.names);
    input_close(x.input);
    return s;
}

CLI_MAIN(ccdump_extract, program, struct options, run)
