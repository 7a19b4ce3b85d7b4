/*
 * The files are lists of `key = value` under [sections]; a pass over one keeps the last value of
 * each key of our section.
 */
#include "net/aws_profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"

struct span {
    const char *at;
    size_t size_bytes;
};

/* Keys of a section; the first VALUE_KEYS are fields of struct aws_profile. */
enum {
    KEY_ACCESS,
    KEY_SECRET,
    KEY_TOKEN,
    KEY_REGION,
    KEY_ENDPOINT,
    VALUE_KEYS,
    KEY_ELSEWHERE = VALUE_KEYS, /* keys come from elsewhere */
    KEY_NONE
};

struct section_values {
    struct span values[KEY_NONE]; /* of KEY_ELSEWHERE: the name of the key */
};

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static struct span trimmed(struct span s) {
    while (s.size_bytes > 0 && is_space(*s.at)) {
        s.at++;
        s.size_bytes--;
    }
    while (s.size_bytes > 0 && is_space(s.at[s.size_bytes - 1])) {
        s.size_bytes--;
    }
    return s;
}

static bool span_is(struct span s, const char *text) {
    return s.size_bytes == strlen(text) && memcmp(s.at, text, s.size_bytes) == 0;
}

static size_t find(struct span s, char c) {
    const char *at = s.size_bytes > 0 ? memchr(s.at, c, s.size_bytes) : NULL;
    return at ? (size_t)(at - s.at) : s.size_bytes;
}

static int key_of(struct span name) {
    static const struct {
        const char *name;
        int key;
    } keys[] = {{"aws_access_key_id", KEY_ACCESS},
                {"aws_secret_access_key", KEY_SECRET},
                {"aws_session_token", KEY_TOKEN},
                {"aws_security_token", KEY_TOKEN},
                {"region", KEY_REGION},
                {"endpoint_url", KEY_ENDPOINT},
                {"credential_process", KEY_ELSEWHERE},
                {"role_arn", KEY_ELSEWHERE},
                {"sso_session", KEY_ELSEWHERE},
                {"sso_start_url", KEY_ELSEWHERE},
                {"login_session", KEY_ELSEWHERE}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (span_is(name, keys[i].name)) {
            return keys[i].key;
        }
    }
    return KEY_NONE;
}

/* Whether a section's heading, without brackets, is that of the profile. */
static bool names_profile(struct span heading, bool is_config, const char *name) {
    heading = trimmed(heading);
    if (is_config && !span_is(heading, "default")) {
        if (heading.size_bytes < 8 || memcmp(heading.at, "profile", 7) != 0 ||
            !is_space(heading.at[7])) {
            return false;
        }
        heading = trimmed((struct span){heading.at + 8, heading.size_bytes - 8});
    }
    if (heading.size_bytes >= 2 && (*heading.at == '"' || *heading.at == '\'') &&
        heading.at[heading.size_bytes - 1] == *heading.at) {
        heading = (struct span){heading.at + 1, heading.size_bytes - 2};
    }
    return span_is(heading, name);
}

/* A comment begins with # or ;, at the start of the value or after a space. */
static struct span without_comment(struct span value) {
    value = trimmed(value);
    for (size_t i = 0; i < value.size_bytes; i++) {
        if ((value.at[i] == '#' || value.at[i] == ';') && (i == 0 || is_space(value.at[i - 1]))) {
            value.size_bytes = i;
        }
    }
    return trimmed(value);
}

static enum status read_line(struct section_values *v,
                             struct span line,
                             const char *path,
                             size_t number,
                             struct error *err) {
    const size_t equals = find(line, '=');
    if (equals == line.size_bytes) {
        return error_set(err, STATUS_CORRUPT, "%s:%zu: not KEY = VALUE", path, number);
    }
    const struct span name = trimmed((struct span){line.at, equals});
    const struct span value =
        without_comment((struct span){line.at + equals + 1, line.size_bytes - equals - 1});
    const int key = key_of(name);
    if (key == KEY_NONE) {
        return STATUS_OK;
    }
    for (size_t i = 0; key < VALUE_KEYS && i < value.size_bytes; i++) {
        if (value.at[i] <= ' ' || value.at[i] > '~') {
            return error_set(err, STATUS_CORRUPT,
                             "%s:%zu: the value of %.*s has a space or a control character", path,
                             number, (int)name.size_bytes, name.at);
        }
    }
    v->values[key] = key == KEY_ELSEWHERE ? name : value;
    return STATUS_OK;
}

static enum status collect(struct section_values *v,
                           bool *found,
                           const char *path,
                           struct span text,
                           bool is_config,
                           const char *name,
                           struct error *err) {
    bool ours = false;
    for (size_t number = 1; text.size_bytes > 0; number++) {
        const size_t end = find(text, '\n');
        const struct span whole = {text.at, end};
        const size_t taken = end + (end < text.size_bytes);
        text = (struct span){text.at + taken, text.size_bytes - taken};
        const struct span line = trimmed(whole);
        if (line.size_bytes == 0 || *line.at == '#' || *line.at == ';') {
            continue;
        }
        if (*line.at == '[') {
            const size_t close = find(line, ']');
            if (close == line.size_bytes) {
                return error_set(err, STATUS_CORRUPT, "%s:%zu: a section without ]", path, number);
            }
            ours = names_profile((struct span){line.at + 1, close - 1}, is_config, name);
            *found = *found || ours;
        } else if (ours && !is_space(*whole.at)) { /* indented: nested, or more of the last value */
            TRY(read_line(v, line, path, number, err));
        }
    }
    return STATUS_OK;
}

static enum status keep(char **field, struct span value, struct error *err) {
    if (*field == NULL && value.size_bytes > 0) {
        *field = malloc(value.size_bytes + 1);
        if (*field == NULL) {
            return error_set(err, STATUS_NOMEM, "no memory for a profile of AWS");
        }
        memcpy(*field, value.at, value.size_bytes);
        (*field)[value.size_bytes] = '\0';
    }
    return STATUS_OK;
}

enum status aws_profile_parse(struct aws_profile *out,
                              bool *found,
                              const char *path,
                              const char *text,
                              size_t size_bytes,
                              bool is_config,
                              const char *name,
                              struct error *err) {
    struct section_values v = {0};
    TRY(collect(&v, found, path, (struct span){text, size_bytes}, is_config, name, err));
    TRY(keep(&out->region, v.values[KEY_REGION], err));
    TRY(keep(&out->endpoint, v.values[KEY_ENDPOINT], err));
    if (out->access_key) {
        return STATUS_OK;
    }
    const bool half = v.values[KEY_ACCESS].size_bytes > 0;
    if (half != (v.values[KEY_SECRET].size_bytes > 0)) {
        return error_set(err, STATUS_CORRUPT, "%s: profile '%s' has %s and no %s", path, name,
                         half ? "aws_access_key_id" : "aws_secret_access_key",
                         half ? "aws_secret_access_key" : "aws_access_key_id");
    }
    if (!half) {
        const struct span elsewhere = v.values[KEY_ELSEWHERE];
        if (elsewhere.size_bytes > 0) {
            return error_set(
                err, STATUS_UNSUPPORTED,
                "%s: the keys of profile '%s' come from %.*s, which is not supported; put them "
                "into the environment: eval \"$(aws configure export-credentials --profile %s "
                "--format env)\"",
                path, name, (int)elsewhere.size_bytes, elsewhere.at, name);
        }
        return STATUS_OK;
    }
    TRY(keep(&out->session_token, v.values[KEY_TOKEN], err));
    TRY(keep(&out->secret_key, v.values[KEY_SECRET], err));
    return keep(&out->access_key, v.values[KEY_ACCESS], err);
}

/* NULL if it is not set, or is empty. */
static const char *environment(const char *name) {
    const char *value = getenv(name);
    return value && *value != '\0' ? value : NULL;
}

static enum status keep_environment(char **field, const char *name, struct error *err) {
    const char *value = environment(name);
    for (const char *c = value; c && *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~') {
            return error_set(err, STATUS_INVALID, "%s has a space or a control character", name);
        }
    }
    return value ? keep(field, (struct span){value, strlen(value)}, err) : STATUS_OK;
}

static enum status from_environment(struct aws_profile *out, bool with_keys, struct error *err) {
    TRY(keep_environment(&out->region, "AWS_REGION", err));
    TRY(keep_environment(&out->region, "AWS_DEFAULT_REGION", err));
    TRY(keep_environment(&out->endpoint, "AWS_ENDPOINT_URL_S3", err));
    TRY(keep_environment(&out->endpoint, "AWS_ENDPOINT_URL", err));
    if (!with_keys) {
        return STATUS_OK;
    }
    TRY(keep_environment(&out->access_key, "AWS_ACCESS_KEY_ID", err));
    TRY(keep_environment(&out->secret_key, "AWS_SECRET_ACCESS_KEY", err));
    if ((out->access_key == NULL) != (out->secret_key == NULL)) {
        return error_set(err, STATUS_INVALID, "%s is set and %s is not",
                         out->access_key ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                         out->access_key ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
    }
    return out->access_key ? keep_environment(&out->session_token, "AWS_SESSION_TOKEN", err)
                           : STATUS_OK;
}

/* `variable` names the file; else it is ~/.aws/FILE. A file that is not there has no profiles. */
static enum status from_file(struct aws_profile *out,
                             bool *found,
                             const char *variable,
                             const char *file,
                             const char *name,
                             struct error *err) {
    char path[PATH_MAX_BYTES];
    struct byte_buffer text;
    const char *own = environment(variable);
    const char *home = environment("HOME");
    if (own == NULL && home == NULL) {
        return STATUS_OK;
    }
    const int n = own ? snprintf(path, sizeof(path), "%s", own)
                      : snprintf(path, sizeof(path), "%s/.aws/%s", home, file);
    if (n < 0 || (size_t)n >= sizeof(path)) {
        return error_set(err, STATUS_LIMIT, "the path of AWS's %s file is too long", file);
    }
    bool exists = false;
    TRY(file_posix()->exists(file_posix()->context, path, &exists, err));
    if (!exists || strcmp(path, "/dev/null") == 0) {
        return STATUS_OK;
    }
    TRY(file_read_all(file_posix(), &text, path, AWS_MAX_FILE_BYTES, err));
    const enum status s =
        aws_profile_parse(out, found, path, (const char *)text.data, text.size_bytes,
                          strcmp(file, "config") == 0, name, err);
    byte_buffer_fini(&text);
    return s;
}

enum status aws_profile_find(struct aws_profile *out, const char *name, struct error *err) {
    *out = (struct aws_profile){0};
    const char *named = name ? name : environment("AWS_PROFILE");
    const char *profile = named ? named : "default";
    bool found = false;
    enum status s;
    TRY_OR_FAIL(s, from_environment(out, name == NULL, err));
    const bool keys = out->access_key != NULL;
    TRY_OR_FAIL(s,
                from_file(out, &found, "AWS_SHARED_CREDENTIALS_FILE", "credentials", profile, err));
    TRY_OR_FAIL(s, from_file(out, &found, "AWS_CONFIG_FILE", "config", profile, err));
    if (named && !found && !keys) {
        s = error_set(err, STATUS_NOTFOUND,
                      "no profile '%s' in the AWS files credentials and config", named);
        goto fail;
    }
    return STATUS_OK;
fail:
    aws_profile_fini(out);
    return s;
}

void aws_profile_fini(struct aws_profile *p) {
    free(p->access_key);
    free(p->secret_key);
    free(p->session_token);
    free(p->region);
    free(p->endpoint);
    *p = (struct aws_profile){0};
}
