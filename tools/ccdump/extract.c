/*
 * ccdump extract: samples as files: KEY.jpg, KEY.txt, KEY.json in one folder, under the names that
 * the members of a shard have.
 *
 * A file that is there already with the same bytes is left alone, so that a run that was stopped
 * goes on when it is started again; one with other bytes is only replaced on request.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/file_io.h"
#include "tools/ccdump/ccdump_internal.h"
#include "tools/ccdump/names.h"

struct options {
    struct ccdump_choice choice;
    const char *out;
    bool overwrite;
    bool json;
    bool quiet;
};

static const struct cli_option rows[] = {
    {"out", 'o', CLI_STRING, CLI_FIELD(struct options, out), .metavar = "DIR", .required = true,
     .help = "the folder; made where it is missing"},
    {"overwrite", 0, CLI_FLAG, CLI_FIELD(struct options, overwrite),
     .help = "replace files that are there with other bytes"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "the result as one JSON object"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct options, quiet), .help = "no progress, no summary"},
    CCDUMP_ID_ROW(struct options, choice),
    CCDUMP_FROM_ROW(struct options, choice),
    CCDUMP_COUNT_ROW(struct options, choice),
};

static const struct cli_program program = {
    .name = "ccdump extract",
    .purpose = "writes samples as files KEY.jpg, KEY.txt, KEY.json into a folder",
    .usage = (const char *const[]){"DIR|SHARD|TAR -o DIR [--id N | --from ID --count N]", NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
    .min_arguments = 1,
    .max_arguments = 1,
    .examples = (const char *const[]){"ccdump extract cc3m -o some --id 5,100-199",
                                      "ccdump extract 00000.tar -o all", NULL},
    .notes = (const char *const[]){
        "Names are the keys with dots, slashes and everything unprintable replaced, and the id "
        "behind a key that came before, so that no two samples meet and nothing is written "
        "elsewhere. Further captions are KEY.1.txt, KEY.2.txt, ... Started again, it goes on where "
        "it was stopped: files with the same bytes are left as they are.",
        NULL}};

struct extract {
    const struct options *options;
    struct ccdump_input *input;
    struct names names;
    uint64_t samples, written, present, bytes;
};

/* Whether the file is there, and whether with these bytes. */
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

/* Under another name first, so that what has its name is whole. Links are replaced, not followed.
 */
static enum status
write_file(const char *path, const void *data, size_t size_bytes, struct error *err) {
    const struct file_system *fs = file_posix();
    char temporary[PATH_MAX_BYTES];
    struct file *f = NULL;
    int n = snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    if (n < 0 || (size_t)n >= sizeof(temporary)) {
        return error_set(err, STATUS_LIMIT, "%.80s...: the path is too long", path);
    }
    fs->remove(fs->context, temporary, NULL);
    TRY(fs->open(fs->context, &f, temporary, FILE_CREATE, err));
    enum status s = fs->write(f, data, size_bytes, err);
    fs->close(f);
    if (s == STATUS_OK) {
        s = fs->rename(fs->context, temporary, path, err);
    }
    if (s != STATUS_OK) {
        fs->remove(fs->context, temporary, NULL);
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
    if (there && !x->options->overwrite) {
        return error_set(err, STATUS_EXISTS,
                         "%s: is there already with other bytes: take another folder, or "
                         "--overwrite",
                         path);
    }
    TRY(write_file(path, data, size_bytes, err));
    x->written++;
    x->bytes += size_bytes;
    return STATUS_OK;
}

static enum status put_sample(struct extract *x, const struct ccdump_facts *f, struct error *err) {
    char name[SHARD_MAX_KEY_BYTES + 1];
    struct ccdump_content content;
    TRY(ccdump_input_read(x->input, &content, err));
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
    struct ccdump_walk walk;
    struct ccdump_facts facts;
    struct cli_progress progress;
    uint64_t total = ccdump_input_sample_count(x->input);
    TRY(ccdump_walk_init(&walk, x->input, &x->options->choice, err));
    total = total == CCDUMP_UNKNOWN || x->options->choice.ids.count > 0 ? 0 : total;
    cli_progress_init(&progress, "samples", x->options->quiet);
    enum status s = STATUS_OK;
    while (s == STATUS_OK) {
        if (cli_interrupted()) {
            s = error_set(err, STATUS_INTERRUPTED,
                          "stopped after %" PRIu64 " samples: the same command goes on",
                          x->samples);
            break;
        }
        s = ccdump_walk_next(&walk, &facts, err);
        if (s == STATUS_OK) {
            s = put_sample(x, &facts, err);
            cli_progress_update(&progress, x->samples, total, x->bytes, NULL);
        }
    }
    cli_progress_clear(&progress);
    ccdump_walk_fini(&walk);
    return s == STATUS_END ? STATUS_OK : s;
}

static enum status report(const struct extract *x, struct error *err) {
    char a[CLI_TEXT_BYTES];
    char b[CLI_TEXT_BYTES];
    char c[CLI_TEXT_BYTES];
    if (!x->options->json) {
        if (!x->options->quiet) {
            printf("%s: %s sample%s, %s file%s written", x->options->out,
                   cli_format_count(a, x->samples), x->samples == 1 ? "" : "s",
                   cli_format_count(b, x->written), x->written == 1 ? "" : "s");
            if (x->present > 0) {
                printf(", %s there already", cli_format_count(c, x->present));
            }
            printf("\n");
        }
        return ccdump_flush(err);
    }
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    json_u64(&w, "samples", x->samples);
    json_u64(&w, "written", x->written);
    json_u64(&w, "present", x->present);
    json_u64(&w, "bytes", x->bytes);
    json_close_object(&w);
    enum status s = ccdump_put_json(&w, err);
    json_writer_fini(&w);
    return s == STATUS_OK ? ccdump_flush(err) : s;
}

static enum status extract(const struct options *o, const char *path, struct error *err) {
    const struct file_system *fs = file_posix();
    struct extract x = {.options = o};
    TRY(ccdump_input_open(&x.input, path, err));
    ccdump_signals();
    enum status s = fs->make_directory(fs->context, o->out, err);
    if (s == STATUS_OK) {
        s = put_samples(&x, err);
    }
    if (s == STATUS_OK) {
        s = report(&x, err);
    }
    names_fini(&x.names);
    ccdump_input_close(x.input);
    return s;
}

int ccdump_extract(int argc, char **argv) {
    struct options o;
    struct cli_arguments a;
    struct error err = {0};
    enum status s = cli_parse(&program, &o, &a, argc, argv, &err);
    if (s == STATUS_OK) {
        s = extract(&o, a.items[0], &err);
        cli_arguments_fini(&a);
    }
    return cli_exit(&program, s, &err);
}
