/*
 * ccpack fetch: makes a dataset from a list of URLs with captions.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "net/http.h"
#include "pack/fetch/fetch.h"
#include "pack/pack.h"
#include "tools/ccpack/ccpack_internal.h"
#include "tools/cli/output.h"

struct fetch_cli {
    struct ccpack_options base; /* first: shared rows fill it */
    struct fetch_options fetch; /* also filled by options */
    const char *contact;
    int verify;
};

static const char *const dedup_names[] = {"none", "exact", NULL};
static const char *const verify_names[] = {"none", "sha256", NULL};

#define FIELD(name) CLI_FIELD(struct fetch_cli, name)

static const struct cli_option fetch_rows[] = {
    {"out", 'o', CLI_STRING, FIELD(base.pack.directory), .metavar = "DIR", .required = true,
     .help = "directory of the dataset"},
    {"resume", 0, CLI_FLAG, FIELD(base.pack.resume),
     .help = "resume an interrupted run with the same options and list; completed rows are not "
             "requested again. Start one if DIR is empty"},
    {"retry", 0, CLI_STRING, FIELD(fetch.retry), .metavar = "REASON,...",
     .help = "request rows again that failed for these reasons: failed (any reason), excluded, "
             "4xx, 5xx, http-429, timeout, dns, ...; rows that now succeed are added to the "
             "dataset under their ids"},
    {"append", 0, CLI_FLAG, FIELD(base.pack.append),
     .help = "add the rows of another LIST to the dataset in DIR. Rows whose URL is in the ledger "
             "are skipped; new ids continue after the existing ones"},
    {"overwrite", 0, CLI_FLAG, FIELD(base.pack.overwrite), .alias = "force",
     .help = "replace the dataset in DIR and its ledger"},
    {"columns", 0, CLI_STRING, FIELD(base.pack.columns), .metavar = "NAME,...",
     .help = "column names of a list without header row; '_' for an unused one", .group = "List"},
    {"delimiter", 0, CLI_STRING, FIELD(base.pack.delimiter), .metavar = "CHAR",
     .help = "field separator: ',', ';', '|', 'tab' or another character [default: by content]"},
    {"caption-column", 0, CLI_LIST, FIELD(base.captions), .metavar = "NAME,...",
     .help = "caption columns, by name or 1-based number; with several, a sample has several "
             "captions [default: the first of caption, captions, text, title, "
             "sentence, description, comment]"},
    {"url-column", 0, CLI_STRING, FIELD(base.pack.image_column), .alias = "image-column",
     .metavar = "NAME",
     .help = "URL column, by name or 1-based number [default: the first of url, image_url, "
             "coco_url, link, Image Path, ..., or the one with URLs]"},
    {"keep-columns", 0, CLI_STRING, FIELD(base.pack.keep_columns), .metavar = "NAME,...|none",
     .help = "columns that become a sample's metadata [default: all columns without another use]"},
    {"connections", 'c', CLI_U64, FIELD(fetch.http.max_connections), .min = "1", .max = "4096",
     .default_text = "256", .metavar = "N", .help = "concurrent requests in total",
     .group = "Network"},
    {"per-host", 0, CLI_U64, FIELD(fetch.http.max_connections_per_host), .min = "1", .max = "4096",
     .default_text = "2", .metavar = "N", .help = "concurrent requests per host"},
    {"rate-per-host", 0, CLI_DOUBLE, FIELD(fetch.http.requests_per_second_per_host), .min = "0",
     .max = "100000", .default_text = "5", .metavar = "X",
     .help = "requests per second per host; 0: no limit"},
    {"connect-timeout", 0, CLI_U64, FIELD(fetch.http.connect_timeout_ms), .unit = CLI_UNIT_MS,
     .min = "1ms", .max = "1h", .default_text = "10s", .metavar = "TIME",
     .help = "time limit for DNS lookup and connection"},
    {"first-byte-timeout", 0, CLI_U64, FIELD(fetch.http.first_byte_timeout_ms), .unit = CLI_UNIT_MS,
     .min = "1ms", .max = "1h", .default_text = "20s", .metavar = "TIME",
     .help = "time limit until the first byte"},
    {"timeout", 0, CLI_U64, FIELD(fetch.http.total_timeout_ms), .unit = CLI_UNIT_MS, .min = "1ms",
     .max = "1h", .default_text = "60s", .metavar = "TIME",
     .help = "time limit per request including redirects"},
    {"attempts", 0, CLI_U64, FIELD(fetch.attempts), .min = "1", .max = "20", .default_text = "3",
     .metavar = "N",
     .help = "attempts per row for transient failures (timeout, dns, connect, tls, partial, "
             "protocol, 408, 425, 429, 5xx), with increasing delays"},
    {"max-redirects", 0, CLI_U64, FIELD(fetch.http.max_redirects), .min = "0", .max = "20",
     .default_text = "5", .metavar = "N", .help = "maximum redirects per request"},
    {"max-size", 0, CLI_U64, FIELD(fetch.max_bytes), .unit = CLI_UNIT_BYTES, .min = "1KiB",
     .max = "64MiB", .default_text = "20MiB", .metavar = "SIZE",
     .help = "maximum image size; larger downloads are aborted"},
    {"verify", 0, CLI_ENUM, FIELD(verify), .choices = verify_names, .default_text = "none",
     .metavar = "HOW",
     .help = "sha256: accept only images whose SHA-256 equals the list's column 'sha256'; others "
             "fail with reason 'sha256'"},
    {"resolver", 0, CLI_STRING, FIELD(fetch.http.resolvers), .metavar = "URL,...",
     .help = "DNS servers to use instead of the system's: DNS-over-HTTPS URLs such as "
             "https://dns.example/dns-query (hosts are spread over them), or IP addresses if "
             "libcurl has c-ares (Debian's lacks it)"},
    {"contact", 0, CLI_STRING, FIELD(contact), .metavar = "TEXT",
     .help = "contact address or URL for site owners, sent in the user agent",
     .group = "Politeness"},
    {"no-robots", 0, CLI_NO, FIELD(fetch.robots),
     .help = "ignore robots.txt and X-Robots-Tag (noai, noimageai, noindex). By default both are "
             "obeyed, and excluded rows are recorded"},
    {"opt-out", 0, CLI_STRING, FIELD(fetch.opt_out), .metavar = "FILE",
     .help = "file of hosts (including subdomains), URLs and image hashes (as in the ledger) not "
             "to fetch, one per line"},
    {"allow-private", 0, CLI_FLAG, FIELD(fetch.http.allow_private),
     .help = "also connect to private, loopback and link-local addresses; an untrusted list could "
             "then reach servers of your own network"},
    {"ca-file", 0, CLI_STRING, FIELD(fetch.http.ca_file), .metavar = "FILE",
     .help = "certificates to trust, in PEM, instead of the system's"},
    {"dedup", 0, CLI_ENUM, FIELD(base.pack.dedup), .choices = dedup_names, .default_text = "none",
     .metavar = "HOW",
     .help = "exact: pack only the first of byte-identical downloads; 24 bytes of memory per image",
     .group = "Limits"},
};

static const struct cli_program fetch_program = {
    .name = "ccpack fetch",
    .purpose = "downloads the images of a list of URLs and packs them",
    .usage = CLI_TEXTS("[options] -o DIR LIST"),
    .examples = CLI_TEXTS(
        "ccpack fetch -o cc3m --resize short:256 --contact me@example.org cc3m.tsv",
        "ccpack fetch -o cc3m --resize short:256 --contact me@example.org --resume cc3m.tsv",
        "ccpack fetch -o cc3m --retry timeout,5xx cc3m.tsv",
        "ccpack fetch -o cc3m --append more.csv"),
    .notes = CLI_TEXTS(
        "LIST is a TSV, CSV or Parquet file with a URL column and a caption column, as CC3M and "
        "CC12M, or a text file with one URL per line, whose samples have no captions. With a "
        "header row, columns are found by names such as 'url' and 'caption'. Without one, the URL "
        "column is the one with URLs, and the other one of two columns has the captions.",
        "A sample's id is its 0-based row in LIST; with --append, numbering continues after the "
        "rows of all earlier lists. A failed row leaves a gap that --retry can fill, even weeks "
        "later; ids never change.",
        "DIR/fetch/ledger.jsonl records the outcome of every row: state, reason, HTTP status, "
        "attempts, time, ETag, hash. DIR/rejects.jsonl lists rows that failed or were "
        "downloaded but unusable.",
        "Nothing is lost if the run is interrupted or killed: --resume requests only rows that are "
        "missing from the ledger. The images of an incomplete shard are in DIR/fetch/spool.",
        "URLs must be http or https. Certificates are verified; https_proxy, http_proxy and "
        "no_proxy set proxies. File names never come from servers.",
        "Memory: as ccpack, plus 32 MiB for prefetched rows and about 100 KiB per connection.",
        "All rules: reference/FETCH.md in the manual (share/doc/ccstream/manual)."),
    CLI_OPTIONS(fetch_rows),
    .shared = ccpack_shape_rows,
    .arguments = {1, CLI_MAX_ARGUMENTS}, /* one, see to_options */
};

enum { PROGRESS_NS = 100000000 };

/* Shared by the callbacks of a run. */
struct fetch_run {
    struct ccpack_run base;
    struct fetch *fetch;
    const char *retry;
};

static void to_fetch_options(struct fetch_options *out,
                             char agent[256],
                             const struct fetch_cli *o,
                             const struct pack_options *pack) {
    fetch_options_default(out);
    cli_copy(&fetch_program, o, offsetof(struct fetch_cli, fetch), out, sizeof(*out));
    snprintf(agent, 256, "ccstream/%s (ccpack fetch%s%.160s)", CCSTREAM_VERSION,
             o->contact ? "; " : "", o->contact ? o->contact : "");
    out->http.user_agent = agent;
    out->directory = pack->directory;
    out->list = pack->sources[0];
    out->resume = pack->resume;
    out->overwrite = pack->overwrite;
    out->dedup = pack->dedup == PACK_DEDUP_EXACT;
    out->append = pack->append && !o->fetch.retry;
    out->verify = o->verify == 1;
}

static void show_progress(void *cookie, const struct pack_progress *p) {
    struct fetch_run *r = cookie;
    struct cli_progress *progress = &r->base.progress;
    struct fetch_stats s;
    char extra[320];
    if (!progress->active || clock_now_ns() - progress->drawn_ns < PROGRESS_NS) {
        return;
    }
    fetch_stats(r->fetch, &s);
    const uint64_t tried = s.fetched + s.failed + s.excluded;
    const double seconds = (double)(clock_now_ns() - r->base.started_ns) / 1e9;
    snprintf(extra, sizeof(extra), "%s%s%s%.0f %%  %.0f %% fetched  %s  %s/s",
             s.waiting[0] != '\0' ? "waiting for " : "", s.waiting,
             s.waiting[0] != '\0' ? "  " : "", p->done > 0 ? 100 * p->done : 0.0,
             tried > 0 ? 100.0 * (double)s.fetched / (double)tried : 0.0,
             cli_format_counted(s.hosts, "host"),
             cli_format_bytes(seconds > 0 ? (uint64_t)((double)s.bytes / seconds) : 0));
    progress->begun = p->resumed;
    cli_progress_update(progress, p->samples,
                        p->done > 0 ? (uint64_t)((double)p->samples / p->done) : 0, p->bytes,
                        extra);
}

enum { SHOWN_HOSTS = 5, SHOWN_ADVICE = 3 };

/* The remedy for failures of a kind. */
static const char *advice(const char *reason) {
    static const struct {
        const char *reason, *text;
    } all[] = {
        {"dns", "names that do not exist: gone, unless the resolver fails (--resolver)"},
        {"http-404", "gone; another source of the images may have them"},
        {"http-410", "gone; another source of the images may have them"},
        {"http-403", "refused: fewer requests may help, --rate-per-host 1 --retry http-403"},
        {"http-429", "too many requests: --rate-per-host 1 --retry http-429, later"},
        {"http-5", "servers that fail: --retry 5xx, later"},
        {"timeout", "may pass: --retry timeout, later or with a longer --timeout"},
        {"connect", "may pass: --retry connect, later"},
        {"partial", "may pass: --retry partial, later"},
        {"not-an-image", "pages in place of images, mostly of those that are gone"},
        {"sha256", "other images than those of the list"},
        {"private", "these addresses are of this machine or a private network; if the list names "
                    "servers of your own, fetch them with --allow-private"},
    };
    for (size_t i = 0; i < CLI_COUNT(all); i++) {
        if (strncmp(reason, all[i].reason, strlen(all[i].reason)) == 0) {
            return all[i].text;
        }
    }
    return NULL;
}

static void print_hosts(struct fetch *f) {
    struct fetch_host hosts[SHOWN_HOSTS];
    const size_t count = fetch_worst_hosts(f, hosts, SHOWN_HOSTS);
    for (size_t i = 0; i < count; i++) {
        cli_print(stderr, "%s%s %s (%s%s)", i > 0 ? ", " : "\nby host: ", hosts[i].name,
                  cli_format_count(hosts[i].failed), hosts[i].reason,
                  hosts[i].mixed ? ", ..." : "");
    }
}

static void print_reasons(struct fetch *f, const struct fetch_stats *s, const char *directory) {
    const uint64_t tried = s->fetched + s->failed + s->excluded;
    cli_print(stderr, "fetched %s of %s (%.1f %%)", cli_format_count(s->fetched),
              cli_format_counted(tried, "row"),
              tried > 0 ? 100.0 * (double)s->fetched / (double)tried : 0.0);
    if (s->known > 0) {
        cli_print(stderr, ", %s of them in earlier runs", cli_format_count(s->known));
    }
    if (s->skipped > 0) {
        cli_print(stderr, ", %s skipped, whose URL was there",
                  cli_format_counted(s->skipped, "row"));
    }
    cli_print(stderr, ", with %s to %s", cli_format_counted(s->attempts, "request"),
              cli_format_counted(s->hosts, "host"));
    if (s->failed + s->excluded > 0) {
        cli_print(stderr, "; %s failed, %s excluded, see %s/" FETCH_DIRECTORY "/ledger.jsonl:",
                  cli_format_count(s->failed), cli_format_count(s->excluded), directory);
        for (size_t i = 0; i < s->reason_count; i++) {
            cli_print(stderr, "%s %s %s", i > 0 ? "," : "", cli_format_count(s->reasons[i].count),
                      s->reasons[i].name);
        }
    }
    if (s->failure[0] != '\0') {
        cli_print(stderr, "\nthe first failure: %s", s->failure);
    }
    print_hosts(f);
    for (size_t i = 0, shown = 0; i < s->reason_count && shown < SHOWN_ADVICE; i++) {
        const char *text = advice(s->reasons[i].name);
        if (text) {
            cli_print(stderr, "\n%s: %s", s->reasons[i].name, text);
            shown++;
        }
    }
    fputc('\n', stderr);
}

static enum status print_json(const struct pack_summary *s,
                              const struct fetch_stats *f,
                              double seconds,
                              struct error *err) {
    struct json_writer w;
    cli_begin_json(&w);
    ccpack_put_summary(&w, s, seconds);
    json_open_object(&w, "fetch");
    json_u64(&w, "fetched", f->fetched);
    json_u64(&w, "failed", f->failed);
    json_u64(&w, "excluded", f->excluded);
    json_u64(&w, "known", f->known);
    json_u64(&w, "skipped", f->skipped);
    json_u64(&w, "requests", f->attempts);
    json_u64(&w, "bytes", f->bytes);
    json_u64(&w, "hosts", f->hosts);
    json_open_object(&w, "reasons");
    for (size_t i = 0; i < f->reason_count; i++) {
        json_u64(&w, f->reasons[i].name, f->reasons[i].count);
    }
    json_close_object(&w);
    json_close_object(&w);
    return cli_end_json(&w, err);
}

static enum status to_options(struct pack_options *out,
                              const struct fetch_cli *o,
                              const struct cli_arguments *a,
                              struct error *err) {
    FAIL_IF(a->count > 1, err, STATUS_USAGE,
            "'%.100s': one list at a time, whose rows are the ids; --append adds this one "
            "afterwards",
            a->items[1]);
    TRY(ccpack_take(out, &fetch_program, &o->base, a, err));
    TRY(output_check_folder(out->directory, OUTPUT_DATASET, err));
    out->ids = PACK_IDS_KEY;
    FAIL_IF(o->fetch.retry && out->append, err, STATUS_USAGE,
            "--retry and --append exclude each other");
    out->append = out->append || o->fetch.retry != NULL;
    out->allow_repeat = o->fetch.retry != NULL;
    out->max_bad = (struct pack_max_bad){.percent = 100};
    out->progress = show_progress;
    FAIL_IF(o->fetch.retry && out->overwrite, err, STATUS_USAGE,
            "--retry and --overwrite exclude each other");
    return STATUS_OK;
}

/* The directory must exist, so that it is locked before the ledger is opened. *nothing: there is no
 * row to retry, and no new one. */
static enum status run(struct fetch_run *r,
                       const struct pack_options *opt,
                       struct pack_summary *summary,
                       bool *nothing,
                       struct error *err) {
    struct fetch_stats stats;
    TRY(opt->fs->make_directory(opt->fs->context, opt->directory, err));
    const enum status s = pack_run(opt, summary, err);
    fetch_stats(r->fetch, &stats);
    const bool none = stats.fetched + stats.failed + stats.excluded == 0;
    *nothing = s != STATUS_OK && stats.opened &&
               (r->retry ? stats.selected == 0 : none && stats.skipped > 0);
    return s == STATUS_OK || *nothing ? fetch_finish(r->fetch, err) : s;
}

/* Finds where the rows of an append begin. A list is identified by its name when its failures are
 * retried. */
static enum status check_append(struct fetch_options *fetch, struct error *err) {
    struct manifest m = {0};
    const char *slash = strrchr(fetch->list, '/');
    const char *name = slash ? slash + 1 : fetch->list;
    enum status s = STATUS_OK;
    if (manifest_read(&m, file_posix(), fetch->directory, NULL) != STATUS_OK) {
        return STATUS_OK; /* pack_run says why */
    }
    fetch->first_row = m.id_space;
    for (size_t i = 0; i < m.source_count && !fetch->resume && s == STATUS_OK; i++) {
        if (strcmp(m.sources[i].name, name) == 0) {
            s = error_set(err, STATUS_MISMATCH,
                          "%.200s: the dataset has a list of this name; if this is another one, "
                          "rename it, because --retry distinguishes lists by their names",
                          fetch->list);
        }
    }
    manifest_fini(&m);
    return s;
}

int ccpack_fetch_main(int argc, char **argv) {
    struct fetch_cli o = {0};
    struct cli_arguments a;
    struct error err = {0};
    cli_catch_sigbus();
    enum status s = cli_parse(&fetch_program, &o, &a, argc, argv, &err);
    if (s != STATUS_OK) {
        return cli_exit(&fetch_program, s, &err);
    }
    struct pack_options opt;
    struct fetch_options fetch;
    struct pack_summary summary = {0};
    struct fetch_stats stats = {0};
    struct fetch_run r = {.fetch = NULL, .retry = o.fetch.retry};
    char agent[256];
    s = o.fetch.retry || o.base.pack.append
            ? ccpack_take_settings(&fetch_program, &o.base, &a, o.fetch.retry != NULL, &err)
            : STATUS_OK;
    THEN(s, to_options(&opt, &o, &a, &err));
    if (s == STATUS_OK) {
        to_fetch_options(&fetch, agent, &o, &opt);
        s = fetch.append ? check_append(&fetch, &err) : STATUS_OK;
        THEN(s, fetch_create(&r.fetch, &fetch, &err));
    }
    if (s == STATUS_OK) {
        opt.fetch = r.fetch;
        opt.cookie = &r;
        ccpack_begin(&r.base, "samples", o.base.quiet);
        bool nothing = false;
        s = run(&r, &opt, &summary, &nothing, &err);
        fetch_stats(r.fetch, &stats);
        const double seconds = (double)(clock_now_ns() - r.base.started_ns) / 1e9;
        const bool quiet = o.base.quiet || nothing;
        s = ccpack_end(&r.base, s, &summary, opt.directory, quiet, false, &err);
        if (nothing && !o.base.quiet) {
            cli_print(stderr, "%s: %s\n", opt.directory,
                      r.retry ? "no row failed for these reasons: nothing to retry"
                              : "the ledger has every URL of the list: nothing to append");
        }
        if (!o.base.quiet && stats.fetched + stats.failed + stats.excluded > 0) {
            print_reasons(r.fetch, &stats, opt.directory);
        }
        s = s == STATUS_OK && o.base.json ? print_json(&summary, &stats, seconds, &err) : s;
    }
    cli_arguments_fini(&a);
    int code = cli_exit(&fetch_program, s, &err);
    if (s != STATUS_OK && r.fetch) {
        ccpack_print_remains(&summary, s, opt.directory);
    }
    fetch_destroy(r.fetch);
    return code;
}
