/*
 * clip_json: the tokenizer.json that Hugging Face has for CLIP, made from the built-in table.
 *
 * Threading : one call at a time.
 */
#ifndef TESTS_SUPPORT_CLIP_JSON_H
#define TESTS_SUPPORT_CLIP_JSON_H

#include "formats/base/bytes.h"
#include "formats/base/status.h"

/* Appends it to `out`. Returns OK or NOMEM. */
enum status test_clip_json(struct byte_buffer *out, struct error *err);

#endif
