/*
 * remote_choice: the options of programs that open remote datasets: CLI_REMOTE_ROWS in their
 * tables, and remote_choice_use before they open one.
 *
 * Threading : the main thread.
 */
#ifndef TOOLS_CLI_REMOTE_CHOICE_H
#define TOOLS_CLI_REMOTE_CHOICE_H

#include <stdbool.h>

#include "formats/base/status.h"
#include "tools/cli/cli.h"

struct remote_choice {
    const char *endpoint, *cache;
    uint64_t cache_bytes;
    bool instance_metadata, allow_private;
    const struct cli_list *only; /* `places` of remote.h; NULL: all places */
};

/* For the member `field` of the options `type`: rows of programs that read remote files. */
#define CLI_SERVER_ROWS(type, field)                                                               \
    {"endpoint",                                                                                   \
     0,                                                                                            \
     CLI_STRING,                                                                                   \
     CLI_FIELD(type, field.endpoint),                                                              \
     .metavar = "URL",                                                                             \
     .group = "Remote datasets",                                                                   \
     .help = "server of s3:// locations: MinIO, Ceph, R2, https://storage.googleapis.com "         \
             "[default: AWS_ENDPOINT_URL_S3, the profile, or Amazon's]"},                          \
        {"instance-metadata",                                                                      \
         0,                                                                                        \
         CLI_FLAG,                                                                                 \
         CLI_FIELD(type, field.instance_metadata),                                                 \
         .group = "Remote datasets",                                                               \
         .help = "as a last resort, get S3 keys from the instance metadata service"},              \
    {                                                                                              \
        "allow-private", 0, CLI_FLAG, CLI_FIELD(type, field.allow_private),                        \
            .group = "Remote datasets",                                                            \
            .help = "allow host names and redirects that lead to private addresses, as inside a "  \
                    "company; without it, only locations and endpoints written as private ones"    \
    }

/* The same, for programs that also cache. */
#define CLI_REMOTE_ROWS(type, field)                                                               \
    CLI_SERVER_ROWS(type, field),                                                                  \
        {"cache",                                                                                  \
         0,                                                                                        \
         CLI_STRING,                                                                               \
         CLI_FIELD(type, field.cache),                                                             \
         .metavar = "DIR",                                                                         \
         .group = "Remote datasets",                                                               \
         .help = "cache remote reads on the local disk, in 8 MiB chunks shared by all processes "  \
                 "that use this folder; best with --order block"},                                 \
    {                                                                                              \
        "cache-size", 0, CLI_U64, CLI_FIELD(type, field.cache_bytes),                              \
            .unit = CLI_UNIT_BYTES, .min = "256MiB", .max = "1024TiB", .default_text = "64GiB",    \
            .metavar = "SIZE", .group = "Remote datasets",                                         \
            .help = "limit of --cache; least recently used chunks are evicted first"               \
    }

/* For the member `field` of `type`, a list for remote_choice.only. */
#define CLI_RUN_DATA_ROW(type, field)                                                              \
    {                                                                                              \
        "data", 'd', CLI_LIST, CLI_FIELD(type, field),                                             \
            .metavar = "LOCATION", .group = "Remote datasets",                                     \
            .help = "remote dataset of RUN to which requests may be sent; RUN itself cannot allow" \
                    " this"                                                                        \
    }

/* The same, for programs that read untrusted files, such as the child processes of
 * ccstream-report. */
#define CLI_ONLY_DATA_ROW(type, field)                                                             \
    {                                                                                              \
        "only-data", 0, CLI_LIST, CLI_FIELD(type, field),                                          \
            .metavar = "LOCATION",                                                                 \
            .help = "send requests only to the servers of these locations, of --endpoint and of "  \
                    "your AWS profile; none: no locations"                                         \
    }

/* A remote_choice with all defaults. */
#define CLI_REMOTE_DEFAULTS                                                                        \
    { .cache_bytes = (uint64_t)64 << 30 }

/* Makes https://, s3:// and hf:// locations readable. Only the first call of a program has an
 * effect; c->only must remain valid until it exits. Returns OK, USAGE (cache_bytes too small),
 * NOMEM, or a failure of making the cache. */
enum status remote_choice_use(const struct remote_choice *c, struct error *err);

#endif
