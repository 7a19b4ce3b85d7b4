/*
 * batch_options: what holds for all studies with heads on fixed features.
 */
#include "tools/ccstudy/batch_options.h"

#include <math.h>

enum status batch_options_settle(struct batch_options *o,
                                 bool quick,
                                 const struct cli_program *program,
                                 const struct cli_arguments *given,
                                 struct error *err) {
    const struct {
        const char *name;
        uint64_t *value, quick;
    } sizes[] = {{"pairs", &o->pairs, 640},
                 {"held-out", &o->held_out, 128},
                 {"epochs", &o->epochs, 6},
                 {"repeats", &o->repeats, 2}};
    for (size_t i = 0; quick && i < CLI_COUNT(sizes); i++) {
        if (!cli_given(program, given, sizes[i].name)) {
            *sizes[i].value = sizes[i].quick;
        }
    }
    return o->features != NULL && cli_given(program, given, "pairs")
               ? error_set(err, STATUS_USAGE, "--pairs has no effect: --features has its own")
               : STATUS_OK;
}

double batch_options_rate(const struct batch_options *o, double batch) {
    return o->rate * sqrt(batch / BATCH_LARGEST);
}
