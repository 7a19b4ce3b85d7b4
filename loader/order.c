/*
 * order: opens the datasets and fills a sampler as loader.c does, for a world of one rank.
 */
#include "loader/order.h"

#include <stdlib.h>

#include "loader/classes_internal.h"
#include "loader/options_internal.h"

static enum status fill(struct order *o,
                        const struct loader_source *list,
                        uint32_t count,
                        const struct loader_options *opt,
                        struct error *err) {
    TRY(sources_open(&o->sources, list, count, &opt->filter, err));
    TRY(sampler_init(&o->sampler, o->sources->live_counts, o->sources->weights, count, opt, err));
    if (opt->order == LOADER_ORDER_CLASSES) {
        TRY(classes_create(&o->classes, o->sources, opt->block_count, err));
        TRY(sampler_use_classes(&o->sampler, o->classes, opt, err));
    }
    return STATUS_OK;
}

enum status order_open(struct order **out,
                       const struct loader_source *list,
                       uint32_t count,
                       const struct loader_options *opt,
                       struct error *err) {
    REQUIRE(out != NULL && list != NULL && opt != NULL && opt->world == 1);
    *out = NULL;
    TRY(options_check(opt));
    struct order *o = calloc(1, sizeof(*o));
    TRY_MEMORY(o != NULL, err, "out of memory for the order of samples");
    const enum status s = fill(o, list, count, opt, err);
    RETURN_CREATED(s, out, o, order_close);
}

void order_close(struct order *o) {
    if (o != NULL) {
        classes_destroy(o->classes);
        sources_close(o->sources);
        free(o);
    }
}
