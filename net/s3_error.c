/*
 * Not a reader of XML: the two elements are found by name in the beginning of the body.
 */
#include "net/s3_error.h"

#include <stddef.h>
#include <string.h>

/* The text of the first element of this name, up to the next tag or the end of the body. */
static const char *text_of(const char *body, const char *tag, size_t *size_bytes) {
    const char *at = strstr(body, tag);
    if (at == NULL) {
        return NULL;
    }
    at += strlen(tag);
    *size_bytes = strcspn(at, "<");
    return at;
}

static bool is_code(const char *text, size_t size_bytes) {
    return size_bytes > 0 && size_bytes < S3_ERROR_CODE_BYTES && text[size_bytes] == '<' &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
               size_bytes;
}

/* One character of text, of an entity too; returns how many bytes it has. */
static size_t take_character(char *out, const char *text) {
    static const struct {
        const char *entity;
        char character;
    } entities[] = {
        {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++) {
        const size_t size = strlen(entities[i].entity);
        if (strncmp(text, entities[i].entity, size) == 0) {
            *out = entities[i].character;
            return size;
        }
    }
    *out = text[0] >= ' ' && text[0] <= '~' ? text[0] : '?';
    return 1;
}

bool s3_error_parse(struct s3_error *out, const char *body) {
    size_t size = 0;
    *out = (struct s3_error){.code = ""};
    const char *error = strstr(body, "<Error>");
    const char *text = error != NULL ? text_of(error, "<Code>", &size) : NULL;
    if (text == NULL || !is_code(text, size)) {
        return false;
    }
    memcpy(out->code, text, size);
    text = text_of(error, "<Message>", &size);
    size_t count = 0;
    for (size_t at = 0; text != NULL && at < size && count < sizeof out->message - 1; count++) {
        at += take_character(&out->message[count], text + at);
    }
    return true;
}

const char *s3_error_advice(const char *code) {
    static const char region[] = "set AWS_REGION to the region of the bucket";
    static const char keys[] =
        "check AWS_ACCESS_KEY_ID or the profile, and that --endpoint is their server";
    static const char token[] = "get new keys with a new AWS_SESSION_TOKEN";
    static const struct {
        const char *code, *advice;
    } rows[] = {
        {"NoSuchKey", "check the location: it must be the folder that contains dataset.json"},
        {"NoSuchBucket", "check the name of the bucket, and --endpoint"},
        {"AccessDenied", "these keys, or requests without keys, need the permission s3:GetObject; "
                         "without s3:ListBucket this may be a file that is missing"},
        {"InvalidAccessKeyId", keys},
        {"SignatureDoesNotMatch", "check AWS_SECRET_ACCESS_KEY or the profile's secret key"},
        {"RequestTimeTooSkewed", "set the clock of this machine"},
        {"ExpiredToken", token},
        {"InvalidToken", token},
        {"PermanentRedirect", region},
        {"AuthorizationHeaderMalformed", region},
        {"IllegalLocationConstraintException", region},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].code, code) == 0) {
            return rows[i].advice;
        }
    }
    return NULL;
}
