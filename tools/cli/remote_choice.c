#include "tools/cli/remote_choice.h"

#include <errno.h>

#include "formats/base/log.h"
#include "loader/remote/remote.h"
#include "net/location.h"

enum status remote_choice_use(const struct remote_choice *c, struct error *err) {
    static struct log_sink log;
    struct remote_options opt;
    log = log_stderr(program_invocation_short_name, LOG_LEVEL_INFO);
    remote_options_default(&opt);
    opt.endpoint = c->endpoint;
    opt.cache = c->cache;
    opt.cache_bytes = c->cache_bytes;
    opt.only_places = c->only != NULL;
    if (c->only != NULL) {
        opt.places = c->only->items;
        opt.place_count = c->only->count;
    }
    opt.allow_private = c->allow_private;
    opt.log = &log;
    opt.instance_metadata = c->instance_metadata;
    opt.user_agent = "ccstream/" CCSTREAM_VERSION;
    const enum status s = remote_start(&opt, err);
    if (s == STATUS_OK) {
        location_set_defaults(c->endpoint, c->instance_metadata, c->allow_private);
    }
    return s == STATUS_EXISTS ? STATUS_OK : s; /* ccstudy opens several */
}
