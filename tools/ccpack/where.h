/*
 * where: conditions on samples, written as text, for example
 *
 *     shorter >= 256 and (image.zeta < 90% or caption ~ "red car") and not class = cat
 *
 *     expression : term { or term }            comparison : NAME OP VALUE
 *     term       : factor { and factor }       OP         : < <= > >= = != ~
 *     factor     : not factor | ( expression ) | comparison
 *
 * VALUE is a number; N%, the N-th percentile of the samples; or a text, in quotes unless it is one
 * word. NAME may be hash(NAME) % N. A comparison with a number that a sample lacks (the size of an
 * unknown image, zeta of an unvisited sample) is false.
 *
 * Threading : single-owner.
 * Ownership : an expression borrows its columns and owns the rest.
 * Untrusted : the text.
 */
#ifndef TOOLS_CCPACK_WHERE_H
#define TOOLS_CCPACK_WHERE_H

#include "tools/ccpack/columns.h"
#include "tools/inspect/input.h"

struct where; /* opaque */

enum { WHERE_MAX_NODES = 256, WHERE_MAX_TEXT_BYTES = 4096 };

/* The names that are not columns, for --help. */
#define WHERE_FACTS                                                                                \
    "numbers id, width, height, shorter, longer (sides in pixels), aspect (longer / shorter), "    \
    "captions (their count), caption_bytes, caption_chars (of the longest), image_bytes, label "   \
    "and "                                                                                         \
    "hash(X) % N (X: id, key, image or meta.NAME); texts format, class, key, caption and hash; "   \
    "meta.NAME, a metadata field"

/* columns may be NULL. Returns OK, NOMEM, LIMIT (longer than above), USAGE (the message has the
 * position), or what columns_find returns. */
enum status
where_parse(struct where **out, const char *text, struct columns *columns, struct error *err);
void where_destroy(struct where *w); /* accepts NULL */

/* Whether any value is a percentage: then where_rank must come before where_fits. */
bool where_has_ranks(const struct where *w);

/* Collects the numbers of the current sample of `in` for percentiles; call where_rank_end after the
 * last sample. Returns as where_fits. */
enum status
where_rank(struct where *w, struct input *in, const struct sample_facts *f, struct error *err);
void where_rank_end(struct where *w);

/* Whether the current sample of `in` matches. Conditions are evaluated from left to right; captions
 * and keys are read only if the earlier ones have not decided. Returns OK, IO, CORRUPT, LIMIT or
 * NOMEM. */
enum status where_fits(bool *out,
                       const struct where *w,
                       struct input *in,
                       const struct sample_facts *f,
                       struct error *err);

/* A number by which samples are sorted: any NAME of a number. Returns as where_parse. */
enum status
where_parse_name(struct where **out, const char *name, struct columns *columns, struct error *err);

/* Its value for the current sample of `in`; NaN: none. Returns as where_fits, and USAGE if an
 * attached column has NaN. */
enum status where_value(double *out,
                        const struct where *w,
                        struct input *in,
                        const struct sample_facts *f,
                        struct error *err);

#endif
