/*
 * loss_rows: the list of all losses. Each row is in its loss's file.
 */
#include <stdio.h>
#include <string.h>

#include "train/loss/loss_internal.h"

/* In the order of --help. Forms of a name are adjacent, pairs first. */
#define LOSS_ROW_LIST(X)                                                                           \
    X(clip)                                                                                        \
    X(siglip)                                                                                      \
    X(cyclip)                                                                                      \
    X(dcl)                                                                                         \
    X(dcl_views)                                                                                   \
    X(hcl)                                                                                         \
    X(hcl_views)                                                                                   \
    X(rince)                                                                                       \
    X(rince_views)                                                                                 \
    X(sogclr)                                                                                      \
    X(sogclr_views)                                                                                \
    X(sogclr_reference)                                                                            \
    X(isogclr)                                                                                     \
    X(isogclr_views)                                                                               \
    X(isogclr_reference)                                                                           \
    X(nuclr)                                                                                       \
    X(nuclr_reference)                                                                             \
    X(emc2)                                                                                        \
    X(emc2_views)                                                                                  \
    X(negcache)                                                                                    \
    X(negcache_views)                                                                              \
    X(nuclr_frozen)                                                                                \
    X(nuclr_noxi)                                                                                  \
    X(simclr)                                                                                      \
    X(fastclip_v0)                                                                                 \
    X(fastclip_v1)                                                                                 \
    X(fastclip_v2)                                                                                 \
    X(fastclip_v3)                                                                                 \
    X(scent)                                                                                       \
    X(hgcl)                                                                                        \
    X(glofnd)

#define DECLARE(name) extern const struct loss_row loss_##name;
LOSS_ROW_LIST(DECLARE)

#define POINTER(name) &loss_##name,
static const struct loss_row *const rows[] = {LOSS_ROW_LIST(POINTER) NULL};

const struct loss_row *const *loss_rows(void) {
    return rows;
}

const char *const *loss_names(void) {
    static const char *names[sizeof rows / sizeof rows[0]];
    size_t count = 0;
    for (size_t i = 0; rows[i] != NULL; i++) {
        if (count == 0 || strcmp(names[count - 1], rows[i]->name) != 0) {
            names[count++] = rows[i]->name;
        }
    }
    names[count] = NULL;
    return names;
}

/* The names with this form, as "a, b, c". */
static const char *names_of(char *text, size_t size_bytes, bool views, enum loss_parity parity) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; rows[i] != NULL; i++) {
        if (rows[i]->views == views && rows[i]->parity == parity && used < size_bytes) {
            used += (size_t)snprintf(text + used, size_bytes - used, "%s%s", used > 0 ? ", " : "",
                                     rows[i]->name);
        }
    }
    return text;
}

enum status
loss_find_row(const struct loss_row **out, const struct loss_options *opt, struct error *err) {
    char others[160];
    bool known = false;
    for (size_t i = 0; rows[i] != NULL; i++) {
        const bool same = strcmp(rows[i]->name, opt->name) == 0;
        known = known || same;
        if (same && rows[i]->views == opt->views && rows[i]->parity == opt->parity) {
            *out = rows[i];
            return STATUS_OK;
        }
    }
    *out = NULL;
    FAIL_IF(!known, err, STATUS_USAGE, "there is no loss '%s'; ccstream-train --help lists them",
            opt->name);
    FAIL_IF(opt->parity == LOSS_PARITY_REFERENCE, err, STATUS_USAGE,
            "loss %s has no --variant code%s; there is one of %s", opt->name,
            opt->views ? " for two views" : "",
            names_of(others, sizeof others, false, LOSS_PARITY_REFERENCE));
    return opt->views
               ? error_set(err, STATUS_USAGE,
                           "loss %s needs image-text pairs; losses for two views: %s", opt->name,
                           names_of(others, sizeof others, true, LOSS_PARITY_ALGORITHM))
               : error_set(err, STATUS_USAGE,
                           "loss %s compares two views of images: add --task two-views; for "
                           "pairs use clip",
                           opt->name);
}
