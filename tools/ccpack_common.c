/*
 * What the commands of ccpack share.
 */
#include <stdio.h>

#include "tools/ccpack_internal.h"

enum status ccpack_print_json(struct json_writer *w, struct error *err) {
    enum status s = json_writer_status(w, err);
    if (s == STATUS_OK) {
        json_newline(w);
        fwrite(w->out.data, 1, w->out.size_bytes, stdout);
        if (fflush(stdout) != 0) {
            s = error_set_errno(err, "cannot write to stdout");
        }
    }
    json_writer_fini(w);
    return s;
}
