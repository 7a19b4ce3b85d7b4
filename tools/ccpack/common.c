/*
 * Shared by the commands of ccpack.
 */
#include <inttypes.h>
#include <stdio.h>

#include "formats/base/clock.h"
#include "tools/ccpack/ccpack_internal.h"

static void print_rejects(const struct pack_summary *s, const char *directory) {
    cli_print(stderr, "%s rejected, see %s/%s:", cli_format_counted(s->rejected, "row"), directory,
              PACK_REJECTS_NAME);
    const char *comma = "";
    for (int i = 0; i < REASON_COUNT; i++) {
        if (s->rejected_by[i] > 0) {
            cli_print(stderr, "%s %s %s", comma, cli_format_count(s->rejected_by[i]),
                      source_reason_name((enum source_reason)i));
            comma = ",";
        }
    }
    fputc('\n', stderr);
    if (pack_summary_looks_like_folders(s)) {
        fputs("if the folders in a tar are classes, --from folders makes them labels\n", stderr);
    }
}

/* One line per reason. */
static void print_ignored(const struct source_ignored *ignored) {
    static const char *const why[IGNORED_KINDS] = {
        [IGNORED_HIDDEN] = "hidden: a name that begins with a dot",
        [IGNORED_NO_EXTENSION] = "no extension, which members of an archive need",
        [IGNORED_NOT_FILE] = "a link in an archive or to a folder, or no regular file",
        [IGNORED_UNUSED] = "neither an image nor the caption or JSON of one",
        [IGNORED_NO_CLASS] = "not in a class folder",
        [IGNORED_ANNOTATION] = "not valid JSON, or of no image that the COCO file lists",
    };
    for (int i = 0; i < IGNORED_KINDS; i++) {
        if (ignored->by[i] > 0) {
            cli_print(
                stderr, "%s ignored: %s\n",
                cli_format_counted(ignored->by[i], i == IGNORED_ANNOTATION ? "annotation" : "file"),
                why[i]);
        }
    }
}

static void print_summary(const struct pack_summary *s, const char *directory, double seconds) {
    cli_print(stderr, "%s: %s%s with %s in %s, %s, fingerprint %016" PRIx64 "\n", directory,
              s->was_finished ? "finished already: " : "", cli_format_counted(s->samples, "sample"),
              cli_format_counted(s->texts, "caption"), cli_format_counted(s->shards, "shard"),
              cli_format_bytes(s->bytes), s->fingerprint);
    if (s->was_finished) {
        return;
    }
    uint64_t own_samples = s->samples - s->resumed;
    uint64_t own_bytes = s->bytes - s->resumed_bytes;
    cli_print(stderr, "%s, %s, %s/s\n", cli_format_seconds(seconds),
              cli_format_rate(seconds > 0 ? (double)own_samples / seconds : 0.0, "samples"),
              cli_format_bytes(seconds > 0 ? (uint64_t)((double)own_bytes / seconds) : 0));
    if (s->resumed > 0) {
        cli_print(stderr, "%s packed before\n", cli_format_counted(s->resumed, "sample"));
    }
    if (s->rejected > 0) {
        print_rejects(s, directory);
    }
    cli_print(stderr, "%s", s->columns);
    if (s->notes > 0) {
        cli_print(stderr, "warning: %s", s->note);
        if (s->notes > 1) {
            cli_print(stderr, "; %s more source%s with such a doubt",
                      cli_format_count(s->notes - 1), s->notes == 2 ? "" : "s");
        }
        fputc('\n', stderr);
    }
    if (s->json_dropped > 0) {
        cli_print(stderr, "%s packed without their .json, which is invalid; the first: %s\n",
                  cli_format_counted(s->json_dropped, "sample"), s->json_example);
    }
    print_ignored(&s->ignored);
}

void ccpack_put_summary(struct json_writer *w, const struct pack_summary *s, double seconds) {
    json_u64(w, "samples", s->samples);
    json_u64(w, "rejected", s->rejected);
    json_u64(w, "texts", s->texts);
    json_u64(w, "json_dropped", s->json_dropped);
    json_u64(w, "notes", s->notes);
    json_string(w, "columns", s->columns);
    json_u64(w, "ignored", source_ignored_total(&s->ignored));
    json_open_object(w, "ignored_by");
    for (int i = 0; i < IGNORED_KINDS; i++) {
        if (s->ignored.by[i] > 0) {
            json_u64(w, source_ignored_name((enum source_ignored_kind)i), s->ignored.by[i]);
        }
    }
    json_close_object(w);
    json_u64(w, "shards", s->shards);
    json_u64(w, "bytes", s->bytes);
    json_hex64(w, "fingerprint", s->fingerprint);
    json_u64(w, "resumed", s->resumed);
    json_bool(w, "was_finished", s->was_finished);
    json_double(w, "seconds", seconds);
}

static enum status
print_summary_json(const struct pack_summary *s, double seconds, struct error *err) {
    struct json_writer w;
    cli_begin_json(&w);
    ccpack_put_summary(&w, s, seconds);
    return cli_end_json(&w, err);
}

void ccpack_begin(struct ccpack_run *r, const char *what, bool quiet) {
    cli_signals_install();
    cli_progress_init(&r->progress, what, quiet);
    r->started_ns = clock_now_ns();
}

enum status ccpack_end(struct ccpack_run *r,
                       enum status status,
                       const struct pack_summary *s,
                       const char *directory,
                       bool quiet,
                       bool json,
                       struct error *err) {
    double seconds = (double)(clock_now_ns() - r->started_ns) / 1e9;
    cli_progress_clear(&r->progress);
    if (status == STATUS_OK && !quiet) {
        print_summary(s, directory, seconds);
    }
    return status == STATUS_OK && json ? print_summary_json(s, seconds, err) : status;
}

void ccpack_print_remains(const struct pack_summary *s, enum status status, const char *directory) {
    if (s->unchanged) {
        if (status == STATUS_INTERRUPTED) {
            cli_print(stderr, "ccpack: nothing was packed; %s is unchanged\n", directory);
        }
        return;
    }
    const char *with = s->resume_with ? s->resume_with : "";
    const char *how = cli_format(
        "%sthe same command with --resume%s%s continues",
        status == STATUS_CORRUPT && with[0] == '\0' ? "when the source is repaired, " : "",
        with[0] != '\0' ? " and " : "", with);
    if (s->resume_with && with[0] == '\0') {
        how = "it cannot be resumed";
    }
    if (s->keeps_dataset) {
        cli_print(stderr, "ccpack: the dataset in %s is unchanged; %s\n", directory,
                  s->has_journal ? how : "none of the new rows is kept");
    } else if (s->is_dataset) {
        cli_print(stderr,
                  "ccpack: %s is a valid, partial dataset: %s, %s; %s; --overwrite starts over\n",
                  directory, cli_format_counted(s->rows, "row"),
                  cli_format_counted(s->samples, "sample"), how);
    } else if (s->has_journal) {
        cli_print(
            stderr,
            "ccpack: %s holds %s with %s, and no dataset.json, so it is not a dataset yet; %s; "
            "--overwrite starts over\n",
            directory, cli_format_counted(s->shards, "finished shard"),
            cli_format_counted(s->samples, "sample"), how);
    } else if (status == STATUS_INTERRUPTED) {
        cli_print(stderr, "ccpack: no sample was packed yet; %s holds no dataset\n", directory);
    }
}
