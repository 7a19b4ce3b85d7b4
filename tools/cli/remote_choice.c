#include "tools/cli/remote_choice.h"

#include "loader/remote/remote.h"

enum status remote_choice_use(const struct remote_choice *c, struct error *err) {
    struct remote_options opt;
    remote_options_default(&opt);
    opt.endpoint = c->endpoint;
    opt.instance_metadata = c->instance_metadata;
    opt.user_agent = "ccstream/" CCSTREAM_VERSION;
    const enum status s = remote_start(&opt, err);
    return s == STATUS_EXISTS ? STATUS_OK : s; /* ccstudy opens several */
}
