/*
 * s3_error: parses an S3 server's error response.
 *
 *     <Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message>...</Error>
 *
 * Threading : pure functions.
 * Untrusted : the body, which may be arbitrary and truncated.
 */
#ifndef NET_S3_ERROR_H
#define NET_S3_ERROR_H

#include <stdbool.h>

enum { S3_ERROR_CODE_BYTES = 48, S3_ERROR_MESSAGE_BYTES = 128 };

struct s3_error {
    char code[S3_ERROR_CODE_BYTES];       /* letters, digits, '.', '_' and '-' */
    char message[S3_ERROR_MESSAGE_BYTES]; /* printable ASCII; "" without one; cut where longer */
};

/* Whether the body is such an error, with a code. */
bool s3_error_parse(struct s3_error *out, const char *body);

/* The remedy for a frequent error code; NULL for others. */
const char *s3_error_advice(const char *code);

#endif
