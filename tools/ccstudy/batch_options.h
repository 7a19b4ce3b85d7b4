/*
 * batch_options: options of the studies that train heads on fixed features: batch and noise.
 *
 * Threading : the main thread.
 */
#ifndef TOOLS_CCSTUDY_BATCH_OPTIONS_H
#define TOOLS_CCSTUDY_BATCH_OPTIONS_H

#include "tools/ccstudy/batch_model.h"
#include "tools/cli/cli.h"

struct batch_options {
    const char *features; /* NULL: drawn */
    uint64_t pairs, held_out, epochs, hidden, dim, repeats;
    double rate; /* at a batch of BATCH_LARGEST */
};

enum { BATCH_MAX_SEEDS = 100 };

/* Rows of a table of options whose struct `type` has a struct batch_options in `field`. */
#define BATCH_OPTIONS(type, field)                                                                 \
    {"features",                                                                                   \
     'f',                                                                                          \
     CLI_STRING,                                                                                   \
     CLI_FIELD(type, field.features),                                                              \
     .metavar = "PREFIX",                                                                          \
     .help = "PREFIX.images.npy, PREFIX.texts.npy and PREFIX.owners.npy, as ccstream-eval embed "  \
             "--texts writes them; PREFIX.features.npy in place of the first where it exists. "    \
             "Without: drawn pairs"},                                                              \
        {"pairs",                                                                                  \
         'n',                                                                                      \
         CLI_U64,                                                                                  \
         CLI_FIELD(type, field.pairs),                                                             \
         .min = "512",                                                                             \
         .max = "1000000",                                                                         \
         .default_text = "3072",                                                                   \
         .metavar = "N",                                                                           \
         .help = "drawn pairs"},                                                                   \
        {"held-out",                                                                               \
         0,                                                                                        \
         CLI_U64,                                                                                  \
         CLI_FIELD(type, field.held_out),                                                          \
         .min = "10",                                                                              \
         .max = "100000",                                                                          \
         .default_text = "500",                                                                    \
         .metavar = "N",                                                                           \
         .help = "pairs that validate, and as many that test; the others train"},                  \
        {"epochs",                                                                                 \
         'e',                                                                                      \
         CLI_U64,                                                                                  \
         CLI_FIELD(type, field.epochs),                                                            \
         .min = "2",                                                                               \
         .max = "10000",                                                                           \
         .default_text = "30",                                                                     \
         .metavar = "N",                                                                           \
         .help = "of every run"},                                                                  \
        {"hidden",       0,                                                                        \
         CLI_U64,        CLI_FIELD(type, field.hidden),                                            \
         .max = "4096",  .default_text = "0",                                                      \
         .metavar = "N", .help = "units of a hidden layer of the heads; 0: linear heads"},         \
        {"dim",                                                                                    \
         0,                                                                                        \
         CLI_U64,                                                                                  \
         CLI_FIELD(type, field.dim),                                                               \
         .min = "2",                                                                               \
         .max = "1024",                                                                            \
         .default_text = "64",                                                                     \
         .metavar = "N",                                                                           \
         .help = "of the shared space"},                                                           \
        {"lr",                                                                                     \
         0,                                                                                        \
         CLI_DOUBLE,                                                                               \
         CLI_FIELD(type, field.rate),                                                              \
         .min = "1e-6",                                                                            \
         .max = "1",                                                                               \
         .default_text = "0.004",                                                                  \
         .metavar = "RATE",                                                                        \
         .help = "learning rate at batch 128; it goes with the root of the batch"},                \
    {                                                                                              \
        "repeats", 'r', CLI_U64, CLI_FIELD(type, field.repeats),                                   \
            .min = "2", .max = "100", .default_text = "5", .metavar = "N",                         \
            .help = "seeds of each tuned setting"                                                  \
    }

/* Once the options are read: sizes of --quick, but where they are given. Returns OK, or USAGE where
 * one has no effect. */
enum status batch_options_settle(struct batch_options *o,
                                 bool quick,
                                 const struct cli_program *program,
                                 const struct cli_arguments *given,
                                 struct error *err);

/* The learning rate in batches of this size. */
double batch_options_rate(const struct batch_options *o, double batch);

#endif
