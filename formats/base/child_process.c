/*
 * A secret is known by the name of its variable: the words that such names have.
 */
#include "formats/base/child_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const char *const lists[] = {"PATH",       "LD_LIBRARY_PATH", "LD_PRELOAD",
                                    "LD_AUDIT",   "GCONV_PATH",      "PYTHONPATH",
                                    "PYTHONHOME", "PYTHONUSERBASE",  NULL};
static const char *const code[] = {"BASH_ENV",      "ENV",           "PYTHONBREAKPOINT",
                                   "PYTHONINSPECT", "PYTHONSTARTUP", NULL};
static const char *const secrets[] = {"AWS_",       "TOKEN",   "SECRET",     "PASSW",
                                      "CREDENTIAL", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY",
                                      "JWT",        "_PROXY",  "AUTH_SOCK",  NULL};

static bool is_one_of(const char *const *names, const char *text, size_t size_bytes) {
    while (*names != NULL &&
           (strncmp(*names, text, size_bytes) != 0 || (*names)[size_bytes] != '\0')) {
        names++;
    }
    return *names != NULL;
}

static bool is_secret(const char *text, size_t size_bytes) {
    char name[256];
    size_bytes = size_bytes < sizeof name ? size_bytes : sizeof name - 1;
    for (size_t i = 0; i < size_bytes; i++) {
        name[i] = text[i] >= 'a' && text[i] <= 'z' ? (char)(text[i] - 'a' + 'A') : text[i];
    }
    name[size_bytes] = '\0';
    const char *const *word = secrets;
    while (*word != NULL && strstr(name, *word) == NULL) {
        word++;
    }
    return *word != NULL;
}

/* The next entry of a list at *at, which then is after it. False: there is none. */
static bool next_entry(const char **entry, size_t *size_bytes, const char **at, const char *ends) {
    *at += strspn(*at, ends);
    *entry = *at;
    *size_bytes = strcspn(*at, ends);
    *at += *size_bytes;
    return *size_bytes > 0;
}

/* Copies a list without what leads to the current folder. Returns the end of the copy, which has no
 * NUL yet. */
static char *copy_list(char *out, const char *list, bool of_files) {
    const char *entry;
    size_t size_bytes;
    const char *const begin = out;
    while (next_entry(&entry, &size_bytes, &list, of_files ? ": " : ":")) {
        /* The loader looks for a library without a slash in its own folders. */
        if (entry[0] == '/' || (of_files && memchr(entry, '/', size_bytes) == NULL)) {
            out += out > begin ? (*out = ':', 1) : 0;
            memcpy(out, entry, size_bytes);
            out += size_bytes;
        }
    }
    return out;
}

char **child_environment(bool with_secrets) {
    size_t count = 0, bytes = 0;
    for (char **e = environ; e != NULL && *e != NULL; e++, count++) {
        bytes += strlen(*e) + 1;
    }
    char **const all = malloc((count + 1) * sizeof *all + bytes);
    if (all == NULL) {
        return NULL;
    }
    char **next = all;
    char *text = (char *)(all + count + 1);
    for (size_t i = 0; i < count; i++) {
        const char *e = environ[i];
        const size_t name_bytes = strcspn(e, "=");
        if (is_one_of(code, e, name_bytes) || (!with_secrets && is_secret(e, name_bytes))) {
            continue;
        }
        *next++ = text;
        if (e[name_bytes] == '=' && is_one_of(lists, e, name_bytes)) {
            memcpy(text, e, name_bytes + 1);
            text = copy_list(text + name_bytes + 1, e + name_bytes + 1,
                             strncmp(e, "LD_", 3) == 0 && strncmp(e, "LD_LIB", 6) != 0);
            if (text[-1] == '=') { /* an empty list is the current folder again */
                text = *--next;
                continue;
            }
        } else {
            text = stpcpy(text, e);
        }
        *text++ = '\0';
    }
    *next = NULL;
    return all;
}

bool child_program_find(char *path, size_t path_size, const char *name) {
    const char *folder;
    size_t size_bytes;
    const char *list = getenv("PATH");
    if (strchr(name, '/') != NULL || list == NULL) {
        return strchr(name, '/') != NULL &&
               (size_t)snprintf(path, path_size, "%s", name) < path_size;
    }
    while (next_entry(&folder, &size_bytes, &list, ":")) {
        const int n = snprintf(path, path_size, "%.*s/%s", (int)size_bytes, folder, name);
        if (folder[0] == '/' && (size_t)n < path_size && access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}
