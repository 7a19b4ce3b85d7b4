/*
 * module_file: shared libraries that a program finds next to itself and loads when it needs them.
 *
 * Threading : any thread.
 * Ownership : a loaded library stays loaded until module_file_unload.
 */
#ifndef FORMATS_BASE_MODULE_FILE_H
#define FORMATS_BASE_MODULE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/status.h"

/* Writes the path of module `file_name` to `path`: the value of the environment variable if it is
 * set (ignored by set-uid programs; NULL: no variable), else the file in the executable's folder,
 * else the file in lib/ccstream next to that folder, its installed location. Returns false if there
 * is none. */
bool module_file_find(char *path,
                      size_t path_size,
                      const char *file_name,
                      const char *environment_variable);

/* Loads `path` and finds the function `symbol`, to be called after a cast to its type. On failure
 * nothing is loaded, and err->text is one line with the reason. Returns OK or UNSUPPORTED. */
enum status module_file_load(void **library,
                             void (**function)(void),
                             const char *path,
                             const char *symbol,
                             struct error *err);
void module_file_unload(void *library);

#endif
